//! Why something could not be read.

use peerway_core::observed::Observed;
use rustix::io::Errno;
use thiserror::Error;

/// A failed look at one place.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("cannot {action} {path:?}: {reason}")]
pub struct ReadError {
    /// `read`, `list`, `follow`, `open`.
    pub action: &'static str,
    /// Path below the root.
    pub path: String,
    /// Why.
    pub reason: Reason,
}

/// Why a look failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Reason {
    /// The kernel refused.
    #[error("{}", errno_text(*.0))]
    Errno(Errno),
    /// Longer than anything this program expects there; reading on might never end.
    #[error("longer than {limit} bytes")]
    TooLong {
        /// The bound.
        limit: usize,
    },
    /// More was asked for than any host has.
    #[error("left out: more was found than any host has")]
    TooMuch,
    /// No answer in time.
    #[error("no answer within a second")]
    NoAnswer,
    /// A pipe, a device or a socket where a file was expected.
    #[error("not a regular file")]
    NotRegular,
    /// A file or a directory where a link was expected.
    #[error("no link, as in a copy that follows links instead of keeping them")]
    NotLink,
    /// Bytes that are no UTF-8.
    #[error("not text")]
    NotText,
    /// The recording does not hold this part.
    #[error("not recorded")]
    NotRecorded,
    /// Text that the format's parser refuses.
    #[error("{0}")]
    Malformed(String),
}

impl ReadError {
    /// Nothing there, as opposed to no way to tell.
    pub fn is_absent(&self) -> bool {
        matches!(self.reason, Reason::Errno(Errno::NOENT | Errno::NOTDIR))
    }

    /// As an observation.
    pub fn observed<T>(self) -> Observed<T> {
        if self.is_absent() {
            Observed::Absent
        } else {
            Observed::Unreadable(self.reason.to_string())
        }
    }
}

/// What the error number means to an operator.
fn errno_text(errno: Errno) -> String {
    match errno {
        Errno::ACCESS | Errno::PERM => "permission denied".to_owned(),
        Errno::NOENT => "no such file".to_owned(),
        Errno::NODEV | Errno::NXIO => "the device is gone".to_owned(),
        Errno::IO => "input/output error".to_owned(),
        Errno::LOOP => "too many links, or a link where none may be".to_owned(),
        Errno::XDEV => "leads out of the host's root".to_owned(),
        other => std::io::Error::from(other).to_string(),
    }
}

/// What was read instead of what was expected, for a sentence: quoted, and cut where it is long.
pub fn shown(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{:?}…", text.get(..at).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

/// An observation from a result.
pub fn observe<T>(result: Result<T, ReadError>) -> Observed<T> {
    match result {
        Ok(value) => Observed::Known(value),
        Err(error) => error.observed(),
    }
}
