//! `status`: the answer on one screen.

mod last_test;

use std::collections::BTreeMap;

use peerway_core::diagnose::Diagnosis;
use peerway_core::diagnose::finding::{Finding, Severity};
use peerway_core::document::diagnose::Diagnose;
use peerway_core::document::scan::Scan;
use peerway_core::document::status::Status;
use peerway_core::judge::{Pair, Verdict};
use peerway_core::observed::Observed;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::pci::PciDevice;
use peerway_core::snapshot::tenant::TenantId;

use peerway_roads::{Constraints, Knowledge, Passed, Road, State};

use super::exit_of;
use super::roads::with_request;
use crate::args::{Format, Global};
use crate::commands::scan::listed;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{self, Looked};
use crate::output::Output;
use crate::text::{self, WIDTH, wrap};

/// More columns do not fit beside what each row says.
const WIDEST_MATRIX: usize = 16;

/// Runs the command.
pub fn run(global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let looked = host::look(global)?;
    let diagnosis = looked.diagnose(global);
    if global.format == Format::Text {
        output.push(&screen(&looked, &diagnosis));
    } else {
        let devices = listed(&looked.snapshot, global);
        let body = Status {
            scan: Scan::new(&looked.snapshot, &devices),
            diagnose: Diagnose::new(&diagnosis),
            last_test: last_test::shown(&looked.snapshot.measured, looked.when),
        };
        output.document("status", &looked, body)?;
    }
    Ok(exit_of(global, &diagnosis))
}

/// The screen for people.
pub fn screen(looked: &Looked, diagnosis: &Diagnosis) -> String {
    let snapshot = &looked.snapshot;
    let mut out = head(snapshot);
    if snapshot.accelerated().is_empty() {
        out.push_str(&without_gpus(snapshot));
    } else {
        out.push_str(&matrices(snapshot, diagnosis));
        out.push_str(&peer_map(snapshot));
        out.push_str(&kernel_log(snapshot));
        out.push_str(&last_test::last_test(&snapshot.measured, looked.when));
        out.push_str(&causes(diagnosis));
        out.push_str(&roads(looked, diagnosis));
    }
    for gap in &looked.missing_walls {
        out.push_str(&wrap(gap, "Wall missing: ", "              "));
    }
    out
}

/// Which roads are open, and what closes the others, in a few lines.
fn roads(looked: &Looked, diagnosis: &Diagnosis) -> String {
    let (constraints, mut knowledge) = (Constraints::default(), Knowledge::builtin());
    let mut out = String::new();
    knowledge.remember(&looked.remembered);
    let judged =
        with_request(&looked.snapshot, diagnosis, &constraints, &knowledge, peerway_roads::roads);
    match judged {
        Ok(judged) => {
            for (state, word) in
                [(State::Open, "open"), (State::Unknown, "unknown"), (State::Closed, "closed")]
            {
                let names: Vec<String> =
                    judged.roads.iter().filter(|road| road.state == state).map(named).collect();
                if !names.is_empty() {
                    let head = format!("Roads {word}: ");
                    out.push_str(&wrap(&names.join(", "), &head, "  "));
                }
            }
            out.push_str("  (peerway roads says why, and what would lift it)\n");
        }
        Err(error) => out.push_str(&wrap(&error.to_string(), "Roads: ", "  ")),
    }
    out
}

/// A road with what closes it.
fn named(road: &Road) -> String {
    let in_force = if road.in_force == Passed::Yes { " (in force)" } else { "" };
    let by = match (road.state, road.reasons().first()) {
        (State::Open, _) | (_, None) => String::new(),
        (_, Some(gate)) => format!(" by {}", gate.code),
    };
    format!("{}{by}{in_force}", road.id.word())
}

/// What the peer-map module holds; nothing where it is not loaded.
fn peer_map(snapshot: &Snapshot) -> String {
    let said = match &snapshot.peer_map {
        Observed::Absent => return String::new(),
        Observed::Known(map) if map.entries.is_empty() => {
            "its module is loaded and holds no entry".to_owned()
        }
        Observed::Known(map) => {
            let spoiled = map.entries.iter().filter(|entry| !entry.is_ok()).count();
            match spoiled {
                0 => format!(
                    "in force, {} entries as they were made (peerway verify looks at every page)",
                    map.entries.len()
                ),
                _ => format!(
                    "{spoiled} of {} entries are NOT as they were made (peerway verify)",
                    map.entries.len()
                ),
            }
        }
        Observed::Unreadable(why) => format!("unknown ({why})"),
    };
    wrap(&said, "Peer map: ", "  ")
}

/// What the kernel log says has happened, in a line; the findings say what follows.
fn kernel_log(snapshot: &Snapshot) -> String {
    let said = match &snapshot.faults {
        Observed::Known(facts) if facts.events == 0 && facts.suppressed == 0 => {
            format!("no IOMMU event in {} lines", text::grouped(facts.lines))
        }
        Observed::Known(facts) => {
            let mut devices: Vec<&str> =
                facts.requesters.iter().map(|one| one.name.as_str()).collect();
            devices.sort_unstable();
            devices.dedup();
            format!(
                "{} IOMMU events of {} devices, {} more kept out by rate limits (peerway faults)",
                text::grouped(facts.events),
                devices.len(),
                text::grouped(facts.suppressed)
            )
        }
        Observed::Absent => "there is none here".to_owned(),
        Observed::Unreadable(why) => format!("not read ({why})"),
    };
    wrap(&said, "Kernel log: ", "  ")
}

/// The host in two lines.
fn head(snapshot: &Snapshot) -> String {
    let host = match snapshot.origin.hostname.known() {
        Some(name) if *name != snapshot.origin.host => {
            format!("{} ({name})", snapshot.origin.host)
        }
        _ => snapshot.origin.host.clone(),
    };
    let first =
        format!("{}  kernel {}  {}", text::bold(&host), snapshot.kernel.release, snapshot.cpu.name);
    let iommu = match (snapshot.iommu_active(), snapshot.iommu_vendor()) {
        (Tristate::Yes, Some(vendor)) => format!("{vendor} on"),
        (Tristate::No, _) => "off".to_owned(),
        _ => "unknown".to_owned(),
    };
    let driver = match &snapshot.nvidia.version {
        Observed::Known(version) => {
            format!("NVIDIA {} {:?}", version.version, version.flavour).to_lowercase()
        }
        other => format!("NVIDIA {}", other.as_ref().map(|version| &version.version)),
    };
    let second = format!(
        "IOMMU {iommu}, SEV-SNP {}, SME {}, driver {driver}",
        on_off(snapshot.memory_encryption.snp.state),
        on_off(snapshot.memory_encryption.sme.state),
    );
    format!("{}{}\n", wrap(&first, "", "  "), wrap(&second, "", "  "))
}

fn on_off(state: Tristate) -> &'static str {
    match state {
        Tristate::Yes => "on",
        Tristate::No => "off",
        Tristate::Unknown => "unknown",
    }
}

fn without_gpus(snapshot: &Snapshot) -> String {
    let seen = if snapshot.devices.is_empty() {
        "No PCI device could be seen on this host.".to_owned()
    } else {
        format!("No GPU among the {} PCI functions of this host.", snapshot.devices.len())
    };
    format!(
        "{seen}\n\nTo see what an answer looks like, look at the reference host:\n\n  \
         peerway status --host sim:kpro6\n\nOther devices can be declared with --accelerator FILE.\n\n"
    )
}

/// One matrix per tenant; those decided in a guest in one line.
pub fn matrices(snapshot: &Snapshot, diagnosis: &Diagnosis) -> String {
    let gpus = snapshot.accelerated();
    let mut by_tenant: BTreeMap<Option<TenantId>, Vec<&PciDevice>> = BTreeMap::new();
    for gpu in &gpus {
        by_tenant.entry(snapshot.tenant_of(gpu)).or_default().push(gpu);
    }
    let mut out = String::new();
    for (tenant, devices) in &by_tenant {
        out.push_str(&tenant_block(snapshot, diagnosis, tenant.as_ref(), devices));
    }
    out
}

fn tenant_block(
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
    tenant: Option<&TenantId>,
    devices: &[&PciDevice],
) -> String {
    let of: Vec<&Pair> = diagnosis
        .pairs
        .iter()
        .filter(|pair| devices.iter().any(|device| device.address == pair.from))
        .filter(|pair| devices.iter().any(|device| device.address == pair.to))
        .collect();
    let mut out =
        wrap(&format!("{}: {}", who(snapshot, tenant), counts(&of, devices.len())), "", "  ");
    let guest = !devices.is_empty() && devices.iter().all(|device| device.is_vfio());
    if guest {
        let addresses: Vec<String> =
            devices.iter().map(|device| device.address.to_string()).collect();
        out.push_str(&wrap(
            &format!("decided in the guest; protected: {}", addresses.join(" ")),
            "  ",
            "  ",
        ));
    } else if devices.len() <= WIDEST_MATRIX {
        out.push_str(&matrix(snapshot, &of, devices));
    } else {
        out.push_str("  peerway diagnose lists every pair\n");
    }
    out.push('\n');
    out
}

fn who(snapshot: &Snapshot, tenant: Option<&TenantId>) -> String {
    let Some(id) = tenant else {
        return text::bold("held by VFIO, for a guest that was not seen");
    };
    let Some(known) = snapshot.tenant(id) else { return text::bold(&id.to_string()) };
    let name = known.name.known().map(|name| format!(" {name}")).unwrap_or_default();
    let mut notes = Vec::new();
    if known.confidential == Tristate::Yes {
        notes.push("confidential");
    }
    if known.running == Tristate::Yes && *id != TenantId::host() {
        notes.push("running");
    }
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
    format!("{}{notes}", text::bold(&format!("{id}{name}")))
}

fn counts(pairs: &[&Pair], devices: usize) -> String {
    let gpus = if devices == 1 { "1 device".to_owned() } else { format!("{devices} devices") };
    if pairs.is_empty() {
        return format!("{gpus}, no pair");
    }
    let mut parts = Vec::new();
    for verdict in [Verdict::Broken, Verdict::Impaired, Verdict::Unknown, Verdict::Works] {
        let of: Vec<&&Pair> = pairs.iter().filter(|pair| pair.verdict == verdict).collect();
        let Some(confidence) = of.iter().map(|pair| pair.confidence).max() else { continue };
        let count = format!("{} of {}", of.len(), pairs.len());
        let sure = if verdict == Verdict::Unknown {
            String::new()
        } else {
            format!(" ({})", text::confidence(confidence))
        };
        parts.push(format!(
            "{} {count} pairs{sure}",
            text::painted(verdict, &format!("P2P {}", text::verdict(verdict)))
        ));
    }
    format!("{gpus}, {}", parts.join(", "))
}

/// Rows are requesters, columns targets; each row ends with what decides about its requests.
fn matrix(snapshot: &Snapshot, pairs: &[&Pair], devices: &[&PciDevice]) -> String {
    let columns =
        (0..devices.len()).fold(String::new(), |columns, index| format!("{columns}{index:>3}"));
    let mut out = format!("   #  requester     to{columns}  group type     node driver\n");
    for (index, from) in devices.iter().enumerate() {
        let mut row = format!("  {index:>2}  {:<15} ", from.address);
        for to in devices {
            let pair = pairs.iter().find(|pair| pair.from == from.address && pair.to == to.address);
            match pair {
                Some(pair) => {
                    row.push_str("  ");
                    row.push_str(&text::painted(pair.verdict, text::letter(pair.verdict)));
                }
                None => row.push_str("  -"),
            }
        }
        let word = |text: String| if text.len() > 12 { "unknown".to_owned() } else { text };
        row = format!(
            "{row}  {:<5} {:<8} {:<4} {}",
            word(from.group.to_string()),
            word(snapshot.domain_of(from).to_string()),
            word(from.numa_node.to_string()),
            word(from.driver.to_string())
        );
        if text::columns(&row) > WIDTH {
            row = row.split("  ").take(3 + devices.len()).collect::<Vec<_>>().join("  ");
        }
        out.push_str(row.trim_end());
        out.push('\n');
    }
    out.push_str("  W works, B broken, I impaired, ? unknown; a prediction until measured\n");
    out
}

/// The errors with evidence, what to do now, what to do next, and what else there is.
fn causes(diagnosis: &Diagnosis) -> String {
    let mut out = String::new();
    let of = |severity| -> Vec<&Finding> {
        diagnosis.findings.iter().filter(|finding| finding.severity == severity).collect()
    };
    let errors = of(Severity::Error);
    for finding in &errors {
        out.push_str(&text::finding(finding, false));
    }
    if !errors.is_empty() {
        out.push('\n');
    }
    for finding in of(Severity::Warning) {
        out.push_str(&text::finding_title(finding));
    }
    if let Some(first) = errors.first() {
        if let Some(remedy) = first.remedies.first() {
            out.push_str(&wrap(remedy, "Now:  ", "      "));
        }
        let pair = diagnosis.pairs.iter().find(|pair| pair.codes.contains(&first.code));
        let mut next = format!("peerway explain {}", first.code);
        if let Some(pair) = pair {
            next = format!("peerway path {} {}; {next}", pair.from, pair.to);
        }
        out.push_str(&wrap(&next, "Next: ", "      "));
    }
    let notes = of(Severity::Info).len();
    if notes > 0 {
        out.push_str(&wrap(&format!("{notes} more notes: peerway diagnose"), "Also: ", "      "));
    }
    out
}
