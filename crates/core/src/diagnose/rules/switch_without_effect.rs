//! PW0305: a switch of the environment is misspelled or has no effect.

use std::collections::{BTreeMap, BTreeSet};

use super::{processes, support};
use crate::code::SWITCH_WITHOUT_EFFECT;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::{Confidence, Verdict};
use crate::observed::Observed;
use crate::route::Turn;
use crate::snapshot::tenant::{Holder, TenantId};

pub(super) const RULE: Rule = Rule {
    code: SWITCH_WITHOUT_EFFECT,
    title: "a switch of a process's environment does not do what its spelling promises",
    page: "\
NCCL and other programs read their switches from the environment and do not complain about what they
do not understand:

- `NCCL_P2P_LEVEL` takes `LOC`, `NVL`, `NVB`, `C2C`, `PIX`, `PXB`, `P2C`, `PXN`, `PHB`, `SYS`, in
  capitals, or a number. Anything else is ignored **without a line**: `NODE` (a word of
  `nvidia-smi`), `sys`, a trailing blank. NCCL confirms a level that it took with `NCCL_P2P_LEVEL
  set by environment to …` when `NCCL_DEBUG=INFO` is set; no such line after setting it is a
  misspelling.
- `NCCL_P2P_DISABLE` acts on the value `1` only. `true`, `yes` and `2` leave peer access on, on
  hosts where it may lose data.
- `GGML_CUDA_P2P` (llama.cpp) acts by being present: `GGML_CUDA_P2P=0` switches peer access **on**.

And a default that changed: NCCL from 2.23 on does not use peer access across host bridges on AMD
hosts with more than two GPUs unless a level says so (before, it did on such hosts). Where pairs
work across root complexes and no level is set, NCCL goes through shared memory. The narrowest level
that covers the proved pairs is right: `PHB` within one NUMA node, `SYS` across.

How it was seen: named switches in the environment of processes that hold GPUs. Files that NCCL also
reads (`/etc/nccl.conf`, `~/.nccl.conf`: no blanks round `=`, none at the end) were not seen, nor
was NCCL's version.

Why it matters: a workaround that is misspelled protects nothing, and a level that is ignored makes
a repaired host look slow.

Sources: NCCL 2.30, `src/graph/paths.cc`, `ncclGetUserP2pLevel` and `ncclTopoCheckP2p`; llama.cpp,
`ggml-cuda.cu`.",
    check,
};

/// Levels that NCCL knows, in its order.
const LEVELS: [&str; 10] = ["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"];

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    // One finding for a switch and value, with everybody who has it.
    let mut found: BTreeMap<(String, String), Vec<&Holder>> = BTreeMap::new();
    for holder in processes::computing(snapshot) {
        for (name, value) in &holder.switches {
            if verdict(name, value).is_some() {
                found.entry((name.clone(), value.clone())).or_default().push(holder);
            }
        }
    }
    let mut findings: Vec<Finding> = found
        .into_iter()
        .filter_map(|((name, value), holders)| {
            let (title, remedy) = verdict(&name, &value)?;
            let tenants: BTreeSet<_> = holders.iter().map(|holder| &holder.tenant).collect();
            let finding = Finding::new(RULE.code, Severity::Warning, Confidence::Certain, title)
                .about_all(tenants)
                .remedy(remedy);
            Some(holders.iter().take(4).fold(finding, |finding, holder| {
                finding.seen(processes::environment(holder), support::cut(&shown(&name, &value)))
            }))
        })
        .collect();
    findings.extend(level_needed(context));
    findings
}

fn shown(name: &str, value: &str) -> String {
    format!("{name}={value:?}")
}

/// Title and remedy, where a switch does not do what it seems to.
fn verdict(name: &str, value: &str) -> Option<(String, &'static str)> {
    let short: String = value.chars().take(20).collect();
    match name {
        "NCCL_P2P_LEVEL" if !is_level(value) => Some((
            format!("NCCL_P2P_LEVEL={short:?} is no level: NCCL ignores it without a word"),
            "spell it LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB or SYS, or as a number",
        )),
        "NCCL_P2P_DISABLE" if !matches!(value, "0" | "1") => Some((
            format!("NCCL_P2P_DISABLE={short:?} switches nothing off: only the value 1 acts"),
            "set it to 1 where peer access is to stay off",
        )),
        "GGML_CUDA_P2P" => Some((
            format!(
                "GGML_CUDA_P2P={short:?} switches llama.cpp's peer access on, by being present"
            ),
            "remove the variable where peer access is to stay off; no value does that",
        )),
        _ => None,
    }
}

fn is_level(value: &str) -> bool {
    LEVELS.contains(&value)
        || (!value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Pairs work across host bridges, and NCCL's default leaves them alone.
fn level_needed(context: &Context<'_>) -> Option<Finding> {
    let snapshot = context.snapshot;
    if snapshot.cpu.is_zen() != Observed::Known(true) {
        return None;
    }
    let owners = support::Owners::of(snapshot, context.pairs);
    let working: Vec<_> = context
        .pairs
        .iter()
        .filter(|pair| matches!(pair.verdict, Verdict::Works | Verdict::Impaired))
        .filter(|pair| {
            matches!(pair.route.turn, Turn::HostBridge | Turn::HostBridges | Turn::Nodes)
        })
        .filter(|pair| !owners.crosses(pair))
        .collect();
    let across = working.iter().any(|pair| pair.route.turn == Turn::Nodes);
    let holders: Vec<&Holder> = processes::computing(snapshot)
        .into_iter()
        .filter(|holder| {
            processes::switch(holder, "NCCL_P2P_LEVEL").is_none()
                && !processes::nccl_is_off(holder)
                && working.iter().any(|pair| holder.devices.contains(&pair.from))
                && holder.devices.len() > 2
        })
        .collect();
    let first = holders.first()?;
    let tenants: BTreeSet<&TenantId> = holders.iter().map(|holder| &holder.tenant).collect();
    let level = if across { "SYS" } else { "PHB" };
    Some(
        Finding::new(
            RULE.code,
            Severity::Info,
            Confidence::Probable,
            "without NCCL_P2P_LEVEL, NCCL from 2.23 on leaves pairs across root ports alone",
        )
        .about_all(tenants)
        .seen(processes::environment(first), "no NCCL_P2P_LEVEL")
        .seen("rule of NCCL", "default level PXB on AMD with more than 2 GPUs (src/graph/paths.cc)")
        .remedy(format!(
            "once the pairs are proved with checked data: NCCL_P2P_LEVEL={level}, in capitals"
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, gpu, silent, value};

    fn with(name: &str, value: &str) -> Host {
        Host::amd().process("python3", &[(name, value)])
    }

    #[test]
    fn switches_that_mislead() {
        let finding = fires(&RULE, &with("NCCL_P2P_LEVEL", "NODE"));
        assert!(finding.title.contains("is no level"));
        assert_eq!(value(&finding, "/proc/4711"), "NCCL_P2P_LEVEL=\"NODE\"");
        fires(&RULE, &with("NCCL_P2P_LEVEL", "SYS "));
        fires(&RULE, &with("NCCL_P2P_LEVEL", "phb"));
        fires(&RULE, &with("NCCL_P2P_LEVEL", ""));
        fires(&RULE, &with("NCCL_P2P_DISABLE", "true"));
        assert!(fires(&RULE, &with("GGML_CUDA_P2P", "0")).title.contains("on, by being present"));
    }

    #[test]
    fn switches_that_do_what_they_say() {
        for level in LEVELS.iter().chain(&["0", "5"]) {
            silent(&RULE, &with("NCCL_P2P_LEVEL", level));
        }
        silent(&RULE, &with("NCCL_P2P_DISABLE", "1"));
        silent(&RULE, &with("NCCL_P2P_DISABLE", "0"));
        silent(&RULE, &with("NCCL_DEBUG", "INFO"));
    }

    fn three_gpus() -> Host {
        Host::amd().identity().edit(|snapshot| {
            let above = "0000:40:01.2";
            let port = snapshot.devices[2].clone();
            snapshot.devices.push(gpu("0000:42:00.0", &[above], 0x40, 0x280_0000_0000, 12));
            let mut second = port;
            second.address = above.parse().unwrap();
            snapshot.devices.push(second);
            snapshot.devices.sort_by_key(|device| device.address);
        })
    }

    #[test]
    fn the_default_level() {
        let finding = fires(&RULE, &three_gpus().process("python3", &[]));
        assert_eq!(finding.severity, Severity::Info);
        assert!(finding.remedies[0].contains("NCCL_P2P_LEVEL=PHB"));
        silent(&RULE, &three_gpus().process("python3", &[("NCCL_P2P_LEVEL", "SYS")]));
        silent(&RULE, &three_gpus().process("python3", &[("NCCL_P2P_DISABLE", "1")]));
        silent(&RULE, &three_gpus());
        silent(&RULE, &Host::amd().identity().process("python3", &[]));
    }
}
