//! What several rules need: affected pairs, counting in words, tenants, the boot log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use crate::address::PciAddress;
use crate::code::{self, Code};
use crate::diagnose::Context;
use crate::diagnose::finding::{Finding, device_file, group_file};
use crate::judge::forwarding::turn_text;
use crate::judge::{Confidence, Pair, Verdict};
use crate::observed::Observed;
use crate::snapshot::Snapshot;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::PciDevice;
use crate::snapshot::query::vendor;
use crate::snapshot::tenant::{Tenant, TenantId, TenantKind};

/// Longest evidence value; a longer text is cut.
pub(super) const LONGEST_VALUE: usize = 180;
/// Most sources of SNP's or SME's state that are shown.
const MOST_ESTABLISHED: usize = 8;
/// Longest title; a longer one is cut.
pub(super) const LONGEST_TITLE: usize = 109;
/// Most examples of one kind in a finding's evidence.
const MOST_EXAMPLES: usize = 4;

/// Codes of pairs whose requests carry an address that the kernel mapped.
const BY_MAPPED_ADDRESS: [Code; 3] =
    [code::MAPPED_BY_DRIVER, code::ENCRYPTION_BIT, code::SME_ACTIVE];

/// Pairs of one tenant that carry a code.
#[derive(Debug)]
pub(super) struct Affected<'c> {
    /// The pairs, by requester and target; never empty.
    pub(super) pairs: Vec<&'c Pair>,
}

/// Pairs within one tenant whose verdict names a code; `None` if there are none. Pairs across
/// tenants have a rule of their own: there, no peer access is isolation.
pub(super) fn own<'c>(context: &'c Context<'_>, code: Code) -> Option<Affected<'c>> {
    let mut pairs: Vec<&Pair> = context.pairs_with(code).collect();
    let owners = Owners::of(context.snapshot, pairs.iter().copied());
    pairs.retain(|pair| !owners.crosses(pair));
    (!pairs.is_empty()).then_some(Affected { pairs })
}

impl Affected<'_> {
    /// `1 pair`, `12 pairs`.
    pub(super) fn counted(&self) -> String {
        counted(self.pairs.len(), "pair", "pairs")
    }

    /// `1 pair goes`, `12 pairs go`.
    pub(super) fn that(&self, one: &str, many: &str) -> String {
        let verb = if self.pairs.len() == 1 { one } else { many };
        format!("{} {verb}", self.counted())
    }

    /// Who issues the requests.
    pub(super) fn requesters(&self) -> BTreeSet<PciAddress> {
        self.pairs.iter().map(|pair| pair.from).collect()
    }

    /// Whose memory is addressed.
    pub(super) fn targets(&self) -> BTreeSet<PciAddress> {
        self.pairs.iter().map(|pair| pair.to).collect()
    }

    /// Whether any of them has this verdict.
    pub(super) fn any(&self, verdict: Verdict) -> bool {
        self.pairs.iter().any(|pair| pair.verdict == verdict)
    }

    /// The least confident of them.
    pub(super) fn confidence(&self) -> Confidence {
        self.pairs.iter().map(|pair| pair.confidence).max().unwrap_or(Confidence::Possible)
    }

    /// Adds the way of the first few pairs.
    pub(super) fn routes(&self, finding: Finding) -> Finding {
        self.pairs.iter().take(MOST_EXAMPLES).fold(finding, |finding, pair| {
            let mapped = pair.codes.iter().any(|code| BY_MAPPED_ADDRESS.contains(code));
            finding.seen(pair_source(pair), format!("turns: {}", turn_text(&pair.route, mapped)))
        })
    }

    /// Adds what was concluded, once for each way in which pairs are lost.
    pub(super) fn kinds(&self, finding: Finding) -> Finding {
        let mut told = BTreeSet::new();
        self.pairs
            .iter()
            .filter(|pair| told.insert(&pair.codes))
            .take(MOST_EXAMPLES)
            .fold(finding, |finding, pair| finding.seen(pair_source(pair), cut(&pair.reason)))
    }

    /// Adds what was concluded about the first pairs with different reasons.
    pub(super) fn reasons(&self, finding: Finding) -> Finding {
        let mut told = BTreeSet::new();
        self.pairs
            .iter()
            .filter(|pair| told.insert(pair.reason.as_str()))
            .take(MOST_EXAMPLES)
            .fold(finding, |finding, pair| finding.seen(pair_source(pair), cut(&pair.reason)))
    }
}

/// What to run with until a road is open. Where NVLink may join the GPUs, switching all peer access
/// off takes the links away too.
pub(super) fn meanwhile<'p>(pairs: impl IntoIterator<Item = &'p Pair>) -> &'static str {
    let linked = pairs.into_iter().any(|pair| pair.codes.contains(&code::NVLINK_NOT_VISIBLE));
    if linked {
        "until a road is open: where NVLink connects the GPUs, NCCL_P2P_LEVEL=NVL, which keeps \
         NVLink and leaves PCIe peer access out (NCCL_P2P_DISABLE=1 switches both off); where it \
         does not, NCCL_P2P_DISABLE=1, and the engine's own switch for custom all-reduce"
    } else {
        "until a road is open, run without peer access: NCCL_P2P_DISABLE=1, and the engine's own \
         switch for custom all-reduce"
    }
}

/// Whether a device, or a port above it, is outside the case: the kernel then insists on
/// translation (`drivers/iommu/iommu.c`, `iommu_get_def_domain_type`).
pub(super) fn is_external(snapshot: &Snapshot, address: PciAddress) -> bool {
    let Some(device) = snapshot.device(address) else { return false };
    let above = device.ancestors.iter().filter_map(|port| snapshot.device(*port));
    std::iter::once(device)
        .chain(above)
        .any(|one| one.removable.known().is_some_and(|word| word == "removable"))
}

/// How a pair is named as a source of evidence.
pub(super) fn pair_source(pair: &Pair) -> String {
    format!("pair {} to {}", pair.from, pair.to)
}

/// Owners of the ends of pairs, each looked up once.
#[derive(Debug)]
pub(super) struct Owners(BTreeMap<PciAddress, Owner>);

#[derive(Debug, PartialEq)]
struct Owner {
    tenant: Option<TenantId>,
    /// Whether it runs on the host's kernel.
    on_host_kernel: bool,
    /// Neither a GPU nor a declared accelerator.
    is_controller: bool,
}

impl Owners {
    /// Owners of the ends of these pairs.
    pub(super) fn of<'p>(snapshot: &Snapshot, pairs: impl IntoIterator<Item = &'p Pair>) -> Self {
        let mut owners = BTreeMap::new();
        for address in pairs.into_iter().flat_map(|pair| [pair.from, pair.to]) {
            owners.entry(address).or_insert_with(|| owner(snapshot, address));
        }
        Self(owners)
    }

    /// Whether the two ends belong to different tenants. A controller of the host serves whatever
    /// runs on the host's kernel.
    pub(super) fn crosses(&self, pair: &Pair) -> bool {
        let (Some(from), Some(to)) = (self.0.get(&pair.from), self.0.get(&pair.to)) else {
            return false;
        };
        let serves =
            from.is_controller && from.tenant == Some(TenantId::host()) && to.on_host_kernel;
        from.tenant != to.tenant && !serves
    }
}

fn owner(snapshot: &Snapshot, address: PciAddress) -> Owner {
    let device = snapshot.device(address);
    let tenant = device.and_then(|device| snapshot.tenant_of(device));
    let on_host_kernel = tenant
        .as_ref()
        .and_then(|id| snapshot.tenant(id))
        .is_some_and(|tenant| tenant.kind != TenantKind::Vm);
    let is_controller =
        device.is_some_and(|device| !device.is_gpu()) && snapshot.accelerator(address).is_none();
    Owner { tenant, on_host_kernel, is_controller }
}

/// A count with its noun.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// Items with commas, the first `most` of them by name.
pub(super) fn listed<T: Display>(items: impl IntoIterator<Item = T>, most: usize) -> String {
    let all: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    let named = all.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(most) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// A text short enough for evidence, on one line.
pub(super) fn cut(text: &str) -> String {
    at_most(text, LONGEST_VALUE)
}

/// A title with names in it that may be long.
pub(super) fn title(text: &str) -> String {
    at_most(text, LONGEST_TITLE)
}

fn at_most(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= most {
        return line;
    }
    let mut short: String = line.chars().take(most.saturating_sub(2)).collect();
    short.push_str(" …");
    short
}

/// Whether the host has anything that could use peer access; without, this program keeps quiet.
pub(super) fn has_accelerators(snapshot: &Snapshot) -> bool {
    snapshot.devices.iter().any(PciDevice::is_gpu) || !snapshot.accelerators.is_empty()
}

/// NVIDIA GPUs that NVIDIA's driver is bound to.
pub(super) fn driven_by_nvidia(snapshot: &Snapshot) -> Vec<&PciDevice> {
    snapshot
        .devices
        .iter()
        .filter(|device| device.is_gpu() && device.is_vendor(vendor::NVIDIA))
        .filter(|device| device.driver_name() == Some("nvidia"))
        .collect()
}

/// Tenants that do not run on the host's kernel, or whose memory is encrypted against the host.
pub(super) fn guests(snapshot: &Snapshot) -> Vec<&Tenant> {
    snapshot
        .tenants
        .iter()
        .filter(|tenant| tenant.kind == TenantKind::Vm || tenant.confidential == Tristate::Yes)
        .collect()
}

/// Confidential tenants.
pub(super) fn confidential(snapshot: &Snapshot) -> Vec<&Tenant> {
    snapshot.tenants.iter().filter(|tenant| tenant.confidential == Tristate::Yes).collect()
}

/// `vm:132 (sandbox)`.
pub(super) fn tenant_text(tenant: &Tenant) -> String {
    match tenant.name.known() {
        Some(name) if !name.is_empty() => format!("{} ({name})", tenant.id),
        _ => tenant.id.to_string(),
    }
}

/// Lines of the boot log that hold one of these parts.
pub(super) fn log_lines<'s>(snapshot: &'s Snapshot, parts: &[&str]) -> Vec<&'s str> {
    let Some(lines) = snapshot.kernel.log_facts.known() else { return Vec::new() };
    lines
        .iter()
        .filter(|line| parts.iter().any(|part| line.contains(part)))
        .map(String::as_str)
        .collect()
}

/// Adds lines of the boot log.
pub(super) fn with_log(finding: Finding, lines: &[&str]) -> Finding {
    lines
        .iter()
        .take(MOST_EXAMPLES)
        .fold(finding, |finding, line| finding.seen("kernel log", cut(line)))
}

/// Adds the group's type and the driver of each device.
pub(super) fn with_domains(
    mut finding: Finding,
    snapshot: &Snapshot,
    devices: &BTreeSet<PciAddress>,
) -> Finding {
    for address in devices {
        let Some(device) = snapshot.device(*address) else { continue };
        if let Some(group) = snapshot.group_of(device) {
            finding = finding.observed(group_file(group.id, "type"), &group.domain);
        }
        finding = finding.observed(device_file(*address, "driver"), &device.driver);
    }
    finding
}

/// Adds the kernel's release.
pub(super) fn with_release(finding: Finding, snapshot: &Snapshot) -> Finding {
    finding.observed("/proc/sys/kernel/osrelease", &snapshot.kernel.release)
}

/// Adds the driver's version line, where there is one.
pub(super) fn with_driver(finding: Finding, snapshot: &Snapshot) -> Finding {
    match &snapshot.nvidia.version {
        Observed::Known(version) => finding.seen("/proc/driver/nvidia/version", cut(&version.line)),
        Observed::Absent | Observed::Unreadable(_) => finding,
    }
}

/// Adds what SNP's or SME's state rests on.
pub(super) fn with_established(finding: Finding, evidence: &[(String, String)]) -> Finding {
    // Many units say the same: the first ones stand for all.
    let finding = evidence
        .iter()
        .take(MOST_ESTABLISHED)
        .fold(finding, |finding, (source, value)| finding.seen(source, cut(value)));
    match evidence.len().saturating_sub(MOST_ESTABLISHED) {
        0 => finding,
        more => finding.seen("further sources", format!("{more}, not shown")),
    }
}
