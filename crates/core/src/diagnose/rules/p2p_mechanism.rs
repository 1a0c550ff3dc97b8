//! PW0303: which mechanism of peer access the driver uses.

use std::collections::BTreeSet;
use std::fmt;

use super::registry::{self, PARAMS};
use super::support;
use crate::address::PciAddress;
use crate::boards::{self, Architecture};
use crate::code::P2P_MECHANISM;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::judge::addressing::is_fork;
use crate::snapshot::Snapshot;
use crate::snapshot::driver::DriverVersion;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::PciDevice;

pub(super) const RULE: Rule = Rule {
    code: P2P_MECHANISM,
    title: "which of its two ways of peer access the driver uses, mailbox or BAR1",
    page: "\
NVIDIA's driver has two ways of PCIe peer access, and never both for one pair:

- **Mailbox**, the older one and the default: the requester addresses an aperture in the peer's
  small register region (BAR0) and a 64 KiB mailbox in its large region (BAR1). Peers number eight
  at most.
- **BAR1**: each GPU shows its whole memory in its large region, and the requester addresses that.
  It needs a region larger than the memory, an architecture that supports it (Hopper, Blackwell),
  and peer addresses aligned to 512 MiB. A console on the GPU shifts the layout and breaks the
  alignment.

The registry keys that choose: up to branch 570 `RMForceP2PType` (1 mailbox, 2 BAR1, 3 NVLink, 4
C2C). From 575 on `RMPcieP2PType` (0 mailbox, 1 BAR1, 2 automatic), and `RMForceP2PType` was
**renumbered** (1 PCIe, 2 NVLink, 3 C2C): an old recipe that says 2 for BAR1 asks a new driver for
NVLink. Up to 570 the key forces one type for all pairs: NVLink comes first on boards that have it,
and 2 would take it from them. `RMForceStaticBar1=0` takes the second way away. With automatic
choice GB20x boards take BAR1 from branch 590 on; Hopper and GB10x need 1.

Why it matters: the two put different addresses on the bus. A peer map for BAR1 covers the large
region; mailbox needs a page of BAR0 as well, which is a 32-bit region below 4 GiB and, under
another host bridge, may collide with addresses that the DMA API gives out. It also decides which
faults are seen.

How it was judged: driver version, registry keys, board and region size. The closed firmware has the
last word and is not visible, so the answer is `possible`.

What not to believe: `nvidia-smi topo -p2p` tells neither.

Sources: NVIDIA open kernel modules, `kern_bus.c`, `kern_bus_gh100.c`, `p2p_caps.c`
(`_kp2pCapsGetStatusOverPcieBar1`), `nvrm_registry.h`, read at tags 535 to 595. Not measured on
hardware.",
    check,
};

/// A way of peer access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// Aperture in BAR0, mailbox in BAR1.
    Mailbox,
    /// The whole memory in BAR1.
    Bar1,
    /// Nobody could tell.
    Unknown,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Mailbox => "mailbox",
            Self::Bar1 => "BAR1",
            Self::Unknown => "unknown",
        })
    }
}

/// First branch with `RMPcieP2PType`, and with the new numbers of `RMForceP2PType`.
const RENUMBERED_AT: u32 = 575;
/// First branch in which `GB20x` boards take BAR1 under automatic choice.
const AUTOMATIC_AT: u32 = 590;
/// No present board has so little memory: a region of this size cannot show all of it.
pub(super) const SMALLEST_MEMORY: u64 = 2 << 30;

/// The way that the driver uses from and to a GPU that it is bound to, and why.
pub fn mechanism(snapshot: &Snapshot, device: &PciDevice) -> (Mechanism, String) {
    if is_fork(snapshot) {
        return (Mechanism::Bar1, "peer-to-peer builds use BAR1 only".to_owned());
    }
    let Some(branch) = snapshot.nvidia.version.known().and_then(DriverVersion::branch) else {
        return (Mechanism::Unknown, "the driver's version is not known".to_owned());
    };
    if snapshot.nvidia.params.known().is_none() {
        return (Mechanism::Unknown, "the driver's parameters could not be read".to_owned());
    }
    let key = |name| registry::value_for(snapshot, device.address, name).map(|key| key.value);
    let asked = if branch < RENUMBERED_AT {
        match key("RMForceP2PType") {
            Some(2) => Asked::Bar1("RMForceP2PType=2 (branches up to 570)"),
            Some(3 | 4) => {
                return (Mechanism::Unknown, "RMForceP2PType asks for no PCIe".to_owned());
            }
            _ => Asked::Mailbox("the default up to branch 570"),
        }
    } else if let Some(2 | 3) = key("RMForceP2PType") {
        let why = "RMForceP2PType asks for NVLink or C2C: renumbered at branch 575";
        return (Mechanism::Unknown, why.to_owned());
    } else {
        match key("RMPcieP2PType") {
            Some(1) => Asked::Bar1("RMPcieP2PType=1"),
            Some(2) => Asked::Automatic,
            Some(0) => Asked::Mailbox("RMPcieP2PType=0"),
            None => Asked::Mailbox("the default from branch 575 on"),
            Some(_) => return (Mechanism::Unknown, "RMPcieP2PType has no such value".to_owned()),
        }
    };
    let static_off = key("RMForceStaticBar1") == Some(0);
    granted(snapshot, device, asked, branch, static_off)
}

#[derive(Clone, Copy)]
enum Asked {
    Mailbox(&'static str),
    Bar1(&'static str),
    Automatic,
}

fn granted(
    snapshot: &Snapshot,
    device: &PciDevice,
    asked: Asked,
    branch: u32,
    static_off: bool,
) -> (Mechanism, String) {
    let chip = device.ids.known().and_then(|ids| boards::architecture(*ids));
    let capable = matches!(chip, Some(Architecture::Hopper | Architecture::Blackwell));
    // GB20x, by the ranges of device numbers.
    let consumer = device.ids.known().is_some_and(|ids| (0x2b80..0x3000).contains(&ids.device));
    let why = match asked {
        Asked::Mailbox(why) => return (Mechanism::Mailbox, why.to_owned()),
        Asked::Automatic if branch >= AUTOMATIC_AT && consumer => "RMPcieP2PType=2, automatic",
        Asked::Automatic if branch >= AUTOMATIC_AT => {
            let why = "RMPcieP2PType=2 chooses BAR1 on GB20x only";
            return (Mechanism::Mailbox, why.to_owned());
        }
        Asked::Automatic => {
            let why = "what RMPcieP2PType=2 chooses before branch 590 is not known";
            return (Mechanism::Unknown, why.to_owned());
        }
        Asked::Bar1(why) => why,
    };
    if !capable {
        let why = "BAR1 is asked for, and this chip's stock driver has no such way";
        return (Mechanism::Unknown, why.to_owned());
    }
    if static_off {
        let why = "BAR1 is asked for, and RMForceStaticBar1=0 takes it away";
        return (Mechanism::Unknown, why.to_owned());
    }
    match snapshot.peer_memory(device) {
        Some((_, bar)) if bar.size <= SMALLEST_MEMORY => {
            let why = "BAR1 is asked for, and the region is smaller than the memory";
            (Mechanism::Unknown, why.to_owned())
        }
        _ => (Mechanism::Bar1, why.to_owned()),
    }
}

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let requesters: BTreeSet<PciAddress> = context.pairs.iter().map(|pair| pair.from).collect();
    let paired: Vec<&PciDevice> = support::driven_by_nvidia(snapshot)
        .into_iter()
        .filter(|device| requesters.contains(&device.address))
        .filter(|device| {
            let board = device.ids.known().and_then(|ids| boards::lookup(*ids));
            is_fork(snapshot) || board.is_none_or(|board| board.offers_p2p != Tristate::No)
        })
        .collect();
    let mut findings: Vec<Finding> = Vec::new();
    for device in paired {
        let (mechanism, why) = mechanism(snapshot, device);
        let title = match mechanism {
            Mechanism::Mailbox | Mechanism::Bar1 => {
                format!("the driver's way of peer access is {mechanism}: {why}")
            }
            Mechanism::Unknown => format!("the driver's way of peer access is not known: {why}"),
        };
        match findings.iter_mut().find(|finding| finding.title == title) {
            Some(same) => same.subjects.push(device.address.to_string()),
            None => findings.push(about(snapshot, device, title)),
        }
    }
    findings
}

fn about(snapshot: &Snapshot, device: &PciDevice, title: String) -> Finding {
    let finding =
        Finding::new(RULE.code, Severity::Info, Confidence::Possible, title).about(device.address);
    let mut finding = support::with_driver(finding, snapshot);
    let choosing = ["RMPcieP2PType", "RMForceP2PType", "RMForceStaticBar1"];
    let keys: Vec<_> = choosing
        .iter()
        .filter_map(|name| registry::value_for(snapshot, device.address, name))
        .collect();
    for key in &keys {
        finding = finding.seen(key.source(), key);
    }
    if keys.is_empty() && snapshot.nvidia.params.known().is_some() {
        finding = finding.seen(format!("{PARAMS} (RegistryDwords)"), "no key chooses");
    }
    if let Some((memory, bar)) = snapshot.peer_memory(device) {
        finding = finding.seen(
            device_file(memory.address, "resource"),
            format!("region {} of {} MiB", bar.index, bar.size >> 20),
        );
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, all, at, fires, silent, value};
    use crate::observed::Observed;
    use crate::snapshot::driver::DriverFlavour;

    #[track_caller]
    fn check_mechanism(host: &Host, expected: Mechanism, why: &str) {
        let device = host.snapshot.device(at(A)).unwrap();
        let (found, reason) = mechanism(&host.snapshot, device);
        assert_eq!(found, expected, "{reason}");
        assert!(reason.contains(why), "{reason}");
    }

    fn with_keys(version: &str, keys: &str) -> Host {
        Host::amd().driver(version, DriverFlavour::Open).parameter("RegistryDwords", keys)
    }

    #[test]
    fn by_branch_and_key() {
        use Mechanism::{Bar1, Mailbox, Unknown};
        check_mechanism(&with_keys("580.95.05", ""), Mailbox, "default from branch 575");
        check_mechanism(&with_keys("580.95.05", "RMPcieP2PType=1"), Bar1, "RMPcieP2PType=1");
        check_mechanism(&with_keys("580.95.05", "RMPcieP2PType=2"), Unknown, "before branch 590");
        check_mechanism(&with_keys("595.45.04", "RMPcieP2PType=2"), Bar1, "automatic");
        check_mechanism(&with_keys("580.95.05", "RMForceP2PType=2"), Unknown, "renumbered");
        check_mechanism(&with_keys("570.211.01", "RMForceP2PType=2"), Bar1, "up to 570");
        check_mechanism(&with_keys("570.211.01", "RMPcieP2PType=1"), Mailbox, "up to branch 570");
        check_mechanism(
            &with_keys("580.95.05", "RMPcieP2PType=1;RMForceStaticBar1=0"),
            Unknown,
            "RMForceStaticBar1=0",
        );
    }

    #[test]
    fn by_chip_and_region() {
        use Mechanism::{Bar1, Mailbox, Unknown};
        let asked = with_keys("595.45.04", "RMPcieP2PType=1");
        check_mechanism(&asked.clone().board(0x26b1), Unknown, "no such way");
        check_mechanism(&asked.clone().board(0x2331), Bar1, "RMPcieP2PType=1");
        let automatic = with_keys("595.45.04", "RMPcieP2PType=2").board(0x2331);
        check_mechanism(&automatic, Mailbox, "GB20x only");
        let small = asked.gpus(|gpu| {
            if let Observed::Known(bars) = &mut gpu.bars {
                bars[1].size = 256 << 20;
            }
        });
        check_mechanism(&small, Unknown, "smaller than the memory");
        let fork = Host::amd().driver("570.86.16-p2p", DriverFlavour::Fork).board(0x2684);
        check_mechanism(&fork, Bar1, "peer-to-peer builds");
        let unread = Host::amd().edit(|snapshot| snapshot.nvidia.params = Observed::default());
        check_mechanism(&unread, Unknown, "could not be read");
    }

    #[test]
    fn one_finding_for_gpus_that_are_alike() {
        let finding = fires(&RULE, &Host::amd());
        assert_eq!(finding.subjects, [A, B]);
        assert_eq!(value(&finding, "RegistryDwords"), "no key chooses");
        let apart =
            Host::amd().parameter("RegistryDwordsPerDevice", "pci=0000:41:00.0;RMPcieP2PType=1");
        assert_eq!(all(&RULE, &apart).len(), 2);
    }

    #[test]
    fn nothing_without_pairs_or_without_an_offer() {
        silent(&RULE, &Host::amd().board(0x2684));
        silent(&RULE, &Host::amd().guest(&[A, B]));
    }
}
