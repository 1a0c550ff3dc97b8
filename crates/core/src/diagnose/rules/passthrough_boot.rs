//! PW0102: `iommu=pt` or a relative: every device is passed through, SNP is lost.

use super::boot::{self, COMMAND_LINE};
use super::support;
use crate::code::PASSTHROUGH_BOOT;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::judge::domain::mode_zero_allowed;
use crate::snapshot::iommu::IommuVendor;
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: PASSTHROUGH_BOOT,
    title: "the command line makes pass-through the default for every device",
    page: "\
`iommu=pt` and `iommu.passthrough=1` make the default domain of every group `identity`: all devices
of the host, not only GPUs, reach all of its memory. Peer requests with raw addresses then pass the
IOMMU. Guests with devices keep their own translation.

What it costs: the isolation of every device of the host from the host's memory; and on AMD,
SEV-SNP. The kernel refuses to enable SNP while the default is pass-through (`AMD-Vi: SNP: IOMMU
disabled or configured in passthrough mode, SNP cannot be supported.`), so that no SNP guest starts
after the next boot. Only kernels from 7.3 on, with IOMMUs that report EFR2 bit 13 (SNP page mode
0), allow both.

What it does not do: it does not switch the IOMMU off; interrupts are still remapped. It does not
reach devices that the kernel does not trust, such as those behind external ports (PW0103). On Intel
units without the pass-through mode it maps main memory only (PW0219). With SME active, an explicit
word skips the kernel's own check against the combination.

How it was seen: the last of these words on the command line, which is the one in force; the groups'
`type` files show the effect.

What helps, where it is unwanted: single groups can be `identity` without it, or a peer map keeps
translation altogether (`peerway roads`). A change needs a reboot, so it touches every tenant.

What not to believe: the boot banner. `Default domain type: Passthrough` is printed on hosts where
single groups translate, `Translated` on hosts without any IOMMU. The `type` of the group decides.

Sources: `arch/x86/kernel/pci-dma.c`, `iommu_setup`; `drivers/iommu/iommu.c`, `iommu_subsys_init`;
`drivers/iommu/amd/init.c`, `iommu_snp_enable`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let Some(word) = boot::passthrough(snapshot) else { return Vec::new() };
    let guests = support::guests(snapshot);
    let both_allowed = mode_zero_allowed(snapshot) == Tristate::Yes;
    let snp_host = snapshot.iommu_vendor() == Some(IommuVendor::Amd)
        && snapshot.cpu.has_flag("sev_snp").known() == Some(&true)
        && !both_allowed;
    let costs_snp = snp_host || !support::confidential(snapshot).is_empty() && !both_allowed;
    let (severity, title) = if costs_snp {
        (
            Severity::Warning,
            format!(
                "{} makes pass-through the default for every device: SEV-SNP cannot be on with it",
                word.text
            ),
        )
    } else if guests.is_empty() {
        (Severity::Info, format!("{} makes pass-through the default for every device", word.text))
    } else {
        (
            Severity::Warning,
            format!(
                "{} makes pass-through the default for every device, on a host with guests",
                word.text
            ),
        )
    };
    let mut finding = Finding::new(RULE.code, severity, Confidence::Certain, title)
        .about("host")
        .seen(COMMAND_LINE, word.text)
        .seen("SEV-SNP", snapshot.memory_encryption.snp.state);
    finding = support::with_release(finding, snapshot);
    let banners =
        support::log_lines(snapshot, &["Default domain type:", "SNP cannot be supported"]);
    finding = support::with_log(finding, &banners);
    for guest in guests.iter().take(4) {
        finding = finding.seen(
            format!("tenant {}", support::tenant_text(guest)),
            format!("running: {}, confidential: {}", guest.running, guest.confidential),
        );
    }
    vec![finding.remedy(
        "single groups can be identity without this word, or a peer map keeps translation on \
         (peerway roads); removing the word needs a reboot",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, amd_unit, fires, silent, value};
    use crate::observed::Observed;

    #[test]
    fn a_host_of_one_tenant() {
        let finding = fires(&RULE, &Host::amd().boot("iommu=pt").identity());
        assert_eq!(finding.severity, Severity::Info);
        assert_eq!(value(&finding, COMMAND_LINE), "iommu=pt");
    }

    #[test]
    fn beside_a_confidential_guest() {
        let host = Host::intel().boot("iommu.passthrough=y").guest(&[]);
        let finding = fires(&RULE, &host);
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.title.contains("SEV-SNP"));
    }

    #[test]
    fn a_processor_with_snp_loses_it() {
        let host = Host::amd().boot("iommu=pt").edit(|snapshot| {
            snapshot.cpu.flags = Observed::Known(vec!["sev_snp".to_owned()]);
        });
        assert!(fires(&RULE, &host).title.contains("SEV-SNP"));
        let new = host.kernel("7.3.4").edit(|snapshot| {
            let mut unit = amd_unit();
            unit.amd_efr2 = Observed::Known(1 << 13);
            snapshot.iommu.units = Observed::Known(vec![unit]);
        });
        assert_eq!(fires(&RULE, &new).severity, Severity::Info);
    }

    #[test]
    fn other_words() {
        silent(&RULE, &Host::amd().boot("iommu=pt iommu=nopt"));
        silent(&RULE, &Host::amd().boot("amd_iommu=pt intel_iommu=igfx_off"));
    }
}
