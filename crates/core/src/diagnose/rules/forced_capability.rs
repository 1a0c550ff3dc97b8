//! PW0301: `ForceP2P` makes every capability answer worthless.

use super::registry::{self, Key};
use super::support;
use crate::code::FORCED_CAPABILITY;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;

pub(super) const RULE: Rule = Rule {
    code: FORCED_CAPABILITY,
    title: "ForceP2P is set: what the driver says about its capability is no evidence",
    page: "\
The registry key `ForceP2P` of NVIDIA's driver overrides the answer to \"can these two GPUs use PCIe
peer access?\" before any real question is asked. It has three fields: reads in bits 1:0, writes in
bits 5:4, atomics in bits 9:8; 0 switches off, 1 on, 2 leaves the default. `0x11` forces reads and
writes on and atomics off. `0x0` is the driver-wide switch-off (PW0304).

How it was seen: `RegistryDwords` (or `RegistryDwordsPerDevice`) in `/proc/driver/nvidia/params`,
which shows the parameters in force.

Why it matters: with a field forced on, `nvidia-smi topo -p2p`, NVML, `cudaDeviceCanAccessPeer` and
all that build on them say yes on any platform, on boards whose firmware would have said no, and
whatever the IOMMU does. NCCL then chooses the peer transport. Nothing has been repaired; the
question is no longer asked. So a pair of boards that the stock driver does not offer peer access on
is called unknown here where its addresses would pass, and any other that would work is so with the
lowest confidence. The header that defines the key calls it a matter for internal testing.

What helps: a data-checked copy in both directions is the only evidence left (`peerway test`).
Remove the key where it was set as a cure for wrong data; it cannot be one.

What not to believe: recipes that set it together with `GrdmaPciTopoCheckOverride` and
`EnableResizableBar`. The former concerns other drivers' access to GPU memory, not CUDA peer access.

Sources: NVIDIA open kernel modules, `src/nvidia/interface/nvrm_registry.h` (key and fields) and
`p2p_caps.c`, `_kp2pCapsGetStatusOverPcie` (order of the questions).",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let forced: Vec<Key> = ["ForceP2P", "RMForceP2P"]
        .iter()
        .flat_map(|name| registry::keys_named(snapshot, name))
        .filter(|key| enables(key.value))
        .collect();
    if forced.is_empty() {
        return Vec::new();
    }
    let finding = Finding::new(
        RULE.code,
        Severity::Warning,
        Confidence::Certain,
        "ForceP2P is set: the driver's answers about peer access are no evidence on this host",
    )
    .about("host");
    let finding = forced.iter().fold(finding, |finding, key| {
        finding.seen(key.source(), format!("{key}: {}", fields(key.value)))
    });
    vec![
        support::with_driver(finding, snapshot)
            .remedy("rely on checked data only (peerway test), or remove the key"),
    ]
}

fn enables(value: u32) -> bool {
    value & 3 == 1 || value >> 4 & 3 == 1
}

/// The three fields in words.
fn fields(value: u32) -> String {
    let word = |shift: u32| match value >> shift & 3 {
        0 => "off",
        1 => "on",
        2 => "default",
        _ => "3 (no such value)",
    };
    format!("reads {}, writes {}, atomics {}", word(0), word(4), word(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::pairs::judge_all;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};
    use crate::judge::Verdict;
    use crate::observed::Observed;

    #[test]
    fn forced_on() {
        let host = Host::amd().parameter("RegistryDwords", "ForceP2P=0x11");
        let finding = fires(&RULE, &host);
        assert_eq!(finding.severity, Severity::Warning);
        assert_eq!(
            value(&finding, "RegistryDwords"),
            "ForceP2P=0x11: reads on, writes on, atomics off"
        );
        fires(
            &RULE,
            &Host::amd().parameter("RegistryDwordsPerDevice", "pci=0000:01:00.0;ForceP2P=0x1"),
        );
    }

    #[track_caller]
    fn check_pair(host: &Host, verdict: Verdict, confidence: Confidence) {
        let pairs = judge_all(&host.snapshot, &host.scope);
        let pair = &pairs[0];
        assert_eq!((pair.verdict, pair.confidence), (verdict, confidence), "{pair:#?}");
    }

    #[test]
    fn a_forced_answer_makes_no_path() {
        let geforce = Host::amd().board(0x2684);
        check_pair(&geforce, Verdict::Broken, Confidence::Probable);
        for parameter in ["RegistryDwords", "RegistryDwordsPerDevice"] {
            let keys = "pci=0000:01:00.0;ForceP2P=0x11";
            let forced = geforce.clone().parameter(parameter, keys);
            // Untranslated, mapped, and turned in the switch: nothing is known about the hardware.
            check_pair(&forced.clone().identity(), Verdict::Unknown, Confidence::Possible);
            let mapped = forced.clone().edit(|snapshot| {
                snapshot.kernel.iommu_dma_ops = Observed::Known(true);
            });
            check_pair(&mapped, Verdict::Unknown, Confidence::Possible);
            let switch = Host::switch().board(0x2684).parameter(parameter, keys);
            check_pair(&switch, Verdict::Unknown, Confidence::Possible);
            // A raw address under translation is lost whatever the hardware has.
            check_pair(&forced, Verdict::Broken, Confidence::Probable);
            // On boards with the path the answers are still no evidence.
            let offered = Host::amd().identity().parameter(parameter, keys);
            check_pair(&offered, Verdict::Works, Confidence::Possible);
        }
    }

    #[test]
    fn unread_parameters_are_no_parameters() {
        let unread = Host::amd().board(0x2684).identity().edit(|snapshot| {
            snapshot.nvidia.params = Observed::Unreadable("permission denied".to_owned());
        });
        check_pair(&unread, Verdict::Broken, Confidence::Possible);
        let pairs = judge_all(&unread.snapshot, &unread.scope);
        assert!(pairs[0].reason.contains("ForceP2P"), "{}", pairs[0].reason);
    }

    #[test]
    fn switched_off_left_alone_or_another_key() {
        silent(&RULE, &Host::amd().parameter("RegistryDwords", "ForceP2P=0x0"));
        silent(&RULE, &Host::amd().parameter("RegistryDwords", "ForceP2P=0x222"));
        silent(&RULE, &Host::amd().parameter("RegistryDwords", "RMForceP2PType=1"));
    }
}
