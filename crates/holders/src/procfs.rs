//! Directories and small files, opened read-only and without waiting.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, StatxFlags};
use rustix::io::Errno;

use crate::list::DeviceNumber;

/// Names longer than this are cut: `PATH_MAX`, and the mark of a removed file.
const LINK_LIMIT: usize = 4096 + 16;

/// `PROC_SUPER_MAGIC` of `include/uapi/linux/magic.h`.
const PROC_MAGIC: u64 = 0x9fa0;

/// What stands behind a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Its numbers, where it is a character device.
    pub(crate) device: Option<DeviceNumber>,
    /// Numbers of its file system's device.
    pub(crate) file_system: DeviceNumber,
    /// Its number in that.
    pub(crate) inode: u64,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory(OwnedFd);

impl Directory {
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        rustix::fs::openat(CWD, path, directory_flags(), Mode::empty()).map(Self)
    }

    /// A directory below, which may not be a link (in `/proc` none is; in a recorded tree one
    /// could lead out).
    pub(crate) fn below(&self, name: &str) -> Result<Self, Errno> {
        let flags = directory_flags() | OFlags::NOFOLLOW;
        rustix::fs::openat(&self.0, name, flags, Mode::empty()).map(Self)
    }

    /// Whether this is the kernel's `/proc` and no recorded tree.
    pub(crate) fn is_procfs(&self) -> bool {
        rustix::fs::fstatfs(&self.0).is_ok_and(|s| u64::try_from(s.f_type) == Ok(PROC_MAGIC))
    }

    /// Reads a file into `buffer`, at most `limit` bytes; gives whether that was all.
    pub(crate) fn read(
        &self,
        name: &str,
        limit: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, Errno> {
        buffer.clear();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        loop {
            if buffer.len() >= limit {
                buffer.truncate(limit);
                return Ok(false);
            }
            if buffer.capacity().saturating_sub(buffer.len()) < 4096 {
                buffer.reserve(buffer.len().max(32 << 10));
            }
            match rustix::io::read(&file, rustix::buffer::spare_capacity(buffer)) {
                Ok(0) => return Ok(true),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads a small file as text.
    pub(crate) fn read_text(&self, name: &str, limit: usize) -> Result<String, Errno> {
        let mut buffer = Vec::new();
        self.read(name, limit, &mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }

    /// Reads a link; the name is appended to nothing and cut if it is too long.
    pub(crate) fn link<'b>(
        &self,
        name: &std::ffi::CStr,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], Errno> {
        buffer.clear();
        buffer.reserve(LINK_LIMIT);
        rustix::fs::readlinkat_raw(&self.0, name, rustix::buffer::spare_capacity(buffer))?;
        Ok(buffer)
    }

    /// What stands behind a link.
    ///
    /// The kernel answers from what it knows (`AT_STATX_DONT_SYNC`), so that a file on a server
    /// that is gone does not hold us up.
    pub(crate) fn behind(&self, name: &std::ffi::CStr) -> Result<Behind, Errno> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let stat = rustix::fs::statx(&self.0, name, flags, StatxFlags::TYPE | StatxFlags::INO)?;
        let number = DeviceNumber { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor };
        let is_device = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::CharacterDevice;
        Ok(Behind {
            device: is_device.then_some(number),
            file_system: DeviceNumber { major: stat.stx_dev_major, minor: stat.stx_dev_minor },
            inode: stat.stx_ino,
        })
    }

    /// Calls `each` with every entry.
    pub(crate) fn each(&self, mut each: impl FnMut(&std::ffi::CStr)) -> Result<(), Errno> {
        let mut buffer = Vec::with_capacity(16 << 10);
        let mut entries = RawDir::new(&self.0, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            each(entry?.file_name());
        }
        Ok(())
    }

    /// Calls `each` with every entry that is named by a number, until it breaks off.
    pub(crate) fn each_number(
        &self,
        mut each: impl FnMut(u32, &std::ffi::CStr) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let mut buffer = Vec::with_capacity(16 << 10);
        let mut entries = RawDir::new(&self.0, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().ok().and_then(|n| n.parse().ok());
            if number.is_some_and(|number| each(number, name).is_break()) {
                break;
            }
        }
        Ok(())
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}
