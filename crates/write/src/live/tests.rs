//! A live host whose `/` is a directory of the test's own, and whose children are scripts.

#![expect(clippy::disallowed_methods, reason = "tests make the tree that is written to")]

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::tenant::{Holder, TenantId};
use peerway_core::snapshot::{Gap, Snapshot};
use peerway_read::error::Reason;
use peerway_read::root::{Root, SlowSource};
use peerway_roads::Op;
use peerway_roads::op::{Environment, Found};

use super::blocking::{Blocking, Written};
use super::{Eyes, LiveHost};
use crate::mutator::{Copied, Host as _, Mutator as _, WriteError, is_reached};

const DEVICE: &str = "0000:01:00.0";
const SIBLING: &str = "0000:01:00.1";

#[derive(Debug)]
struct Nowhere(std::path::PathBuf);

/// A child that waits for a device's lock.
struct Waits;

impl SlowSource for Waits {
    fn read(&self, _path: &str, _limit: usize) -> Result<Vec<u8>, Reason> {
        Err(Reason::NoAnswer)
    }

    fn list(&self, _path: &str) -> Result<Vec<String>, Reason> {
        Err(Reason::NoAnswer)
    }

    fn link(&self, _path: &str) -> Result<String, Reason> {
        Err(Reason::NoAnswer)
    }
}

impl Eyes for Nowhere {
    fn snapshot(&self) -> Result<Snapshot, String> {
        Err("nothing looks here".to_owned())
    }

    /// Whom the file `held` names, where there is one.
    fn holders(&self) -> Result<(Observed<Vec<Holder>>, Vec<Gap>), String> {
        let text = std::fs::read_to_string(self.0.join("held"));
        let text = text.map_err(|_| "nothing looks here".to_owned())?;
        let all =
            text.lines().filter_map(|line| line.split_once(' ')).map(|(pid, device)| Holder {
                pid: pid.parse().unwrap(),
                command: "engine".to_owned(),
                start: 1,
                uid: 0,
                tenant: TenantId::host(),
                nodes: Vec::new(),
                devices: vec![device.parse().unwrap()],
                untold: Vec::new(),
                switches: Vec::new(),
            });
        Ok((Observed::Known(all.collect()), Vec::new()))
    }

    fn root(&self) -> Result<Root, String> {
        let root = Root::open(&self.0).map_err(|error| error.to_string())?;
        let locked = std::fs::exists(self.0.join("locked")).unwrap();
        Ok(if locked { root.with_slow(Box::new(Waits)) } else { root })
    }

    fn keep_for(&self, _id: &str) -> Result<(), String> {
        Ok(())
    }

    fn take_up(&self, _id: &str) {}

    fn initramfs_has(&self, driver: &str) -> Result<bool, String> {
        Err(format!("nobody looks for {driver} here"))
    }

    fn can_copy(&self) -> Result<(), String> {
        Err("nothing copies here".to_owned())
    }

    fn copy(&self, from: PciAddress, _to: PciAddress) -> Result<Copied, String> {
        Err(format!("{from} does not copy"))
    }
}

/// A tree with one device of two functions in group 7.
pub(super) fn tree() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    for device in [DEVICE, SIBLING] {
        let directory = root.join("sys/devices").join(device);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("driver_override"), "(null)\n").unwrap();
        std::fs::write(directory.join("vendor"), "0x10de\n").unwrap();
        symlink("../../kernel/iommu_groups/7", directory.join("iommu_group")).unwrap();
        let listed = root.join("sys/bus/pci/devices");
        std::fs::create_dir_all(&listed).unwrap();
        symlink(format!("../../../devices/{device}"), listed.join(device)).unwrap();
        let member = root.join("sys/kernel/iommu_groups/7/devices");
        std::fs::create_dir_all(&member).unwrap();
        std::fs::write(member.join(device), "").unwrap();
    }
    std::fs::write(root.join("sys/kernel/iommu_groups/7/type"), "DMA-FQ\n").unwrap();
    std::fs::create_dir_all(root.join("run")).unwrap();
    std::fs::create_dir_all(root.join("state")).unwrap();
    place
}

/// A program that does with its words what `write-child` does, or something else.
pub(super) fn script(place: &Path, text: &str) -> std::path::PathBuf {
    let path = place.join("child");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

const WRITES: &str = "printf %s \"$2\"";

pub(super) fn host(place: &Path) -> LiveHost {
    let program = script(place, WRITES);
    let eyes = Box::new(Nowhere(place.to_owned()));
    LiveHost::new(eyes, place, place.join("state"), program).unwrap()
}

/// As if a plan had named these acts.
pub(super) fn allow(host: &mut LiveHost, acts: &[Op], members: &str) {
    host.limits = super::Limits::of_acts(acts.iter(), |_| Some(members.to_owned()));
}

fn set_override(device: &str) -> Op {
    Op::SetOverride { device: device.parse().unwrap(), driver: "nvidia".to_owned() }
}

fn to_identity() -> Op {
    Op::WriteGroupType {
        group: 3,
        member: DEVICE.parse().unwrap(),
        from: "DMA-FQ".to_owned(),
        to: "identity".to_owned(),
    }
}

fn read(place: &Path, file: &str) -> String {
    std::fs::read_to_string(place.join(file)).unwrap_or_default()
}

#[test]
fn only_what_the_plan_names_is_written() {
    let place = tree();
    let mut host = host(place.path());
    let file = |device: &str| format!("sys/devices/{device}/driver_override");
    allow(&mut host, &[set_override(DEVICE)], "");
    let error = host.perform(&set_override(SIBLING)).unwrap_err();
    assert!(error.to_string().contains("no step of the plan names 0000:01:00.1"), "{error}");
    assert_eq!(read(place.path(), &file(SIBLING)), "(null)\n");
    host.perform(&set_override(DEVICE)).unwrap();
    assert!(read(place.path(), &file(DEVICE)).starts_with("nvidia"));
    let fence = Op::Fence { node: "/dev/null".to_owned(), mode: 0 };
    assert!(matches!(host.perform(&fence), Err(WriteError::NotOffered { .. })));
}

/// The group had number 3 when the plan was made, and has 7 now.
#[test]
fn a_group_is_found_by_its_member_and_only_as_the_plan_saw_it() {
    let place = tree();
    let mut host = host(place.path());
    allow(&mut host, &[to_identity()], DEVICE);
    let error = host.perform(&to_identity()).unwrap_err();
    assert!(error.to_string().contains("and the plan saw 0000:01:00.0"), "{error}");
    assert_eq!(read(place.path(), "sys/kernel/iommu_groups/7/type"), "DMA-FQ\n");
    allow(&mut host, &[to_identity()], &format!("{DEVICE} {SIBLING}"));
    assert_eq!(host.current(&to_identity()).unwrap(), Found::Value("DMA-FQ".to_owned()));
    host.perform(&to_identity()).unwrap();
    assert!(read(place.path(), "sys/kernel/iommu_groups/7/type").starts_with("identity"));
}

#[test]
fn the_environment_is_whole_or_not_there_and_leaves_nothing() {
    let place = tree();
    let mut host = host(place.path());
    let write =
        |text: &str| Op::WriteEnvironment { kind: Environment::Safe, content: text.to_owned() };
    assert_eq!(host.current(&Op::RemoveEnvironment).unwrap(), Found::Nothing);
    for text in ["NCCL_P2P_DISABLE=1\n", "NCCL_P2P_LEVEL=PHB\n"] {
        host.perform(&write(text)).unwrap();
        assert_eq!(host.current(&write("")).unwrap(), Found::Value(text.to_owned()));
        let mode = std::fs::metadata(place.path().join("run/peerway/p2p.env")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o644);
    }
    host.perform(&Op::RemoveEnvironment).unwrap();
    assert!(!place.path().join("run/peerway").exists());
    // Somebody else's link is not followed.
    std::fs::create_dir_all(place.path().join("elsewhere")).unwrap();
    symlink("../elsewhere", place.path().join("run/peerway")).unwrap();
    assert!(host.perform(&write("x")).is_err());
    assert_eq!(std::fs::read_dir(place.path().join("elsewhere")).unwrap().count(), 0);
}

/// Directories of packages stay though nothing else is in them; our own go with their last file.
#[test]
fn what_lasts_leaves_the_directories_that_were_there() {
    const THERE: [&str; 4] =
        ["etc/systemd/system", "etc/udev/rules.d", "etc/apt/apt.conf.d", "etc/kernel/postinst.d"];
    const FILES: [&str; 6] = [
        "/etc/peerway/safe.env",
        "/etc/systemd/system/peerway-safe.service",
        "/etc/systemd/system/sysinit.target.d/peerway.conf",
        "/etc/udev/rules.d/90-peerway.rules",
        "/etc/apt/apt.conf.d/90peerway",
        "/etc/kernel/postinst.d/zz-peerway",
    ];
    let place = tree();
    for directory in THERE {
        std::fs::create_dir_all(place.path().join(directory)).unwrap();
    }
    let mut host = host(place.path());
    let installs = FILES.map(|path| Op::Install {
        path: path.to_owned(),
        mode: 0o644,
        content: "ours\n".to_owned(),
    });
    allow(&mut host, &installs, "");
    for (act, path) in installs.iter().zip(FILES) {
        host.perform(act).unwrap();
        assert_eq!(read(place.path(), path.trim_start_matches('/')).trim(), "ours");
    }
    for path in FILES {
        host.perform(&Op::Uninstall { path: path.to_owned() }).unwrap();
        assert!(!place.path().join(path.trim_start_matches('/')).exists(), "{path}");
    }
    for directory in THERE {
        assert!(place.path().join(directory).is_dir(), "{directory}");
    }
    for directory in ["etc/peerway", "etc/systemd/system/sysinit.target.d"] {
        assert!(!place.path().join(directory).exists(), "{directory}");
    }
}

#[test]
fn a_device_that_is_gone_is_not_one_without_a_driver() {
    let place = tree();
    let host = host(place.path());
    let probe =
        |device: &str| Op::Probe { device: device.parse().unwrap(), driver: "nvidia".to_owned() };
    assert_eq!(host.current(&probe(DEVICE)).unwrap(), Found::Nothing);
    assert!(matches!(host.current(&probe("0000:02:00.0")), Err(WriteError::Unreadable { .. })));
}

/// With a driver the kernel would have it take part in the reset.
#[test]
fn only_a_device_without_a_driver_is_reset() {
    let place = tree();
    let mut host = host(place.path());
    let reset = Op::Reset { device: DEVICE.parse().unwrap() };
    let file = format!("sys/devices/{DEVICE}/reset");
    std::fs::write(place.path().join(&file), "").unwrap();
    let driver = place.path().join("sys/devices").join(DEVICE).join("driver");
    symlink("../../bus/pci/drivers/nvidia", &driver).unwrap();
    allow(&mut host, &[set_override(DEVICE)], "");
    let error = host.perform(&reset).unwrap_err();
    assert!(error.to_string().contains("a driver is bound"), "{error}");
    assert_eq!(read(place.path(), &file), "");
    std::fs::remove_file(&driver).unwrap();
    host.perform(&reset).unwrap();
    assert!(read(place.path(), &file).starts_with('1'));
    // Another function's is none of the plan's.
    let other = Op::Reset { device: SIBLING.parse().unwrap() };
    assert!(host.perform(&other).is_err());
}

/// While a device's lock is held, its override is unknown, and nobody waits for it.
#[test]
fn an_override_behind_a_lock_is_unknown() {
    let place = tree();
    let host = host(place.path());
    assert_eq!(host.current(&set_override(DEVICE)).unwrap(), Found::Nothing);
    std::fs::write(place.path().join("locked"), "").unwrap();
    let error = host.current(&set_override(DEVICE)).unwrap_err();
    assert!(matches!(error, WriteError::Unreadable { .. }), "{error}");
    let probe = Op::Probe { device: DEVICE.parse().unwrap(), driver: "nvidia".to_owned() };
    assert_eq!(host.current(&probe).unwrap(), Found::Nothing);
}

fn blocked(place: &Path, text: &str, limit: Duration) -> (Blocking, Result<Written, String>) {
    let blocking = Blocking::new(place.join("state"), script(place, text));
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(place.join("sys/kernel/iommu_groups/7/type"))
        .unwrap();
    let written = blocking.write(file.into(), "identity", "unbind of 0000:01:00.0", limit);
    (blocking, written)
}

#[test]
fn a_write_ends_as_its_child_says() {
    let place = tree();
    let second = Duration::from_secs(30);
    assert_eq!(blocked(place.path(), WRITES, second).1, Ok(Written::Done));
    let busy = Written::Refused(rustix::io::Errno::BUSY);
    assert_eq!(blocked(place.path(), "exit 16", second).1, Ok(busy));
    assert!(blocked(place.path(), "exit 255", second).1.is_err());
    assert!(blocked(place.path(), "kill -9 $$", second).1.is_err());
}

/// The script waits as a driver does; the next command, another process or this one, sees it.
#[test]
fn a_write_that_does_not_come_back_is_seen_until_it_does() {
    let place = tree();
    let text = format!("until [ -e {}/go ]; do sleep 0.05; done", place.path().display());
    let (blocking, written) = blocked(place.path(), &text, Duration::from_millis(200));
    assert_eq!(written, Ok(Written::Hangs));
    let mut host = host(place.path());
    assert!(host.is_stuck(DEVICE.parse().unwrap()));
    assert!(!host.is_stuck(SIBLING.parse().unwrap()));
    allow(&mut host, &[set_override(DEVICE)], "");
    assert!(matches!(host.perform(&set_override(DEVICE)), Err(WriteError::Hangs { .. })));
    std::fs::write(place.path().join("go"), "").unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while blocking.under_way().is_some() {
        assert!(Instant::now() < end, "the child is over and its lock is not");
    }
}

#[test]
fn without_a_proof_nothing_is_begun() {
    let place = tree();
    let host = host(place.path());
    assert!(host.eyes.can_copy().is_err());
    assert!(host.uptime() > 0 && host.wall().ends_with('Z'));
}

/// Configuration space of a port: AER first, then ACS (PCIe 7.7.11) with its control word.
fn port(place: &Path, control: u16) {
    let mut bytes = vec![0_u8; 4096];
    let mut put = |at: usize, value: u32| {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    put(0x100, 0x1481_0001);
    put(0x148, 0x0001_000d);
    put(0x14c, u32::from(control) << 16 | 0x001f);
    std::fs::write(place.join("sys/devices").join(DEVICE).join("config"), bytes).unwrap();
}

fn control(place: &Path) -> u16 {
    let bytes = std::fs::read(place.join("sys/devices").join(DEVICE).join("config")).unwrap();
    assert_eq!(bytes.len(), 4096);
    let changed: Vec<usize> = (0..4096).filter(|at| bytes[*at] != 0).collect();
    assert!(changed.iter().all(|at| (0x100..0x104).contains(at) || (0x148..0x150).contains(at)));
    u16::from_le_bytes([bytes[0x14e], bytes[0x14f]])
}

#[test]
fn of_the_access_control_of_a_port_only_the_named_bits_change() {
    let place = tree();
    port(place.path(), 0x005d);
    let mut host = host(place.path());
    let clear = Op::WriteAcs { port: DEVICE.parse().unwrap(), mask: 0x000c, bits: 0 };
    let set = Op::WriteAcs { port: DEVICE.parse().unwrap(), mask: 0x000c, bits: 0x000c };
    let other = Op::WriteAcs { port: SIBLING.parse().unwrap(), mask: 0x000c, bits: 0 };
    allow(&mut host, std::slice::from_ref(&clear), "");
    assert_eq!(host.current(&clear).unwrap(), Found::Value(0x005d.to_string()));
    host.perform(&clear).unwrap();
    assert_eq!(control(place.path()), 0x0051);
    assert!(is_reached(&clear, &host.current(&clear).unwrap()));
    host.perform(&set).unwrap();
    assert_eq!(control(place.path()), 0x005d);
    assert!(matches!(host.perform(&other), Err(WriteError::NotOffered { .. })));
    // A port without the capability.
    std::fs::write(place.path().join("sys/devices").join(DEVICE).join("config"), [0; 64]).unwrap();
    assert!(matches!(host.current(&clear), Err(WriteError::Refused { .. })));
}
