//! A machine as arguments of `qemu-system-x86_64`.

use std::collections::{BTreeMap, BTreeSet};

use super::{Iommu, Kind, Machine, Slot};

/// First device number on the first host bridge that is free for our ports.
const FIRST_PORT: u32 = 4;

/// All arguments.
pub(super) fn of(machine: &Machine, iommu: Iommu) -> Vec<String> {
    let mut list = Arguments::default();
    // TCG by name: /dev/kvm may exist and still not work, and results must not depend on it.
    list.add("-machine", "q35,kernel-irqchip=split");
    list.add("-accel", "tcg");
    list.add("-cpu", if iommu == Iommu::Amd { "EPYC" } else { "qemu64" });
    list.add("-m", &format!("{}M", machine.memory_mib));
    list.numa(machine);
    list.iommu(machine, iommu);
    for slot in &machine.slots {
        list.slot(machine, slot);
    }
    list.words
}

#[derive(Default)]
struct Arguments {
    words: Vec<String>,
    bridges: BTreeSet<u8>,
    switches: BTreeSet<u8>,
    /// Ports on each parent bus, for their device numbers.
    ports: BTreeMap<String, u32>,
    chassis: u32,
}

impl Arguments {
    fn add(&mut self, option: &str, value: &str) {
        self.words.push(option.to_owned());
        self.words.push(value.to_owned());
    }

    fn iommu(&mut self, machine: &Machine, iommu: Iommu) {
        let bits = machine.iommu_address_bits.map(|bits| format!(",aw-bits={bits}"));
        let bits = bits.unwrap_or_default();
        match iommu {
            Iommu::Intel => self.add("-device", &format!("intel-iommu,intremap=on{bits}")),
            // Its width is fixed. Without `dma-remap` no request of a device is translated.
            Iommu::Amd => self.add("-device", "amd-iommu,intremap=on,dma-remap=on"),
        }
    }

    fn numa(&mut self, machine: &Machine) {
        if machine.numa_nodes < 2 {
            return;
        }
        let each = machine.memory_mib / machine.numa_nodes;
        for node in 0..machine.numa_nodes {
            self.add("-object", &format!("memory-backend-ram,id=node{node},size={each}M"));
            let processor = if node == 0 { ",cpus=0" } else { "" };
            self.add("-numa", &format!("node,nodeid={node},memdev=node{node}{processor}"));
        }
    }

    fn slot(&mut self, machine: &Machine, slot: &Slot) {
        let parent = self.parent(slot);
        let port = match slot.switch {
            Some(_) => "xio3130-downstream",
            None => "pcie-root-port",
        };
        let acs = if slot.acs { "" } else { ",disable-acs=on" };
        let bus = format!("slot{:02x}", slot.bus);
        self.port(port, &bus, &parent, acs);
        for (number, kind) in slot.functions.iter().enumerate() {
            let several =
                if number == 0 && slot.functions.len() > 1 { ",multifunction=on" } else { "" };
            let place = format!("bus={bus},addr=0x0.{number:#x}{several}");
            self.function(*kind, &format!("{:02x}{number}", slot.bus), &place, machine);
        }
    }

    /// The bus that a slot's port stands on, made if it is not there yet.
    fn parent(&mut self, slot: &Slot) -> String {
        let bridge = match slot.host_bridge {
            None => "pcie.0".to_owned(),
            Some(bridge) => {
                let id = format!("bridge{:02x}", bridge.bus);
                if self.bridges.insert(bridge.bus) {
                    let node = bridge.node.map(|node| format!(",numa_node={node}"));
                    let node = node.unwrap_or_default();
                    let value = format!("pxb-pcie,id={id},bus=pcie.0,bus_nr={}{node}", bridge.bus);
                    self.add("-device", &value);
                }
                id
            }
        };
        let Some(switch) = slot.switch else { return bridge };
        let id = format!("switch{switch}");
        if self.switches.insert(switch) {
            let above = format!("above{switch}");
            self.port("pcie-root-port", &above, &bridge, "");
            self.add("-device", &format!("x3130-upstream,id={id},bus={above}"));
        }
        id
    }

    fn port(&mut self, kind: &str, id: &str, parent: &str, more: &str) {
        let first = if parent == "pcie.0" { FIRST_PORT } else { 0 };
        let number = self.ports.entry(parent.to_owned()).or_insert(first);
        let at = *number;
        *number += 1;
        self.chassis += 1;
        let chassis = self.chassis;
        self.add(
            "-device",
            &format!("{kind},id={id},bus={parent},addr={at:#x},chassis={chassis},slot=0{more}"),
        );
    }

    fn function(&mut self, kind: Kind, id: &str, place: &str, machine: &Machine) {
        match kind {
            // The default mask would cut addresses above 256 MiB.
            Kind::Engine => {
                self.add("-device", &format!("edu,{place},dma_mask=0xffffffffffffffff"));
            }
            Kind::Memory => {
                let size = &machine.accelerator_memory;
                // Pages come when they are touched: the memories may be larger than this machine's.
                let object =
                    format!("memory-backend-ram,id=memory{id},size={size},share=on,reserve=off");
                self.add("-object", &object);
                self.add("-device", &format!("ivshmem-plain,{place},memdev=memory{id}"));
            }
            Kind::Nvme => {
                self.add("-blockdev", &format!("null-co,node-name=drive{id},size=67108864"));
                self.add("-device", &format!("nvme,{place},drive=drive{id},serial=lab{id}"));
            }
            Kind::E1000e => self.add("-device", &format!("e1000e,{place},romfile=")),
        }
    }
}
