//! System calls that neither a driver's library nor NCCL needs, and that an intruder would: refused
//! before anything of the container runs. What a container's own manager refuses is not known here,
//! and a process that enters does not inherit it.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// Mounts and namespaces, other processes, kernel code and keys, the host's state, and interfaces
/// with a long record of holes.
const REFUSED: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Raises the filter; a note if it does not stand.
pub(super) fn raise() -> Option<String> {
    let raised = filter()
        .and_then(|program| seccompiler::apply_filter(&program).map_err(|error| error.to_string()));
    raised.err().map(|why| format!("system calls could not be limited in there ({why})"))
}

fn filter() -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let rules: BTreeMap<i64, Vec<seccompiler::SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let number = u32::try_from(libc::EPERM).map_err(|error| error.to_string())?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(number), arch);
    filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_refuses_and_lets_the_rest_through() {
        // Filters hold for the thread that raises them, and this one ends with it.
        let outcome = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            assert_eq!(raise(), None);
            let refused = rustix::process::chroot("/");
            (refused, rustix::process::chdir("/"))
        });
        let (refused, allowed) = outcome.join().unwrap();
        assert_eq!(refused, Err(rustix::io::Errno::PERM));
        assert_eq!(allowed, Ok(()));
    }
}
