//! Lines about devices, boot lines, rate limits.

const FRONTS: [&str; 9] = [
    "pci 0000:41:00.0: ",
    "pci 0000:41:00.0: BAR ",
    "pci 0000:41:00.0: reg 0x",
    "pci 0000:41:00.0: [10de:2bb5] type 00 class ",
    "ccp 0000:02:00.5: ",
    "amdgpu 0000:41:00.0: ",
    "iommu: ",
    "SEV-SNP: ",
    "dmar_fault: 7",
];

/// Runs the target.
pub fn run(data: &[u8]) {
    crate::shared::scan_after(&FRONTS, data);
}
