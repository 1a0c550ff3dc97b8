//! What a reader must leave alone: takes a snapshot of sysfs, of chosen files of procfs and of every
//! device's configuration space, and tells what differs from the snapshot before.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::ExitCode;

use peerway_lab_guest::{Context as _, Result};
use peerway_lab_protocol::Stillness;

/// Where the last snapshot lies: memory that is in none of the trees.
const LAST: &str = "/tmp/lab-still.json";
/// Trees that are read whole, without what is mounted below them.
const TREES: [&str; 2] = ["/sys", "/proc/sys"];
/// Files of procfs that say what the system is, and not what its processes do.
const FILES: [&str; 14] = [
    "/proc/bus/pci/devices",
    "/proc/cmdline",
    "/proc/consoles",
    "/proc/devices",
    "/proc/dma",
    "/proc/filesystems",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/locks",
    "/proc/misc",
    "/proc/modules",
    "/proc/mounts",
    "/proc/partitions",
    "/proc/swaps",
];
/// The longest part of a file that is looked at.
const MOST: u64 = 1 << 20;

/// Hash of each file's content, or of the error that reading it gave.
type Snapshot = BTreeMap<String, u64>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-still: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut now = Snapshot::new();
    for tree in TREES {
        let device = fs::metadata(tree).context(|| format!("cannot look at {tree}"))?.dev();
        walk(Path::new(tree), device, &mut now)?;
    }
    for file in FILES {
        now.insert(file.to_owned(), hash(Path::new(file)));
    }
    let before: Snapshot = match fs::read(LAST) {
        Ok(text) => serde_json::from_slice(&text)?,
        Err(_) => now.clone(),
    };
    fs::write(LAST, serde_json::to_vec(&now)?).context(|| format!("cannot write {LAST}"))?;
    let missing = |from: &Snapshot, other: &Snapshot| {
        from.keys().filter(|path| !other.contains_key(*path)).cloned().collect()
    };
    let changed =
        now.iter().filter(|(path, hash)| before.get(*path).is_some_and(|old| old != *hash));
    let found = Stillness {
        files: now.len(),
        configurations: now.keys().filter(|path| is_configuration(path)).count(),
        changed: changed.map(|(path, _)| path.clone()).collect(),
        appeared: missing(&now, &before),
        gone: missing(&before, &now),
    };
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

fn is_configuration(path: &str) -> bool {
    path.starts_with("/sys/devices/pci") && path.ends_with("/config")
}

fn walk(directory: &Path, device: u64, into: &mut Snapshot) -> Result<()> {
    // A directory may go away while its parent is read.
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let Ok(data) = entry.metadata() else { continue };
        if kind.is_dir() && data.dev() == device {
            walk(&path, device, into)?;
        } else if kind.is_file()
            && data.mode() & 0o444 != 0
            && !touches(&entry.file_name().to_string_lossy())
        {
            into.insert(path.display().to_string(), hash(&path));
        }
    }
    Ok(())
}

/// Reading these reaches into a device, which would be this program's own doing.
fn touches(name: &str) -> bool {
    let region = name.strip_prefix("resource");
    region.is_some_and(|rest| !rest.is_empty()) || name == "rom" || name == "vpd"
}

fn hash(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Without waiting: a file that has nothing to say now has nothing to say.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut bytes = Vec::new();
    let result = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .and_then(|file| file.take(MOST).read_to_end(&mut bytes));
    bytes.hash(&mut hasher);
    result.err().and_then(|error| error.raw_os_error()).hash(&mut hasher);
    hasher.finish()
}
