//! NVLink outranks the PCIe path, and its state does not show without opening a GPU.

use super::{Answer, Confidence, Verdict};
use crate::boards::{self, Board};
use crate::code;
use crate::snapshot::Snapshot;
use crate::snapshot::pci::PciDevice;

/// Takes a "broken" back where NVLink may carry what PCIe cannot: on modules with wired links
/// nobody can tell; on cards that take a bridge, few of which have one, it stays with the lowest
/// confidence.
pub(super) fn may_carry(
    snapshot: &Snapshot,
    from: &PciDevice,
    to: &PciDevice,
    answer: Answer,
) -> Answer {
    if answer.verdict != Verdict::Broken || snapshot.nvlinks.unreadable().is_none() {
        return answer;
    }
    let (Some(a), Some(b)) = (board(from), board(to)) else { return answer };
    if !a.nvlink || !b.nvlink {
        return answer;
    }
    if !(is_wired(a) && is_wired(b)) {
        return answer.also(code::NVLINK_NOT_VISIBLE).at_most(Confidence::Possible);
    }
    Answer {
        codes: [&[code::NVLINK_NOT_VISIBLE][..], &answer.codes].concat(),
        reason: format!(
            "NVLink, which cannot be seen from here, decides; over PCIe: {}",
            answer.reason
        ),
        ..Answer::unknown(code::NVLINK_NOT_VISIBLE, "")
    }
}

fn board(device: &PciDevice) -> Option<&'static Board> {
    boards::lookup(*device.ids.known()?)
}

/// Links that are part of the module, as on SXM and its like; other boards take a bridge.
fn is_wired(board: &Board) -> bool {
    // H100 in a form without a name of its own, and B200.
    board.name.contains("SXM") || matches!(board.device, 0x2339 | 0x2901)
}
