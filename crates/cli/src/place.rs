//! Where a changing command finds its host and its journal.

use std::path::{Path, PathBuf};

use peerway_cli_read::error::CliError;
use peerway_cli_read::host::{simulated_from, simulated_tree};
use peerway_read::host_file;
use peerway_sim::build::to_host_file;
use peerway_sim::react::{SimHost, State};
use peerway_write::store::{OWN, StoreError};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Name of the file that keeps a simulated host between commands.
const KEPT: &str = "simulated.json";
/// The same host for reading commands: `--host DIR/host.host`.
const READABLE: &str = "host.host";

/// Why a changing command did not begin.
#[derive(Debug, Error)]
pub(crate) enum PlaceError {
    /// What a running host needs is missing.
    #[error("cannot change this host: {0}")]
    Live(String),
    /// Another journal has the host.
    #[error("a transaction with --state {0} is not over; run peerway recover --state {0} first")]
    Elsewhere(String),
    /// Recorded hosts cannot change.
    #[error("{0:?} is a record, and nothing about it can change")]
    Recorded(String),
    /// No such simulated host.
    #[error("there is no simulated host {0:?}")]
    NoSuchSimulation(String),
    /// A simulated host that cannot be built.
    #[error("cannot build the simulated host {name:?}: {why}")]
    Broken {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// Nothing says where state is kept.
    #[error("no directory for the journal: give --state DIR")]
    NoState,
    /// A file.
    #[error("cannot {act} {path:?}: {why}")]
    File {
        /// What.
        act: &'static str,
        /// Of what.
        path: String,
        /// Why.
        why: String,
    },
    /// The accelerator files.
    #[error(transparent)]
    Accelerators(#[from] CliError),
    /// The journal.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    host: String,
    state: State,
    tree: String,
}

/// Where state is kept: as asked for, or below the user's state directory.
pub(crate) fn state_directory(asked: Option<&Path>, host: &str) -> Result<PathBuf, PlaceError> {
    if let Some(path) = asked {
        return Ok(path.to_owned());
    }
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(Path::new(&home).join(".local/state"))
    });
    let base = base.filter(|path| path.is_absolute()).ok_or(PlaceError::NoState)?;
    Ok(base.join("peerway").join(host.replace([':', '/'], "-")))
}

/// Makes a directory and those above it.
pub(crate) fn make_directories(path: &Path) -> Result<(), PlaceError> {
    let above: Vec<&Path> = path.ancestors().collect();
    for one in above.into_iter().rev().filter(|one| !one.as_os_str().is_empty()) {
        match rustix::fs::mkdir(one, Mode::RWXU) {
            // Whatever the mask of the one who asked.
            Ok(()) => rustix::fs::chmod(one, Mode::RWXU).map_err(file("make", one))?,
            // What cannot be made because it is there, or because it is not ours, shows later.
            Err(Errno::EXIST | Errno::ROFS | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(file("make", one)(errno)),
        }
    }
    Ok(())
}

fn file(act: &'static str, path: &Path) -> impl FnOnce(Errno) -> PlaceError + use<> {
    let path = path.display().to_string();
    move |errno| PlaceError::File { act, path, why: std::io::Error::from(errno).to_string() }
}

/// The simulated host of a name, as the last command left it.
///
/// `sim:PATH` is a simulated host that began as a recording: a rehearsal on somebody's own machine.
pub(crate) fn load(directory: &Path, name: &str) -> Result<SimHost, PlaceError> {
    let Some(host) = name.strip_prefix("sim:") else {
        return Err(PlaceError::Recorded(name.to_owned()));
    };
    let path = directory.join(KEPT);
    let broken = |why: String| PlaceError::Broken { name: name.to_owned(), why };
    match rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => {}
        Err(Errno::NOENT) => {
            if let Some(path) = simulated_from(name) {
                let tree = simulated_tree(path).map_err(|error| broken(error.to_string()))?;
                return Ok(SimHost::new(name, tree));
            }
            let fresh = SimHost::named(host)
                .ok_or_else(|| PlaceError::NoSuchSimulation(host.to_owned()))?;
            return fresh.map_err(|error| broken(error.to_string()));
        }
        Err(errno) => return Err(file("open", &path)(errno)),
    }
    let bytes = peerway_cli_read::host::read_option_file(&path, host_file::MOST_BYTES)
        .map_err(|why| PlaceError::File { act: "read", path: path.display().to_string(), why })?;
    let kept: Kept = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
    if kept.host != name {
        return Err(broken(format!("{} keeps {}", path.display(), kept.host)));
    }
    let tree = host_file::parse(&kept.tree).map_err(|error| broken(error.to_string()))?;
    Ok(SimHost::restored(name, tree, kept.state))
}

/// Keeps a simulated host for the next command.
pub(crate) fn save(directory: &Path, name: &str, host: &SimHost) -> Result<(), PlaceError> {
    let tree = to_host_file("A simulated host as the last changing command left it.", host.tree());
    let readable = tree.clone();
    let kept = Kept { host: name.to_owned(), state: host.state().clone(), tree };
    let text = serde_json::to_string(&kept)
        .map_err(|error| PlaceError::Broken { name: name.to_owned(), why: error.to_string() })?;
    replace(directory, KEPT, text.as_bytes())?;
    replace(directory, READABLE, readable.as_bytes())
}

/// Replaces a file: written beside it, synced, renamed.
pub(crate) fn replace(directory: &Path, name: &str, mut bytes: &[u8]) -> Result<(), PlaceError> {
    let fresh = directory.join(format!("{name}.new"));
    let path = directory.join(name);
    match rustix::fs::unlink(&fresh) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(file("replace", &fresh)(errno)),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&fresh, flags, OWN).map_err(file("open", &fresh))?;
    // Whatever the mask of the one who asked.
    rustix::fs::fchmod(&fd, OWN).map_err(file("make", &fresh))?;
    while !bytes.is_empty() {
        match rustix::io::write(&fd, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(file("write", &fresh)(errno)),
        }
    }
    rustix::fs::fsync(&fd).map_err(file("sync", &fresh))?;
    rustix::fs::rename(&fresh, &path).map_err(file("replace", &path))?;
    // The name has to survive as well as the content.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above =
        rustix::fs::open(directory, flags, Mode::empty()).map_err(file("open", directory))?;
    rustix::fs::fsync(&above).map_err(file("sync", directory))
}
