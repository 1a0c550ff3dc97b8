//! `scan`: the inventory.

use peerway_core::document::scan::{Scan, device_name};
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::pci::{LinkState, PciDevice};

use crate::args::{Format, Global, Kind};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host;
use crate::output::Output;
use crate::text::{self, wrap};

/// Runs the command.
pub fn run(global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let looked = host::look(global)?;
    let snapshot = &looked.snapshot;
    let devices = listed(snapshot, global);
    if global.format == Format::Text {
        output.push(&page(snapshot, &devices));
    } else {
        output.document("scan", &looked, Scan::new(snapshot, &devices))?;
    }
    Ok(Exit::Fine)
}

/// The devices that the options ask for.
pub fn listed<'a>(snapshot: &'a Snapshot, global: &Global) -> Vec<&'a PciDevice> {
    let memory =
        |device: &PciDevice| snapshot.accelerators.iter().any(|one| one.memory == device.address);
    snapshot
        .devices
        .iter()
        .filter(|device| {
            device.is_gpu()
                || snapshot.accelerator(device.address).is_some()
                || memory(device)
                || global.kinds.contains(&Kind::Nic) && device.is_nic()
                || global.kinds.contains(&Kind::Nvme) && device.is_nvme()
        })
        .collect()
}

fn page(snapshot: &Snapshot, devices: &[&PciDevice]) -> String {
    let mut out = String::new();
    out.push_str(&wrap(&format!("kernel {}", snapshot.kernel.release), "", "  "));
    out.push_str(&wrap(&format!("command line {}", snapshot.kernel.command_line), "", "  "));
    out.push_str(&wrap(
        &format!("processor {}, {} threads", snapshot.cpu.name, snapshot.cpu.threads),
        "",
        "  ",
    ));
    for (name, fact) in
        [("SEV-SNP", &snapshot.memory_encryption.snp), ("SME", &snapshot.memory_encryption.sme)]
    {
        let evidence: Vec<String> =
            fact.evidence.iter().map(|(source, value)| format!("{source}: {value}")).collect();
        let text = format!("{name} active: {} ({})", fact.state, evidence.join("; "));
        out.push_str(&wrap(&text, "", "  "));
    }
    let units = snapshot
        .iommu
        .units
        .as_ref()
        .map(|units| units.iter().map(|unit| unit.name.as_str()).collect::<Vec<_>>().join(" "));
    out.push_str(&wrap(&format!("IOMMU units {units}"), "", "  "));
    out.push_str(&wrap(
        &format!("{} PCI functions, {} groups", snapshot.devices.len(), snapshot.groups.len()),
        "",
        "  ",
    ));
    out.push('\n');
    for (index, device) in devices.iter().enumerate() {
        out.push_str(&device_block(snapshot, index, device));
    }
    for tenant in &snapshot.tenants {
        let text = format!(
            "{} {}, running {}, confidential {}",
            tenant.id, tenant.name, tenant.running, tenant.confidential
        );
        out.push_str(&wrap(&text, "tenant ", "       "));
    }
    for gap in &snapshot.gaps {
        out.push_str(&wrap(&format!("{}: {}", gap.source, gap.why), "not read: ", "  "));
    }
    out
}

fn device_block(snapshot: &Snapshot, index: usize, device: &PciDevice) -> String {
    let name = device_name(snapshot, device)
        .unwrap_or_else(|| device.ids.as_ref().map(ToString::to_string).to_string());
    let mut out = wrap(&format!("{}  {name}", device.address), &format!("{index:>3}  "), "     ");
    let mut line = |text: String| out.push_str(&wrap(&text, "     ", "       "));
    line(format!(
        "driver {}, group {} ({}), IOMMU {}, NUMA node {}",
        device.driver,
        device.group,
        snapshot.domain_of(device),
        device.iommu_unit,
        device.numa_node
    ));
    if let Some(link) = device.link.known() {
        line(format!(
            "link x{} of x{} at {} of {}, {} one way at best",
            link.width,
            link.max_width,
            speed(link.speed),
            speed(link.max_speed),
            text::rate(LinkState::rate(link.max_speed, link.width))
        ));
    }
    match device.bars.known() {
        Some(bars) => {
            for bar in bars.iter().filter(|bar| bar.memory && bar.index < 6) {
                let start =
                    if bar.assigned { bar.start.to_string() } else { "no address".to_owned() };
                let kind = if bar.prefetchable { ", prefetchable" } else { "" };
                line(format!(
                    "region {}: {start}, {}, {}-bit{kind}",
                    bar.index,
                    text::bytes(bar.size),
                    bar.width
                ));
            }
        }
        None => line(format!("regions {}", device.bars.as_ref().map(|_| ""))),
    }
    let above: Vec<String> = device.ancestors.iter().map(ToString::to_string).collect();
    line(format!("below {} {}", device.root, above.join(" ")));
    let tenant = snapshot.tenant_of(device).map_or("unknown".to_owned(), |id| id.to_string());
    line(format!("tenant {tenant}"));
    for claim in snapshot.claims_on(device.address) {
        line(format!("claimed by {} ({}), holds it: {}", claim.tenant, claim.source, claim.active));
    }
    out.push('\n');
    out
}

fn speed(tenths: u32) -> String {
    match LinkState::generation(tenths) {
        Some(generation) => format!("Gen{generation}"),
        None => format!("{}.{} GT/s", tenths / 10, tenths % 10),
    }
}
