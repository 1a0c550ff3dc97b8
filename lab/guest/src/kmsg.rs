//! The kernel log through `/dev/kmsg`.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::{Context as _, Result};

/// `O_NONBLOCK` on every architecture that the lab has.
const NONBLOCK: i32 = 0o4000;
/// Longer than any record (`CONSOLE_EXT_LOG_MAX` in `include/linux/console.h` is 8192).
const RECORD: usize = 16 << 10;

/// A reader that remembers how far it came.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
}

impl KernelLog {
    /// A reader from the oldest line on.
    ///
    /// # Errors
    /// Where `/dev/kmsg` cannot be opened.
    pub fn open() -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(NONBLOCK)
            .open("/dev/kmsg")
            .context(|| "cannot open /dev/kmsg".to_owned())?;
        Ok(Self { file })
    }

    /// All lines that came since the last call.
    ///
    /// # Errors
    /// Where reading fails for another reason than the end of the log.
    pub fn new_lines(&mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut buffer = vec![0; RECORD];
        loop {
            match self.file.read(&mut buffer) {
                Ok(count) => {
                    let record = String::from_utf8_lossy(buffer.get(..count).unwrap_or_default());
                    lines.extend(text(&record).map(str::to_owned));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(lines),
                // The log ran over what was not yet read: say so and go on.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    lines.push("(lines were lost here)".to_owned());
                }
                Err(error) => return Err(format!("cannot read /dev/kmsg: {error}").into()),
            }
        }
    }
}

/// The message of a record: `priority,sequence,time,flags;message`, then lines of properties.
fn text(record: &str) -> Option<&str> {
    record.split_once(';').and_then(|(_, rest)| rest.lines().next())
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn a_record_is_reduced_to_its_message() {
        let record = "3,512,1042,-;DMAR: a fault; of somebody\n SUBSYSTEM=pci\n";
        assert_eq!(text(record), Some("DMAR: a fault; of somebody"));
        assert_eq!(text("no record"), None);
    }
}
