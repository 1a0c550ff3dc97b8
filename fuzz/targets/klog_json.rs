//! Records of JSON, whole and cut.
#![no_main]

const FRONTS: [&str; 5] = [
    "{\"_TRANSPORT\":\"kernel\",\"MESSAGE\":\"nvidia 0000:41:00.0: AMD-Vi: ",
    "{\"MESSAGE\":[",
    "{\"dmesg\":[{\"pri\":3,\"time\": 1.000000,\"msg\":\"DMAR: ",
    "   \"time\":  ",
    "{\"__REALTIME_TIMESTAMP\":\"",
];

libfuzzer_sys::fuzz_target!(|data: &[u8]| peerway_fuzz::scan_after(&FRONTS, data));
