#![expect(clippy::disallowed_methods, reason = "fixtures on disk")]

use super::*;
use std::os::unix::fs::symlink;

/// A tree on disk that tries to mislead its reader.
fn hostile() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    std::fs::create_dir(at("sys")).unwrap();
    std::fs::write(at("sys/type"), "DMA-FQ\n").unwrap();
    std::fs::write(at("sys/latin"), b"caf\xe9\n").unwrap();
    std::fs::write(at("sys/long"), vec![b'x'; SMALL + 1]).unwrap();
    std::fs::write(at("sys/empty"), "").unwrap();
    symlink("/sys/type", at("sys/absolute")).unwrap();
    symlink("/etc/hostname", at("sys/outside")).unwrap();
    symlink("../../../../../../etc/hostname", at("sys/climbing")).unwrap();
    symlink("circle", at("sys/circle")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("sys/pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    place
}

#[track_caller]
fn check(path: &str, expected: &str) {
    let place = hostile();
    let root = Root::open(place.path()).unwrap();
    assert_eq!(root.observe(path).to_string(), expected);
    // The same through an open directory.
    let (parent, name) = path.rsplit_once('/').unwrap();
    let through = match root.directory(parent) {
        Ok(directory) if !path.contains("absolute") => directory.observe(name).to_string(),
        _ => expected.to_owned(),
    };
    // Links that lead out are refused there instead of resolving inside.
    assert!(through == expected || through == "unknown (leads out of the host's root)");
}

struct Locked;

impl SlowSource for Locked {
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

/// Only what takes a device's lock is asked of a child, by either way.
#[test]
fn an_attribute_behind_a_lock_is_never_read_here() {
    let place = tempfile::tempdir().unwrap();
    let device = place.path().join("sys/bus/pci/devices/0000:01:00.0");
    std::fs::create_dir_all(&device).unwrap();
    for name in ["driver_override", "vendor"] {
        std::fs::write(device.join(name), "0x10de\n").unwrap();
    }
    let directory = "/sys/bus/pci/devices/0000:01:00.0";
    let both = |root: &Root, name: &str| {
        let through = root.directory(directory).unwrap().observe(name).to_string();
        assert_eq!(root.observe(&format!("{directory}/{name}")).to_string(), through);
        through
    };
    let root = Root::open(place.path()).unwrap();
    assert_eq!(both(&root, "driver_override"), "0x10de");
    let root = root.with_slow(Box::new(Locked));
    assert_eq!(both(&root, "vendor"), "0x10de");
    let unknown = both(&root, "driver_override");
    assert!(unknown.starts_with("unknown"), "{unknown}");
}

#[test]
fn a_hostile_tree_gives_values_or_reasons() {
    check("/sys/type", "DMA-FQ");
    check("/sys/empty", "");
    check("/sys/absolute", "DMA-FQ");
    check("/sys/outside", "none");
    check("/sys/climbing", "none");
    check("/sys/missing", "none");
    check("/sys/latin", "unknown (not text)");
    check("/sys/long", "unknown (longer than 65536 bytes)");
    check("/sys/circle", "unknown (too many links, or a link where none may be)");
    check("/sys/pipe", "unknown (not a regular file)");
}

#[test]
fn endless_and_special_files_are_refused() {
    let root = Root::open(Path::new("/")).unwrap();
    assert_eq!(root.observe("/dev/zero").to_string(), "unknown (not a regular file)");
}

#[track_caller]
fn check_behind(path: &str, target: &str, expected: Option<&str>) {
    assert_eq!(behind(path, target).as_deref(), expected);
}

#[test]
fn where_links_lead() {
    let path = "/sys/bus/pci/devices/0000:01:00.0";
    let target = "../../../devices/pci0000:00/0000:00:01.1/0000:01:00.0";
    let real = "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0";
    check_behind(path, target, Some(real));
    check_behind(path, "/a/./b//c", Some("/a/b/c"));
    check_behind(path, "../../../../..", None);
    check_behind(path, "", Some("/sys/bus/pci/devices"));
}
