//! Xids: what they mean and how much they weigh for P2P (`nverror.h` of the open driver; numbers
//! that it no longer lists are described from the field).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much an Xid says about P2P, the IOMMU or initialisation.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Another cause has to be excluded first: memory, `NVLink`, hardware.
    Elsewhere,
    /// Says little by itself; usually follows something else.
    Low,
    /// May follow from corrupted data.
    Medium,
    /// A candidate: looks like blocked or corrupted DMA.
    High,
    /// The GPU is gone or unusable.
    Critical,
    /// States the recovery that is wanted; the Xid before it is the cause.
    Advice,
}

/// One Xid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    /// The number.
    pub number: u32,
    /// What it means.
    pub meaning: &'static str,
    /// What it weighs.
    pub weight: Weight,
}

/// What is known about an Xid; `None` for numbers without a known meaning.
pub fn lookup(number: u32) -> Option<&'static Xid> {
    let at = XIDS.binary_search_by_key(&number, |xid| xid.number).ok()?;
    XIDS.get(at)
}

const fn xid(number: u32, meaning: &'static str, weight: Weight) -> Xid {
    Xid { number, meaning, weight }
}

use Weight::{Advice, Critical, Elsewhere, High, Low, Medium};

/// Sorted by number.
static XIDS: [Xid; 79] = [
    xid(13, "graphics or shader exception", Medium),
    xid(31, "page fault in the GPU's own memory management", High),
    xid(32, "corrupted command stream", High),
    xid(38, "driver firmware error", Medium),
    xid(39, "copy engine error", High),
    xid(40, "copy engine error", High),
    xid(41, "copy engine error", High),
    xid(43, "channel reset: a program's error", Low),
    xid(44, "fault during a context switch", Low),
    xid(45, "channels removed after another error or a kill", Low),
    xid(48, "uncorrectable memory error", Elsewhere),
    xid(51, "bad channel group on a run list", Medium),
    xid(54, "auxiliary power is not connected", Critical),
    xid(56, "display engine error", Elsewhere),
    xid(57, "video memory programming error", Elsewhere),
    xid(58, "video memory error", Elsewhere),
    xid(61, "power management unit stopped at a breakpoint", Elsewhere),
    xid(62, "power management unit halted", Elsewhere),
    xid(63, "memory page or row retired", Elsewhere),
    xid(64, "memory page or row could not be retired", Elsewhere),
    xid(68, "video engine exception", Elsewhere),
    xid(69, "graphics class error", Medium),
    xid(70, "copy engine error", High),
    xid(71, "copy engine error", High),
    xid(72, "copy engine error", High),
    xid(74, "NVLink error", Elsewhere),
    xid(75, "copy engine error", High),
    xid(76, "copy engine error", High),
    xid(77, "copy engine error", High),
    xid(79, "the GPU fell off the bus", Critical),
    xid(80, "corrupted data pushed to the GPU", High),
    xid(85, "copy engine error", High),
    xid(92, "many corrected memory errors", Elsewhere),
    xid(94, "contained error", High),
    xid(95, "uncontained error", High),
    xid(96, "video engine error", Elsewhere),
    xid(108, "translation of a remote NVLink address failed", Elsewhere),
    xid(109, "context switch timed out", Medium),
    xid(110, "security fault", High),
    xid(119, "the GPU's system processor stopped answering", Critical),
    xid(120, "the GPU's system processor crashed", Critical),
    xid(121, "chip-to-chip link error", Elsewhere),
    xid(126, "copy engine error", High),
    xid(127, "copy engine error", High),
    xid(128, "copy engine error", High),
    xid(129, "copy engine error", High),
    xid(130, "copy engine error", High),
    xid(131, "copy engine error", High),
    xid(132, "copy engine error", High),
    xid(133, "copy engine error", High),
    xid(134, "copy engine error", High),
    xid(135, "copy engine error", High),
    xid(136, "NVLink training failed", Elsewhere),
    xid(137, "NVLink access error", Elsewhere),
    xid(140, "unrecovered memory error", Elsewhere),
    xid(143, "the security processor did not start, or its fuse check failed", Critical),
    xid(144, "NVLink unit error", Elsewhere),
    xid(145, "NVLink unit error", Elsewhere),
    xid(146, "NVLink unit error", Elsewhere),
    xid(147, "NVLink unit error", Elsewhere),
    xid(148, "NVLink unit error", Elsewhere),
    xid(149, "NVLink unit error", Elsewhere),
    xid(150, "NVLink unit error", Elsewhere),
    xid(151, "key rotation of confidential computing", Elsewhere),
    xid(154, "the wanted recovery action changed", Advice),
    xid(155, "NVLink event of the driver", Elsewhere),
    xid(156, "memory resource retired", Elsewhere),
    xid(157, "memory resource could not be retired", Elsewhere),
    xid(158, "fatal time-out of the GPU", High),
    xid(160, "memory channel retired", Elsewhere),
    xid(161, "memory channel could not be retired", Elsewhere),
    xid(167, "a PCI Express completion never came", Critical),
    xid(168, "memory capacity reduced", Elsewhere),
    xid(169, "security engine halted during start-up", Critical),
    xid(171, "uncorrectable memory error", Elsewhere),
    xid(172, "uncorrectable memory error on the chip", Elsewhere),
    xid(173, "fatal chip-to-chip link error", Elsewhere),
    xid(175, "memory subsystem error", Elsewhere),
    xid(176, "corrected errors on the PCI Express link", High),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_sorted_and_found() {
        assert!(XIDS.is_sorted_by_key(|xid| xid.number));
        assert_eq!(lookup(79).map(|xid| xid.weight), Some(Critical));
        assert_eq!(lookup(154).map(|xid| xid.weight), Some(Advice));
        assert_eq!(lookup(1), None);
    }
}
