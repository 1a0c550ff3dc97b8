//! Does the root complex forward peer requests?

use super::Answer;
use crate::code;
use crate::observed::Observed;
use crate::route::Route;
use crate::snapshot::Snapshot;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::{PciDevice, RootBus};
use crate::snapshot::query::vendor;

/// Host bridges that the kernel knows to forward between any two of them
/// (`drivers/pci/p2pdma.c`, `pci_p2pdma_whitelist`).
const INTEL_ANY: [u16; 6] = [0x2020, 0x2030, 0x2031, 0x2032, 0x2033, 0x09a2];
/// Host bridges that the kernel knows to forward within one of them only.
const INTEL_SAME: [u16; 4] = [0x2f00, 0x2f01, 0x3c00, 0x3c01];
/// NVIDIA's own host bridges, known to kernels from 7.3.
const NVIDIA_ANY: [u16; 4] = [0x2f95, 0x2f96, 0x2f97, 0x2f98];

/// `None` if it is known to forward; else why the pair stays unknown.
pub(crate) fn check(
    snapshot: &Snapshot,
    from: &PciDevice,
    to: &PciDevice,
    route: &Route,
) -> Option<Answer> {
    let (state, why) = forwards(snapshot, from, to);
    (state != Tristate::Yes).then(|| {
        Answer::unknown(
            code::FORWARDING_UNKNOWN,
            format!(
                "the request turns in the root complex ({}), and {why}",
                turn_text(route, true)
            ),
        )
    })
}

/// Where a request turns, in words. One with an address that the kernel mapped goes up past a
/// common bridge, whose windows do not hold that address.
pub fn turn_text(route: &Route, mapped: bool) -> String {
    use crate::route::{Redirect, Turn};
    match &route.turn {
        Turn::NvLink { .. } => "NVLink".to_owned(),
        Turn::Bridge(address) => match route.redirect() {
            _ if mapped => format!("sent up past bridge {address}"),
            Redirect::None => format!("common bridge {address}, inside the switch"),
            Redirect::Unknown(_) => {
                format!("common bridge {address}, or past it: access control not read")
            }
            Redirect::By(_) | Redirect::NoCommonBridge => {
                format!("sent up past bridge {address}")
            }
        },
        Turn::HostBridge => "two root ports of one host bridge".to_owned(),
        Turn::HostBridges => "two host bridges".to_owned(),
        Turn::Nodes => "two host bridges on different NUMA nodes".to_owned(),
    }
}

/// Whether the root complex is known to forward between the two, and from where that is known.
pub fn forwards(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> (Tristate, String) {
    if let Some(declared) = snapshot.accelerator(from.address) {
        return if declared.root_complex_forwards {
            (Tristate::Yes, "the operator says that the root complex forwards".to_owned())
        } else {
            (Tristate::Unknown, "nobody says that the root complex forwards".to_owned())
        };
    }
    match snapshot.cpu.is_zen() {
        Observed::Known(true) => {
            return (Tristate::Yes, "AMD's root complexes forward from family 17h on".to_owned());
        }
        Observed::Known(false) => {}
        Observed::Absent | Observed::Unreadable(_) => {
            return (Tristate::Unknown, "the processor could not be identified".to_owned());
        }
    }
    match (listed(snapshot, from.root), listed(snapshot, to.root)) {
        (Listed::Any, Listed::Any) => {
            (Tristate::Yes, "the kernel lists both host bridges as forwarding".to_owned())
        }
        (Listed::SameOnly, Listed::SameOnly) if from.root == to.root => {
            (Tristate::Yes, "the kernel lists the host bridge as forwarding".to_owned())
        }
        _ => (
            Tristate::Unknown,
            "the root complex is not on the kernel's list of those that forward".to_owned(),
        ),
    }
}

#[derive(PartialEq)]
enum Listed {
    Any,
    SameOnly,
    No,
}

/// The first device on the root bus stands for the host bridge, if it is function 00.0 or a root
/// port (`drivers/pci/p2pdma.c`, `pci_host_bridge_dev`).
fn listed(snapshot: &Snapshot, root: RootBus) -> Listed {
    let first =
        snapshot.devices.iter().find(|device| device.ancestors.is_empty() && device.root == root);
    let Some(ids) = first.and_then(|device| {
        let at_front = device.address.device() == 0 && device.address.function() == 0;
        (at_front || device.is_bridge()).then(|| device.ids.known()).flatten()
    }) else {
        return Listed::No;
    };
    let new_enough = snapshot.kernel.version().is_some_and(|version| version.at_least(7, 3));
    match ids.vendor {
        vendor::INTEL if INTEL_ANY.contains(&ids.device) => Listed::Any,
        vendor::INTEL if INTEL_SAME.contains(&ids.device) => Listed::SameOnly,
        vendor::NVIDIA if new_enough && NVIDIA_ANY.contains(&ids.device) => Listed::Any,
        _ => Listed::No,
    }
}
