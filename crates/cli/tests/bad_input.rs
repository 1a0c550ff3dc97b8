//! The binary and what people may hand it: files that are cut, hostile or no hosts at all. It says
//! what is wrong, in its own words and with its own exit codes, soon.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "starts the binary on files")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{Mode, OFlags};

const USAGE: i32 = 2;
const UNDECIDED: i32 = 3;

/// Address space of the binary, in KiB: hostile files must not fill the memory of the host that
/// they are looked at on.
const MEMORY: u32 = 1 << 20;

/// Runs a command on a host, for at most forty seconds.
fn run(arguments: &[&str]) -> Output {
    Command::new("sh")
        .args(["-c", "ulimit -v $0 && exec timeout --signal=KILL 40 \"$@\""])
        .arg(MEMORY.to_string())
        .arg(env!("CARGO_BIN_EXE_peerway"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[track_caller]
fn check_run(arguments: &[&str], exit: i32, said: &str) {
    let output = run(arguments);
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    // Lines are folded where they are long.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {flat:.2000}");
    assert!(!flat.contains("panicked"), "{arguments:?}: {flat:.2000}");
    assert!(flat.contains(said), "{arguments:?}: {said:?} is not said: {flat:.2000}");
    assert!(!flat.contains("\"verdict\": \"works\""), "{arguments:?}: {flat:.2000}");
}

/// A place for one host, and what every reading command says of it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at("spoiled.host");
        fs::write(&path, content).unwrap();
        path
    }
}

#[track_caller]
fn check(host: &Path, exit: i32, said: &str) {
    let host = host.to_str().unwrap();
    check_run(&["status", "--host", host], exit, said);
    check_run(&["diagnose", "--format", "json", "--host", host], exit, said);
}

/// Files that are refused: every reading command names what is wrong, and none of them decides.
#[track_caller]
fn check_refused(content: impl AsRef<[u8]>, said: &str) {
    let place = Place::new();
    let host = place.file(content);
    check(&host, USAGE, said);
    check_run(&["scan", "--host", host.to_str().unwrap()], USAGE, said);
    check_run(&["capture", "--host", host.to_str().unwrap()], USAGE, said);
}

fn entries(entries: &[&str]) -> String {
    let text: String = entries.iter().flat_map(|entry| ["//- ", entry, "\n"]).collect();
    format!("peerway-host 1\n{text}//- end {}\n", entries.len())
}

#[test]
fn files_that_are_no_hosts() {
    check_refused("", "not a .host file");
    check_refused("\u{7f}ELF\u{2}\u{1}", "not a .host file");
    check_refused([0xff, 0xfe, 0x00], "it is not text");
    check_refused("peerway-host 2\n//- end 0\n", "update it");
    check_refused("peerway-host 1\n//- /a\nx\n", "is cut");
    check_refused("peerway-host 1\n//- /a\nx\n//- end 7\n", "7 entries announced, 1 there");
    check_refused("peerway-host 1\n//- end 1\n//- /a\n", "an entry after the end");
    check_refused("peerway-host 1\nstray\n//- end 0\n", "content that belongs to no entry");
    check_refused(entries(&["/a !EWHAT"]), "no error name");
    check_refused(entries(&["a/b"]), "no plain absolute path");
    check_refused(entries(&["/a/../../etc/shadow"]), "no plain absolute path");
    check_refused(entries(&["/a", "/a"]), "stands there twice");
    check_refused(entries(&["/a", "/a/b"]), "below something that is no directory");
    check_refused(entries(&["/a hex 4\n0: 001"]), "an odd number of hex digits");
    check_refused(entries(&["/a hex 1\n0: 0011"]), "bytes beyond the size of the file");
    check_refused(entries(&["/a hex 9 9 9\n0: zz"]), "no hex digit");
}

/// A real host, cut anywhere.
#[test]
fn hosts_that_are_cut() {
    let whole = peerway_sim::KPRO6.as_bytes();
    for part in 1..8 {
        check_refused(&whole[..whole.len() * part / 8], "the .host file");
    }
    let last_line = whole.len() - "//- end ".len();
    check_refused(&whole[..last_line], "the .host file");
}

#[test]
fn places_that_are_no_hosts() {
    let place = Place::new();
    check(&place.at("nowhere"), USAGE, "cannot open");
    check(Path::new("/dev/zero"), USAGE, "cannot open");
    check(Path::new("sim:nobody"), USAGE, "there are: sim:kpro6");
    let pipe = place.at("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    check(&pipe, USAGE, "cannot open");
    // An empty directory is a host about which nothing is known.
    let empty = place.at("empty");
    fs::create_dir(&empty).unwrap();
    check(&empty, UNDECIDED, "could");
}

#[test]
fn files_without_end() {
    let place = Place::new();
    let huge = place.at("huge.host");
    let file =
        rustix::fs::open(&huge, OFlags::CREATE | OFlags::WRONLY, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::fs::ftruncate(&file, 1 << 40).unwrap();
    check(&huge, USAGE, "cannot open");
    let deep = "/a".repeat(2_000);
    let many: Vec<String> = (0..1_000).map(|number| format!("/{number}{deep}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    check_refused(entries(&many), "more files than any host has");
}

/// Ten thousand GPUs that are all one directory.
#[test]
fn gpus_without_end() {
    let place = Place::new();
    let mut all = vec!["/one/uevent\nDRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2BB5".to_owned()];
    for number in 0..10_000_u32 {
        let address = format!("0000:{:02x}:{:02x}.{}", number >> 8, number >> 3 & 0x1f, number & 7);
        let link = format!("../../../devices/pci0000:00/{address}");
        all.push(format!("/sys/bus/pci/devices/{address} -> {link}"));
        all.push(format!("/sys/devices/pci0000:00/{address} -> /one"));
    }
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let host = place.file(entries(&all));
    let arguments = ["scan", "--host", host.to_str().unwrap()];
    check_run(&arguments, 0, "8976 GPUs above the first 1024 were left out");
}

#[test]
fn declarations() {
    let place = Place::new();
    let check = |content: &[u8], said: &str| {
        let file = place.at("accelerators.toml");
        fs::write(&file, content).unwrap();
        let file = file.to_str().unwrap();
        check_run(&["status", "--host", "sim:kpro6", "--accelerator", file], USAGE, said);
    };
    check(b"[[accelerator", "TOML");
    check(b"\xff\xfe", "it is not text");
    check(&vec![b'#'; 2 << 20], "longer than");
    let missing = place.at("missing.toml");
    let arguments = ["status", "--host", "sim:kpro6", "--accelerator", missing.to_str().unwrap()];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(USAGE));
}
