//! A file for a result, created before anything is read and never replacing another.

use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::CliError;

/// An open, empty file.
#[derive(Debug)]
pub struct ResultFile {
    path: String,
    file: OwnedFd,
}

impl ResultFile {
    /// Creates it; a file that is there is left alone.
    pub fn create(path: &Path) -> Result<Self, CliError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let name = path.display().to_string();
        match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(Self { path: name, file }),
            Err(errno) => Err(CliError::ResultFile {
                path: name,
                why: std::io::Error::from(errno).to_string(),
            }),
        }
    }

    /// Its descriptor, which the walls leave writable.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its path, as it was named.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Writes everything.
    pub fn write(&self, mut bytes: &[u8]) -> Result<(), CliError> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.file, bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(CliError::ResultFile {
                        path: self.path.clone(),
                        why: std::io::Error::from(errno).to_string(),
                    });
                }
            }
        }
        Ok(())
    }
}
