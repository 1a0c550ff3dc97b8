//! Does the peer map carry the pair?

use super::{Answer, Confidence, encryption, forwarding};
use crate::code;
use crate::diagnose::rules::p2p_mechanism::{Mechanism, mechanism};
use crate::route::Route;
use crate::snapshot::Snapshot;
use crate::snapshot::pci::PciDevice;
use crate::snapshot::peer_map::Coverage;
use crate::snapshot::query::vendor;

/// What is to be said of a raw address under translation because of the map; `None` where the map
/// has nothing for the pair.
pub(super) fn check(
    snapshot: &Snapshot,
    from: &PciDevice,
    to: &PciDevice,
    route: &Route,
) -> Option<Answer> {
    let (from_name, to_name) = (from.address, to.address);
    match snapshot.map_coverage(from, to) {
        Coverage::None => None,
        Coverage::Spoiled { state } => Some(Answer::broken(
            Confidence::Probable,
            code::PEER_MAP_SPOILED,
            format!(
                "the peer map's entry of {from_name} for {to_name} is no more what it was: {state}"
            ),
        )),
        Coverage::Part { bytes, of } => Some(Answer::unknown(
            code::PEER_MAP,
            format!(
                "the peer map of {from_name} covers {bytes} of the {of} bytes of {to_name}: \
                 whether the driver stays within them cannot be seen"
            ),
        )),
        Coverage::Unknown(why) => Some(Answer::unknown(
            code::PEER_MAP,
            format!("whether a peer map serves {from_name} could not be read ({why})"),
        )),
        Coverage::Whole => Some(
            encryption::check(snapshot, from)
                .or_else(|| by_mailbox(snapshot, from, to))
                .or_else(|| forwarding::check(snapshot, from, to, route))
                .unwrap_or_else(|| {
                    Answer::works(
                        Confidence::Possible,
                        code::PEER_MAP,
                        format!(
                            "the group of {from_name} translates, and a peer map has an entry \
                             for all of the memory of {to_name}"
                        ),
                    )
                }),
        ),
    }
}

/// Entries for the memory serve an access to the memory. A driver that goes through a page of the
/// peer's registers instead is not served by them.
fn by_mailbox(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> Option<Answer> {
    let declared = snapshot.accelerator(from.address).is_some();
    if declared || !from.is_vendor(vendor::NVIDIA) {
        return None;
    }
    match mechanism(snapshot, from) {
        (Mechanism::Bar1, _) => None,
        (Mechanism::Mailbox | Mechanism::Unknown, why) => Some(Answer::unknown(
            code::PEER_MAP,
            format!(
                "a peer map covers the memory of {}, but whether the driver's way of access uses \
                 that memory's addresses is not known: {why}",
                to.address
            ),
        )),
    }
}
