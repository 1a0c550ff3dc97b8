//! IOMMU units and groups.

use std::collections::BTreeMap;

use super::super::files::{Files, relative};
use super::super::layout::{Kind, Placed, root_path};
use super::super::{HostBuilder, Iommu, address};

const SMMU: &str = "/sys/devices/platform/arm-smmu-v3.0.auto/iommu/smmu3.0x0000000050000000";

/// Directory of the unit of a root bus.
pub(super) fn unit_path(host: &HostBuilder, root: usize) -> Option<String> {
    let bus = host.roots.get(root)?;
    match host.iommu {
        Iommu::Off => None,
        Iommu::Amd { .. } => {
            let function = address(bus.domain, bus.bus, 0, 2);
            Some(format!("{}/{function}/iommu/ivhd{root}", root_path(bus)))
        }
        Iommu::Intel { .. } => Some(format!("/sys/devices/virtual/iommu/dmar{root}")),
        Iommu::Smmu => Some(SMMU.to_owned()),
    }
}

pub(super) fn render(host: &HostBuilder, placed: &[Placed], files: &mut Files) {
    files.directory("/sys/class/iommu");
    files.directory("/sys/kernel/iommu_groups");
    if host.iommu == Iommu::Off {
        return;
    }
    let units = if host.iommu == Iommu::Smmu { 1 } else { host.roots.len() };
    for root in 0..units {
        if let Some(path) = unit_path(host, root) {
            unit(host, placed, root, &path, files);
        }
    }
    groups(host, placed, files);
}

fn unit(host: &HostBuilder, placed: &[Placed], root: usize, path: &str, files: &mut Files) {
    let name = path.rsplit('/').next().unwrap_or_default();
    let class = "/sys/class/iommu";
    files.link(&format!("{class}/{name}"), relative(class, path));
    files.link(&format!("{path}/subsystem"), relative(path, class));
    let mine =
        |one: &&Placed| one.group.is_some() && (one.root == root || host.iommu == Iommu::Smmu);
    let devices = format!("{path}/devices");
    files.directory(&devices);
    for one in placed.iter().filter(mine) {
        files.link(&format!("{devices}/{}", one.address), relative(&devices, &one.path));
    }
    match host.iommu {
        Iommu::Amd { efr, efr2 } => {
            // The order of the two registers changed with 6.7
            // (`drivers/iommu/amd/init.c`, `amd_iommu_show_features`).
            let features = if host.version().at_least(6, 7) {
                format!("{efr:x}:{efr2:x}")
            } else {
                format!("{efr2:x}:{efr:x}")
            };
            files.line(&format!("{path}/amd-iommu/features"), features);
            files.line(&format!("{path}/amd-iommu/cap"), "40f");
        }
        Iommu::Intel { cap, ecap } => {
            let directory = format!("{path}/intel-iommu");
            files.line(&format!("{directory}/version"), "5:0");
            let base = 0xd0ff_c000_u64 + 0x0100_0000 * u64::try_from(root).unwrap_or(0);
            files.line(&format!("{directory}/address"), format_args!("{base:x}"));
            files.line(&format!("{directory}/cap"), format_args!("{cap:x}"));
            files.line(&format!("{directory}/ecap"), format_args!("{ecap:x}"));
            files.line(&format!("{directory}/domains_supported"), "65536");
            files.line(&format!("{directory}/domains_used"), "8");
        }
        Iommu::Smmu | Iommu::Off => {}
    }
}

fn groups(host: &HostBuilder, placed: &[Placed], files: &mut Files) {
    let mut domains: BTreeMap<u32, &str> = BTreeMap::new();
    for one in placed {
        let Some(group) = one.group else { continue };
        let directory = format!("/sys/kernel/iommu_groups/{group}/devices");
        let link = format!("{directory}/{}", one.address);
        files.link(&link, relative(&directory, &one.path));
        let word = match &one.kind {
            Kind::Function(function) => function.domain,
            Kind::Port(_) => None,
        };
        let domain = domains.entry(group).or_insert(host.domain);
        if let Some(word) = word {
            *domain = word;
        }
    }
    for (group, domain) in domains {
        let directory = format!("/sys/kernel/iommu_groups/{group}");
        files.line(&format!("{directory}/type"), domain);
        files.line(&format!("{directory}/reserved_regions"), reserved_regions(host).join("\n"));
    }
}

fn reserved_regions(host: &HostBuilder) -> Vec<&'static str> {
    match host.iommu {
        Iommu::Amd { .. } => vec![
            "0x00000000fee00000 0x00000000feefffff msi",
            "0x000000fd00000000 0x000000ffffffffff reserved",
        ],
        Iommu::Intel { .. } => vec!["0x00000000fee00000 0x00000000feefffff msi"],
        Iommu::Smmu => vec!["0x0000000008000000 0x00000000080fffff msi"],
        Iommu::Off => Vec::new(),
    }
}
