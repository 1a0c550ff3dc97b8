//! Where the product makes no plan: the places at which the module refuses, and those at which the DMA API
//! was seen to hand out an address of a live entry.

use anyhow::Result;
use peerway_lab_protocol::Step;

use super::super::change::{HEADS, declared, ended};
use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::platform::Iommu;
use super::{ROAD, boot, with_functions};

/// A machine, what is done first, the two devices, and how the product answers.
struct Place {
    machine: &'static str,
    before: &'static str,
    devices: &'static str,
    name: &'static str,
    status: i32,
    word: &'static str,
}

/// The newest module first: what makes a mask is the lab's own.
const NARROW_MASK: &str = "insmod /lab/modules/lab_dma.ko; dma \"mask 0000:01:00.0 $(bits 11)\"; cat /sys/bus/pci/devices/0000:01:00.0/dma_mask_bits";

const PLACES: [Place; 7] = [
    Place {
        machine: "beside",
        before: ":",
        devices: "0000:61:00.0,0000:11:00.0",
        name: "below 4 GiB under another host bridge, where the DMA API took an entry away",
        status: 4,
        word: "addresses-free = no",
    },
    Place {
        machine: "beside",
        before: ":",
        devices: "0000:61:00.0,0000:62:00.0",
        name: "below 4 GiB in the requester's own host bridge, which the DMA API leaves out",
        status: 0,
        word: "peer-map",
    },
    Place {
        machine: "large",
        before: NARROW_MASK,
        devices: "0000:01:00.0,0000:11:00.0",
        name: "right below the top of the requester's mask, from where the DMA API works down",
        status: 4,
        word: "addresses-free = no",
    },
    Place {
        machine: "large",
        before: ":",
        devices: "0000:01:00.0,0000:81:00.0",
        name: "a device of a virtual machine",
        status: 4,
        word: "bound-driver = no",
    },
    Place {
        machine: "narrow",
        before: ":",
        devices: "0000:11:00.0,0000:12:00.0",
        name: "beyond the IOMMU's bits of address",
        status: 4,
        word: "addresses-free = no",
    },
    Place {
        machine: "passthrough",
        before: ":",
        devices: "0000:01:00.0,0000:11:00.0",
        name: "nothing is translated for the requesters",
        status: 4,
        word: "translating = no",
    },
    Place {
        machine: "iommu-off",
        before: ":",
        devices: "0000:01:00.0,0000:11:00.0",
        name: "no IOMMU",
        status: 4,
        word: "translating",
    },
];

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let mut facts = Facts::default();
    let mut rows = Vec::new();
    // AMD's emulated unit has one width of address only.
    let possible =
        |place: &&Place| kernel.platform.iommu == Iommu::Intel || place.machine != "narrow";
    for place in PLACES.iter().filter(possible) {
        let machine = Machine::named(place.machine)?;
        let plan: Step = declared(place.name, &["plan", ROAD, "--device", place.devices]);
        let steps = [with_functions("before", place.before), plan];
        let report = boot(kernel, &machine)?.steps(steps).run()?;
        report.stdout("before")?;
        ended(&mut facts, &mut rows, &report, place.name, place.status, place.word)?;
        if let Some(row) = rows.last_mut() {
            row.insert(0, format!("`{}`", place.machine));
        }
    }
    facts.say("Plans for two devices, and how the product answers; the rest of each answer is left out here:");
    let heads: Vec<&str> = std::iter::once("machine").chain(HEADS).collect();
    facts.table(&heads, &rows);
    facts.say(
        "The pages `peer-map-*.md` show what happens at the first of these places if an entry is made there all \
         the same, and at the second.",
    );
    Ok(facts)
}
