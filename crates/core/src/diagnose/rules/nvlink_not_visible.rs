//! PW0218: boards with NVLink whose links cannot be seen.

use std::collections::BTreeSet;

use super::support;
use crate::boards;
use crate::code::NVLINK_NOT_VISIBLE;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;

pub(super) const RULE: Rule = Rule {
    code: NVLINK_NOT_VISIBLE,
    title: "these boards have NVLink, and whether it connects them cannot be seen",
    page: "\
These boards have NVLink, or take an NVLink bridge. Where links are up between two GPUs, peer access
uses them and never touches PCIe, so that the verdict on the PCIe path is beside the point. The
state of the links is kept inside the driver; sysfs shows nothing of it, and this program opens no
GPU unless a measurement was asked for.

How it was seen: the PCI device numbers of both boards.

What it does to verdicts: for modules whose NVLink is wired into the board (SXM and its like), a
pair that PCIe could not carry is called unknown rather than broken, and one that PCIe would carry
works with the lowest confidence: where NVSwitches join the GPUs the driver does not fall back to
PCIe. For cards that take a bridge the PCIe verdict stands, a broken one with the lowest confidence,
since most such cards have none.

What helps: a measurement (`peerway test`) answers it, and so does the output of `nvidia-smi nvlink
--status` or `nvidia-smi topo -m` given to `peerway diagnose --import`. `NV` with a number between
two GPUs means that many links.

What not to believe: an error of `nvidia-smi nvlink` as \"no NVLink\"; and the absence of its output
in a bug report as anything at all.

Sources: NVIDIA open kernel modules, supported-devices table and `p2p_caps.c`, `p2pGetCapsStatus`;
NVIDIA's product pages for which boards have links. Nothing here was measured on NVLink hardware.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let Some(why) = snapshot.nvlinks.unreadable() else { return Vec::new() };
    let linked = |address| {
        let ids = snapshot.device(address)?.ids.known()?;
        boards::lookup(*ids).filter(|board| board.nvlink)
    };
    let owners = support::Owners::of(snapshot, context.pairs);
    let mut ends = BTreeSet::new();
    for pair in context.pairs {
        if linked(pair.from).is_some() && linked(pair.to).is_some() && !owners.crosses(pair) {
            ends.extend([pair.from, pair.to]);
        }
    }
    if ends.is_empty() {
        return Vec::new();
    }
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        Confidence::Possible,
        format!("whether NVLink connects {} GPUs cannot be seen from outside", ends.len()),
    )
    .about_all(&ends);
    for address in &ends {
        if let Some(board) = linked(*address) {
            finding = finding.seen(device_file(*address, "device"), board.name);
        }
    }
    vec![
        finding
            .seen("NVLink state", support::cut(&format!("unknown ({why})")))
            .remedy("measure (peerway test), or import the output of nvidia-smi topo -m"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;
    use crate::diagnose::pairs::judge_all;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};
    use crate::judge::Verdict;
    use crate::observed::Observed;

    fn hidden(board: u16) -> Host {
        Host::amd().board(board).edit(|snapshot| {
            snapshot.nvlinks = Observed::Unreadable("not visible without opening a GPU".to_owned());
        })
    }

    #[test]
    fn boards_with_nvlink() {
        let finding = fires(&RULE, &hidden(0x2330));
        assert_eq!(finding.subjects, [A, B]);
        assert_eq!(value(&finding, A), "H100 SXM5 80GB");
    }

    #[track_caller]
    fn check_verdict(board: u16, verdict: Verdict, confidence: Confidence, codes: &[Code]) {
        let host = hidden(board);
        let pairs = judge_all(&host.snapshot, &host.scope);
        let pair = &pairs[0];
        assert_eq!((pair.verdict, pair.confidence), (verdict, confidence), "{pair:#?}");
        assert!(pair.codes.starts_with(codes), "{:?}", pair.codes);
    }

    #[test]
    fn what_nvlink_may_carry_is_not_called_broken() {
        use crate::code::{BOARD_OFFERS_NONE, RAW_UNDER_TRANSLATION};
        let sure = [NVLINK_NOT_VISIBLE, RAW_UNDER_TRANSLATION];
        check_verdict(0x2330, Verdict::Unknown, Confidence::Possible, &sure);
        // Cards that take a bridge: the verdict stands, less sure.
        let bridge = [RAW_UNDER_TRANSLATION];
        check_verdict(0x2230, Verdict::Broken, Confidence::Possible, &bridge);
        check_verdict(0x2204, Verdict::Broken, Confidence::Possible, &[BOARD_OFFERS_NONE]);
        check_verdict(0x2bb5, Verdict::Broken, Confidence::Probable, &bridge);
    }

    #[test]
    fn a_path_over_pcie_is_not_the_one_that_decides() {
        let open = hidden(0x2330).identity();
        let pairs = judge_all(&open.snapshot, &open.scope);
        assert_eq!((pairs[0].verdict, pairs[0].confidence), (Verdict::Works, Confidence::Possible));
        assert!(pairs[0].codes.contains(&NVLINK_NOT_VISIBLE));
        assert!(pairs[0].reason.contains("does not fall back to PCIe"), "{}", pairs[0].reason);
        // Cards that take a bridge fall back.
        let bridge = hidden(0x2230).identity();
        let pairs = judge_all(&bridge.snapshot, &bridge.scope);
        assert_eq!(pairs[0].confidence, Confidence::Probable);
    }

    #[test]
    fn boards_without_it_and_links_that_were_seen() {
        silent(&RULE, &hidden(0x2bb5));
        silent(&RULE, &Host::amd().board(0x2330));
        let none = |snapshot: &mut crate::snapshot::Snapshot| snapshot.nvlinks = Observed::Absent;
        silent(&RULE, &Host::amd().board(0x2330).edit(none));
    }
}
