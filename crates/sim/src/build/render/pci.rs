//! PCI functions: `/sys/devices/pciDDDD:BB`, `/sys/bus/pci`.

use std::collections::BTreeSet;

use peerway_core::snapshot::pci::Acs;
use peerway_read::tree::Node;

use super::super::config::{self, BridgeNumbers, ConfigSpace, Express, Header};
use super::super::files::{Files, relative};
use super::super::function::{Condition, Function, Port};
use super::super::layout::{Kind, Placed, root_path};
use super::super::model::Link;
use super::super::{HostBuilder, Iommu};

/// Lines of `resource`: BARs, ROM, SR-IOV BARs; bridges have four windows behind them.
const LINES: usize = 13;
const BRIDGE_LINES: usize = 17;
const MEMORY_WINDOW: usize = 14;
const PREFETCH_WINDOW: usize = 15;

pub(super) fn render(host: &HostBuilder, placed: &[Placed], files: &mut Files) {
    for root in &host.roots {
        files.text(&format!("{}/uevent", root_path(root)), "");
    }
    let mut drivers = BTreeSet::from(["pcieport"]);
    for one in placed {
        function(host, one, files);
        drivers.extend(one.driver());
    }
    if host.nvidia.is_some() {
        drivers.insert("nvidia");
    }
    for driver in drivers {
        let directory = format!("/sys/bus/pci/drivers/{driver}");
        files.directory(&directory);
        if driver != "pcieport" {
            let module = driver.replace('-', "_");
            files.link(&format!("{directory}/module"), format!("../../../../module/{module}"));
        }
        for one in placed.iter().filter(|one| one.driver() == Some(driver)) {
            let link = format!("{directory}/{}", one.address);
            files.link(&link, relative(&directory, &one.path));
        }
    }
    files.directory("/sys/bus/pci/devices");
}

fn function(host: &HostBuilder, one: &Placed, files: &mut Files) {
    let (identity, config) = match &one.kind {
        Kind::Port(port) => (Identity::of_port(port), port_config(host, one, port)),
        Kind::Function(function) => {
            (Identity::of_function(function), function_config(host, one, function))
        }
    };
    let at = |name: &str| format!("{}/{name}", one.path);
    files.line(&at("vendor"), format_args!("{:#06x}", identity.vendor));
    files.line(&at("device"), format_args!("{:#06x}", identity.device));
    files.line(&at("subsystem_vendor"), format_args!("{:#06x}", identity.subsystem.0));
    files.line(&at("subsystem_device"), format_args!("{:#06x}", identity.subsystem.1));
    files.line(&at("class"), format_args!("{:#08x}", identity.class));
    files.line(&at("revision"), "0xa1");
    files.line(&at("irq"), "0");
    files.line(&at("enable"), u8::from(one.driver().is_some()));
    files.line(&at("numa_node"), one.node);
    files.line(&at("driver_override"), "(null)");
    files.line(&at("dma_mask_bits"), identity.dma_bits);
    files.line(&at("resource"), resources(one).trim_end());
    files.text(&at("uevent"), uevent(one, &identity));
    files.node(&at("config"), config);
    files.line(&at("power_state"), identity.power_state);
    files.line(&at("d3cold_allowed"), "1");
    files.line(&at("power/control"), identity.power_control);
    files.line(&at("power/runtime_status"), identity.runtime_status);
    if let Some((best, current)) = identity.link {
        files.line(&at("max_link_speed"), best.speed_text());
        files.line(&at("max_link_width"), best.width);
        files.line(&at("current_link_speed"), current.speed_text());
        files.line(&at("current_link_width"), current.width);
    }
    if !identity.reset.is_empty() {
        files.line(&at("reset_method"), identity.reset);
    }
    if one.external {
        files.line(&at("removable"), "removable");
    }
    if let Kind::Function(function) = &one.kind {
        resizable_attributes(one, function, files);
    }
    links(host, one, files);
}

fn links(host: &HostBuilder, one: &Placed, files: &mut Files) {
    let link = |files: &mut Files, name: &str, to: &str| {
        files.link(&format!("{}/{name}", one.path), relative(&one.path, to));
    };
    link(files, "subsystem", "/sys/bus/pci");
    if let Some(driver) = one.driver() {
        link(files, "driver", &format!("/sys/bus/pci/drivers/{driver}"));
    }
    if let Some(group) = one.group {
        link(files, "iommu_group", &format!("/sys/kernel/iommu_groups/{group}"));
        if let Some(unit) = super::iommu::unit_path(host, one.root) {
            link(files, "iommu", &unit);
        }
        if one.driver() == Some("vfio-pci") && host.version().at_least(6, 1) {
            let node = format!("{}/vfio-dev/vfio{group}", one.path);
            files.line(&format!("{node}/dev"), format_args!("511:{group}"));
        }
    }
    let devices = "/sys/bus/pci/devices";
    files.link(&format!("{devices}/{}", one.address), relative(devices, &one.path));
}

/// What a port and an endpoint have in common.
struct Identity {
    vendor: u16,
    device: u16,
    subsystem: (u16, u16),
    class: u32,
    dma_bits: u8,
    link: Option<(Link, Link)>,
    reset: &'static str,
    runtime_status: &'static str,
    power_state: &'static str,
    power_control: &'static str,
}

impl Identity {
    fn of_port(port: &Port) -> Self {
        Self {
            vendor: port.model.vendor,
            device: port.model.device,
            // Without a subsystem capability bridges show zeros.
            subsystem: (0, 0),
            class: 0x06_0400,
            dma_bits: 32,
            link: Some((port.link, port.current)),
            reset: "pm",
            runtime_status: "active",
            power_state: "D0",
            power_control: "auto",
        }
    }

    fn of_function(function: &Function) -> Self {
        let model = &function.model;
        let asleep = function.condition == Condition::Asleep;
        Self {
            vendor: model.vendor,
            device: model.device,
            subsystem: model.subsystem,
            class: model.class,
            // The mask is the bus's default until a driver sets its own.
            dma_bits: match function.driver {
                Some("vfio-pci") | None => 32,
                Some(_) => model.dma_bits,
            },
            link: model.link.zip(function.current),
            reset: function.reset,
            runtime_status: if asleep { "suspended" } else { "active" },
            power_state: if asleep { "D3hot" } else { "D0" },
            power_control: if asleep { "auto" } else { "on" },
        }
    }
}

fn uevent(one: &Placed, identity: &Identity) -> String {
    let Identity { vendor, device, subsystem, class, .. } = identity;
    let driver = one.driver().map_or(String::new(), |name| format!("DRIVER={name}\n"));
    let (base, sub, interface) = (class >> 16, class >> 8 & 0xff, class & 0xff);
    format!(
        "{driver}PCI_CLASS={class:X}\nPCI_ID={vendor:04X}:{device:04X}\n\
         PCI_SUBSYS_ID={:04X}:{:04X}\nPCI_SLOT_NAME={}\n\
         MODALIAS=pci:v{vendor:08X}d{device:08X}sv{:08X}sd{:08X}bc{base:02X}sc{sub:02X}i{interface:02X}\n",
        subsystem.0, subsystem.1, one.address, subsystem.0, subsystem.1,
    )
}

fn resources(one: &Placed) -> String {
    let bridge = matches!(one.kind, Kind::Port(_));
    let mut lines = vec![(0_u64, 0_u64, 0_u64); if bridge { BRIDGE_LINES } else { LINES }];
    for bar in &one.bars {
        if let Some(line) = lines.get_mut(usize::from(bar.index)) {
            *line = if bar.assigned {
                (bar.start, bar.start + bar.size - 1, bar.kind.flags())
            } else {
                // IORESOURCE_UNSET: no address, the size alone.
                (0, bar.size - 1, bar.kind.flags() | 0x2000_0000)
            };
        }
    }
    let windows = [
        (MEMORY_WINDOW, one.windows.memory, 0x200),
        (PREFETCH_WINDOW, one.windows.prefetch, 0x10_2201),
    ];
    for (index, window, flags) in windows {
        if let (Some((start, end)), Some(line)) = (window, lines.get_mut(index)) {
            *line = (start, end, flags);
        }
    }
    let line = |(start, end, flags): &(u64, u64, u64)| {
        format!("{start:#018x} {end:#018x} {flags:#018x}\n")
    };
    lines.iter().map(line).collect()
}

/// `resourceN_resize`: bit n stands for 2^n MiB.
fn resizable_attributes(one: &Placed, function: &Function, files: &mut Files) {
    let Some(index) = function.model.resizable else { return };
    let Some(bar) = one.bars.iter().find(|bar| bar.index == index) else { return };
    let largest = bar.size.max(1 << 28).trailing_zeros().saturating_sub(20);
    let sizes = (6..=largest).fold(0_u64, |bits, n| bits | 1 << n);
    files.line(&format!("{}/resource{index}_resize", one.path), format_args!("{sizes:016x}"));
}

fn header(one: &Placed, identity: &Identity, bridge: bool) -> Header {
    Header {
        vendor: identity.vendor,
        device: identity.device,
        class: identity.class,
        // Memory decoding and bus mastering come with a driver; firmware leaves decoding on.
        command: if one.driver().is_some() { 0x0406 } else { 0x0002 },
        multifunction: one.multifunction,
        bridge,
    }
}

fn port_config(host: &HostBuilder, one: &Placed, port: &Port) -> Node {
    let mut space = ConfigSpace::new(header(one, &Identity::of_port(port), true), false);
    space.bridge(BridgeNumbers {
        primary: one.address.bus(),
        secondary: port.secondary,
        subordinate: one.subordinate,
        memory: one.windows.memory,
        prefetch: one.windows.prefetch,
    });
    space.express(Express {
        type_code: port.kind.type_code(),
        best: port.link,
        current: port.current,
        function_level_reset: false,
    });
    if let Some(acs) = port.acs {
        space.acs(acs);
    }
    space.into_node(host.readable_config)
}

fn function_config(host: &HostBuilder, one: &Placed, function: &Function) -> Node {
    if function.condition == Condition::Dead {
        return config::dead();
    }
    let identity = Identity::of_function(function);
    let hidden = function.hidden_capabilities;
    let mut space = ConfigSpace::new(header(one, &identity, false), hidden);
    space.subsystem(identity.subsystem);
    for bar in one.bars.iter().filter(|bar| bar.assigned) {
        let value = bar.start | u64::from(bar.kind.register_bits());
        space.bar(bar.index, value, bar.kind.wide());
    }
    match identity.link {
        Some((best, current)) => {
            space.express(Express {
                type_code: 0,
                best,
                current,
                function_level_reset: function.reset.contains("flr"),
            });
            let model = &function.model;
            if let Some(acs) = function.acs.or_else(|| peer_control(one)) {
                space.acs(acs);
            }
            if model.ats {
                // The AMD driver enables ATS when it attaches a capable device.
                let amd = matches!(host.iommu, Iommu::Amd { .. }) && one.group.is_some();
                space.ats(function.ats_enabled || amd && !one.external);
            }
            if model.pasid {
                space.pasid();
            }
            if let Some(index) = model.resizable
                && let Some(bar) = one.bars.iter().find(|bar| bar.index == index)
            {
                space.resizable(index, bar.size, bar.size.max(1 << 28));
            }
        }
        None => space.without_express(),
    }
    space.into_node(host.readable_config)
}

/// Functions of one device that cannot reach each other say so with an empty ACS capability.
fn peer_control(one: &Placed) -> Option<Acs> {
    one.multifunction.then_some(Acs { capability: 0, control: 0 })
}
