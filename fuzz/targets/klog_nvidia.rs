//! Lines of NVIDIA's driver.
#![no_main]

const FRONTS: [&str; 7] = [
    "NVRM: ",
    "NVRM: Xid (PCI:",
    "NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (",
    "NVRM: loading NVIDIA UNIX ",
    "NVRM: BAR",
    "nvidia-nvswitch0: SXid (PCI:",
    "NVRM: The peer DMA address 0x",
];

libfuzzer_sys::fuzz_target!(|data: &[u8]| peerway_fuzz::scan_after(&FRONTS, data));
