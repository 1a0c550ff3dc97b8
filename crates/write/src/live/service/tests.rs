//! Units by a stand-in for systemd's client.

#![expect(clippy::disallowed_methods, reason = "tests make the tree of the stand-in")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::super::tests::{allow, host, tree};
use super::*;
use crate::mutator::Mutator as _;

/// A client that keeps each unit in a file, as systemd prints its properties. What it was told
/// to do is in `told`.
const CLIENT_TEXT: &str = "verb=$1; shift
while [ \"$1\" != -- ]; do shift; done; shift
for unit; do
file=$PLACE/units/$unit
case $verb in
show) [ -e \"$file\" ] && cat \"$file\" || echo \"Id=$unit\nLoadState=not-found\"; echo ;;
stop) echo stop $unit >> $PLACE/told; sed -i s/=active/=inactive/ \"$file\" ;;
start) echo start $unit >> $PLACE/told; sed -i s/=inactive/=active/ \"$file\" ;;
esac
done";

/// One process in it has a device open.
const HELD: u32 = 4711;

fn with_units(units: &[(&str, &str)]) -> tempfile::TempDir {
    let place = tree();
    let root = place.path();
    for directory in ["usr/bin", "run/systemd/system", "units", "proc/self", "proc/4711"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    // The first one is gone by the time that somebody looks into it.
    let held = format!("4710 0000:01:00.0\n{HELD} 0000:01:00.0\n");
    std::fs::write(root.join("held"), held).unwrap();
    let group = "0::/system.slice/engine.service\n";
    std::fs::write(root.join("proc/4711/cgroup"), group).unwrap();
    let text = format!("#!/bin/sh\nPLACE={}\n{CLIENT_TEXT}\n", root.display());
    let text = format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{text}");
    std::fs::write(root.join(CLIENT), text).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(root.join(CLIENT), mode).unwrap();
    std::fs::write(root.join("proc/self/cgroup"), "0::/user.slice/session-1.scope\n").unwrap();
    for (name, properties) in units {
        let text = format!("Id={name}\nLoadState=loaded\n{properties}\n");
        std::fs::write(root.join("units").join(name), text).unwrap();
    }
    place
}

fn named(name: &str) -> Service {
    Service { manager: Manager::Unit, name: name.to_owned() }
}

fn told(place: &Path) -> String {
    std::fs::read_to_string(place.join("told")).unwrap_or_default()
}

#[test]
fn a_unit_is_stopped_and_started() {
    let place = with_units(&[("engine.service", "ActiveState=active")]);
    let mut host = host(place.path());
    let service = named("engine.service");
    let (stop, start) =
        (Op::Stop { service: service.clone() }, Op::Start { service: service.clone() });
    assert_eq!(host.current(&stop).unwrap(), Found::Value("running".to_owned()));
    let error = host.perform(&stop).unwrap_err();
    assert!(error.to_string().contains("no step of the plan names unit:engine"), "{error}");
    assert_eq!(told(place.path()), "");
    allow(&mut host, &[Op::Restart { service }], "");
    host.perform(&stop).unwrap();
    assert_eq!(host.current(&stop).unwrap(), Found::Nothing);
    host.perform(&start).unwrap();
    assert_eq!(host.current(&start).unwrap(), Found::Value("running".to_owned()));
    assert_eq!(told(place.path()), "stop engine.service\nstart engine.service\n");
}

#[test]
fn what_is_not_there_is_not_stopped() {
    let place = with_units(&[]);
    let host = host(place.path());
    let error = host.current(&Op::Stop { service: named("engine.service") }).unwrap_err();
    assert!(error.to_string().contains("no unit engine.service (not-found)"), "{error}");
    std::fs::remove_dir(place.path().join("run/systemd/system")).unwrap();
    let error = host.current(&Op::Stop { service: named("engine.service") }).unwrap_err();
    assert!(error.to_string().contains("systemd does not run here"), "{error}");
    let guest = Op::Stop { service: "docker:engine".parse().unwrap() };
    let error = host.current(&guest).unwrap_err();
    assert!(error.to_string().contains("Stop it yourself"), "{error}");
}

const READY: &str = "ActiveState=active\nType=simple\nTransient=no\nCanStart=yes\nCanStop=yes\n\
    RefuseManualStart=no\nRefuseManualStop=no\nControlGroup=/system.slice/engine.service";

#[track_caller]
fn check(name: &str, units: &[(&str, &str)], says: Option<&str>) {
    let place = with_units(units);
    let host = host(place.path());
    let device: PciAddress = "0000:01:00.0".parse().unwrap();
    let seen = host.service_refuses(&named(name), &[device]).err();
    match says {
        None => assert_eq!(seen, None),
        Some(says) => {
            assert!(seen.as_ref().is_some_and(|why| why.contains(says)), "{seen:?}");
        }
    }
    assert_eq!(told(place.path()), "");
}

fn engine(name: &str, says: Option<&str>) -> impl Fn(&str, &[(&str, &str)]) {
    move |more, others| {
        let text = format!("{READY}\n{more}");
        let all = [&[("engine.service", text.as_str())], others].concat();
        check(name, &all, says);
    }
}

#[test]
fn nothing_is_stopped_that_nobody_named() {
    const ENGINE: &str = "engine.service";
    let active = ("front.service", "ActiveState=active");
    engine(ENGINE, None)("", &[]);
    engine("engine", Some("no unit engine"))("", &[]);
    check(ENGINE, &[], Some("no unit engine.service"));
    let stops = engine(ENGINE, Some("would stop front.service too"));
    stops("BoundBy=front.service", &[active]);
    stops("RequiredBy=front.service", &[active]);
    let between = ("between.target", "ActiveState=inactive\nRequiredBy=front.service");
    stops("RequiredBy=between.target", &[between, active]);
    let queued = ("front.service", "ActiveState=inactive\nJob=7");
    stops("ConsistsOf=front.service", &[queued]);
    let asleep = ("front.service", "ActiveState=inactive");
    engine(ENGINE, None)("BoundBy=front.service", &[asleep]);
    let again = engine(ENGINE, Some("would start unit:engine.service again"));
    again("TriggeredBy=engine.socket", &[("engine.socket", "ActiveState=active")]);
    again("UpheldBy=front.service", &[active]);
    engine(ENGINE, Some("would start when"))("OnSuccess=front.service", &[asleep]);
    let odd = "BoundBy=$'a\\\\x2db.service'";
    engine(ENGINE, Some("a name that cannot be asked about"))(odd, &[]);
}

#[test]
fn a_unit_that_could_not_come_back_is_left_alone() {
    const ENGINE: &str = "engine.service";
    for (more, says) in [
        ("ActiveState=inactive", "is inactive, or changes just now"),
        ("ActiveState=deactivating", "is deactivating, or changes"),
        ("ActiveState=activating", "is activating, or changes"),
        ("Job=12", "is active, or changes"),
        ("Type=oneshot", "no service that runs on"),
        ("Transient=yes", "has Transient=yes"),
        ("CanStart=no", "has CanStart=no"),
        ("RefuseManualStop=yes", "has RefuseManualStop=yes"),
        ("Id=sshd.service", "is another name of sshd.service"),
        ("LoadState=masked", "no unit engine.service (masked)"),
        ("ControlGroup=/user.slice", "runs within unit:engine.service"),
        ("ControlGroup=/system.slice/other.service", "nothing that runs in unit:engine"),
    ] {
        engine(ENGINE, Some(says))(more, &[]);
    }
    let ready = READY.replace("engine", "session-1");
    check("session-1.scope", &[("session-1.scope", &ready)], Some("not one tenant's"));
}

/// A stop that takes its time: meanwhile the unit is neither stopped nor on its way back, and the
/// way back starts it.
#[test]
fn one_that_still_stops_is_started_again() {
    let place = with_units(&[("engine.service", "ActiveState=deactivating\nJob=9")]);
    let host = host(place.path());
    let service = named("engine.service");
    let running = Found::Value("running".to_owned());
    assert_eq!(host.current(&Op::Stop { service: service.clone() }).unwrap(), running);
    assert_eq!(host.current(&Op::Start { service }).unwrap(), Found::Nothing);
}

#[test]
fn a_process_is_within_a_group_by_whole_names() {
    for (text, group, expected) in [
        ("0::/system.slice/engine.service", "/system.slice/engine.service", true),
        ("0::/system.slice/engine.service/worker", "/system.slice/engine.service", true),
        ("0::/system.slice/engine.service2", "/system.slice/engine.service", false),
        ("4:memory:/x\n1:name=systemd:/system.slice/a.service", "/system.slice/a.service", true),
        ("0::/", "/system.slice/a.service", false),
    ] {
        assert_eq!(within(text, group), expected, "{text}");
    }
}
