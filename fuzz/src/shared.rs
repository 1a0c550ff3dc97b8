//! What the targets share.

use peerway_klog::{Event, Notice, Report, Scanner, Sink, Summary, hints};

/// Scans bytes, makes the document and the hints.
pub fn scan(bytes: &[u8]) -> Report {
    let mut scanner = Scanner::new();
    let mut summary = Summary::new();
    scanner.feed(bytes, &mut summary);
    scanner.finish(&mut summary);
    let report = summary.report();
    assert_eq!(hints::hints(&report).patterns.len(), report.requesters.len());
    report
}

/// Scans what the fuzzer makes of a message that begins with one of several texts.
pub fn scan_after(fronts: &[&str], data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let Some(front) = fronts.get(usize::from(*choice) % fronts.len()) else { return };
    let mut bytes = front.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    scan(&bytes);
}

/// Everything that was found, in the order in which it came.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found(pub Vec<String>);

impl Sink for Found {
    fn event(&mut self, event: &Event<'_>) {
        // Text and raw envelope may be borrowed from different copies; their values count.
        let when = event.when.stamp();
        let requester = event.requester.to_string();
        self.0.push(format!(
            "{} {} {requester} {:?} {:?} {:?} {when:?} {}",
            event.line, event.kind, event.address, event.access, event.reason, event.cut
        ));
    }

    fn notice(&mut self, notice: &Notice<'_>) {
        self.0.push(format!("{} {:?} {:?}", notice.line, notice.when.stamp(), notice.fact));
    }
}

/// Scans several chunks.
pub fn found<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Found {
    let mut scanner = Scanner::new();
    let mut found = Found::default();
    for chunk in chunks {
        scanner.feed(chunk, &mut found);
    }
    scanner.finish(&mut found);
    found
}
