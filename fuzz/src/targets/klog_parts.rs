//! Two parts of a log, read apart, give what the whole gives.

use peerway_klog::{Scanner, Summary};

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((place, data)) = data.split_first() else { return };
    let feeds: Vec<usize> =
        data.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    let Some(cut) = feeds.get(usize::from(*place) % feeds.len().max(1)) else { return };
    let (front, back) = data.split_at(*cut);
    let mut first = Scanner::new();
    let mut whole = Summary::new();
    first.feed(front, &mut whole);
    first.finish_part(&mut whole);
    let mut second = Scanner::resuming_after(front);
    let mut part = Summary::new();
    second.feed(back, &mut part);
    second.finish(&mut part);
    whole.append(&part, first.lines(), first.boot());
    let (apart, together) = (whole.report(), crate::shared::scan(data));
    assert_eq!(apart.events, together.events);
    assert_eq!(apart.suppressed, together.suppressed);
    assert_eq!(apart.driver_events.len(), together.driver_events.len());
}
