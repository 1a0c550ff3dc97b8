//! PW0221: a driver with peer-to-peer patches: always raw addresses.

use super::support;
use crate::code::FORKED_DRIVER;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::addressing::is_fork;
use crate::judge::{Confidence, Verdict};

pub(super) const RULE: Rule = Rule {
    code: FORKED_DRIVER,
    title: "the loaded driver carries peer-to-peer patches and always uses raw addresses",
    page: "\
The loaded NVIDIA module is a community build with peer-to-peer patches. How it was seen: its
version text says so; a build that changed no text is not recognised. Such builds enable peer access
on boards where NVIDIA does not offer it, by the way through the large memory region (BAR1).

What they do, by their source: they write the raw base address of the peer's region into the GPU's
page tables, on every kernel. An IOMMU entry that the kernel might have made is never used. Under a
translating domain they therefore always fail, also on kernels where the stock driver maps peer
memory. Their own instructions ask for identity domains or no IOMMU at all.

Why it matters: a kernel-side mapping at another address cannot rescue them. Only an entry that maps
the peer's bus address to itself does, which is what a peer map is. They also force the capability
answers, so that tools say yes on any platform (PW0307).

They need: memory regions as large as the board's memory (Resizable BAR), the peer's address aligned
to 512 MiB (a console on the GPU shifts it and breaks that), and no redirect on switch ports if the
traffic is to stay in the switch.

What helps: for boards that NVIDIA supports, the stock open driver on kernels 5.9 to 6.11; from 6.12
on it is as raw. Otherwise a peer map, or identity domains for exactly these groups where no other
tenant and no SNP stands against it (`peerway roads`). Prove the data either way.

What not to believe: that a passing capability query or a high bandwidth figure shows that data
arrives. Writes that nobody answers are fast.

Sources: the public patch sets' treatment of `kbusCreateP2PMappingForBar1P2P_GH100`, read in source.
Not measured on hardware.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    if !is_fork(snapshot) || support::driven_by_nvidia(snapshot).is_empty() {
        return Vec::new();
    }
    let affected = support::own(context, RULE.code);
    let broken = affected.as_ref().is_some_and(|affected| affected.any(Verdict::Broken));
    let severity = if broken { Severity::Warning } else { Severity::Info };
    let devices = support::driven_by_nvidia(snapshot);
    let mut finding = Finding::new(
        RULE.code,
        severity,
        Confidence::Probable,
        "the loaded NVIDIA driver is a peer-to-peer build: it always uses raw addresses",
    )
    .about_all(devices.iter().map(|device| device.address));
    finding = support::with_driver(finding, snapshot);
    if let Some(affected) = affected {
        finding = support::with_domains(finding, snapshot, &affected.requesters());
    }
    vec![finding.remedy("a peer map serves raw addresses under translation (peerway roads)")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};
    use crate::snapshot::driver::DriverFlavour;

    #[test]
    fn a_fork() {
        let host = Host::amd().driver("570.86.16-p2p", DriverFlavour::Fork);
        let finding = fires(&RULE, &host);
        assert_eq!(finding.severity, Severity::Warning);
        assert!(value(&finding, "version").contains("570.86.16-p2p"));
        assert_eq!(fires(&RULE, &host.identity()).severity, Severity::Info);
    }

    #[test]
    fn stock_drivers() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().driver("580.95.05", DriverFlavour::Closed));
    }
}
