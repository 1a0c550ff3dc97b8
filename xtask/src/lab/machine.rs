//! Machines as data: what is in `lab/machines/NAME.toml`, and the emulator's arguments for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use peerway_lab_protocol::{Accelerator, Binding};
use serde::Deserialize;

use super::paths;
use super::platform::{Emulator, Iommu};

mod arguments;

/// BAR of the emulated shared memory that holds it.
const MEMORY_BAR: u8 = 2;

/// A machine of the lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its name, that of its file.
    pub name: String,
    /// One line on what it is.
    pub summary: String,
    kernel_arguments: Vec<String>,
    memory_mib: u32,
    numa_nodes: u32,
    accelerator_memory: String,
    accelerators_file: String,
    iommu_address_bits: Option<u8>,
    unbound: bool,
    slots: Vec<Slot>,
}

/// The file; whatever it leaves out comes from the machine that it extends, or has a default.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    extends: Option<String>,
    summary: String,
    memory_mib: Option<u32>,
    numa_nodes: Option<u32>,
    kernel_arguments: Option<Vec<String>>,
    accelerator_memory: Option<String>,
    accelerators_file: Option<String>,
    iommu_address_bits: Option<u8>,
    unbound: Option<bool>,
    #[serde(default, rename = "slot")]
    slots: Vec<Slot>,
}

/// A slot: a root port or a switch's downstream port with one device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slot {
    /// Bus number that the firmware will give the slot.
    bus: u8,
    /// The host bridge, where it is not the first one.
    host_bridge: Option<HostBridge>,
    /// Number of the switch that the slot belongs to.
    switch: Option<u8>,
    /// Whether the root port has ACS.
    #[serde(default = "yes")]
    acs: bool,
    /// Functions of the device, from 0 on.
    functions: Vec<Kind>,
    /// The slot that holds the engine's memory, where it is not this one.
    memory_bus: Option<u8>,
    /// Driver of all functions.
    driver: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostBridge {
    bus: u8,
    node: Option<u32>,
}

/// What a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// A DMA engine: `edu`.
    Engine,
    /// A memory BAR: `ivshmem-plain`.
    Memory,
    /// An NVMe drive.
    Nvme,
    /// A network card.
    E1000e,
}

fn yes() -> bool {
    true
}

impl Machine {
    /// The machine of a name.
    ///
    /// # Errors
    /// Where there is no such file, or it makes no sense.
    pub fn named(name: &str) -> Result<Self> {
        let description = description(name)?;
        let mut machine = match &description.extends {
            Some(base) => Self::named(base)?,
            None => Self {
                name: String::new(),
                summary: String::new(),
                kernel_arguments: Vec::new(),
                memory_mib: 512,
                numa_nodes: 1,
                accelerator_memory: "1M".to_owned(),
                accelerators_file: "accelerators.toml".to_owned(),
                iommu_address_bits: None,
                unbound: false,
                slots: Vec::new(),
            },
        };
        name.clone_into(&mut machine.name);
        machine.summary = description.summary;
        machine.slots.extend(description.slots);
        machine.slots.sort_by_key(|slot| slot.bus);
        set(&mut machine.memory_mib, description.memory_mib);
        set(&mut machine.numa_nodes, description.numa_nodes);
        set(&mut machine.kernel_arguments, description.kernel_arguments);
        set(&mut machine.accelerator_memory, description.accelerator_memory);
        set(&mut machine.accelerators_file, description.accelerators_file);
        set(&mut machine.unbound, description.unbound);
        machine.iommu_address_bits = description.iommu_address_bits.or(machine.iommu_address_bits);
        machine.check().with_context(|| format!("machine {name}"))?;
        Ok(machine)
    }

    fn check(&self) -> Result<()> {
        let mut seen = BTreeSet::new();
        for slot in &self.slots {
            if !seen.insert(slot.bus) {
                bail!("bus {:#04x} has two slots", slot.bus);
            }
            if slot.functions.is_empty() {
                bail!("the slot at bus {:#04x} is empty", slot.bus);
            }
        }
        Ok(())
    }

    /// Whether an emulator can play it: the newer one's root ports always have ACS.
    pub fn fits(&self, emulator: Emulator) -> bool {
        emulator == Emulator::Own || self.slots.iter().all(|slot| slot.acs)
    }

    /// The same machine with accelerators' memories of a size, such as `4G`.
    #[must_use]
    pub fn with_memory(mut self, size: &str) -> Self {
        size.clone_into(&mut self.accelerator_memory);
        self
    }

    /// Engines and their memories, in order of address.
    pub fn accelerators(&self) -> Vec<Accelerator> {
        let mut found = Vec::new();
        for slot in &self.slots {
            let Some(engine) = slot.functions.iter().position(|kind| *kind == Kind::Engine) else {
                continue;
            };
            let memory = match slot.memory_bus {
                Some(bus) => Some(address(bus, 0)),
                None => slot
                    .functions
                    .iter()
                    .position(|kind| *kind == Kind::Memory)
                    .map(|function| address(slot.bus, function)),
            };
            if let Some(memory) = memory {
                let engine = address(slot.bus, engine);
                found.push(Accelerator { engine, memory, bar: MEMORY_BAR });
            }
        }
        found
    }

    /// The file that tells the product what this machine's accelerators are.
    pub fn accelerators_file(&self) -> PathBuf {
        paths::sources().join(&self.accelerators_file)
    }

    /// Drivers to bind at boot.
    pub fn bindings(&self) -> Vec<Binding> {
        let mut found = Vec::new();
        for slot in &self.slots {
            let Some(driver) = &slot.driver else { continue };
            if self.unbound && driver == "vfio-pci" {
                continue;
            }
            for function in 0..slot.functions.len() {
                let address = address(slot.bus, function);
                found.push(Binding { address, driver: driver.clone() });
            }
        }
        found
    }

    /// NUMA node that the firmware gives to each address.
    pub fn nodes(&self) -> BTreeMap<String, i64> {
        let mut found = BTreeMap::new();
        for slot in &self.slots {
            let node = slot.host_bridge.and_then(|bridge| bridge.node).map_or(-1, i64::from);
            for function in 0..slot.functions.len() {
                found.insert(address(slot.bus, function), node);
            }
        }
        found
    }

    /// The emulator's arguments for this machine, without kernel and ports.
    pub fn arguments(&self, iommu: Iommu) -> Vec<String> {
        arguments::of(self, iommu)
    }

    /// Words for the kernel's command line. AMD's driver is on without a word.
    pub fn kernel_arguments(&self, iommu: Iommu) -> Vec<String> {
        let all = self.kernel_arguments.iter();
        if iommu == Iommu::Intel {
            return all.cloned().collect();
        }
        all.filter(|word| *word != "intel_iommu=on")
            .map(|word| word.replace("intel_iommu=", "amd_iommu="))
            .collect()
    }
}

fn set<T>(value: &mut T, new: Option<T>) {
    if let Some(new) = new {
        *value = new;
    }
}

fn address(bus: u8, function: usize) -> String {
    format!("0000:{bus:02x}:00.{function}")
}

fn description(name: &str) -> Result<Description> {
    let file = paths::sources().join("machines").join(format!("{name}.toml"));
    let text = fs::read_to_string(&file)
        .with_context(|| format!("no machine {name:?}; `cargo xtask lab machines` lists them"))?;
    toml::from_str(&text).with_context(|| format!("cannot understand {}", file.display()))
}

/// Names of all machines.
///
/// # Errors
/// Where their directory cannot be listed.
pub fn names() -> Result<Vec<String>> {
    let directory = paths::sources().join("machines");
    let entries =
        fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if let Some(stem) = path.file_stem() {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_can_be_read_and_has_a_summary() {
        for name in names().unwrap() {
            let machine = Machine::named(&name).unwrap();
            assert!(!machine.summary.is_empty(), "{name}");
            assert!(!machine.accelerators().is_empty(), "{name}");
        }
    }

    #[test]
    fn the_replica_has_the_reference_host_s_addresses() {
        let machine = Machine::named("replica").unwrap();
        let engines: Vec<String> =
            machine.accelerators().into_iter().map(|one| one.engine).collect();
        let buses = ["01", "11", "61", "71", "81", "91", "e1", "f1"];
        assert_eq!(engines, buses.map(|bus| format!("0000:{bus}:00.0")));
    }

    #[test]
    fn memory_is_found_in_another_slot() {
        let first = Machine::named("separate").unwrap().accelerators().remove(0);
        assert_eq!(
            (first.engine.as_str(), first.memory.as_str()),
            ("0000:11:00.0", "0000:12:00.0")
        );
    }

    #[derive(Deserialize)]
    struct Told {
        accelerator: Vec<ToldAccelerator>,
    }

    #[derive(Deserialize)]
    struct ToldAccelerator {
        requester: String,
        memory: ToldMemory,
    }

    #[derive(Deserialize)]
    struct ToldMemory {
        address: Option<String>,
        function: Option<u8>,
        bar: u8,
    }

    #[test]
    fn what_the_product_is_told_is_what_the_machines_are() {
        for name in names().unwrap() {
            let machine = Machine::named(&name).unwrap();
            let text = fs::read_to_string(machine.accelerators_file()).unwrap();
            let told: Told = toml::from_str(&text).unwrap();
            for one in machine.accelerators() {
                let matches = |told: &ToldAccelerator| {
                    let slot = one.engine.split('.').next().unwrap();
                    let of_slot = |number: &u8| format!("{slot}.{number}");
                    let memory = told.memory.function.as_ref().map(of_slot);
                    let memory = told.memory.address.clone().or(memory);
                    (told.requester == one.engine || told.requester == "1234:11e8")
                        && memory.as_ref() == Some(&one.memory)
                        && told.memory.bar == one.bar
                };
                assert_eq!(
                    told.accelerator.iter().filter(|told| matches(told)).count(),
                    1,
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn an_unknown_machine_names_the_command_that_lists_them() {
        let error = Machine::named("nowhere").unwrap_err().to_string();
        assert!(error.contains("cargo xtask lab machines"), "{error}");
    }
}
