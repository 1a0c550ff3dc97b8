//! What an intruder in the process would try.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::raw;

/// What an attempt can lay hands on.
pub(crate) struct Prey {
    /// A file and an empty directory of this attempt's own.
    pub(crate) own: PathBuf,
    /// A descriptor that was opened for reading and writing before the walls went up, on
    /// `foreign/file`.
    pub(crate) foreign: OwnedFd,
    /// A process of the same user.
    pub(crate) victim: Pid,
}

impl Prey {
    fn file(&self) -> PathBuf {
        self.own.join("file")
    }
    fn fresh(&self) -> PathBuf {
        self.own.join("fresh")
    }
    fn dir(&self) -> PathBuf {
        self.own.join("empty")
    }
}

/// One way out.
pub(crate) struct Attempt {
    /// Its name, also that of its directory.
    pub(crate) name: &'static str,
    /// Whether it works for any user where there are no walls, so that the control run can prove
    /// that it is a real attempt.
    pub(crate) works: bool,
    /// Tries. An error of the kernel is the answer that is hoped for.
    pub(crate) run: fn(&Prey) -> Result<(), Errno>,
}

const fn real(name: &'static str, run: fn(&Prey) -> Result<(), Errno>) -> Attempt {
    Attempt { name, works: true, run }
}

const fn privileged(name: &'static str, run: fn(&Prey) -> Result<(), Errno>) -> Attempt {
    Attempt { name, works: false, run }
}

/// All of them.
pub(crate) const ATTEMPTS: &[Attempt] = &[
    real("open_to_write", |p| open(&p.file(), OFlags::WRONLY)),
    real("open_to_read_and_write", |p| open(&p.file(), OFlags::RDWR)),
    real("open_to_append", |p| open(&p.file(), OFlags::WRONLY | OFlags::APPEND)),
    real("open_to_empty", |p| open(&p.file(), OFlags::RDONLY | OFlags::TRUNC)),
    real("open_to_create", |p| open(&p.fresh(), OFlags::RDONLY | OFlags::CREATE)),
    real("open_without_name", |p| open(&p.own, OFlags::WRONLY | OFlags::TMPFILE)),
    real("openat2_to_write", |p| open2(&p.file(), OFlags::WRONLY)),
    real("openat2_to_empty", |p| open2(&p.file(), OFlags::RDONLY | OFlags::TRUNC)),
    real("openat2_to_create", |p| open2(&p.fresh(), OFlags::RDONLY | OFlags::CREATE)),
    real("rename", |p| rustix::fs::rename(p.file(), p.fresh())),
    real("exchange", |p| {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(CWD, p.file(), CWD, p.dir(), flags)
    }),
    real("unlink", |p| rustix::fs::unlink(p.file())),
    real("rmdir", |p| rustix::fs::rmdir(p.dir())),
    real("mkdir", |p| rustix::fs::mkdir(p.fresh(), Mode::RWXU)),
    real("link", |p| rustix::fs::link(p.file(), p.fresh())),
    real("symlink", |p| rustix::fs::symlink("file", p.fresh())),
    real("mkfifo", |p| rustix::fs::mknodat(CWD, p.fresh(), FileType::Fifo, Mode::RWXU, 0)),
    privileged("mknod", |p| {
        rustix::fs::mknodat(CWD, p.fresh(), FileType::CharacterDevice, Mode::RWXU, 0x103)
    }),
    privileged("chmod", |p| rustix::fs::chmod(p.file(), Mode::RWXU)),
    privileged("fchmod", |p| rustix::fs::fchmod(&p.foreign, Mode::RWXU)),
    privileged("chown", |p| rustix::fs::chown(p.file(), Some(rustix::fs::Uid::ROOT), None)),
    privileged("set_times", |p| {
        let old = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        rustix::fs::utimensat(CWD, p.file(), &times, AtFlags::empty())
    }),
    real("ftruncate_foreign", |p| rustix::fs::ftruncate(&p.foreign, 0)),
    real("fallocate_foreign", |p| {
        rustix::fs::fallocate(&p.foreign, rustix::fs::FallocateFlags::empty(), 0, 100)
    }),
    privileged("setxattr", |p| {
        rustix::fs::setxattr(p.file(), "user.peerway", b"1", XattrFlags::empty())
    }),
    real("write_foreign", |p| write(&p.foreign)),
    real("pwrite_foreign", |p| rustix::io::pwrite(&p.foreign, b"x", 0).map(drop)),
    real("writev_foreign", |p| rustix::io::writev(&p.foreign, &[io::IoSlice::new(b"x")]).map(drop)),
    real("copy_the_descriptor", |p| rustix::io::dup(&p.foreign).map(drop)),
    real("copy_it_by_fcntl", |p| rustix::io::fcntl_dupfd_cloexec(&p.foreign, 3).map(drop)),
    real("copy_it_over_stdout", |p| raw_fds(libc::SYS_dup3, [number(&p.foreign), 1, 0])),
    real("close_stdout", |_| raw_fds(libc::SYS_close, [1, 0, 0])),
    real("sendfile", |p| {
        let from = rustix::fs::open(p.file(), OFlags::RDONLY, Mode::empty())?;
        rustix::fs::sendfile(&p.foreign, from, None, 1).map(drop)
    }),
    real("copy_file_range", |p| {
        let from = rustix::fs::open(p.file(), OFlags::RDONLY, Mode::empty())?;
        rustix::fs::copy_file_range(from, None, &p.foreign, None, 1).map(drop)
    }),
    real("flags_of_a_shared_descriptor", |p| {
        rustix::fs::fcntl_setfl(&p.foreign, OFlags::APPEND | OFlags::RDWR)
    }),
    real("lock", |p| {
        rustix::fs::flock(&p.foreign, rustix::fs::FlockOperation::NonBlockingLockShared)
    }),
    real("map_shared", |p| map(&p.foreign, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)),
    real("map_private_file", |p| map(&p.foreign, libc::PROT_READ, libc::MAP_PRIVATE)),
    real("map_executable", |_| {
        let flags = word(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let access = word(libc::PROT_READ | libc::PROT_EXEC);
        raw::call(libc::SYS_mmap, [0, 4096, access, flags, raw::NONE, 0]).map(drop)
    }),
    real("memfd", |_| rustix::fs::memfd_create("code", rustix::fs::MemfdFlags::empty()).map(drop)),
    real("start_a_program", |_| {
        let status = program("/proc/self/exe").arg("--list").output();
        status.map(drop).map_err(|e| errno(&e))
    }),
    // `exec` returns only when it fails, so for the control run a program that does not exist.
    privileged("become_another_program", |p| Err(errno(&program(p.file()).exec()))),
    real("clone_a_process", |_| {
        // CLONE_VM alone would share memory with the child; a plain fork does not. The child of
        // the control run ends at once.
        let child = raw::call(libc::SYS_clone, [word(libc::SIGCHLD), 0, 0, 0, 0, 0])?;
        if child == 0 {
            raw::call(libc::SYS_exit_group, [0; 6])?;
        }
        Ok(())
    }),
    real("socket_unix", |_| socket(rustix::net::AddressFamily::UNIX)),
    real("socket_inet", |_| socket(rustix::net::AddressFamily::INET)),
    real("socket_netlink", |_| socket(rustix::net::AddressFamily::NETLINK)),
    real("signal", |p| rustix::process::kill_process(p.victim, Signal::CONT)),
    real("ask_for_signal", |p| rustix::process::test_kill_process(p.victim)),
    privileged("ptrace", |p| {
        let seize = 0x4206;
        let victim = usize::try_from(p.victim.as_raw_nonzero().get()).map_err(|_| Errno::SRCH)?;
        raw::call(libc::SYS_ptrace, [seize, victim, 0, 0, 0, 0]).map(drop)
    }),
    real("pidfd", |p| {
        let flags = rustix::process::PidfdFlags::empty();
        rustix::process::pidfd_open(p.victim, flags).map(drop)
    }),
    real("own_memory_file", |_| open(Path::new("/proc/self/mem"), OFlags::RDWR)),
    real("own_name_file", |_| open(Path::new("/proc/self/comm"), OFlags::WRONLY)),
    real("own_badness", |_| open(Path::new("/proc/self/oom_score_adj"), OFlags::WRONLY)),
    privileged("a_switch_in_sysfs", |_| {
        open(Path::new("/sys/kernel/mm/transparent_hugepage/enabled"), OFlags::WRONLY)
    }),
    privileged("a_switch_in_proc", |_| open(Path::new("/proc/sys/kernel/printk"), OFlags::WRONLY)),
    privileged("mount", |p| {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", p.dir(), "no-such-type", flags, None)
    }),
    real("change_directory", |p| rustix::process::chdir(&p.own)),
    real("set_limit", |_| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Core);
        rustix::process::setrlimit(rustix::process::Resource::Core, limit)
    }),
    real("unshare", |_| {
        raw::call(libc::SYS_unshare, [word(libc::CLONE_FS), 0, 0, 0, 0, 0]).map(drop)
    }),
    real("watch", |_| {
        rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::empty()).map(drop)
    }),
];

fn open(path: &Path, flags: OFlags) -> Result<(), Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::RWXU).map(drop)
}

fn open2(path: &Path, flags: OFlags) -> Result<(), Errno> {
    let mode = if flags.contains(OFlags::CREATE) { Mode::RWXU } else { Mode::empty() };
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, mode, ResolveFlags::empty()).map(drop)
}

fn write(to: &OwnedFd) -> Result<(), Errno> {
    rustix::io::write(to, b"x").map(drop)
}

fn map(file: &OwnedFd, access: i32, flags: i32) -> Result<(), Errno> {
    let file = number(file);
    raw::call(libc::SYS_mmap, [0, 4096, word(access), word(flags), file, 0]).map(drop)
}

fn raw_fds(call: i64, [a, b, c]: [usize; 3]) -> Result<(), Errno> {
    raw::call(call, [a, b, c, 0, 0, 0]).map(drop)
}

fn socket(family: rustix::net::AddressFamily) -> Result<(), Errno> {
    rustix::net::socket(family, rustix::net::SocketType::DGRAM, None).map(drop)
}

#[expect(clippy::disallowed_methods, reason = "starting a program is what is tried")]
fn program(path: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(path)
}

fn number(fd: &OwnedFd) -> usize {
    let fd: BorrowedFd<'_> = fd.as_fd();
    usize::try_from(fd.as_raw_fd()).unwrap_or(raw::NONE)
}

fn word(bits: i32) -> usize {
    usize::try_from(bits).unwrap_or_default()
}

fn errno(e: &io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::INVAL)
}
