//! PW0501: another tenant is protected.

use std::collections::BTreeSet;

use super::support;
use crate::address::PciAddress;
use crate::code::PROTECTED_TENANT;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::tenant::{Claim, TenantKind};

pub(super) const RULE: Rule = Rule {
    code: PROTECTED_TENANT,
    title: "another tenant of this host is protected",
    page: "\
A tenant is whoever holds devices of this host or has them promised by a configuration: a virtual
machine, a container, a pod, a job, the host itself. Virtual machines and confidential tenants do
not run on the host's kernel, and what is changed for others must not reach them. They are protected
by default: no plan of this program writes to their devices or groups, and what could have changed
for them is compared before and after.

How it was seen: the configuration of the host's virtualisation, control groups, and the processes
that hold device nodes. `running` and `confidential` read `unknown` where nobody could tell; for
protection, unknown counts as yes.

What protection closes:

- anything that needs a reboot, while they run;
- whatever ends SEV-SNP, while one of them is confidential: pass-through at boot, an IOMMU that is
  off, firmware's SNP and RMP coverage entries;
- changes of access control on ports above their devices, and of groups that they share;
- an identity domain for others is legal beside an ordinary guest, but then isolation of that
  guest's memory rests on the other tenant's device and driver.

What it does not close: roads that touch only the groups and devices of the tenant they are for,
with translation left on.

What helps: an agreement with the tenant; constraints can be lifted by the operator, one by one.

What not to believe: the group's `type` of a running guest's device. It shows the default domain,
not the one in use.

Sources: `drivers/iommu/iommu.c`, `iommu_group_claim_dma_owner`; `drivers/vfio`; the tenants and
claims of this snapshot.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let mut findings = Vec::new();
    for tenant in support::guests(snapshot) {
        let claims: Vec<&Claim> =
            snapshot.claims.iter().filter(|claim| claim.tenant == tenant.id).collect();
        let devices: BTreeSet<PciAddress> = claims.iter().map(|claim| claim.device).collect();
        // A guest without devices matters here only for the memory encryption that it needs.
        if devices.is_empty() && tenant.confidential == Tristate::No {
            continue;
        }
        let running = match tenant.running {
            Tristate::Yes => "running",
            Tristate::No => "not running",
            Tristate::Unknown => "perhaps running",
        };
        let confidential = match tenant.confidential {
            Tristate::Yes => ", confidential",
            Tristate::No => "",
            Tristate::Unknown => ", perhaps confidential",
        };
        let name: String = support::tenant_text(tenant).chars().take(50).collect();
        let finding = Finding::new(
            RULE.code,
            Severity::Info,
            Confidence::Certain,
            format!(
                "{name} is protected: {running}{confidential}, {}",
                support::counted(devices.len(), "device", "devices")
            ),
        )
        .about(&tenant.id)
        .about_all(&devices);
        let mut finding = finding.seen(
            format!("tenant {}", tenant.id),
            format!(
                "{} {}, running: {}, confidential: {}",
                kind(tenant.kind),
                tenant.name,
                tenant.running,
                tenant.confidential
            ),
        );
        for claim in claims.iter().take(12) {
            finding = finding.seen(
                support::cut(&claim.source),
                format!("{}, held now: {}", claim.device, claim.active),
            );
        }
        findings.push(finding);
    }
    findings
}

fn kind(kind: TenantKind) -> &'static str {
    match kind {
        TenantKind::Host => "host",
        TenantKind::Lxc => "system container",
        TenantKind::Vm => "virtual machine",
        TenantKind::Container => "container",
        TenantKind::Pod => "pod",
        TenantKind::Job => "job",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};

    #[test]
    fn a_confidential_guest() {
        let finding = fires(&RULE, &Host::amd().guest(&[B]).container(&[A]));
        assert_eq!(finding.title, "vm:132 (sandbox) is protected: running, confidential, 1 device");
        assert_eq!(finding.subjects, ["vm:132", B]);
        assert_eq!(value(&finding, "configuration of vm:132"), "0000:41:00.0, held now: yes");
        // Even without devices, for the encryption that it needs.
        fires(&RULE, &Host::amd().guest(&[]));
    }

    #[test]
    fn containers_and_ordinary_guests_without_devices() {
        silent(&RULE, &Host::amd().container(&[A, B]));
        let ordinary = Host::amd().guest(&[]).edit(|snapshot| {
            snapshot.tenants[0].confidential = Tristate::No;
        });
        silent(&RULE, &ordinary);
    }
}
