//! The files that the command line names. They are no host's files: they are opened before the
//! walls go up, and only for reading.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::CliError;

/// An open file, pipe, or standard input.
#[derive(Debug)]
pub struct Input {
    /// Its name, for people.
    pub name: String,
    source: Source,
    /// Bytes, of a regular file.
    size: Option<u64>,
}

#[derive(Debug)]
enum Source {
    Owned(OwnedFd),
    Stdin,
}

/// Opens what the command line names; `-` is standard input.
pub fn open_all(paths: &[PathBuf]) -> Result<Vec<Input>, CliError> {
    paths.iter().map(|path| open(path)).collect()
}

fn open(path: &Path) -> Result<Input, CliError> {
    let refused = |why: String| CliError::OptionFile {
        what: "the file",
        path: path.display().to_string(),
        why,
    };
    if path == Path::new("-") {
        let size = regular_size(rustix::stdio::stdin()).map_err(&refused)?;
        return Ok(Input { name: "standard input".to_owned(), source: Source::Stdin, size });
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| refused(io::Error::from(errno).to_string()))?;
    let size = regular_size(file.as_fd()).map_err(refused)?;
    Ok(Input { name: path.display().to_string(), source: Source::Owned(file), size })
}

/// The size of a regular file, none of a pipe; everything else holds no log.
fn regular_size(file: BorrowedFd<'_>) -> Result<Option<u64>, String> {
    let state = rustix::fs::fstat(file).map_err(|errno| io::Error::from(errno).to_string())?;
    match FileType::from_raw_mode(state.st_mode) {
        FileType::RegularFile => Ok(u64::try_from(state.st_size).ok()),
        FileType::Fifo | FileType::Socket => Ok(None),
        FileType::CharacterDevice if rustix::termios::isatty(file) => Ok(None),
        FileType::Directory => Err("is a directory; name the files in it".to_owned()),
        _ => Err("is a device; without a file, the log of --host is read".to_owned()),
    }
}

impl Input {
    /// Bytes, where that is known.
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Owned(file) => file.as_fd(),
            Source::Stdin => rustix::stdio::stdin(),
        }
    }

    /// Reads at an offset, for several readers at once.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match rustix::io::pread(self.descriptor(), &mut *buffer, offset) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }
}

impl io::Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(self.descriptor(), &mut *buffer) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }
}
