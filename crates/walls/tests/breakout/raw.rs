//! System calls that no safe interface offers, made with arguments that do no harm by themselves.

use rustix::io::Errno;

/// Makes a system call by its number.
#[expect(unsafe_code, reason = "an intruder would not use the safe interfaces either")]
pub(crate) fn call(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: callers pass numbers, null, or pointers into values that they keep alive; none of
    // the calls made writes through a pointer other than to such a value.
    let answer =
        unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]) };
    usize::try_from(answer)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

/// `-1` as the kernel takes it: a descriptor, process or command that does not exist.
pub(crate) const NONE: usize = usize::MAX;

/// Calls whose arguments the kernel would refuse if it looked at them; behind the walls it must
/// refuse before. Name, number, arguments.
pub(crate) const CALLS: &[(&str, i64, [usize; 6])] = &[
    ("init_module", libc::SYS_init_module, [1, 16, 0, 0, 0, 0]),
    ("finit_module", libc::SYS_finit_module, [NONE, 0, 0, 0, 0, 0]),
    ("delete_module", libc::SYS_delete_module, [0, 0, 0, 0, 0, 0]),
    ("kexec_load", libc::SYS_kexec_load, [0, 9999, 0, 0, 0, 0]),
    ("reboot", libc::SYS_reboot, [0, 0, 0, 0, 0, 0]),
    ("swapon", libc::SYS_swapon, [0, 0, 0, 0, 0, 0]),
    ("swapoff", libc::SYS_swapoff, [0, 0, 0, 0, 0, 0]),
    ("sethostname", libc::SYS_sethostname, [0, NONE, 0, 0, 0, 0]),
    ("settimeofday", libc::SYS_settimeofday, [1, 0, 0, 0, 0, 0]),
    ("clock_settime", libc::SYS_clock_settime, [0, 1, 0, 0, 0, 0]),
    ("adjtimex", libc::SYS_adjtimex, [1, 0, 0, 0, 0, 0]),
    ("quotactl", libc::SYS_quotactl, [NONE, 0, 0, 0, 0, 0]),
    ("bpf", libc::SYS_bpf, [NONE, 0, 0, 0, 0, 0]),
    ("perf_event_open", libc::SYS_perf_event_open, [0, 0, 0, NONE, 0, 0]),
    ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0]),
    ("io_uring_enter", libc::SYS_io_uring_enter, [NONE, 0, 0, 0, 0, 0]),
    ("userfaultfd", libc::SYS_userfaultfd, [NONE, 0, 0, 0, 0, 0]),
    ("keyctl", libc::SYS_keyctl, [NONE, 0, 0, 0, 0, 0]),
    ("add_key", libc::SYS_add_key, [0, 0, 0, 0, 0, 0]),
    ("request_key", libc::SYS_request_key, [0, 0, 0, 0, 0, 0]),
    ("mount_setattr", libc::SYS_mount_setattr, [NONE, 0, 0, 0, 0, 0]),
    ("open_tree", libc::SYS_open_tree, [NONE, 0, 0, 0, 0, 0]),
    ("move_mount", libc::SYS_move_mount, [NONE, 0, NONE, 0, 0, 0]),
    ("fsopen", libc::SYS_fsopen, [0, 0, 0, 0, 0, 0]),
    ("fspick", libc::SYS_fspick, [NONE, 0, 0, 0, 0, 0]),
    ("pivot_root", libc::SYS_pivot_root, [0, 0, 0, 0, 0, 0]),
    ("umount2", libc::SYS_umount2, [0, 0, 0, 0, 0, 0]),
    ("chroot", libc::SYS_chroot, [0, 0, 0, 0, 0, 0]),
    ("setns", libc::SYS_setns, [NONE, 0, 0, 0, 0, 0]),
    ("execve", libc::SYS_execve, [0, 0, 0, 0, 0, 0]),
    ("execveat", libc::SYS_execveat, [NONE, 0, 0, 0, 0, 0]),
    ("clone3", libc::SYS_clone3, [0, 0, 0, 0, 0, 0]),
    ("process_vm_writev", libc::SYS_process_vm_writev, [NONE, 0, 0, 0, 0, 0]),
    ("process_madvise", libc::SYS_process_madvise, [NONE, 0, 0, 0, 0, 0]),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, [NONE, 0, 0, 0, 0, 0]),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal, [NONE, 0, 0, 0, 0, 0]),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, [0, 0, 0, 0, 0, 0]),
    ("tkill", libc::SYS_tkill, [NONE, 0, 0, 0, 0, 0]),
    ("tgkill_of_another", libc::SYS_tgkill, [1, 1, 0, 0, 0, 0]),
    ("setpriority", libc::SYS_setpriority, [NONE, 0, 0, 0, 0, 0]),
    ("ioprio_set", libc::SYS_ioprio_set, [NONE, 0, 0, 0, 0, 0]),
    ("sched_setscheduler", libc::SYS_sched_setscheduler, [0, NONE, 0, 0, 0, 0]),
    ("sched_setattr", libc::SYS_sched_setattr, [0, 0, 0, 0, 0, 0]),
    ("migrate_pages", libc::SYS_migrate_pages, [0, NONE, 0, 0, 0, 0]),
    ("prlimit64_set", libc::SYS_prlimit64, [0, 0, 1, 0, 0, 0]),
    ("capset", libc::SYS_capset, [0, 0, 0, 0, 0, 0]),
    ("setgroups", libc::SYS_setgroups, [NONE, 0, 0, 0, 0, 0]),
    ("prctl_death_signal", libc::SYS_prctl, [1, 9999, 0, 0, 0, 0]),
    ("seccomp", libc::SYS_seccomp, [NONE, 0, 0, 0, 0, 0]),
    ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset, [0, 0, NONE, 0, 0, 0]),
    ("name_to_handle_at", libc::SYS_name_to_handle_at, [NONE, 0, 0, 0, 0, 0]),
    ("open_by_handle_at", libc::SYS_open_by_handle_at, [NONE, 0, 0, 0, 0, 0]),
    ("fanotify_init", libc::SYS_fanotify_init, [NONE, 0, 0, 0, 0, 0]),
    ("lookup_dcookie", libc::SYS_lookup_dcookie, [0, 0, 0, 0, 0, 0]),
    ("madvise_poison", libc::SYS_madvise, [1, 1, 100, 0, 0, 0]),
    ("madvise_remove", libc::SYS_madvise, [1, 1, 9, 0, 0, 0]),
    ("syslog_clear", libc::SYS_syslog, [5, NONE, 0, 0, 0, 0]),
    ("shmget", libc::SYS_shmget, [0, 0, 0, 0, 0, 0]),
    ("mq_unlink", libc::SYS_mq_unlink, [0, 0, 0, 0, 0, 0]),
    ("remap_file_pages", libc::SYS_remap_file_pages, [1, 0, 0, 0, 0, 0]),
    ("vmsplice", libc::SYS_vmsplice, [NONE, 0, 1, 0, 0, 0]),
    ("tee", libc::SYS_tee, [NONE, NONE, 1, 0, 0, 0]),
    ("acct", libc::SYS_acct, [1, 0, 0, 0, 0, 0]),
    ("ioctl_push_into_terminal", libc::SYS_ioctl, [NONE, 0x5412, 0, 0, 0, 0]),
    ("a_number_of_the_future", 0xffff, [0, 0, 0, 0, 0, 0]),
];

/// What only x86-64 has.
#[cfg(target_arch = "x86_64")]
pub(crate) const CALLS_HERE: &[(&str, i64, [usize; 6])] = &[
    ("iopl", libc::SYS_iopl, [4, 0, 0, 0, 0, 0]),
    ("ioperm", libc::SYS_ioperm, [NONE, 0, 0, 0, 0, 0]),
    ("modify_ldt", libc::SYS_modify_ldt, [NONE, 0, 0, 0, 0, 0]),
    ("kexec_file_load", libc::SYS_kexec_file_load, [NONE, NONE, 0, 0, 0, 0]),
    ("the_x32_form_of_unlink", 0x4000_0000 | libc::SYS_unlink, [0, 0, 0, 0, 0, 0]),
];

/// Nothing more elsewhere.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const CALLS_HERE: &[(&str, i64, [usize; 6])] = &[];
