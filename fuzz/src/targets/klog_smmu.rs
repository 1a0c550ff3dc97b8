//! Arm SMMU records, raw and decoded, of several units.

const FRONTS: [&str; 5] = [
    "arm-smmu-v3 a: event 0x10 received:\narm-smmu-v3 a: \t0x0000210000000010\narm-smmu-v3 a: ",
    "arm-smmu-v3 a: event: F_TRANSLATION client: ",
    "arm-smmu-v3 a: event 0x",
    "arm-smmu b: Unhandled context fault: ",
    "arm-smmu b: Unexpected global fault, this could be serious\narm-smmu b: \tGFSR ",
];

/// Runs the target.
pub fn run(data: &[u8]) {
    crate::shared::scan_after(&FRONTS, data);
}
