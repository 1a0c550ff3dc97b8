//! The list of allowed system calls, with the conditions on their arguments.
//!
//! A call stands here because reading, memory, time, threads or the end of the process need it.
//! Notable for their absence, because a copy of a foreign descriptor under an allowed number would
//! open a way around the rule for `write`: `dup`, `dup2`, `dup3` and `F_DUPFD`. Because they move
//! data without `write`: `sendfile`, `splice`, `copy_file_range`, mapped files, `io_uring`.
//! Because the descriptor is shared with others: `F_SETFL`, locks, leases.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, SeccompCmpArgLen as Length, SeccompCmpOp as Compare, SeccompCondition,
    SeccompRule,
};

use super::Wanted;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Every allowed call. An empty list of rules allows a call with any arguments.
pub(super) fn allowed(wanted: &Wanted) -> Result<Rules, BackendError> {
    let mut rules: Rules = FREE.iter().chain(FREE_HERE).map(|nr| (*nr, Vec::new())).collect();
    opening(&mut rules)?;
    memory(&mut rules)?;
    threads(&mut rules)?;
    descriptors(&mut rules)?;
    writing(&mut rules, &wanted.writable)?;
    if wanted.kernel_log {
        // Read all, and ask for sizes. Type 2 would take lines from whoever else reads them,
        // types 4 and 5 clear the log (`kernel/printk/printk.c: do_syslog()`).
        rules.insert(libc::SYS_syslog, any_of(0, &[3, 9, 10])?);
    }
    Ok(rules)
}

/// Calls that change nothing outside the process, whatever their arguments.
const FREE: &[i64] = &[
    // Reading.
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    // Waiting.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Memory that only this process has; see also `memory`.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    // Threads; see also `threads`.
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals of this process to itself.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    // Who and where.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_capget,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    // Their flags lie behind a pointer. The first filter refuses the one always, the other where
    // no other wall holds.
    libc::SYS_clone3,
    libc::SYS_openat2,
];

/// The same calls in their older form, where the architecture still has them.
#[cfg(target_arch = "x86_64")]
const FREE_HERE: &[i64] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_time,
    libc::SYS_getrlimit,
];

/// The newer architectures have only one form of each call.
#[cfg(not(target_arch = "x86_64"))]
const FREE_HERE: &[i64] = &[];

/// Opening for reading: no write access, nothing created, emptied or appended to.
fn opening(rules: &mut Rules) -> Result<(), BackendError> {
    // O_TMPFILE contains O_DIRECTORY; the bit of its own is what must not be set.
    let unnamed = libc::O_TMPFILE & !libc::O_DIRECTORY;
    // Some C libraries count O_PATH among the access modes; to the kernel they are two bits.
    let access = libc::O_WRONLY | libc::O_RDWR;
    let writing = access | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | unnamed;
    rules.insert(libc::SYS_openat, all_of(&[without(2, writing)?])?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, all_of(&[without(1, writing)?])?);
    Ok(())
}

/// Memory: private, of no file (a device's BAR can be mapped through a file too), and never made
/// executable.
fn memory(rules: &mut Rules) -> Result<(), BackendError> {
    let own = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let own = masked(3, libc::MAP_TYPE | libc::MAP_ANONYMOUS, own)?;
    rules.insert(libc::SYS_mmap, all_of(&[without(2, libc::PROT_EXEC)?, own])?);
    rules.insert(libc::SYS_mprotect, all_of(&[without(2, libc::PROT_EXEC)?])?);
    // Advice about pages of this process. MADV_HWPOISON and MADV_SOFT_OFFLINE (100, 101) would
    // take pages from the host; MADV_REMOVE (9) punches holes into files.
    let advice = [0, 1, 2, 3, 4, 8, 14, 15, 16, 17, 102, 103];
    rules.insert(libc::SYS_madvise, any_of(2, &advice)?);
    // Advice about file pages, but for dropping them from the cache that all share.
    rules.insert(libc::SYS_fadvise64, any_of(3, &[0, 1, 2, 3])?);
    Ok(())
}

/// Threads of this process, and no new process; signals to this process, as `abort` sends them.
fn threads(rules: &mut Rules) -> Result<(), BackendError> {
    let thread = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
    let spaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_PTRACE;
    rules.insert(libc::SYS_clone, all_of(&[masked(0, thread | spaces, thread)?])?);
    let own = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    rules.insert(libc::SYS_tgkill, any_of(0, &[u64::from(own)])?);
    // PR_SET_NAME and PR_GET_NAME of threads, and whether no_new_privs and seccomp are on.
    rules.insert(libc::SYS_prctl, any_of(0, &[15, 16, 21, 39])?);
    // Asking for limits; a new limit would stand behind the third argument.
    rules.insert(libc::SYS_prlimit64, all_of(&[equal(2, Length::Qword, 0)?])?);
    Ok(())
}

/// Flags of descriptors that belong to this process alone, and questions to terminals.
fn descriptors(rules: &mut Rules) -> Result<(), BackendError> {
    let commands = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL].map(bits);
    rules.insert(libc::SYS_fcntl, any_of(1, &commands)?);
    rules.insert(libc::SYS_ioctl, any_of(1, &REQUESTS)?);
    Ok(())
}

/// The requests of `ioctl` (`include/uapi/asm-generic/ioctls.h`): `TCGETS` and `TCGETS2`, by which
/// a terminal is told from a file, `TIOCGWINSZ` for its width, `FIONREAD`, and `FIOCLEX`, by which
/// the standard library marks descriptors. Written out, since the C library's types for them
/// differ.
const REQUESTS: [u64; 5] = [0x5401, 0x802c_542a, 0x5413, 0x541b, 0x5451];

/// Writing and syncing, to the named descriptors only; and these are never closed, so that their
/// numbers cannot pass to others.
fn writing(rules: &mut Rules, writable: &[i32]) -> Result<(), BackendError> {
    let named: Vec<u64> = writable.iter().copied().map(bits).collect();
    if named.is_empty() {
        rules.insert(libc::SYS_close, Vec::new());
        return Ok(());
    }
    let others: Result<Vec<_>, _> =
        named.iter().map(|fd| SeccompCondition::new(0, Length::Dword, Compare::Ne, *fd)).collect();
    rules.insert(libc::SYS_close, all_of(&others?)?);
    for call in [
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_pwrite64,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
    ] {
        rules.insert(call, any_of(0, &named)?);
    }
    Ok(())
}

/// The argument has one of these values.
fn any_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    values
        .iter()
        .map(|value| SeccompRule::new(vec![equal(argument, Length::Dword, *value)?]))
        .collect()
}

/// Every condition holds.
fn all_of(conditions: &[SeccompCondition]) -> Result<Vec<SeccompRule>, BackendError> {
    Ok(vec![SeccompRule::new(conditions.to_vec())?])
}

fn equal(argument: u8, length: Length, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, length, Compare::Eq, value)
}

/// None of these bits is set.
fn without(argument: u8, mask: i32) -> Result<SeccompCondition, BackendError> {
    masked(argument, mask, 0)
}

/// Of these bits, exactly those of `value` are set. The kernel looks at the lower half of the
/// arguments that this is used for (`int`, or an `unsigned long` of flags below 2^32).
fn masked(argument: u8, mask: i32, value: i32) -> Result<SeccompCondition, BackendError> {
    let operator = Compare::MaskedEq(bits(mask));
    SeccompCondition::new(argument, Length::Dword, operator, bits(value))
}

/// The bits of a C `int` as the kernel finds them in the lower half of an argument.
fn bits(value: i32) -> u64 {
    u64::from(u32::from_ne_bytes(value.to_ne_bytes()))
}
