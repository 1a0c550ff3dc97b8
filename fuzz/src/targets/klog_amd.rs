//! AMD-Vi and RMP events, whole, cut and quoted.

const FRONTS: [&str; 8] = [
    "nvidia 0000:41:00.0: AMD-Vi: Event logged [",
    "AMD-Vi: Event logged [IO_PAGE_FAULT device=",
    "iommu ivhd0: AMD-Vi: Event logged [ILLEGAL_DEV_TABLE_ENTRY device=0000:41:00.0 ",
    "AMD-Vi: Event logged [\n",
    "AMD-Vi: Event logged [RMP_PAGE_FAULT device=0000:41:00.0, ",
    "AMD-Vi: Event logged [Device not attached to domain properly]\nAMD-Vi:   device=",
    "(XEN) AMD-Vi: IO_PAGE_FAULT: ",
    "AMD-Vi: ",
];

/// Runs the target.
pub fn run(data: &[u8]) {
    crate::shared::scan_after(&FRONTS, data);
}
