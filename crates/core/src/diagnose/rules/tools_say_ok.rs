//! PW0307: what the driver's tools say is no evidence.

use std::collections::BTreeSet;

use super::{processes, support};
use crate::address::PciAddress;
use crate::code::{self, Code, TOOLS_SAY_OK};
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::{Confidence, Pair, Verdict};
use crate::snapshot::tenant::Holder;

pub(super) const RULE: Rule = Rule {
    code: TOOLS_SAY_OK,
    title: "the driver's tools ask nothing that would rule these pairs out, and data is lost there",
    page: "\
`nvidia-smi topo -p2p r` prints `OK`, NVML reports status 0, `cudaDeviceCanAccessPeer` returns 1,
`cudaMemcpyPeer` reports success, NCCL writes `via P2P/…` into its log. All of these are answers
from tables: is this board allowed to, does the chipset stand on a list, do both ends support it.
Not one of the questions on the way is about the IOMMU, about access control, or about whether a
byte arrived.

How it was seen: pairs that are broken by the route here, and no step of the driver's decision looks
at the reason; the tools themselves were not run.

What it looks like in practice: writes on PCIe are posted, so the writer notices nothing. Copies
finish, at speeds that can exceed the link's (103.88 GB/s over a link of 63 was reported), because
nobody answers. The target holds zeros, old data, or parts of both. All-reduce returns wrong sums or
NaN, or hangs. One kind of guest set-up kept a private mirror, so that a writer that read back
through the same window saw its own data and passed its own test.

Why it matters: a job that believes these answers computes on damaged data and does not stop.

What helps: a test that poisons the target, writes unique tags, and reads them **on the owner's
side** (`peerway test`), in both directions, small before large. Until then keep every process on
`NCCL_P2P_DISABLE=1` and the engine's own switch; processes without it are in the evidence.

What not to believe: a bandwidth table as a proof of correctness. A rate above the link's is a
failure.

Sources: NVIDIA open kernel modules, `p2p_caps.c`, `p2pGetCapsStatus`; NCCL 2.30,
`src/transport/p2p.cc`, `p2pCanConnect` (no test of the data path).",
    check,
};

/// Reasons for which a GPU does not come up, or a tool sees that something is wrong: nothing calls
/// such a pair OK.
const NO_TOOL_SAYS_OK: [Code; 7] = [
    code::BOARD_OFFERS_NONE,
    code::DEAD_DEVICE,
    code::IDENTITY_UNDER_SNP,
    code::UNASSIGNED_BAR,
    code::TARGET_UNREACHABLE,
    code::SMALL_BAR,
    code::BLOCKED_DOMAIN,
];

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let nvidia: BTreeSet<PciAddress> =
        support::driven_by_nvidia(snapshot).iter().map(|device| device.address).collect();
    let owners = support::Owners::of(snapshot, context.pairs);
    let lost: Vec<&Pair> = context
        .pairs
        .iter()
        .filter(|pair| pair.verdict == Verdict::Broken)
        .filter(|pair| !pair.codes.iter().any(|code| NO_TOOL_SAYS_OK.contains(code)))
        .filter(|pair| nvidia.contains(&pair.from) && nvidia.contains(&pair.to))
        .filter(|pair| !owners.crosses(pair))
        .collect();
    if lost.is_empty() {
        return Vec::new();
    }
    let affected = support::Affected { pairs: lost };
    let requesters = affected.requesters();
    let mut finding = Finding::new(
        RULE.code,
        Severity::Warning,
        affected.confidence().max(Confidence::Probable),
        if affected.pairs.len() == 1 {
            "1 pair that the driver's own checks do not rule out loses data".to_owned()
        } else {
            let count = affected.pairs.len();
            format!("{count} pairs that the driver's own checks do not rule out lose data")
        },
    )
    .about_all(&requesters);
    finding = affected.kinds(finding);
    finding = support::with_driver(finding, snapshot);
    let exposed: Vec<&Holder> = processes::computing(snapshot)
        .into_iter()
        .filter(|holder| holder.devices.iter().filter(|one| requesters.contains(one)).count() > 1)
        .filter(|holder| !processes::nccl_is_off(holder))
        .collect();
    for holder in exposed.iter().take(4) {
        finding = finding.seen(processes::environment(holder), "no NCCL_P2P_DISABLE=1 seen");
    }
    finding = finding.remedy("believe checked data only: peerway test");
    if !exposed.is_empty() {
        finding = finding.remedy(format!(
            "{} several of these GPUs without NCCL_P2P_DISABLE=1: set it there, and \
             the engine's own switch",
            support::counted(exposed.len(), "process holds", "processes hold")
        ));
    }
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};

    #[test]
    fn broken_pairs() {
        let finding = fires(&RULE, &Host::amd());
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.title.starts_with("2 pairs"));
        assert_eq!(finding.remedies.len(), 1);
    }

    #[test]
    fn processes_without_the_workaround_are_named() {
        let host = Host::amd().process("python3", &[("NCCL_P2P_DISABLE", "yes")]);
        let finding = fires(&RULE, &host);
        assert_eq!(value(&finding, "4711"), "no NCCL_P2P_DISABLE=1 seen");
        assert!(finding.remedies[1].starts_with("1 process holds"));
        let safe = Host::amd().process("python3", &[("NCCL_P2P_DISABLE", "1")]);
        assert_eq!(fires(&RULE, &safe).remedies.len(), 1);
    }

    #[test]
    fn pairs_that_work_or_that_the_driver_refuses() {
        silent(&RULE, &Host::amd().identity());
        silent(&RULE, &Host::amd().board(0x2684));
    }

    #[test]
    fn gpus_that_no_tool_calls_ok() {
        use crate::observed::Observed;
        use crate::snapshot::kernel::Tristate;
        silent(&RULE, &Host::amd().config(crate::diagnose::rules::testing::A, |it| it.dead = true));
        silent(&RULE, &Host::amd().identity().snp(Tristate::Yes));
        let unassigned = Host::amd().gpus(|gpu| {
            if let Observed::Known(bars) = &mut gpu.bars {
                bars[1].assigned = false;
            }
        });
        silent(&RULE, &unassigned);
    }
}
