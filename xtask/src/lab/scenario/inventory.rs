//! The replica shows what the reference host shows.

use anyhow::Result;

use super::{inventory_of, older_than, pairs};
use crate::lab::facts::Facts;
use crate::lab::kernel::Kernel;
use crate::lab::machine::Machine;
use crate::lab::platform::Iommu;

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let machine = Machine::named("replica")?;
    let report = pairs::replica(kernel)?;
    let inventory = inventory_of(&report, "inventory")?;
    let mut facts = Facts::default();
    facts.say(format!("Machine `replica`: {}.", machine.summary));
    // AMD's driver flushes at once where it sees that its unit is emulated.
    let strict = older_than(kernel, 5, 15) || kernel.platform.iommu == Iommu::Amd;
    let kind = if strict { "DMA" } else { "DMA-FQ" };
    let nodes = machine.nodes();
    let mut rows = Vec::new();
    for accelerator in machine.accelerators() {
        let address = accelerator.engine;
        let device = inventory.devices.iter().find(|device| device.address == address);
        facts.expect(&format!("{address} is there"), &device.is_some(), &true);
        let Some(device) = device else { continue };
        let group = inventory.groups.iter().find(|group| Some(group.id) == device.group);
        let (of_group, members) = group.map_or((String::new(), Vec::new()), |group| {
            (group.kind.clone(), group.devices.clone())
        });
        facts.expect(&format!("type of {address}'s group"), &of_group.as_str(), &kind);
        let expected = vec![address.clone(), accelerator.memory.clone()];
        facts.expect(&format!("members of {address}'s group"), &members, &expected);
        facts.expect(
            &format!("NUMA node of {address}"),
            &Some(&device.numa_node),
            &nodes.get(&address),
        );
        let driver = if device.numa_node == 1 { "vfio-pci" } else { "uio_pci_generic" };
        facts.expect(&format!("driver of {address}"), &device.driver.as_deref(), &Some(driver));
        rows.push(vec![
            address,
            device.group.map_or_else(|| "none".to_owned(), |group| group.to_string()),
            of_group,
            members.join(", "),
            device.driver.clone().unwrap_or_else(|| "none".to_owned()),
            device.numa_node.to_string(),
        ]);
    }
    facts.table(&["device", "group", "type", "members", "driver", "NUMA node"], &rows);
    facts.say("Node -1 is what a device on the first host bridge shows: that bridge names none.");
    Ok(facts)
}
