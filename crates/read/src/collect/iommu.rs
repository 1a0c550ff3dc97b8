//! IOMMU units from `/sys/class/iommu` and groups from `/sys/kernel/iommu_groups`.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::Gap;
use peerway_core::snapshot::iommu::{DomainType, Group, Iommu, IommuUnit, IommuVendor};
use peerway_core::snapshot::kernel::KernelVersion;
use peerway_core::snapshot::pci::PciDevice;

use super::pci::{attribute, name};
use super::spread::spread;
use crate::error::observe;
use crate::parse::sysfs;
use crate::root::{Directory, Root};

const UNITS: &str = "/sys/class/iommu";
const GROUPS: &str = "/sys/kernel/iommu_groups";

/// From this version `features` prints EFR first, before it EFR2
/// (`drivers/iommu/amd/init.c`, `amd_iommu_show_features`).
const EFR_FIRST: (u32, u32) = (6, 7);

/// Reads the units.
pub fn units(root: &Root, kernel: Option<KernelVersion>) -> Iommu {
    let units = match observe(root.list(UNITS)) {
        Observed::Known(names) => {
            Observed::Known(names.iter().map(|name| unit(root, name, kernel)).collect())
        }
        // Every kernel that can drive an IOMMU has the directory, so that a copy without it is
        // more likely to be partial than to come from one that cannot.
        Observed::Absent if !root.has_sysfs() => {
            Observed::Unreadable("the copy of the host has no such directory".to_owned())
        }
        Observed::Absent => Observed::Absent,
        Observed::Unreadable(why) => Observed::Unreadable(why),
    };
    Iommu { units }
}

fn unit(root: &Root, name: &str, kernel: Option<KernelVersion>) -> IommuUnit {
    let path = format!("{UNITS}/{name}");
    let (efr, efr2) = features(root.observe(&format!("{path}/amd-iommu/features")), kernel);
    let hex = |file: &str| {
        root.observe(&format!("{path}/intel-iommu/{file}")).and_then(|text| {
            match u64::from_str_radix(&text, 16) {
                Ok(value) => Observed::Known(value),
                Err(_) => Observed::Unreadable(format!("{text:?} is no hexadecimal number")),
            }
        })
    };
    IommuUnit {
        name: name.to_owned(),
        vendor: vendor(name),
        amd_efr: efr,
        amd_efr2: efr2,
        intel_cap: hex("cap"),
        intel_ecap: hex("ecap"),
    }
}

fn vendor(name: &str) -> IommuVendor {
    if name.starts_with("ivhd") {
        IommuVendor::Amd
    } else if name.starts_with("dmar") {
        IommuVendor::Intel
    } else if name.contains("smmu") {
        IommuVendor::Arm
    } else {
        IommuVendor::Other
    }
}

/// Two hexadecimal numbers whose order depends on the kernel; unknown where the kernel is.
fn features(
    text: Observed<String>,
    kernel: Option<KernelVersion>,
) -> (Observed<u64>, Observed<u64>) {
    let split = |text: &str| {
        let (first, second) = text.split_once(':')?;
        let hex = |word: &str| u64::from_str_radix(word.trim(), 16).ok();
        Some((hex(first)?, hex(second)?))
    };
    match text {
        Observed::Known(text) => match (split(&text), kernel) {
            (Some((first, second)), Some(version)) => {
                let (efr, efr2) = if version.at_least(EFR_FIRST.0, EFR_FIRST.1) {
                    (first, second)
                } else {
                    (second, first)
                };
                (Observed::Known(efr), Observed::Known(efr2))
            }
            (Some(_), None) => {
                let why = "the order of the two registers depends on the kernel, which is unknown";
                (Observed::Unreadable(why.to_owned()), Observed::Unreadable(why.to_owned()))
            }
            (None, _) => {
                let why = format!("features is {text:?}");
                (Observed::Unreadable(why.clone()), Observed::Unreadable(why))
            }
        },
        Observed::Absent => (Observed::Absent, Observed::Absent),
        Observed::Unreadable(why) => (Observed::Unreadable(why.clone()), Observed::Unreadable(why)),
    }
}

/// Reads the groups of the devices; reserved regions of those in `deep` only.
pub fn groups(
    root: &Root,
    devices: &[PciDevice],
    deep: &BTreeSet<PciAddress>,
    gaps: &mut Vec<Gap>,
) -> Vec<Group> {
    let mut members: BTreeMap<u32, Vec<PciAddress>> = BTreeMap::new();
    for device in devices {
        if let Observed::Known(id) = device.group {
            members.entry(id).or_default().push(device.address);
        }
    }
    if members.is_empty() {
        return Vec::new();
    }
    let listing = match root.directory(GROUPS) {
        Ok(listing) => Some(listing),
        Err(error) => {
            gaps.push(Gap { source: GROUPS.to_owned(), why: error.reason.to_string() });
            None
        }
    };
    let members: Vec<(u32, Vec<PciAddress>)> = members.into_iter().collect();
    spread(root, &members, |(id, devices)| group(listing.as_ref(), *id, devices, deep))
}

fn group(
    listing: Option<&Directory<'_>>,
    id: u32,
    devices: &[PciAddress],
    deep: &BTreeSet<PciAddress>,
) -> Group {
    let members = devices.to_vec();
    let Some(listing) = listing else {
        let (domain, reserved) = (Observed::default(), Observed::default());
        return Group { id, domain, devices: members, reserved };
    };
    let domain = attribute(listing, &format!("{id}/type"))
        .and_then(name)
        .map(|word| DomainType::from_word(&word));
    let reserved = if devices.iter().any(|device| deep.contains(device)) {
        attribute(listing, &format!("{id}/reserved_regions")).and_then(|text| {
            match sysfs::reserved_regions(&text) {
                Ok(regions) => Observed::Known(regions),
                Err(why) => Observed::Unreadable(why),
            }
        })
    } else {
        Observed::default()
    };
    Group { id, domain, devices: members, reserved }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, release: &str, efr: Option<u64>) {
        let kernel = KernelVersion::from_release(release);
        let (seen, _) = features(Observed::Known(text.to_owned()), kernel);
        assert_eq!(seen.known().copied(), efr);
    }

    #[test]
    fn the_order_of_the_registers_follows_the_kernel() {
        check("a246577efa2254afa:10", "6.14.0", None);
        check("246577efa2254afa:10", "6.14.0", Some(0x2465_77ef_a225_4afa));
        check("10:246577efa2254afa", "6.1.0", Some(0x2465_77ef_a225_4afa));
        check("10:246577efa2254afa", "6.6.17", Some(0x2465_77ef_a225_4afa));
        check("10:246577efa2254afa", "unknown", None);
        check("10", "6.14.0", None);
    }
}
