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
    if snapshot.nvlinks.unreadable().is_none() {
        return answer;
    }
    let (Some(a), Some(b)) = (board(from), board(to)) else { return answer };
    if !a.nvlink || !b.nvlink {
        return answer;
    }
    let wired = is_wired(a) && is_wired(b);
    match answer.verdict {
        Verdict::Works if wired => return over_pcie_perhaps(answer),
        Verdict::Broken => {}
        Verdict::Works | Verdict::Impaired | Verdict::Unknown => return answer,
    }
    if !wired {
        return answer.also(code::NVLINK_NOT_VISIBLE).at_most(Confidence::Possible);
    }
    Answer {
        codes: [&[code::NVLINK_NOT_VISIBLE][..], &answer.codes].concat(),
        reason: format!(
            "NVLink, which cannot be seen from here, decides; over PCIe, if the driver falls back \
             to it at all: {}",
            answer.reason
        ),
        ..Answer::unknown(code::NVLINK_NOT_VISIBLE, "")
    }
}

/// Peer access over the links works where they are up, and PCIe would carry it too; but with
/// `NVSwitch` the driver takes no PCIe path where they are not (`p2p_caps.c`,
/// `p2pGetCapsStatus`).
fn over_pcie_perhaps(answer: Answer) -> Answer {
    let reason = format!(
        "NVLink, which cannot be seen from here, decides; where NVSwitches join the GPUs the \
         driver does not fall back to PCIe; over PCIe: {}",
        answer.reason
    );
    Answer { reason, ..answer }.also(code::NVLINK_NOT_VISIBLE).at_most(Confidence::Possible)
}

fn board(device: &PciDevice) -> Option<&'static Board> {
    boards::lookup(*device.ids.known()?)
}

/// Links that are part of the module, as on SXM and its like; other boards take a bridge.
fn is_wired(board: &Board) -> bool {
    // H100 in a form without a name of its own, and B200.
    board.name.contains("SXM") || matches!(board.device, 0x2339 | 0x2901)
}
