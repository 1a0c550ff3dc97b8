//! The system calls: opening below a root, reading, listing.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::KMSG;
use crate::error::Reason;

/// Longest record of the kernel log (`CONSOLE_EXT_LOG_MAX`, `PRINTKRB_RECORD_MAX`).
pub(super) const KMSG_RECORD: usize = 8 << 10;

/// Device number of `/dev/kmsg` (`drivers/char/mem.c`): memory devices, minor 11.
const KMSG_DEVICE: (u32, u32) = (1, 11);

/// Entries of one directory: more than any host has, and a bound for hostile trees.
const MOST_NAMES: usize = 1 << 20;

/// Attributes of sysfs fit one page (`fs/sysfs/file.c`, `sysfs_kf_seq_show`).
const PAGE: usize = 4096;

/// How much of a file is in memory when it is read line by line, and the longest line.
pub(super) const CHUNK: usize = 64 << 10;

/// `SYSFS_MAGIC` (`include/uapi/linux/magic.h`).
const SYSFS_MAGIC: u64 = 0x6265_6572;

/// A regular file, open for reading.
#[derive(Debug)]
pub(super) struct Regular {
    file: OwnedFd,
    /// What `stat` says: the length on disk, a page for attributes of sysfs, 0 in procfs.
    size: u64,
    /// Device number of its file system.
    device: u64,
}

impl Regular {
    pub(super) fn open(fd: &OwnedFd, path: &str, resolve: ResolveFlags) -> Result<Self, Reason> {
        // NONBLOCK: a named pipe in a hostile tree must not hold the open until a writer comes.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = resolve | ResolveFlags::NO_MAGICLINKS;
        let file =
            retry(|| rustix::fs::openat2(fd, relative(path), flags, Mode::empty(), resolve))?;
        let state = rustix::fs::fstat(&file).map_err(Reason::Errno)?;
        match FileType::from_raw_mode(state.st_mode) {
            FileType::RegularFile => Ok(Self {
                file,
                size: u64::try_from(state.st_size).unwrap_or(0),
                device: state.st_dev,
            }),
            FileType::Directory => Err(Reason::Errno(Errno::ISDIR)),
            _ => Err(Reason::NotRegular),
        }
    }

    /// Reads to the end, or one byte past the limit so that the caller can tell. `sysfs` is the
    /// device number of the file system whose attributes come in one piece.
    pub(super) fn read_all(&self, limit: usize, sysfs: Option<u64>) -> Result<Vec<u8>, Reason> {
        // Attributes fit the first buffer, and what is kept is no longer than they are.
        let mut first = [0_u8; PAGE];
        let count = again(|| rustix::io::read(&self.file, &mut first[..]))?;
        let head = first.get(..count).unwrap_or_default();
        if count == 0 || self.ends_at(count) || count < PAGE && sysfs == Some(self.device) {
            return Ok(head.to_vec());
        }
        let rest = usize::try_from(self.size).unwrap_or(usize::MAX).saturating_sub(count);
        let mut bytes = Vec::with_capacity(count + rest.min(limit).max(PAGE) + 1);
        bytes.extend_from_slice(head);
        loop {
            if bytes.len() > limit {
                return Err(Reason::TooLong { limit });
            }
            if bytes.capacity() == bytes.len() {
                bytes.reserve_exact(bytes.len().clamp(PAGE, 1 << 20));
            }
            let count =
                again(|| rustix::io::read(&self.file, rustix::buffer::spare_capacity(&mut bytes)))?;
            if count == 0 || self.ends_at(bytes.len()) {
                return Ok(bytes);
            }
        }
    }

    /// Whether so many bytes are the whole of a file that tells its length. One that grows is
    /// taken as it was when it was opened.
    fn ends_at(&self, count: usize) -> bool {
        u64::try_from(count) == Ok(self.size)
    }

    /// Up to `length` bytes at an offset.
    pub(super) fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, Reason> {
        let mut bytes = Vec::with_capacity(length);
        again(|| {
            rustix::io::pread(&self.file, rustix::buffer::spare_capacity(&mut bytes), offset)
        })?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Bytes from where the last read ended into `place`; how many there were.
    pub(super) fn read_on(&self, place: &mut [u8]) -> Result<usize, Reason> {
        again(|| rustix::io::read(&self.file, &mut *place))
    }
}

/// Calls again after a signal.
fn again(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Reason> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other.map_err(Reason::Errno),
        }
    }
}

/// Device number of the sysfs that is mounted below a root, if one is: a live host's, and not a
/// copy of one.
pub(super) fn sysfs_device(root: &OwnedFd) -> Option<u64> {
    let directory = open_directory(root, "/sys").ok()?;
    let kind = rustix::fs::fstatfs(&directory).ok()?.f_type;
    if u64::try_from(kind) != Ok(SYSFS_MAGIC) {
        return None;
    }
    rustix::fs::fstat(&directory).ok().map(|state| state.st_dev)
}

/// Relative to the root: `openat2` takes absolute paths as such only below `RESOLVE_IN_ROOT`.
fn relative(path: &str) -> &str {
    match path.trim_start_matches('/') {
        "" => ".",
        rest => rest,
    }
}

pub(super) fn open_directory(fd: &OwnedFd, path: &str) -> Result<OwnedFd, Reason> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    retry(|| rustix::fs::openat2(fd, relative(path), flags, Mode::empty(), resolve))
}

/// A directory right below another, and no link.
pub(super) fn open_inner(fd: &OwnedFd, name: &str) -> Result<OwnedFd, Reason> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    retry(|| rustix::fs::openat2(fd, name, flags, Mode::empty(), resolve))
}

/// `openat2` may answer `EAGAIN` when a rename raced with the walk; a few tries settle it.
fn retry(mut open: impl FnMut() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Reason> {
    for _ in 0..8 {
        match open() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other.map_err(Reason::Errno),
        }
    }
    Err(Reason::Errno(Errno::AGAIN))
}

/// Reads record by record until there is none left; the descriptor does not wait.
pub(super) fn read_kernel_log(root: &OwnedFd, limit: usize) -> Result<Vec<u8>, Reason> {
    match Regular::open(root, KMSG, ResolveFlags::IN_ROOT) {
        Err(Reason::NotRegular) => {}
        Err(other) => return Err(other),
        Ok(copy) => {
            return match copy.read_all(limit, None) {
                Ok(mut bytes) => {
                    bytes.truncate(limit);
                    Ok(bytes)
                }
                Err(Reason::TooLong { .. }) => copy.read_at(0, limit),
                Err(other) => Err(other),
            };
        }
    }
    let file = open_kernel_log(root)?;
    let mut bytes: Vec<u8> = Vec::new();
    while bytes.len() < limit {
        bytes.reserve(KMSG_RECORD);
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) | Err(Errno::AGAIN) => break,
            // EPIPE: records were overwritten under the reader; the next read goes on behind them.
            Ok(_) | Err(Errno::INTR | Errno::PIPE) => {}
            Err(errno) => return Err(Reason::Errno(errno)),
        }
    }
    Ok(bytes)
}

/// The device of the kernel log; the descriptor does not wait.
pub(super) fn open_kernel_log(root: &OwnedFd) -> Result<OwnedFd, Reason> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = retry(|| rustix::fs::openat2(root, relative(KMSG), flags, Mode::empty(), resolve))?;
    let state = rustix::fs::fstat(&file).map_err(Reason::Errno)?;
    let device = (rustix::fs::major(state.st_rdev), rustix::fs::minor(state.st_rdev));
    let kind = FileType::from_raw_mode(state.st_mode);
    if kind != FileType::CharacterDevice || device != KMSG_DEVICE {
        return Err(Reason::NotRegular);
    }
    Ok(file)
}

pub(super) fn list_directory(fd: &OwnedFd, path: &str) -> Result<Vec<String>, Reason> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let directory =
        retry(|| rustix::fs::openat2(fd, relative(path), flags, Mode::empty(), resolve))?;
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(Reason::Errno)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        // Names that are no text cannot name anything that this program looks for.
        if let Ok(name) = std::str::from_utf8(name) {
            names.push(name.to_owned());
        }
        if names.len() > MOST_NAMES {
            return Err(Reason::TooLong { limit: MOST_NAMES });
        }
    }
    Ok(names)
}

pub(super) fn link_at(fd: &OwnedFd, name: &str) -> Result<String, Reason> {
    match rustix::fs::readlinkat(fd, name, Vec::new()) {
        Ok(target) => target.into_string().map_err(|_| Reason::NotText),
        Err(Errno::INVAL) => Err(Reason::NotLink),
        Err(errno) => Err(Reason::Errno(errno)),
    }
}

/// Hands every line to `each` until it breaks off. `read` fills a buffer from where it left off
/// and says how much there was. Lines longer than [`CHUNK`] are left out.
pub(super) fn lines(
    limit: usize,
    read: &mut dyn FnMut(&mut [u8]) -> Result<usize, Reason>,
    each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), Reason> {
    let mut buffer = vec![0_u8; CHUNK];
    let (mut filled, mut total, mut skipping) = (0, 0_usize, false);
    loop {
        let count = read(buffer.get_mut(filled..).unwrap_or_default())?;
        total = total.saturating_add(count);
        if total > limit {
            return Err(Reason::TooLong { limit });
        }
        filled += count;
        let content = buffer.get(..filled).unwrap_or_default();
        let mut parts = content.split(|byte| *byte == b'\n');
        // What follows the last newline may go on in the next piece.
        let tail = parts.next_back().unwrap_or_default().len();
        for line in parts {
            if std::mem::take(&mut skipping) {
                continue;
            }
            if each(line).is_break() {
                return Ok(());
            }
        }
        if count == 0 {
            let last = content.get(filled - tail..).unwrap_or_default();
            if !skipping && !last.is_empty() && each(last).is_break() {
                return Ok(());
            }
            return Ok(());
        }
        if tail == buffer.len() {
            skipping = true;
            filled = 0;
        } else {
            buffer.copy_within(filled - tail..filled, 0);
            filled = tail;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&[u8]], expected: &[&str]) {
        let mut left: Vec<Vec<u8>> = pieces.iter().rev().map(|piece| piece.to_vec()).collect();
        let mut seen = Vec::new();
        let mut read = |place: &mut [u8]| {
            let Some(mut piece) = left.pop() else { return Ok(0) };
            let count = piece.len().min(place.len());
            place[..count].copy_from_slice(&piece[..count]);
            if count < piece.len() {
                left.push(piece.split_off(count));
            }
            Ok(count)
        };
        let mut each = |line: &[u8]| {
            seen.push(String::from_utf8_lossy(line).into_owned());
            if line == b"stop" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        lines(1 << 20, &mut read, &mut each).unwrap();
        assert_eq!(seen, expected);
    }

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        check(&[], &[]);
        check(&[b"a\nb\n"], &["a", "b"]);
        check(&[b"a", b"b\nc", b"", b"never read"], &["ab", "c"]);
        check(&[b"a\n\nb"], &["a", "", "b"]);
        check(&[b"a\nst", b"op\nb\n"], &["a", "stop"]);
        let long = vec![b'x'; 3 * CHUNK];
        check(&[b"a\n", &long, b"x\nb\n"], &["a", "b"]);
        check(&[b"a\n", &long], &["a"]);
        check(&[&vec![b'x'; CHUNK - 1], b"\nb"], &[&"x".repeat(CHUNK - 1), "b"]);
    }

    #[test]
    fn a_file_without_end_is_given_up() {
        let mut read = |place: &mut [u8]| {
            place.fill(b'y');
            Ok(place.len())
        };
        let limit = 1 << 20;
        let seen = lines(limit, &mut read, &mut |_| ControlFlow::Continue(()));
        assert_eq!(seen, Err(Reason::TooLong { limit }));
    }
}
