//! What the kernel log says has happened, attributed to the devices of the host.

use std::collections::BTreeSet;

use peerway_core::observed::Observed;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::faults::FaultFacts;
use peerway_faults::{AddressMap, Collector, Filter, Log, facts as attributed};
use peerway_klog::Scanner;

use crate::root::KMSG;

/// The facts of a log that was read; the rest of the snapshot must be there already.
pub fn facts(log: &Observed<Vec<u8>>, snapshot: &Snapshot) -> Observed<FaultFacts> {
    log.as_ref().map(|bytes| of(bytes, snapshot))
}

fn of(log: &[u8], snapshot: &Snapshot) -> FaultFacts {
    let map = AddressMap::new(snapshot, &BTreeSet::new());
    let mut collector = Collector::new(map.regions(), Filter::default());
    let mut scanner = Scanner::new();
    scanner.feed(log, &mut collector);
    scanner.finish(&mut collector);
    let lines = scanner.lines();
    let collected = collector.finish(lines);
    let log = Log { source: KMSG, lines, report: &collected.report, by_regions: true };
    attributed(log, snapshot, &map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_log_is_no_quiet_log() {
        let snapshot = Snapshot::default();
        let denied = Observed::Unreadable("permission denied".to_owned());
        assert_eq!(facts(&denied, &snapshot).unreadable(), Some("permission denied"));
        let quiet = facts(&Observed::Known(Vec::new()), &snapshot);
        assert_eq!(quiet.known().map(|facts| facts.events), Some(0));
    }

    #[test]
    fn records_of_the_ring_buffer() {
        let log = "4,100,9200000000,-;amd_iommu_report_page_fault: 12 callbacks suppressed\n\
            3,101,9200000037,-;nvidia 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT \
            domain=0x002a address=0x34000001000 flags=0x0020]\n SUBSYSTEM=pci\n";
        let seen = facts(&Observed::Known(log.as_bytes().to_vec()), &Snapshot::default());
        let seen = seen.known().unwrap();
        assert_eq!((seen.events, seen.suppressed), (1, 12));
        assert_eq!(seen.requesters[0].first.seconds, Some(9_200));
    }
}
