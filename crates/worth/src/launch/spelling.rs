//! How options are spelled, by version: from the released source of the versions listed here.
//! Versions between them were not read and are taken as the one before.

use crate::engine::{EngineName, Version};

/// SGLang versions whose arguments were read (`srt/server_args.py`; in 0.5.23 `srt/arg_groups`).
pub const SGLANG_READ: [Version; 6] = [
    Version(0, 5, 9),
    Version(0, 5, 10),
    Version(0, 5, 12),
    Version(0, 5, 15),
    Version(0, 5, 18),
    Version(0, 5, 23),
];

/// vLLM versions whose arguments were read.
pub const VLLM_READ: [Version; 1] = [Version(0, 33, 0)];

/// The version whose options stand for another.
pub fn read_as(engine: EngineName, version: Version) -> Version {
    let read: &[Version] = match engine {
        EngineName::Sglang => &SGLANG_READ,
        EngineName::Vllm => &VLLM_READ,
    };
    read.iter().rev().find(|one| **one <= version).or(read.first()).copied().unwrap_or(version)
}

/// An option whose spelling depends on the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// What it does.
    pub what: &'static str,
    /// As it is written.
    pub text: &'static str,
    /// First version that has it.
    pub since: Version,
    /// First version that has it no more; absent while it is there.
    pub until: Option<Version>,
    /// What the version after says to the old spelling, until it is gone altogether.
    pub then: Option<(&'static str, Option<Version>)>,
}

const fn since(what: &'static str, text: &'static str, since: Version) -> Spelling {
    Spelling { what, text, since, until: None, then: None }
}

const V9: Version = Version(0, 5, 9);
const V10: Version = Version(0, 5, 10);
const V12: Version = Version(0, 5, 12);
const V15: Version = Version(0, 5, 15);
const V23: Version = Version(0, 5, 23);

/// SGLang's.
pub const SGLANG: &[Spelling] = &[
    Spelling {
        until: Some(V15),
        then: Some(("an alias with a warning", Some(V23))),
        ..since("keeping states", "--mamba-scheduler-strategy", V9)
    },
    since("keeping states", "--mamba-radix-cache-strategy", V15),
    Spelling {
        until: Some(V15),
        then: Some(("an alias of --cuda-graph-max-bs-decode", Some(V23))),
        ..since("largest batch with a graph", "--cuda-graph-max-bs", V9)
    },
    since("largest batch with a graph", "--cuda-graph-max-bs-decode", V15),
    Spelling {
        until: Some(V23),
        then: Some(("translated with a warning until the end of 2026", None)),
        ..since("attention data-parallel", "--enable-dp-attention", V9)
    },
    since("attention data-parallel", "--attn-dp-size", V23),
    since("sum over experts in a kernel", "--enable-fused-moe-sum-all-reduce", V10),
    since("INT8 messages", "--enable-quant-communications", V12),
    since("states by replay", "--enable-linear-replayssm", V15),
    since("states of drafted tokens by replay", "--enable-linear-replayssm-spec", V15),
    since("functional test of peer access", "--enable-p2p-check", V9),
    Spelling {
        until: Some(V15),
        then: Some(("ignored with a warning", Some(V23))),
        ..since("speculation, second form", "SGLANG_ENABLE_SPEC_V2", V9)
    },
    since("one-shot kernels on PCIe", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", V23),
];

/// The spelling that a version has for something.
pub fn of(what: &str, version: Version) -> Option<&'static str> {
    SGLANG
        .iter()
        .find(|one| {
            one.what == what
                && version >= one.since
                && one.until.is_none_or(|until| version < until)
        })
        .map(|one| one.text)
}

/// What a version makes of a spelling that is not its own: `None` where it takes it.
pub fn complaint(text: &str, version: Version) -> Option<(bool, String)> {
    let one = SGLANG.iter().find(|one| one.text == text)?;
    let now = of(one.what, version).filter(|now| *now != text);
    let instead = now.map_or(String::new(), |now| format!("; this version has {now}"));
    if version < one.since {
        return Some((true, format!("unknown before {}{instead}", one.since)));
    }
    let until = one.until?;
    if version < until {
        return None;
    }
    match one.then {
        Some((then, gone)) if gone.is_none_or(|gone| version < gone) => {
            Some((false, format!("{then}{instead}")))
        }
        _ => Some((true, format!("gone{instead}"))),
    }
}
