//! Acts and their inverses.

use super::*;

fn at(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn value(text: &str) -> Found {
    Found::Value(text.to_owned())
}

/// The inverse of an act, and whether its own inverse is the act again.
#[track_caller]
fn check(act: &Op, found: &Found, word: &str, after: &Found) {
    let inverse = act.inverse(found).unwrap();
    assert_eq!(inverse.word(), word, "{act:?}");
    let back = inverse.inverse(after).unwrap();
    assert_eq!(back, *act, "{act:?} there and back");
}

#[test]
fn there_and_back() {
    let device = at("01:00.0");
    let driver = || "nvidia".to_owned();
    let entry = MapEntry {
        requester: device,
        target: at("11:00.0"),
        bar: 2,
        start: BusAddress(0x200_0000_0000),
        offset: 0,
        length: 1 << 37,
        members: vec![at("01:00.1")],
    };
    let unbind = Op::Unbind { device, driver: driver() };
    check(&unbind, &value("nvidia"), "drivers_probe", &Found::Nothing);
    let probe = Op::Probe { device, driver: driver() };
    check(&probe, &Found::Nothing, "unbind", &value("nvidia"));
    let set = Op::SetOverride { device, driver: driver() };
    check(&set, &Found::Nothing, "clear_driver_override", &value("nvidia"));
    let write = Op::WriteGroupType {
        group: 42,
        member: device,
        from: "DMA-FQ".to_owned(),
        to: "identity".to_owned(),
    };
    check(&write, &value("DMA-FQ"), "write_group_type", &value("identity"));
    let acs = Op::WriteAcs { port: device, mask: 0x2c, bits: 0 };
    check(&acs, &value("29"), "write_acs", &value("1"));
    check(&Op::Map(entry.clone()), &Found::Nothing, "unmap_entry", &value("mapped"));
    check(&Op::Unmap(entry), &value("mapped"), "map_entry", &Found::Nothing);
    let module = PEER_MAP_MODULE.to_owned();
    check(&Op::LoadModule { module }, &Found::Nothing, "unload_module", &value("loaded"));
    let service = || "pct:129".parse().unwrap();
    check(&Op::Stop { service: service() }, &value("running"), "start", &Found::Nothing);
    let off = Op::Persistence { device, on: false };
    check(&off, &value("on"), "persistence_on", &value("off"));
    let node = || "/dev/nvidia0".to_owned();
    check(&Op::Fence { node: node(), mode: 0 }, &value("438"), "unfence", &Found::Nothing);
}

#[test]
fn acs_bits_that_are_not_masked_stay() {
    let acs = Op::WriteAcs { port: at("01:00.0"), mask: 0x2c, bits: 0 };
    let inverse = acs.inverse(&value("29")).unwrap();
    assert_eq!(inverse, Op::WriteAcs { port: at("01:00.0"), mask: 0x2c, bits: 0x0c });
}

#[test]
fn what_was_so_already_stays() {
    let device = at("01:00.0");
    for (act, found) in [
        (Op::Unbind { device, driver: "nvidia".to_owned() }, Found::Nothing),
        (Op::Probe { device, driver: "nvidia".to_owned() }, value("nvidia")),
        (Op::Persistence { device, on: false }, value("off")),
        (Op::LoadModule { module: "m".to_owned() }, value("loaded")),
        (Op::Stop { service: "pct:1".parse().unwrap() }, Found::Nothing),
        (Op::Restart { service: "pct:1".parse().unwrap() }, value("running")),
    ] {
        assert_eq!(act.inverse(&found).unwrap(), Op::Nothing, "{act:?}");
    }
}

#[test]
fn what_was_not_found_out_is_not_guessed() {
    let device = at("01:00.0");
    let write = Op::WriteGroupType {
        group: 1,
        member: device,
        from: "DMA".to_owned(),
        to: "identity".to_owned(),
    };
    for (act, found) in [
        (write, Found::Nothing),
        (Op::WriteAcs { port: device, mask: 4, bits: 0 }, Found::Nothing),
        (Op::Persistence { device, on: false }, Found::Nothing),
        (Op::Probe { device, driver: "nvidia".to_owned() }, value("nouveau")),
    ] {
        let error = act.inverse(&found).unwrap_err().to_string();
        assert!(error.contains("cannot be taken back"), "{error}");
    }
}

#[test]
fn going_back_never_leaves_peer_access_allowed() {
    let safe = crate::operator::environment::safe_file();
    let lift = Op::WriteEnvironment {
        kind: Environment::Lifted,
        content: "NCCL_P2P_LEVEL=SYS\n".to_owned(),
    };
    for found in [value(&safe), value("NCCL_P2P_LEVEL=PHB\n"), value("# by hand\n")] {
        match lift.inverse(&found).unwrap() {
            Op::WriteEnvironment { kind: Environment::Safe, content } => {
                assert_eq!(content, safe);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lift.inverse(&Found::Nothing).unwrap(), Op::RemoveEnvironment);
}

#[test]
fn acts_survive_json() {
    let entry = MapEntry {
        requester: at("01:00.0"),
        target: at("11:00.0"),
        bar: 2,
        start: BusAddress(1 << 41),
        offset: 0,
        length: 1 << 37,
        members: vec![at("01:00.1")],
    };
    let text = serde_json::to_string(&Op::Map(entry.clone())).unwrap();
    assert!(text.starts_with("{\"act\":\"map\""), "{text}");
    assert_eq!(serde_json::from_str::<Op>(&text).unwrap(), Op::Map(entry));
    serde_json::from_str::<Op>("{\"act\":\"reboot\"}").unwrap_err();
    let more = "{\"act\":\"clear_override\",\"device\":\"0000:01:00.0\",\"x\":1}";
    serde_json::from_str::<Op>(more).unwrap_err();
}
