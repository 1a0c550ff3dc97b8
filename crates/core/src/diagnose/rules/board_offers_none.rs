//! PW0209: the stock driver does not offer peer access on this board.

use std::collections::BTreeSet;

use super::support;
use crate::boards;
use crate::code::BOARD_OFFERS_NONE;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: BOARD_OFFERS_NONE,
    title: "NVIDIA's driver does not offer PCIe peer access on this board",
    page: "\
Whether two boards may use PCIe peer access is decided by NVIDIA's closed firmware per board and
chipset, before any address is formed. On the GeForce boards of recent generations the answer is no:
`nvidia-smi topo -p2p` shows `NS` or `GNS`, `cudaDeviceCanAccessPeer` returns 0, and programs copy
through main memory instead.

How it is judged here: by the PCI device number and a table of what the vendor states and what was
reported in the field. Read the driver's own answer before relying on the table.

Why it matters: no IOMMU setting, no kernel and no firmware menu changes this. With a driver that
says no, nothing tries and no data is damaged; it is only slower. Early drivers for the RTX 4090
said yes and lost data (nccl-tests issue 117). On a host with these boards a translating IOMMU is
not what stands in the way.

What helps: working without peer access, with shared memory well sized (NCCL falls back by itself).
Boards of the professional and data-centre lines offer it. Community builds of the driver enable it;
they hand out raw bus addresses always (PW0221), need large memory regions, and are supported by
nobody.

What not to believe: `ForceP2P` as a cure. It makes the capability answers say yes without making
the hardware path exist (PW0301). A board with an NVLink bridge may reach its neighbour over NVLink
all the same; that does not show without opening the GPU (PW0218).

Sources: NVIDIA open kernel modules, `src/nvidia/src/kernel/platform/p2p/p2p_caps.c`; the table of
this program, from vendor statements and field reports. Never certain.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let ends: BTreeSet<_> = affected.requesters().union(&affected.targets()).copied().collect();
    let mut names = BTreeSet::new();
    let mut finding =
        Finding::new(RULE.code, Severity::Warning, affected.confidence(), String::new());
    for address in ends {
        let ids = snapshot.device(address).and_then(|device| device.ids.known());
        let Some(ids) = ids else { continue };
        let Some(board) = boards::lookup(*ids) else { continue };
        if board.offers_p2p == Tristate::No {
            names.insert(board.name);
            finding = finding
                .about(address)
                .seen(device_file(address, "device"), format!("{ids}: {}", board.name));
        }
    }
    if names.is_empty() {
        return Vec::new();
    }
    finding.title =
        format!("NVIDIA's driver offers no PCIe peer access on {}", support::listed(names, 2));
    vec![
        support::with_driver(finding, snapshot)
            .remedy("work without peer access; no IOMMU or firmware setting changes this"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, Host, fires, silent, value};
    use crate::snapshot::driver::DriverFlavour;

    #[test]
    fn boards_without_the_offer() {
        let finding = fires(&RULE, &Host::amd().board(0x2684));
        assert_eq!(finding.severity, Severity::Warning);
        assert_eq!(value(&finding, A), "10de:2684: GeForce RTX 4090");
    }

    #[test]
    fn boards_with_it_and_patched_drivers() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().board(0x2684).driver("570.86.16-p2p", DriverFlavour::Fork));
    }
}
