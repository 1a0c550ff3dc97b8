//! What the kernel log says since a mark.

use peerway_core::address::PciAddress;
use peerway_klog::notice::{DeviceState, NvidiaState};
use peerway_klog::{Class, Event, Fact, Notice, Requester, Scanner, Sink};

use crate::mutator::{Host, WriteError};

/// The ring of a large host holds less than this.
const MOST_LOG: usize = 64 << 20;

/// Kind of a line that should not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The IOMMU refused an access.
    Fault,
    /// The IOMMU refuses the device altogether (such as `ILLEGAL_DEV_TABLE_ENTRY`), or complains
    /// about its own tables.
    Structure,
    /// The reverse map of SNP refused an access.
    Rmp,
    /// A driver reports an error of a GPU, or could not start one.
    Driver,
}

/// A line that should not be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What it is.
    pub kind: Kind,
    /// Line within what was looked at, from 1.
    pub line: u64,
    /// Whose, where it says so.
    pub device: Option<PciAddress>,
    /// The line.
    pub text: String,
}

/// What was seen since a mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Lines that should not be there, in order.
    pub troubles: Vec<Trouble>,
    /// Whether records were lost since the mark, so that absence says nothing.
    pub lost: bool,
}

impl Seen {
    /// The first trouble that concerns one of these devices, or nobody in particular.
    pub fn about(&self, devices: &[PciAddress]) -> Option<&Trouble> {
        self.troubles.iter().find(|one| {
            let ours = one.device.is_some_and(|device| devices.contains(&device));
            // What refuses a device altogether, and what SNP refuses, is never somebody's routine.
            ours || one.device.is_none() && one.kind != Kind::Fault
        })
    }

    /// The first trouble of a driver with a device, or with one that it does not name.
    pub fn of_driver(&self, device: Option<PciAddress>) -> Option<&Trouble> {
        self.troubles.iter().filter(|one| one.kind != Kind::Fault).find(|one| {
            match (one.device, device) {
                (Some(other), Some(device)) => other.same_device(device),
                (other, device) => other == device,
            }
        })
    }
}

impl Sink for Seen {
    fn event(&mut self, event: &Event<'_>) {
        let device = match event.requester {
            Requester::Pci(address) => Some(address),
            _ => None,
        };
        let kind = match event.kind.class() {
            Class::Translation => Kind::Fault,
            Class::Rmp => Kind::Rmp,
            Class::Structure => Kind::Structure,
        };
        let text = String::from_utf8_lossy(event.text).into_owned();
        self.troubles.push(Trouble { kind, line: event.line, device, text });
    }

    fn notice(&mut self, notice: &Notice<'_>) {
        let device = match notice.fact {
            Fact::Xid { device, .. } | Fact::NvidiaInitFailed { device, .. } => Some(device),
            Fact::NvidiaInit { device, .. }
            | Fact::Gpu { device, .. }
            | Fact::Nvidia { what: NvidiaState::FellOffBus | NvidiaState::Lost, device, .. }
            | Fact::DeviceState { what: DeviceState::ProbeFailed, device, .. } => device,
            Fact::EventsLost(_) => {
                self.lost = true;
                return;
            }
            _ => return,
        };
        let text = String::from_utf8_lossy(notice.text).into_owned();
        self.troubles.push(Trouble { kind: Kind::Driver, line: notice.line, device, text });
    }
}

/// Number of a record of `/dev/kmsg`; `None` for the dictionary lines of one.
fn number(record: &[u8]) -> Option<u64> {
    if record.first().is_none_or(u8::is_ascii_whitespace) {
        return None;
    }
    let head = record.split(|byte| *byte == b';').next()?;
    let field = head.split(|byte| *byte == b',').nth(1)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn log(host: &dyn Host) -> Result<Vec<u8>, WriteError> {
    host.root()?.kernel_log(MOST_LOG).map_err(|error| WriteError::Unreadable {
        act: "reading the kernel log".to_owned(),
        why: error.to_string(),
    })
}

/// Number of the last record, 0 if there is none.
pub fn mark(host: &dyn Host) -> Result<u64, WriteError> {
    let log = log(host)?;
    let last = log.split(|byte| *byte == b'\n').rev().find_map(number);
    Ok(last.unwrap_or(0))
}

/// What the log says after a mark.
pub fn since(host: &dyn Host, mark: u64) -> Result<Seen, WriteError> {
    let log = log(host)?;
    Ok(after(&log, mark))
}

fn after(log: &[u8], mark: u64) -> Seen {
    let mut seen = Seen::default();
    let mut scanner = Scanner::new();
    let mut fresh = false;
    let mut first = None;
    for record in log.split_inclusive(|byte| *byte == b'\n') {
        if let Some(number) = number(record) {
            fresh = number > mark;
            first.get_or_insert(number);
        }
        if fresh {
            scanner.feed(record, &mut seen);
        }
    }
    scanner.finish(&mut seen);
    // Events that waited for further lines come late.
    seen.troubles.sort_by_key(|trouble| trouble.line);
    // The ring was overwritten past the mark.
    seen.lost |= first.is_some_and(|first| first > mark + 1);
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
6,10,100,-;nvidia 0000:01:00.0: enabling device
3,11,200,-;nvidia 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x002a address=0x24000000000 flags=0x0020]
 SUBSYSTEM=pci
 DEVICE=+pci:0000:01:00.0
3,12,300,-;iommu ivhd1: AMD-Vi: Event logged [ILLEGAL_DEV_TABLE_ENTRY device=0000:11:00.0 pasid=0x00000 address=0x3f00000000 flags=0x0020]
3,13,400,-;NVRM: GPU 0000:61:00.0: RmInitAdapter failed! (0x62:0x65:2027)
3,14,500,-;NVRM: Xid (PCI:0000:71:00): 79, pid=1, GPU has fallen off the bus.
";

    #[track_caller]
    fn check(mark: u64, expected: &[(Kind, &str)]) {
        let seen = after(LOG.as_bytes(), mark);
        let troubles: Vec<_> = seen
            .troubles
            .iter()
            .map(|one| (one.kind, one.device.map_or(String::new(), |device| device.to_string())))
            .collect();
        let expected: Vec<_> =
            expected.iter().map(|(kind, device)| (*kind, (*device).to_owned())).collect();
        assert_eq!(troubles, expected);
    }

    #[test]
    fn what_is_new_since_a_mark() {
        let all = [
            (Kind::Fault, "0000:01:00.0"),
            (Kind::Structure, "0000:11:00.0"),
            (Kind::Driver, "0000:61:00.0"),
            (Kind::Driver, "0000:71:00.0"),
        ];
        check(10, &all);
        check(11, &all[1..]);
        check(12, &all[2..]);
        check(14, &[]);
    }

    #[test]
    fn an_overwritten_ring_is_no_good_news() {
        assert!(after(LOG.as_bytes(), 8).lost);
        assert!(!after(LOG.as_bytes(), 9).lost);
    }
}
