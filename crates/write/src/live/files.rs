//! Every file of a live host that is opened for writing is opened here.

use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Longer than anything that is written here.
const MOST_BYTES: usize = 1 << 20;
/// Where the kernel's own files are.
const KERNEL: &str = "/sys/";

/// Directories of the system, which its packages bring: they stay, empty or not.
const SHARED: [&str; 4] =
    ["/etc/systemd/system", "/etc/udev/rules.d", "/etc/apt/apt.conf.d", "/etc/kernel/postinst.d"];

/// The tree that is written to.
#[derive(Debug)]
pub(super) struct Files {
    root: OwnedFd,
}

impl Files {
    pub(super) fn open(root: &Path) -> Result<Self, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self { root: rustix::fs::open(root, flags, Mode::empty())? })
    }

    fn at(&self, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let inside = path.strip_prefix('/').unwrap_or(path);
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, inside, flags | OFlags::CLOEXEC, mode, resolve)
    }

    /// A file of sysfs, to be written once; nothing is created or cut.
    pub(super) fn of_kernel(&self, path: &str) -> Result<OwnedFd, Errno> {
        if !path.starts_with(KERNEL) {
            return Err(Errno::ACCESS);
        }
        self.at(path, OFlags::WRONLY | OFlags::NOCTTY, Mode::empty())
    }

    /// A file of sysfs, to be read and written at offsets.
    pub(super) fn registers(&self, path: &str, write: bool) -> Result<OwnedFd, Errno> {
        if !path.starts_with(KERNEL) {
            return Err(Errno::ACCESS);
        }
        self.at(path, if write { OFlags::RDWR } else { OFlags::RDONLY }, Mode::empty())
    }

    /// A directory without links on the way to it, and the name of a file in it.
    fn beside<'p>(&self, path: &'p str) -> Result<(OwnedFd, &'p str), Errno> {
        let (directory, name) = path.rsplit_once('/').ok_or(Errno::INVAL)?;
        let inside = directory.trim_start_matches('/');
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let opened = rustix::fs::openat2(&self.root, inside, flags, Mode::empty(), resolve)?;
        let state = rustix::fs::fstat(&opened)?;
        // What others can write to is not trusted to hold what was written.
        if state.st_uid != rustix::process::geteuid().as_raw() || state.st_mode & 0o022 != 0 {
            return Err(Errno::PERM);
        }
        Ok((opened, name))
    }

    /// All of a regular file of ours.
    pub(super) fn whole(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let (directory, name) = self.beside(path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
        let state = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(state.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        let mut bytes = Vec::new();
        loop {
            if bytes.len() > MOST_BYTES {
                return Err(Errno::FBIG);
            }
            bytes.reserve(4096);
            match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
                Ok(0) => return Ok(bytes),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Makes the directories above a file, as far as they are missing.
    fn make_above(&self, path: &str) -> Result<(), Errno> {
        let inside = path.trim_start_matches('/');
        for (end, _) in inside.match_indices('/') {
            let one = inside.get(..end).unwrap_or_default();
            let mode = Mode::from_raw_mode(0o755);
            match rustix::fs::mkdirat(&self.root, one, mode) {
                // Whatever the mask of the one who asked.
                Ok(()) => rustix::fs::chmodat(&self.root, one, mode, AtFlags::empty())?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Puts a file of ours in place, whole or not at all.
    pub(super) fn replace(&self, path: &str, mode: u32, mut bytes: &[u8]) -> Result<(), Errno> {
        self.make_above(path)?;
        let (directory, name) = self.beside(path)?;
        let fresh = format!(".{name}.new");
        match rustix::fs::unlinkat(&directory, fresh.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&directory, fresh.as_str(), flags, Mode::from_raw_mode(mode))?;
        // Others read it, whatever the mask of the one who asked.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        while !bytes.is_empty() {
            match rustix::io::write(&file, bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        rustix::fs::fsync(&file)?;
        rustix::fs::renameat(&directory, fresh.as_str(), &directory, name)?;
        rustix::fs::fsync(&directory)
    }

    /// Removes a file of ours, and its directory where nothing else is in it.
    pub(super) fn remove(&self, path: &str) -> Result<(), Errno> {
        let (directory, name) = self.beside(path)?;
        match rustix::fs::unlinkat(&directory, format!(".{name}.new"), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        rustix::fs::unlinkat(&directory, name, AtFlags::empty())?;
        rustix::fs::fsync(&directory)?;
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if SHARED.contains(&parent) {
            return Ok(());
        }
        match rustix::fs::unlinkat(&self.root, parent.trim_start_matches('/'), AtFlags::REMOVEDIR) {
            // Somebody else's file in it, or a directory that cannot go: it stays.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The directory of device nodes, and a name in it.
    pub(super) fn node<'p>(&self, path: &'p str) -> Result<(OwnedFd, &'p str), Errno> {
        let name = path.strip_prefix("/dev/").ok_or(Errno::INVAL)?;
        if name.is_empty() || name.split('/').any(|part| part.is_empty() || part == "..") {
            return Err(Errno::INVAL);
        }
        let (directory, name) = name.rsplit_once('/').unwrap_or(("", name));
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let place = format!("dev/{directory}");
        let opened =
            rustix::fs::openat2(&self.root, place.as_str(), flags, Mode::empty(), resolve)?;
        Ok((opened, name))
    }
}
