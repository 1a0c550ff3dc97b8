//! What the requester's own IOMMU domain does to an address.

use super::{Answer, Confidence};
use crate::code::{self, Code};
use crate::observed::Observed;
use crate::snapshot::Snapshot;
use crate::snapshot::iommu::{DomainType, IommuVendor};
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::PciDevice;

/// What happens to a request at the IOMMU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Passage {
    /// Its address stays as it is.
    Raw {
        /// Why.
        why: String,
        /// The finding that says so.
        code: Code,
        /// How sure it is that the address passes.
        confidence: Confidence,
    },
    /// Its address is looked up in the group's page table.
    Translating {
        /// The group.
        group: u32,
        /// Its type.
        domain: DomainType,
    },
    /// It is refused.
    Closed(Answer),
    /// Nobody could tell.
    Unknown(Answer),
}

/// Looks at the group of the requester.
pub(crate) fn of(snapshot: &Snapshot, from: &PciDevice) -> Passage {
    let unknown = |why: String| Passage::Unknown(Answer::unknown(code::ROUTE_UNKNOWN, why));
    match (&from.group, snapshot.domain_of(from)) {
        (Observed::Absent, _) => without_group(snapshot, from),
        (Observed::Known(group), Observed::Known(domain)) => {
            in_group(snapshot, from, *group, domain)
        }
        (Observed::Known(group), Observed::Absent) => {
            unknown(format!("group {group} of {} shows no type on this kernel", from.address))
        }
        (Observed::Known(group), Observed::Unreadable(why)) => {
            unknown(format!("the type of group {group} could not be read ({why})"))
        }
        (Observed::Unreadable(why), _) => {
            unknown(format!("the group of {} could not be read ({why})", from.address))
        }
    }
}

fn without_group(snapshot: &Snapshot, from: &PciDevice) -> Passage {
    match snapshot.iommu_active() {
        Tristate::No => Passage::Raw {
            why: "no IOMMU is active, so the raw address passes".to_owned(),
            code: code::IOMMU_OFF,
            confidence: Confidence::Probable,
        },
        Tristate::Yes => Passage::Raw {
            why: format!("no IOMMU covers {}, so the raw address passes", from.address),
            code: code::NOT_COVERED,
            confidence: Confidence::Probable,
        },
        Tristate::Unknown => Passage::Unknown(Answer::unknown(
            code::ROUTE_UNKNOWN,
            "whether an IOMMU is active could not be read",
        )),
    }
}

fn in_group(snapshot: &Snapshot, from: &PciDevice, group: u32, domain: DomainType) -> Passage {
    match domain {
        DomainType::Dma | DomainType::DmaFq => Passage::Translating { group, domain },
        DomainType::Identity => identity(snapshot, from, group),
        DomainType::Blocked => Passage::Closed(Answer::broken(
            Confidence::Probable,
            code::BLOCKED_DOMAIN,
            format!("group {group} of {} is blocked: all its DMA is refused", from.address),
        )),
        DomainType::Unmanaged | DomainType::NoDefault | DomainType::Other(_) => {
            Passage::Unknown(Answer::unknown(
                code::ROUTE_UNKNOWN,
                format!("group {group} of {} has type {domain}, which says nothing", from.address),
            ))
        }
    }
}

fn identity(snapshot: &Snapshot, from: &PciDevice, group: u32) -> Passage {
    match snapshot.iommu_vendor() {
        Some(IommuVendor::Amd) => {
            if let Some(passage) = identity_under_snp(snapshot, group) {
                return passage;
            }
        }
        Some(IommuVendor::Intel) => {
            if let Some(passage) = software_identity(snapshot, from, group) {
                return passage;
            }
        }
        Some(IommuVendor::Arm | IommuVendor::Other) | None => {}
    }
    let why = format!("group {group} of {} is identity: the raw address passes", from.address);
    let beside_snp = snapshot.iommu_vendor() == Some(IommuVendor::Amd)
        && snapshot.memory_encryption.snp.state == Tristate::Yes;
    if beside_snp {
        return Passage::Raw {
            why: format!(
                "{why}; how SNP treats untranslated requests to peer memory was measured by nobody"
            ),
            code: code::UNTRANSLATED,
            confidence: Confidence::Possible,
        };
    }
    Passage::Raw { why, code: code::UNTRANSLATED, confidence: Confidence::Probable }
}

/// SNP forbids untranslated device-table entries, unless every unit reports EFR2 bit 13 and the
/// kernel (7.3 and later) makes use of it. A kernel that accepted the setting all the same has a
/// device whose every DMA is rejected (`ILLEGAL_DEV_TABLE_ENTRY`).
fn identity_under_snp(snapshot: &Snapshot, group: u32) -> Option<Passage> {
    match snapshot.memory_encryption.snp.state {
        Tristate::No => None,
        Tristate::Yes if mode_zero_allowed(snapshot) == Tristate::Yes => None,
        Tristate::Yes => Some(Passage::Closed(Answer::broken(
            Confidence::Probable,
            code::IDENTITY_UNDER_SNP,
            format!("group {group} is identity on an SNP host: all DMA of the device is rejected"),
        ))),
        Tristate::Unknown => Some(Passage::Unknown(Answer::unknown(
            code::SNP_UNKNOWN,
            format!(
                "group {group} is identity, which breaks the device if SNP is on, and that \
                     could not be established"
            ),
        ))),
    }
}

/// Whether this kernel and every unit allow untranslated entries under SNP.
pub fn mode_zero_allowed(snapshot: &Snapshot) -> Tristate {
    match snapshot.kernel.version() {
        Some(version) if version.at_least(7, 3) => {}
        Some(_) => return Tristate::No,
        None => return Tristate::Unknown,
    }
    let Some(units) = snapshot.iommu.units.known() else { return Tristate::Unknown };
    let states: Vec<Tristate> =
        units.iter().map(|unit| Tristate::from(unit.snp_page_mode_zero())).collect();
    if states.contains(&Tristate::No) {
        Tristate::No
    } else if states.is_empty() || states.contains(&Tristate::Unknown) {
        Tristate::Unknown
    } else {
        Tristate::Yes
    }
}

/// Without hardware pass-through (ecap bit 6) older kernels build identity as a map of memory and
/// reserved regions: peer memory is not in it (`drivers/iommu/intel/iommu.c`, `si_domain_init`).
fn software_identity(snapshot: &Snapshot, from: &PciDevice, group: u32) -> Option<Passage> {
    let units = snapshot.iommu.units.known()?;
    let unit = units.iter().find(|unit| Some(&unit.name) == from.iommu_unit.known());
    let pass_through = match unit {
        Some(unit) => Tristate::from(unit.hardware_pass_through()),
        None if units.iter().all(|unit| unit.hardware_pass_through() == Observed::Known(true)) => {
            Tristate::Yes
        }
        None => Tristate::Unknown,
    };
    match pass_through {
        Tristate::Yes => None,
        Tristate::No => Some(Passage::Closed(Answer::broken(
            Confidence::Probable,
            code::SOFTWARE_IDENTITY,
            format!(
                "group {group} is identity, but the IOMMU has no pass-through mode: the kernel \
                 maps memory only, and the peer's address faults"
            ),
        ))),
        Tristate::Unknown => Some(Passage::Unknown(Answer::unknown(
            code::ROUTE_UNKNOWN,
            format!(
                "group {group} is identity; whether the IOMMU has a pass-through mode (ecap bit \
                 6) could not be read"
            ),
        ))),
    }
}
