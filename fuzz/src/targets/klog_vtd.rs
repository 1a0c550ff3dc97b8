//! VT-d faults of every kernel, and Xen's.

const FRONTS: [&str; 7] = [
    "DMAR: [DMA Write NO_PASID] Request device [",
    "DMAR: [DMA Read] Request device [01:00.0] PASID ",
    "dmar: DMAR:[DMA Read] Request device [01:00.0] fault addr ",
    "DMAR: [INTR-REMAP] Request device [01:00.0] fault index ",
    "DMAR: [DMA Read] Request device [01:00.0] PASID 2\n fault addr ",
    "DMAR: VT-d detected ",
    "(XEN) [VT-D]DMAR:[DMA Write] Request device [0000:01:00.0] fault addr 1000\n(XEN) [VT-D]DMAR: ",
];

/// Runs the target.
pub fn run(data: &[u8]) {
    crate::shared::scan_after(&FRONTS, data);
}
