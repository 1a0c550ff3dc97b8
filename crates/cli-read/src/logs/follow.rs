//! A log that is followed: one line for each new fact, and not for each event.

use std::collections::BTreeMap;

use peerway_core::address::PciAddress;
use peerway_faults::AddressMap;
use peerway_faults::document::LineEvent;
use peerway_klog::{Event, Fact, Notice, Sink};

/// Most different facts that are remembered; a host has some dozens.
const MOST: usize = 8_192;

/// Who faulted where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    requester: String,
    kind: &'static str,
    target: Option<(PciAddress, u8)>,
}

/// Turns events and notices into lines.
#[derive(Debug)]
pub struct Follower<'m> {
    map: &'m AddressMap,
    /// A line of JSON for each event instead.
    each: bool,
    seen: BTreeMap<Key, u64>,
    said: BTreeMap<(String, String, String), u64>,
    suppressed: u64,
    lines: Vec<String>,
}

impl<'m> Follower<'m> {
    /// Looks addresses up in a map; `each`: a line of JSON for each event.
    pub const fn new(map: &'m AddressMap, each: bool) -> Self {
        Self {
            map,
            each,
            seen: BTreeMap::new(),
            said: BTreeMap::new(),
            suppressed: 0,
            lines: Vec::new(),
        }
    }

    /// The lines since the last call.
    pub fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Whether a count is worth a line: the first, and then each tenfold.
    fn is_news(count: u64) -> bool {
        let mut power = 1;
        while power < count {
            power *= 10;
        }
        power == count
    }
}

impl Sink for Follower<'_> {
    fn event(&mut self, event: &Event<'_>) {
        let one = LineEvent::new(event, self.map);
        if self.each {
            // A value of this program always serialises.
            self.lines.extend(serde_json::to_string(&one));
            return;
        }
        let target = one.target.as_ref().map(|target| (target.device, target.bar));
        let key = Key { requester: one.requester.clone(), kind: one.kind, target };
        if self.seen.len() >= MOST && !self.seen.contains_key(&key) {
            return;
        }
        let count = self.seen.entry(key).or_default();
        *count += 1;
        if !Self::is_news(*count) {
            return;
        }
        let time = one.time.as_deref().unwrap_or("-");
        let place = match (&one.target, one.address) {
            (Some(target), Some(address)) => format!(
                "{address}, in region {} of {} at {:#x}",
                target.bar, target.device, target.offset
            ),
            (None, Some(address)) => format!("{address}, in no device's region"),
            (_, None) => "no address".to_owned(),
        };
        let again = if *count == 1 { String::new() } else { format!(" (event {count} there)") };
        self.lines
            .push(format!("{time} {} {} {}: {place}{again}", one.requester, one.kind, one.access));
    }

    fn notice(&mut self, notice: &Notice<'_>) {
        if self.each {
            return;
        }
        let time =
            peerway_faults::facts::time(notice.when.stamp()).unwrap_or_else(|| "-".to_owned());
        if let Fact::Suppressed { count, iommu_events: true, .. } = notice.fact {
            let before = self.suppressed;
            self.suppressed = before.saturating_add(count);
            if before == 0 || before.ilog10() < self.suppressed.ilog10() {
                self.lines.push(format!(
                    "{time} rate limit: {} events kept out of the log so far",
                    self.suppressed
                ));
            }
            return;
        }
        let of_a_device = notice.fact.device().is_some()
            || matches!(
                notice.fact,
                Fact::IommuStuck | Fact::EventsLost(_) | Fact::RecordsLost { .. }
            );
        let idle = matches!(
            notice.fact,
            Fact::DriverSeen { .. } | Fact::DeviceFound { .. } | Fact::GroupJoined { .. }
        );
        if !of_a_device || idle || self.said.len() >= MOST {
            return;
        }
        let device = notice.fact.device().map(|device| device.to_string()).unwrap_or_default();
        let code = notice.fact.code().to_string();
        let key = (notice.fact.kind().to_owned(), code, device);
        let count = self.said.entry(key).or_default();
        *count += 1;
        if Self::is_news(*count) {
            let text = String::from_utf8_lossy(notice.text);
            let text: String = text.chars().filter(|character| !character.is_control()).collect();
            let again = if *count == 1 { String::new() } else { format!(" ({count} times)") };
            self.lines.push(format!("{time} {text}{again}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use peerway_klog::Scanner;

    #[test]
    fn one_line_for_each_new_fact() {
        let map = AddressMap::default();
        let mut follower = Follower::new(&map, false);
        let mut scanner = Scanner::new();
        let fault = "[   10.000001] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT \
                     domain=0x0018 address=0x24000000000 flags=0x0020]\n";
        let xid = "[   11.000000] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n";
        scanner.feed(fault.repeat(25).as_bytes(), &mut follower);
        scanner.feed(xid.as_bytes(), &mut follower);
        scanner.feed(
            b"[   12.0] amd_iommu_report_page_fault: 12 callbacks suppressed\n",
            &mut follower,
        );
        scanner.flush(&mut follower);
        let lines = follower.lines();
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[0].starts_with("10.000001 0000:41:00.0 io_page_fault write: 0x24000000000"));
        assert!(lines[1].ends_with("(event 10 there)"));
        assert!(lines[2].contains("Xid"));
        assert!(lines[3].contains("rate limit: 12"));
        scanner.feed(xid.as_bytes(), &mut follower);
        assert_eq!(follower.lines(), Vec::<String>::new());
    }

    #[test]
    fn or_one_for_each_event() {
        let map = AddressMap::default();
        let mut follower = Follower::new(&map, true);
        let mut scanner = Scanner::new();
        let fault = "AMD-Vi: Event logged [IO_PAGE_FAULT device=41:00.0 domain=0x0018 \
                     address=0x1000 flags=0x0000]\n";
        scanner.feed(fault.repeat(3).as_bytes(), &mut follower);
        let lines = follower.lines();
        assert_eq!(lines.len(), 3);
        let one: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(one["address"], "0x1000");
        assert_eq!(one["access"], "read");
    }
}
