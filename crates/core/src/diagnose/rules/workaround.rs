//! PW0304: a workaround is in force.

use std::collections::BTreeSet;

use super::processes;
use super::registry::{self, Key};
use crate::code::WORKAROUND;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;

pub(super) const RULE: Rule = Rule {
    code: WORKAROUND,
    title: "a workaround keeps programs off peer access",
    page: "\
Somebody has switched peer access off, which is the safe thing to do where it loses data. Two
switches are recognised:

`NCCL_P2P_DISABLE=1` in a process's environment (the value must be 1; others do nothing). NCCL then
copies through shared memory. It covers **NCCL and nothing else**. Not covered:

- custom all-reduce kernels of serving engines, which write to peers themselves. vLLM and SGLang
  have `--disable-custom-all-reduce`;
- copies between GPUs by a framework (`tensor.to(\"cuda:1\")`), which use CUDA peer access by
  themselves;
- other libraries and programs: NVSHMEM, UCX over CUDA IPC, llama.cpp, anything with
  `cudaMemcpyPeer` or `cudaDeviceEnablePeerAccess`;
- network controllers that write into GPU memory.

`ForceP2P=0x0` in the driver's registry keys covers all of these, since the driver then offers no
peer access to anybody. It needs a reload of the driver.

How it was seen: named switches in the environment of processes that hold GPUs (nothing else of the
environment is kept), and the driver's effective parameters. NCCL also reads `/etc/nccl.conf` and
`~/.nccl.conf` inside the container, which this program does not see.

Why it matters: results are right while it is in force, and some bandwidth is given away. Whoever
removes it before the cause is gone brings the damage back. A restart without it does the same.

What helps: keep it until a road is open and proved (`peerway roads`, `peerway test`); add the
engine's own switch; give NCCL a shared-memory file system of a gigabyte or more.

Sources: NCCL 2.30, `src/graph/paths.cc`, `ncclGetUserP2pLevel`; NVIDIA open kernel modules,
`p2p_caps.c`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let mut findings = Vec::new();
    let off: Vec<Key> = ["ForceP2P", "RMForceP2P"]
        .iter()
        .flat_map(|name| registry::keys_named(snapshot, name))
        .filter(|key| key.value & 0x33 == 0)
        .collect();
    if !off.is_empty() {
        let finding = Finding::new(
            RULE.code,
            Severity::Info,
            Confidence::Certain,
            "ForceP2P switches peer access off in the driver, for every program",
        )
        .about("host");
        findings.push(off.iter().fold(finding, |finding, key| finding.seen(key.source(), key)));
    }
    let protected: Vec<_> = processes::computing(snapshot)
        .into_iter()
        .filter(|holder| processes::nccl_is_off(holder))
        .collect();
    let Some(first) = protected.first() else { return findings };
    let switch = if processes::switch(first, "NCCL_P2P_DISABLE") == Some("1") {
        "NCCL_P2P_DISABLE=1"
    } else {
        "NCCL_P2P_LEVEL=LOC"
    };
    let tenants: BTreeSet<_> = protected.iter().map(|holder| &holder.tenant).collect();
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        Confidence::Certain,
        format!("{switch} keeps NCCL off peer access, and only NCCL"),
    )
    .about_all(tenants);
    for holder in protected.iter().take(4) {
        for name in ["NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"] {
            if let Some(value) = processes::switch(holder, name) {
                finding = finding.seen(processes::environment(holder), format!("{name}={value}"));
            }
        }
    }
    findings.push(
        finding
            .remedy(
                "not covered: custom all-reduce of serving engines (vLLM and SGLang: \
                 --disable-custom-all-reduce), framework copies between GPUs, other libraries",
            )
            .remedy("for every program at once: the driver's registry key ForceP2P=0x0"),
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};

    #[test]
    fn the_switch_of_nccl() {
        let host = Host::amd().container(&[A, B]).process("python3", &[("NCCL_P2P_DISABLE", "1")]);
        let finding = fires(&RULE, &host);
        assert_eq!(finding.subjects, ["lxc:129"]);
        assert_eq!(value(&finding, "/proc/4711/environ"), "NCCL_P2P_DISABLE=1");
        assert!(finding.remedies[0].contains("--disable-custom-all-reduce"));
        fires(&RULE, &Host::amd().process("python3", &[("NCCL_P2P_LEVEL", "LOC")]));
    }

    #[test]
    fn the_drivers_switch() {
        let host = Host::amd().parameter("RegistryDwords", "ForceP2P=0x0");
        assert_eq!(value(&fires(&RULE, &host), "RegistryDwords"), "ForceP2P=0x0");
    }

    #[test]
    fn switches_that_do_not_switch_it_off() {
        silent(&RULE, &Host::amd().process("python3", &[("NCCL_P2P_DISABLE", "true")]));
        silent(&RULE, &Host::amd().process("python3", &[("NCCL_P2P_LEVEL", "SYS")]));
        silent(&RULE, &Host::amd().process("nvidia-persiste", &[("NCCL_P2P_DISABLE", "1")]));
        silent(&RULE, &Host::amd().parameter("RegistryDwords", "ForceP2P=0x11"));
    }
}
