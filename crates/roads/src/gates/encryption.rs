//! Gates on SME and SEV-SNP.

use peerway_core::judge::domain::mode_zero_allowed;
use peerway_core::judge::encryption::kernel_has_fix;
use peerway_core::snapshot::kernel::{Established, Tristate};

use crate::constraint;
use crate::gate::{Gate, GateCode};
use crate::scene::Scene;

/// What a state rests on, as `source = value`.
fn read_of(name: &str, established: &Established) -> String {
    let evidence: Vec<String> = established
        .evidence
        .iter()
        .take(3)
        .map(|(source, value)| format!("{source} = {value}"))
        .collect();
    if evidence.is_empty() {
        format!("{name} = {}", established.state)
    } else {
        format!("{name} = {} ({})", established.state, evidence.join("; "))
    }
}

const WITHOUT_SME: &str =
    "booting without mem_encrypt=on, to be agreed with every tenant (SNP does not need it)";

/// Entries for MMIO that the kernel makes for the DMA API or for a module carry no encryption bit.
pub(crate) fn sme_mmio(scene: &Scene<'_>) -> Gate {
    let sme = &scene.snapshot().memory_encryption.sme;
    if let Some(gate) = without_sme(scene) {
        return gate;
    }
    let read = format!("{}; {}", read_of("SME", sme), scene.kernel_text());
    match (sme.state, kernel_has_fix(scene.snapshot())) {
        // The fix decides whatever SME does.
        (_, Tristate::Yes) => Gate::pass(
            GateCode::SmeMmio,
            format!("{read}: this kernel leaves the encryption bit out of entries for MMIO"),
        ),
        (Tristate::No, _) => Gate::pass(GateCode::SmeMmio, read),
        (Tristate::Yes, Tristate::No) => Gate::fail(
            GateCode::SmeMmio,
            format!("{read}: this kernel sets the encryption bit in entries for MMIO"),
            format!("a kernel of 7.0 or later; or {WITHOUT_SME}"),
        ),
        (Tristate::Yes | Tristate::Unknown, Tristate::Unknown)
        | (Tristate::Unknown, Tristate::No) => Gate::unknown(
            GateCode::SmeMmio,
            read,
            format!("a complete log of this boot; a kernel of 7.0 or later; or {WITHOUT_SME}"),
        ),
    }
}

/// Entries for MMIO that VFIO makes carry no encryption bit: with SME they do on every kernel
/// seen, since VFIO does not say that they are MMIO.
pub(crate) fn sme_vfio(scene: &Scene<'_>) -> Gate {
    let sme = &scene.snapshot().memory_encryption.sme;
    if let Some(gate) = without_sme(scene) {
        return gate;
    }
    let read = format!("{}; {}", read_of("SME", sme), scene.kernel_text());
    match (sme.state, scene.fact("vfio-without-mmio-flag")) {
        (Tristate::No, _) => Gate::pass(GateCode::SmeMmio, read),
        (Tristate::Yes, Tristate::Yes) => Gate::fail(
            GateCode::SmeMmio,
            format!("{read}: VFIO's entries for peer memory carry the encryption bit"),
            WITHOUT_SME,
        ),
        // A kernel beyond those seen may have the change; nobody looked.
        (Tristate::Yes | Tristate::Unknown, _) => Gate::unknown(
            GateCode::SmeMmio,
            read,
            format!("a complete log of this boot; or {WITHOUT_SME}"),
        ),
    }
}

/// Where there is no AMD IOMMU there is no such bit.
fn without_sme(scene: &Scene<'_>) -> Option<Gate> {
    match scene.snapshot().iommu_vendor() {
        Some(vendor) if !scene.is_amd() => {
            Some(Gate::pass(GateCode::SmeMmio, format!("IOMMU = {vendor}, without SME")))
        }
        Some(_) => None,
        None => Some(Gate::unknown(
            GateCode::SmeMmio,
            "the IOMMU's units could not be read",
            "a readable /sys/class/iommu",
        )),
    }
}

/// What SNP's ownership table does to peer memory: shown, and never closing, until measured.
pub(crate) fn rmp_mmio(scene: &Scene<'_>) -> Gate {
    let snp = &scene.snapshot().memory_encryption.snp;
    let read = read_of("SNP", snp);
    match snp.state {
        Tristate::No => Gate::pass(GateCode::RmpMmio, read),
        Tristate::Yes | Tristate::Unknown => Gate::unknown(
            GateCode::RmpMmio,
            format!("{read}; nobody has measured peer memory of GPUs under SNP"),
            "a data-checked copy on this host: peerway verify fails on any RMP event",
        ),
    }
    .shown()
}

/// Untranslated devices are legal.
pub(crate) fn snp_identity(scene: &Scene<'_>) -> Gate {
    let snapshot = scene.snapshot();
    if snapshot.iommu_vendor().is_some() && !scene.is_amd() {
        return Gate::pass(GateCode::SnpIdentity, "the IOMMU is not AMD's: no SNP");
    }
    let snp = &snapshot.memory_encryption.snp;
    let mut read = read_of("SNP", snp);
    match (snp.state, mode_zero_allowed(snapshot)) {
        (Tristate::No, _) => Gate::pass(GateCode::SnpIdentity, read),
        (Tristate::Yes, Tristate::Yes) => Gate::pass(
            GateCode::SnpIdentity,
            format!("{read}; EFR2 bit 13 is set and the kernel is 7.3 or later"),
        ),
        (Tristate::Yes, _) => {
            if let Some(fact) = scene.knowledge().fact("snp-identity-window")
                && fact.applies(&scene.situation()) == Tristate::Yes
            {
                read = format!("{read}; {}: {}", scene.kernel_text(), fact.text);
            }
            Gate::fail(
                GateCode::SnpIdentity,
                read,
                "an IOMMU with EFR2 bit 13 under a kernel of 7.3 or later; a host without SNP",
            )
        }
        (Tristate::Unknown, _) => Gate::unknown(
            GateCode::SnpIdentity,
            read,
            "a complete log of this boot, or kvm_amd's parameter sev_snp",
        ),
    }
}

/// SNP may be given up.
pub(crate) fn keep_snp(scene: &Scene<'_>) -> Gate {
    let snp = &scene.snapshot().memory_encryption.snp;
    let read = read_of("SNP", snp);
    match constraint::keep_snp(scene) {
        Some((_, why)) => Gate::fail(
            GateCode::KeepSnp,
            format!("{read}; {why}"),
            "the agreement of those tenants (--give-up snp); their guests then cannot start",
        ),
        None => Gate::pass(GateCode::KeepSnp, read),
    }
    .constraint()
}

/// The goal's memory is not encrypted against the host.
pub(crate) fn confidential(scene: &Scene<'_>) -> Gate {
    let tenant = scene.tenant().and_then(|id| scene.snapshot().tenant(id));
    let (state, read) = match tenant {
        Some(tenant) => {
            let read = format!("{} confidential = {}", tenant.id, tenant.confidential);
            (tenant.confidential, read)
        }
        None => (Tristate::Unknown, "the tenant was not seen".to_owned()),
    };
    match state {
        Tristate::No => Gate::pass(GateCode::Confidential, read),
        Tristate::Yes => Gate::fail(
            GateCode::Confidential,
            read,
            "nothing known: peer access inside an encrypted guest has not been seen to work",
        ),
        Tristate::Unknown => {
            Gate::unknown(GateCode::Confidential, read, "the guest's configuration")
        }
    }
}

/// What untranslated addresses cost beside SME, where it is not known to be off.
pub(crate) fn bounced(scene: &Scene<'_>) -> Option<String> {
    let may_be_on = scene.is_amd() && scene.snapshot().memory_encryption.sme.state != Tristate::No;
    may_be_on.then(|| {
        "with SME active, untranslated addresses of main memory carry the encryption bit: a GPU of \
         47 bits is bounced through SWIOTLB for every transfer (from source, not measured)"
            .to_owned()
    })
}
