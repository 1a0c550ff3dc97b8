//! What keeps a "works" from being surer than its source: answers that were overridden, boards that
//! nobody has listed, drivers that nobody has verified.

use super::{Answer, Confidence, Verdict, addressing};
use crate::boards;
use crate::code;
use crate::snapshot::Snapshot;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::PciDevice;

/// Applies every doubt that concerns the pair.
pub(super) fn weigh(
    snapshot: &Snapshot,
    from: &PciDevice,
    to: &PciDevice,
    answer: Answer,
) -> Answer {
    if snapshot.accelerator(from.address).is_some() {
        return answer;
    }
    let answer = forced(snapshot, from, to, answer);
    let answer = unlisted(snapshot, from, to, answer);
    other_makers(from, answer)
}

/// Whether the stock driver offers peer access on a board that nobody has listed is not known: what
/// would arrive may not be asked for.
fn unlisted(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice, answer: Answer) -> Answer {
    let concerned = from.driver_name() == Some("nvidia")
        && from.is_gpu()
        && to.is_gpu()
        && !addressing::is_fork(snapshot);
    if !concerned || answer.verdict != Verdict::Works {
        return answer;
    }
    let Some(device) = [from, to].into_iter().find(|device| !offers(device)) else {
        return answer;
    };
    Answer::unknown(
        code::ADDRESSING_UNKNOWN,
        format!(
            "whether NVIDIA's driver offers peer access on {} ({}) is not known; otherwise: {}",
            name(device),
            device.ids,
            answer.reason
        ),
    )
}

/// `ForceP2P` skips the question whether the boards have the path. What loses data on the way does
/// so all the same; what would arrive rests on the hardware, about which nothing is known.
fn forced(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice, answer: Answer) -> Answer {
    let concerned = from.driver_name() == Some("nvidia")
        && from.is_gpu()
        && to.is_gpu()
        && !addressing::is_fork(snapshot)
        && addressing::forced(snapshot);
    if !concerned || answer.verdict != Verdict::Works {
        return answer;
    }
    match [from, to].into_iter().find(|device| !offers(device)) {
        Some(device) => Answer::unknown(
            code::FORCED_CAPABILITY,
            format!(
                "ForceP2P makes the driver offer peer access on {}, which the stock driver is not \
                 known to do; whether the hardware has the path is not known",
                name(device)
            ),
        ),
        None => answer.also(code::FORCED_CAPABILITY).at_most(Confidence::Possible),
    }
}

fn offers(device: &PciDevice) -> bool {
    let board = device.ids.known().and_then(|ids| boards::lookup(*ids));
    board.is_some_and(|board| board.offers_p2p == Tristate::Yes)
}

fn name(device: &PciDevice) -> String {
    let board = device.ids.known().and_then(|ids| boards::lookup(*ids));
    board.map_or_else(|| device.address.to_string(), |board| board.name.to_owned())
}

/// AMD's and Intel's drivers were read, not measured: even untranslated addresses are used only
/// where the kernel's own peer layer says yes.
fn other_makers(from: &PciDevice, answer: Answer) -> Answer {
    let read_only = matches!(from.driver_name(), Some("amdgpu" | "xe"));
    if !read_only || answer.verdict != Verdict::Works {
        return answer;
    }
    let why = addressing::BY_KERNEL;
    let reason = if answer.reason.contains(why) {
        answer.reason.clone()
    } else {
        format!("{}; {why}", answer.reason)
    };
    Answer { reason, ..answer }.at_most(Confidence::Possible)
}
