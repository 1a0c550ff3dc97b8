//! Records of JSON, whole and cut.

const FRONTS: [&str; 5] = [
    "{\"_TRANSPORT\":\"kernel\",\"MESSAGE\":\"nvidia 0000:41:00.0: AMD-Vi: ",
    "{\"MESSAGE\":[",
    "{\"dmesg\":[{\"pri\":3,\"time\": 1.000000,\"msg\":\"DMAR: ",
    "   \"time\":  ",
    "{\"__REALTIME_TIMESTAMP\":\"",
];

/// Runs the target.
pub fn run(data: &[u8]) {
    crate::shared::scan_after(&FRONTS, data);
}
