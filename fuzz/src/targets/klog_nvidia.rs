//! Lines of NVIDIA's driver.

const FRONTS: [&str; 7] = [
    "NVRM: ",
    "NVRM: Xid (PCI:",
    "NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (",
    "NVRM: loading NVIDIA UNIX ",
    "NVRM: BAR",
    "nvidia-nvswitch0: SXid (PCI:",
    "NVRM: The peer DMA address 0x",
];

/// Runs the target.
pub fn run(data: &[u8]) {
    crate::shared::scan_after(&FRONTS, data);
}
