//! What can go wrong in a command: the act, the thing, and what to do.

use std::fmt::Write as _;

use peerway_read::error::ReadError;
use peerway_read::host_file::HostFileError;
use thiserror::Error;

use crate::exit::Exit;

/// A command that could not be carried out.
#[derive(Debug, Error)]
pub enum CliError {
    /// The file or directory of `--host` could not be opened.
    #[error("cannot open the host {host:?}")]
    OpenHost {
        /// What `--host` named.
        host: String,
        /// Why.
        source: ReadError,
    },
    /// The `.host` file was refused.
    #[error("cannot use {path:?} as a host")]
    HostFile {
        /// The file.
        path: String,
        /// Why.
        source: HostFileError,
    },
    /// No simulated host of that name.
    #[error("there is no simulated host {name:?}")]
    NoSuchSimulation {
        /// What was asked for.
        name: String,
    },
    /// A simulated host that could not be built: a defect of this program.
    #[error("cannot build the simulated host {name:?}")]
    Simulation {
        /// Its name.
        name: String,
        /// Why.
        source: peerway_sim::build::BuildError,
    },
    /// A file that an option names.
    #[error("cannot read {what} {path:?}: {why}")]
    OptionFile {
        /// What it is for.
        what: &'static str,
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// A device spelled in a way that names none.
    #[error("cannot find the device {spelling:?} on this host")]
    NoSuchDevice {
        /// What was given.
        spelling: String,
        /// What there is.
        hint: String,
    },
    /// A code, a document or another word from a closed list.
    #[error("there is no {what} {word:?}")]
    NoSuchWord {
        /// What kind of word.
        what: &'static str,
        /// What was given.
        word: String,
        /// What there is.
        hint: String,
    },
    /// A measurement that does not prove what is to rest on it.
    #[error("{path:?} does not prove peer access: {why}")]
    NotProved {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// A wish that names what is not there, or contradicts another.
    #[error("cannot follow these wishes: {why}")]
    Wishes {
        /// Why.
        why: String,
    },
    /// A plan could not be made, through a fault of this program.
    #[error("cannot make the plan: {why}")]
    Plan {
        /// Why.
        why: String,
    },
    /// A result file could not be written.
    #[error("cannot write {path:?}: {why}")]
    ResultFile {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// Standard output could not be written.
    #[error("cannot write the answer")]
    Output {
        /// Why.
        source: std::io::Error,
    },
    /// A document could not be rendered.
    #[error("cannot render the document")]
    Render {
        /// Why.
        source: serde_json::Error,
    },
    /// A wall that exists could not be raised.
    #[error("cannot raise the walls that keep this command from changing anything: {why}")]
    Walls {
        /// Why.
        why: String,
    },
}

impl CliError {
    /// Its exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::OpenHost { .. }
            | Self::HostFile { .. }
            | Self::NoSuchSimulation { .. }
            | Self::OptionFile { .. }
            | Self::ResultFile { .. }
            | Self::NoSuchDevice { .. }
            | Self::Wishes { .. }
            | Self::NoSuchWord { .. } => Exit::Usage,
            Self::NotProved { .. } => Exit::Refused,
            Self::Output { .. } | Self::Plan { .. } => Exit::Internal,
            Self::Render { .. } | Self::Walls { .. } | Self::Simulation { .. } => Exit::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NoSuchSimulation { .. } => Some(format!("there are: {}", sim_names())),
            Self::OpenHost { .. } => Some(format!(
                "--host takes live, a directory that stands for /, a .host file, or one of: {}",
                sim_names()
            )),
            Self::NoSuchDevice { hint, .. } | Self::NoSuchWord { hint, .. } => Some(hint.clone()),
            Self::NotProved { .. } => {
                Some("nothing was rendered; without --proof the safe mode is".to_owned())
            }
            Self::ResultFile { .. } => Some(
                "a file that is there is left alone: name one that is not, in a directory that may \
                 be written"
                    .to_owned(),
            ),
            Self::HostFile { .. } => Some("peerway capture writes such files".to_owned()),
            Self::Walls { .. } => Some(
                "nothing was read and nothing was changed; please report this with the kernel \
                 release"
                    .to_owned(),
            ),
            Self::Simulation { .. }
            | Self::Wishes { .. }
            | Self::Plan { .. }
            | Self::OptionFile { .. }
            | Self::Output { .. }
            | Self::Render { .. } => None,
        }
    }
}

/// Names of the simulated hosts, as `--host` takes them.
pub fn sim_names() -> String {
    let names: Vec<String> = peerway_sim::NAMES.iter().map(|name| format!("sim:{name}")).collect();
    format!("{}, and those of docs/hosts.md", names.join(", "))
}

/// The error, its causes, and a hint.
pub fn render(error: &CliError) -> String {
    let mut text = format!("peerway: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        // Writing to a String cannot fail.
        if write!(text, ": {next}").is_err() {
            break;
        }
        cause = next.source();
    }
    text.push('\n');
    if let Some(hint) = error.hint() {
        text.push_str("\nhint: ");
        text.push_str(&hint);
        text.push('\n');
    }
    text
}
