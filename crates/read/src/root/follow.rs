//! The kernel log of a live host as it grows.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::files::{self, KMSG_RECORD};
use super::{Backing, KMSG, Root};
use crate::error::{ReadError, Reason};

/// Bytes that one call gathers at most.
const MOST: usize = 256 << 10;

/// The kernel log, open at one of its records.
#[derive(Debug)]
pub struct KernelLog {
    file: OwnedFd,
}

impl Root {
    /// Opens the kernel log of a live host: from its oldest record, or behind its newest.
    pub fn follow_kernel_log(&self, from_now: bool) -> Result<KernelLog, ReadError> {
        let open = || {
            let Backing::Directory { fd, .. } = &self.backing else {
                return Err(Reason::NotRecorded);
            };
            let file = files::open_kernel_log(fd)?;
            if from_now {
                rustix::fs::seek(&file, SeekFrom::End(0)).map_err(Reason::Errno)?;
            }
            Ok(KernelLog { file })
        };
        open().map_err(failed)
    }
}

impl KernelLog {
    /// Appends the records that there are, and if there is none waits for one, but no longer than
    /// `patience`. Returns whether there was any.
    pub fn read(&mut self, records: &mut Vec<u8>, patience: Duration) -> Result<bool, ReadError> {
        let before = records.len();
        let mut waited = false;
        // A storm may bring records faster than they are read.
        while records.len() - before < MOST {
            records.reserve(KMSG_RECORD);
            match rustix::io::read(&self.file, rustix::buffer::spare_capacity(records)) {
                // EPIPE: records were overwritten under the reader; it goes on behind them, and
                // the gap in the numbers tells.
                Ok(1..) | Err(Errno::INTR | Errno::PIPE) => {}
                Ok(0) | Err(Errno::AGAIN) if records.len() > before || waited => {
                    return Ok(records.len() > before);
                }
                Ok(0) | Err(Errno::AGAIN) => {
                    self.wait(patience)?;
                    waited = true;
                }
                Err(errno) => return Err(failed(Reason::Errno(errno))),
            }
        }
        Ok(true)
    }

    fn wait(&self, patience: Duration) -> Result<(), ReadError> {
        let mut descriptors = [PollFd::new(&self.file, PollFlags::IN)];
        let patience = Timespec::try_from(patience).ok();
        match poll(&mut descriptors, patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(failed(Reason::Errno(errno))),
        }
    }
}

fn failed(reason: Reason) -> ReadError {
    ReadError { action: "read", path: KMSG.to_owned(), reason }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "fixtures on disk")]
mod tests {
    use super::*;

    #[test]
    fn only_a_live_host_has_one_that_grows() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("dev")).unwrap();
        std::fs::write(place.path().join("dev/kmsg"), "3,1,1,-;x\n").unwrap();
        let root = Root::open(place.path()).unwrap();
        let error = root.follow_kernel_log(true).unwrap_err();
        assert_eq!(error.to_string(), "cannot read \"/dev/kmsg\": not a regular file");
    }
}
