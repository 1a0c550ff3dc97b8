//! PW0405: firmware settings that bear on this.

use super::firmware_menu::{Detector, Maker, Platform, SETTINGS, Setting};
use super::firmware_state;
use super::support;
use crate::code::FIRMWARE_SETTINGS;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::judge::encryption::kernel_has_fix;
use crate::snapshot::Snapshot;
use crate::snapshot::iommu::IommuVendor;
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: FIRMWARE_SETTINGS,
    title: "firmware settings that bear on peer access, as far as they can be read",
    page: "\
The question behind this finding: \"is there a BIOS setting that makes peer access work with the
IOMMU on?\" **No.** The IOMMU is programmed by the kernel. Firmware decides whether it exists, what
features it reports and where memory and devices lie; it cannot make a translating IOMMU pass a raw
address.

There is also **no setting called \"IOMMU coverage\"**. What AMD menus call coverage is *SNP Memory
(RMP Table) Coverage*: how much memory the ownership table of SEV-SNP describes. It selects no
devices, and switching it off ends SNP on the host. Whether a device is covered by an IOMMU is read
from sysfs (PW0406).

What each would do: *IOMMU off* and *SEV-SNP off* end confidential guests and every guest with
devices. *ACS off* hides the capability of the processor's root ports, merges IOMMU groups, so that
a device can no longer be given to a guest, and buys nothing where GPUs sit on root ports of their
own: their requests meet the IOMMU either way. *SMEE* permits memory encryption; whether the
encryption bit gets into IOMMU entries depends on `mem_encrypt=on` (PW0206), and *TSME* encrypts
main memory without that bit. *Pass-through DMA* on Intel decides whether an identity domain helps
(PW0219). That SEV-SNP Support sets EFR bit 63, DMAr Support IVinfo bit 1 and PassThrough DMA ecap
bit 6 is plausible; each rests on one field report or none. *Above 4G Decoding*, *Resizable BAR* and
the place of the 64-bit windows decide whether large regions exist and can be addressed; they cure
no translation fault.

No effect on peer access have: `DMAr Support` and DMA protection, AVIC, x2APIC mode, NUMA nodes per
socket (it changes distances only), ARI.

How it was seen: the evidence gives source and state of each setting that leaves a trace, and names
those that leave none, with the menu of this board's maker where it is known. An entry that is
missing from a menu may be hidden, which is no sign of its value.

Every change needs a reboot and so stops every tenant. A firmware update can change attestation
reports.

Sources: AMD SEV documentation (host BIOS options), board manuals and attribute lists of the makers;
`drivers/iommu/amd/init.c`; `Documentation/arch/x86/amd-memory-encryption.rst`. Menu names are
second-hand for several makers. Nothing here was tried on SNP hardware.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    // The firmware that a guest sees is the guest's.
    if !support::has_accelerators(snapshot) || snapshot.is_guest() == Tristate::Yes {
        return Vec::new();
    }
    let platform = platform(snapshot);
    let maker = Maker::detect(&snapshot.firmware);
    let (named, readable): (Vec<&Setting>, Vec<&Setting>) = SETTINGS
        .iter()
        .filter(|setting| setting.platform == Platform::Both || Some(setting.platform) == platform)
        .partition(|setting| setting.detector == Detector::NamedOnly);
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        Confidence::Probable,
        format!(
            "firmware: {} bear on this and show, {} can only be named; none lets raw addresses pass",
            support::counted(readable.len(), "setting", "settings"),
            named.len()
        ),
    )
    .about("host");
    for setting in readable {
        let place = setting.place(maker);
        for (source, state) in firmware_state::read(snapshot, setting.detector) {
            finding =
                finding.seen(source, support::cut(&format!("{}: {state}; {place}", setting.name)));
        }
    }
    for setting in named {
        finding = finding.seen(
            format!("firmware: {}", setting.name),
            format!("cannot be read from Linux: {}", setting.place(maker)),
        );
    }
    finding = finding.seen(
        "rule of this program",
        "no effect on P2P: DMAr Support, DMA protection, AVIC, x2APIC mode, NPS, ARI",
    );
    vec![with_advice(finding, snapshot, platform)]
}

/// Which maker's pages there are; both common ones if the processor is not known.
pub(super) fn platform(snapshot: &Snapshot) -> Option<Platform> {
    match snapshot.cpu.vendor.known().map(String::as_str) {
        Some("AuthenticAMD") => Some(Platform::Amd),
        Some("GenuineIntel") => Some(Platform::Intel),
        Some(_) | None => match snapshot.iommu_vendor() {
            Some(IommuVendor::Amd) => Some(Platform::Amd),
            Some(IommuVendor::Intel) => Some(Platform::Intel),
            Some(IommuVendor::Arm | IommuVendor::Other) => Some(Platform::Other),
            None => None,
        },
    }
}

fn with_advice(mut finding: Finding, snapshot: &Snapshot, platform: Option<Platform>) -> Finding {
    finding = finding.remedy(
        "no firmware setting makes a translating IOMMU pass a raw peer address: the kernel \
         programs it",
    );
    if platform == Some(Platform::Amd) {
        finding = finding.remedy(
            "there is no setting called IOMMU coverage: menus mean RMP coverage, which describes \
             memory for SNP and selects no devices",
        );
    }
    let confidential = support::confidential(snapshot);
    let snp_on = snapshot.memory_encryption.snp.state == Tristate::Yes;
    if !confidential.is_empty() || snp_on {
        let names = if confidential.is_empty() {
            "guests of this SNP host".to_owned()
        } else {
            support::listed(confidential.iter().map(|one| support::tenant_text(one)), 3)
        };
        finding = finding.remedy(format!(
            "closed, since {names} would lose what it runs on: IOMMU off, SEV-SNP off, RMP \
             coverage off, ACS off"
        ));
    }
    let bit_set = snapshot.memory_encryption.sme.state == Tristate::Yes
        && snapshot.iommu_vendor() == Some(IommuVendor::Amd)
        && kernel_has_fix(snapshot) != Tristate::Yes;
    if bit_set {
        finding = finding.remedy(
            "the one choice that removes an obstacle here: TSME in firmware in place of \
             mem_encrypt=on, which takes the encryption bit out of IOMMU entries; by agreement \
             with every tenant, since attestation reports show it",
        );
    }
    finding.remedy("every firmware change needs a reboot, which stops every tenant of this host")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};
    use crate::observed::Observed;

    fn advice(host: &Host) -> String {
        fires(&RULE, host).remedies.join("\n")
    }

    #[test]
    fn what_shows_and_what_can_only_be_named() {
        let host = Host::amd().edit(|snapshot| {
            snapshot.firmware.dmi = vec![("board_vendor".to_owned(), "Supermicro".to_owned())];
        });
        let finding = fires(&RULE, &host);
        assert_eq!(finding.severity, Severity::Info);
        let iommu = value(&finding, "/sys/class/iommu");
        assert!(iommu.starts_with("IOMMU: on"), "{iommu}");
        assert!(iommu.contains("NB Configuration > IOMMU, or the like"), "{iommu}");
        assert!(
            value(&finding, "firmware: xGMI").starts_with("cannot be read from Linux: look for")
        );
        assert!(finding.evidence.iter().all(|one| !one.value.contains("VT-d")));
        let unnamed = finding.evidence.iter().find(|one| one.value.contains("page mode 0"));
        assert!(unnamed.unwrap().value.ends_with("no menu entry is known"));
        assert!(advice(&host).contains("no setting called IOMMU coverage"));
    }

    #[test]
    fn what_a_confidential_guest_closes() {
        assert!(!advice(&Host::amd()).contains("closed"));
        let guest = advice(&Host::amd().guest(&[]));
        assert!(guest.contains("closed, since vm:132 (sandbox)"), "{guest}");
        assert!(guest.contains("RMP coverage off, ACS off"), "{guest}");
        assert!(advice(&Host::amd().snp(Tristate::Yes)).contains("guests of this SNP host"));
    }

    #[test]
    fn the_one_choice_that_helps() {
        let host = Host::amd().sme(Tristate::Yes);
        assert!(advice(&host).contains("TSME in firmware"));
        assert!(!advice(&host.kernel("7.0.2")).contains("TSME in firmware"));
    }

    #[test]
    fn intels_settings() {
        let finding = fires(&RULE, &Host::intel());
        assert!(finding.evidence.iter().any(|one| one.value.starts_with("VT-d: on")));
        assert!(finding.evidence.iter().any(|one| one.value.starts_with("Pass-through DMA: on")));
        assert!(!finding.remedies.join(" ").contains("coverage"));
    }

    #[test]
    fn guests_and_hosts_without_gpus() {
        silent(&RULE, &Host::amd().edit(|snapshot| snapshot.devices.clear()));
        silent(
            &RULE,
            &Host::amd().edit(|snapshot| {
                snapshot.cpu.flags = Observed::Known(vec!["hypervisor".to_owned()]);
            }),
        );
    }
}
