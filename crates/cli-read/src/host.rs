//! From `--host` to a snapshot.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use peerway_core::diagnose::pairs::PairScope;
use peerway_core::diagnose::{self, Diagnosis};
use peerway_core::observed::Observed;
use peerway_core::snapshot::{OriginKind, Snapshot};
use peerway_read::collect::pci::Scope;
use peerway_read::host::{Declared, Request, collect};
use peerway_read::host_file;
use peerway_read::root::{Recording, Root};
use peerway_read::tree::Tree;
use peerway_roads::Outcome;
use rustix::fd::BorrowedFd;

use crate::args::{Global, Kind};
use crate::declared;
use crate::error::CliError;
use crate::guard::{self, Children, Reads};
use crate::remembered;

/// A host that was looked at.
#[derive(Debug)]
pub struct Looked {
    /// What was seen.
    pub snapshot: Snapshot,
    /// When.
    pub when: Timestamp,
    /// What could not be raised, of the walls that keep reading harmless.
    pub missing_walls: Vec<String>,
    /// What earlier transactions came to.
    pub remembered: Observed<Vec<Outcome>>,
    /// What was read, for a capture.
    pub recording: Recording,
}

impl Looked {
    /// Its diagnosis under the options.
    pub fn diagnose(&self, global: &Global) -> Diagnosis {
        diagnose::diagnose(&self.snapshot, &pair_scope(global))
    }
}

/// Which pairs the options ask for.
pub fn pair_scope(global: &Global) -> PairScope {
    PairScope {
        across_tenants: global.all,
        nics: global.kinds.contains(&Kind::Nic),
        nvme: global.kinds.contains(&Kind::Nvme),
    }
}

/// Looks at the host of the options.
pub fn look(global: &Global) -> Result<Looked, CliError> {
    look_and(global, &[], false, None)
}

/// Looks, while further files are to be read and a result goes to a file opened before.
pub fn look_with(
    global: &Global,
    files: &[PathBuf],
    result: Option<BorrowedFd<'_>>,
) -> Result<Looked, CliError> {
    look_and(global, files, false, result)
}

/// Looks, and keeps what was read, for a result that goes to a file opened before.
pub fn look_recording(global: &Global, result: Option<BorrowedFd<'_>>) -> Result<Looked, CliError> {
    look_and(global, &[], true, result)
}

fn look_and(
    global: &Global,
    files: &[PathBuf],
    record: bool,
    result: Option<BorrowedFd<'_>>,
) -> Result<Looked, CliError> {
    let reads = match global.host.as_str() {
        "live" => Reads::Live,
        host if host.starts_with("sim:") => {
            simulated_from(host).map_or(Reads::Nothing, Reads::Place)
        }
        host => Reads::Place(Path::new(host)),
    };
    let privileged = rustix::process::geteuid().is_root();
    let files = [global.accelerator.as_slice(), files].concat();
    let mut children = Children::start(reads);
    let mut missing_walls = guard::raise(reads, &files, result, &children)?;
    let accelerators = accelerators(&global.accelerator)?;
    let (root, kind) = open(&global.host)?;
    let root = if record { root.recording() } else { root };
    let (holders, gaps) = children.holders();
    missing_walls.extend(gaps);
    let root = if kind == OriginKind::Live { root.with_slow(children.into_slow()) } else { root };
    let request = Request {
        host: global.host.clone(),
        kind,
        privileged,
        scope: Scope {
            nics: global.kinds.contains(&Kind::Nic),
            nvme: global.kinds.contains(&Kind::Nvme),
            wake: global.wake,
            also: std::collections::BTreeSet::new(),
        },
        accelerators,
        holders,
    };
    let snapshot = collect(&root, request);
    let remembered = remembered::read(&root);
    let recording = root.into_recording();
    Ok(Looked { snapshot, when: Timestamp::now(), missing_walls, remembered, recording })
}

/// The recording that a simulated host begins as: `sim:PATH`, a path with a slash in it, so that no
/// name of a simulated host can mean a file.
pub fn simulated_from(host: &str) -> Option<&Path> {
    host.strip_prefix("sim:").filter(|path| path.contains('/')).map(Path::new)
}

/// Opens what `--host` names.
fn open(host: &str) -> Result<(Root, OriginKind), CliError> {
    if let Some(path) = simulated_from(host) {
        let tree = simulated_tree(path)?;
        return Ok((Root::recorded(Arc::new(tree)), OriginKind::Simulated));
    }
    if let Some(name) = host.strip_prefix("sim:") {
        let tree = peerway_sim::host(name)
            .ok_or_else(|| CliError::NoSuchSimulation { name: name.to_owned() })?
            .map_err(|source| CliError::Simulation { name: name.to_owned(), source })?;
        return Ok((Root::recorded(Arc::new(tree)), OriginKind::Simulated));
    }
    if host == "live" {
        return Ok((open_directory(host, Path::new("/"))?, OriginKind::Live));
    }
    let path = Path::new(host);
    match read_option_file(path, host_file::MOST_BYTES) {
        Ok(bytes) => Ok((Root::recorded(Arc::new(recorded(host, bytes)?)), OriginKind::Recorded)),
        // A directory, or nothing: opening it as a directory says which.
        Err(_) => Ok((open_directory(host, path)?, OriginKind::Recorded)),
    }
}

fn open_directory(host: &str, path: &Path) -> Result<Root, CliError> {
    Root::open(path).map_err(|source| CliError::OpenHost { host: host.to_owned(), source })
}

/// The tree of a recording that a simulated host begins as.
pub fn simulated_tree(path: &Path) -> Result<Tree, CliError> {
    let shown = path.display().to_string();
    match read_option_file(path, host_file::MOST_BYTES) {
        Ok(bytes) => recorded(&shown, bytes),
        Err(why) => Err(CliError::OptionFile { what: "the .host file", path: shown, why }),
    }
}

fn recorded(path: &str, bytes: Vec<u8>) -> Result<Tree, CliError> {
    let text = String::from_utf8(bytes).map_err(|_| CliError::OptionFile {
        what: "the .host file",
        path: path.to_owned(),
        why: "it is not text".to_owned(),
    })?;
    host_file::parse(&text).map_err(|source| CliError::HostFile { path: path.to_owned(), source })
}

/// Reads a file that an option names, as an ordinary path of this process.
pub fn read_option_file(path: &Path, limit: usize) -> Result<Vec<u8>, String> {
    use rustix::fs::{FileType, Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| std::io::Error::from(errno).to_string())?;
    let state = rustix::fs::fstat(&file).map_err(|errno| errno.to_string())?;
    if FileType::from_raw_mode(state.st_mode) != FileType::RegularFile {
        return Err("not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    loop {
        if bytes.len() > limit {
            return Err(format!("longer than {limit} bytes"));
        }
        bytes.reserve(64 << 10);
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => return Ok(bytes),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(std::io::Error::from(errno).to_string()),
        }
    }
}

/// Accelerator files are short.
const MOST_DECLARATIONS: usize = 1 << 20;

/// What files of accelerators declare.
pub fn accelerators(files: &[PathBuf]) -> Result<Vec<Declared>, CliError> {
    let mut all = Vec::new();
    for file in files {
        let error = |why| CliError::OptionFile {
            what: "the accelerator file",
            path: file.display().to_string(),
            why,
        };
        let bytes = read_option_file(file, MOST_DECLARATIONS).map_err(error)?;
        let text = String::from_utf8(bytes).map_err(|_| error("it is not text".to_owned()))?;
        all.extend(declared::parse(&text).map_err(error)?);
    }
    Ok(all)
}
