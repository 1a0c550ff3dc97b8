//! Children first, walls second, reading third: the order that keeps looking harmless.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use peerway_holders::{HolderList, ScanChild, ScanOptions, SlowError, SlowOptions, SlowReader};
use peerway_read::error::Reason;
use peerway_read::root::{SLOW_TREES, SlowSource};
use peerway_walls::{Capability, Plan};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::error::CliError;

/// How long the scan for holders may take in all; ten thousand processes take a few tenths.
const HOLDER_PATIENCE: Duration = Duration::from_secs(5);

/// Trees of a live host that this program reads itself. `/proc/driver/nvidia`, `/etc/pve` and some
/// attributes of `/sys` can block and are read by children.
const LIVE_TREES: [&str; 9] = [
    "/sys",
    "/proc",
    "/dev/kmsg",
    "/dev/vfio",
    "/run",
    "/var/lib/lxc",
    "/etc/libvirt",
    "/etc/modprobe.d",
    "/var/lib/peerway",
];

/// Whether this process stands behind its walls.
static RAISED: OnceLock<()> = OnceLock::new();

/// What a command is about to read.
#[derive(Clone, Copy, Debug)]
pub enum Reads<'a> {
    /// This machine.
    Live,
    /// A directory that stands for `/`, or a file.
    Place(&'a Path),
    /// Nothing: a built-in host.
    Nothing,
}

/// Children that look where the walls forbid it, started before the walls went up.
#[derive(Default)]
pub struct Children {
    holders: Option<ScanChild>,
    slow: Vec<(&'static str, SlowReader)>,
    /// Children that could not be started.
    gaps: Vec<String>,
}

impl fmt::Debug for Children {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Children(holders: {}, slow: {})", self.holders.is_some(), self.slow.len())
    }
}

impl Children {
    /// Starts them; only a live host needs any.
    pub fn start(reads: Reads<'_>) -> Self {
        let mut children = Self::default();
        if !matches!(reads, Reads::Live) {
            return children;
        }
        match ScanChild::spawn(&ScanOptions::default()) {
            Ok(child) => children.holders = Some(child),
            Err(error) => children.gaps.push(format!("the scan for holders: {error}")),
        }
        for tree in SLOW_TREES {
            match SlowReader::spawn(&SlowOptions::live(&[tree])) {
                Ok(reader) => children.slow.push((tree, reader)),
                Err(error) => children.gaps.push(format!("the reader of {tree}: {error}")),
            }
        }
        children
    }

    /// Descriptors that requests to them are written to.
    fn requests(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.slow.iter().map(|(_, reader)| reader.requests())
    }

    /// The list of holders, as far as it came in time, and what is missing of it.
    pub fn holders(&mut self) -> (Option<HolderList>, Vec<String>) {
        let mut gaps = std::mem::take(&mut self.gaps);
        let Some(child) = self.holders.take() else { return (None, gaps) };
        let found = child.collect(Instant::now() + HOLDER_PATIENCE);
        gaps.extend(found.gap);
        gaps.extend(
            found
                .walls
                .iter()
                .flat_map(peerway_walls::Report::gaps)
                .map(|gap| format!("in the scan for holders, {gap}")),
        );
        (Some(found.list), gaps)
    }

    /// The readers of trees that can block, as a source for a root. None is started from here on:
    /// behind walls, one that is missing stays missing.
    pub fn into_slow(self) -> Box<dyn SlowSource> {
        let mut started: BTreeMap<&str, SlowReader> = self.slow.into_iter().collect();
        let missing = || "its reader could not be started".to_owned();
        let of =
            SLOW_TREES.map(|tree| (tree, OnceLock::from(started.remove(tree).ok_or_else(missing))));
        Box::new(Readers { of })
    }
}

/// The same for a process that stands behind no walls: each reader is started when it is asked for
/// the first time.
pub fn slow_on_demand() -> Box<dyn SlowSource> {
    Box::new(Readers::default())
}

/// A reader for each tree that can block; one that nobody gave is started when it is asked for.
struct Readers {
    of: [(&'static str, OnceLock<Result<SlowReader, String>>); SLOW_TREES.len()],
}

impl Default for Readers {
    fn default() -> Self {
        Self { of: SLOW_TREES.map(|tree| (tree, OnceLock::new())) }
    }
}

impl Readers {
    fn reader(&self, path: &str) -> Result<&SlowReader, Reason> {
        let (tree, reader) = self
            .of
            .iter()
            .find(|(tree, _)| path.starts_with(tree))
            .ok_or_else(|| Reason::Malformed("no reader is for it".to_owned()))?;
        let started =
            || SlowReader::spawn(&SlowOptions::live(&[tree])).map_err(|error| error.to_string());
        reader.get_or_init(started).as_ref().map_err(|why| Reason::Malformed(why.clone()))
    }
}

impl SlowSource for Readers {
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, Reason> {
        self.reader(path)?.read(path, limit).map_err(reason)
    }

    fn list(&self, path: &str) -> Result<Vec<String>, Reason> {
        let entries = self.reader(path)?.list(path).map_err(reason)?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }

    fn link(&self, path: &str) -> Result<String, Reason> {
        self.reader(path)?.read_link(path).map_err(reason)
    }
}

fn reason(error: SlowError) -> Reason {
    match error {
        SlowError::NotAnswered { .. } => Reason::NoAnswer,
        SlowError::Errno(number) => Reason::Errno(Errno::from_raw_os_error(number)),
        SlowError::NotRegular => Reason::NotRegular,
        SlowError::TooLong { limit } => Reason::TooLong { limit },
        SlowError::Child(why) => Reason::Malformed(why),
    }
}

/// Raises the walls around this process; returns a sentence for each that is missing.
pub fn raise(
    reads: Reads<'_>,
    files: &[PathBuf],
    result: Option<BorrowedFd<'_>>,
    children: &Children,
) -> Result<Vec<String>, CliError> {
    // The story of `demo` looks at several built-in hosts; the walls of the first look stand.
    if matches!(reads, Reads::Nothing) && RAISED.get().is_some() {
        return Ok(Vec::new());
    }
    // Where nothing guards openat2 (a user without root before 6.2), nothing could be read without
    // it; the report names the gap.
    let mut plan = Plan::new()
        .unguarded_openat2()
        .write_to(rustix::stdio::stdout())
        .write_to(rustix::stdio::stderr());
    for descriptor in children.requests().chain(result) {
        plan = plan.write_to(descriptor);
    }
    for file in files {
        plan = plan.read_beneath(file);
    }
    match reads {
        Reads::Live => {
            for tree in LIVE_TREES {
                plan = plan.read_beneath(tree);
            }
            plan = plan
                .keep(Capability::SysAdmin, "configuration space beyond its first 64 bytes")
                .keep(Capability::SysLog, "the kernel log and the list of symbols")
                .keep(Capability::DacReadSearch, "firmware tables and other users' files");
        }
        Reads::Place(path) => {
            plan = plan
                .read_beneath(path)
                .keep(Capability::DacReadSearch, "files of other users in a copied tree");
        }
        Reads::Nothing => {}
    }
    let report = plan.raise().map_err(|error| CliError::Walls { why: error.to_string() })?;
    // Set by this call alone: walls go up once, and a second attempt ends above or fails there.
    RAISED.get_or_init(|| ());
    Ok(report.gaps())
}
