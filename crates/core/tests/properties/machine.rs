//! Generated machines: what is in them, apart from how it is numbered.

use peerway_core::address::PciAddress;
use peerway_core::judge::Pair;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::pci::Acs;
use peerway_sim::build::function::{
    ACS_CLEAR, ACS_REDIRECT, ACS_SOURCE_ONLY, Condition, EPYC_ROOT_PORT, Function, PEX89, Port,
    XEON_ROOT_PORT,
};
use peerway_sim::build::model::{A6000, H100_SXM, Link, MI210, Model, RTX_4090, RTX_PRO_6000};
use peerway_sim::build::{Encryption, HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use proptest::prelude::*;
use proptest::sample::select;

use crate::facts::{look, verdicts};

/// A machine by what bears on its verdicts.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    platform: Platform,
    driver: (&'static str, NvidiaFlavour),
    no_remap: bool,
    pub(crate) roots: Vec<Vec<Slot>>,
}

/// Kernel, processor and IOMMU, as they occur together.
#[derive(Clone, Copy, Debug)]
struct Platform {
    kernel: &'static str,
    cpu: cpu::CpuModel,
    iommu: Iommu,
    encryption: Encryption,
}

/// What hangs from one root port.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// A GPU.
    Direct(Gpu),
    /// A switch, by the access control of each of its downstream ports and the GPU behind it.
    Switch(Vec<(Acs, Gpu)>),
}

/// One GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gpu {
    pub(crate) model: &'static Model,
    pub(crate) domain: &'static str,
    pub(crate) condition: Condition,
    pub(crate) narrow: bool,
}

impl Gpu {
    /// Whether nothing tells the two apart but their places.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.model.device == other.model.device
            && self.domain == other.domain
            && self.condition == other.condition
            && self.narrow == other.narrow
    }
}

/// How a machine is numbered, and in which order its parts are described.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    /// Whether root buses are PCI domains of their own.
    pub(crate) domains: bool,
    /// First PCI domain.
    pub(crate) first_domain: u32,
    /// First device number of root ports.
    pub(crate) first_device: u8,
    /// Group numbers count up from here, or down from 900.
    pub(crate) first_group: u32,
    pub(crate) groups_backwards: bool,
    /// Whether the roots are described last to first.
    pub(crate) backwards: bool,
}

pub(crate) const PLAIN: Numbering = Numbering {
    domains: false,
    first_domain: 0,
    first_device: 1,
    first_group: 0,
    groups_backwards: false,
    backwards: false,
};

pub(crate) fn numberings() -> impl Strategy<Value = Numbering> {
    (
        any::<bool>(),
        select(vec![0_u32, 1, 0x10000]),
        1_u8..8,
        0_u32..400,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(domains, first_domain, first_device, first_group, down, backwards)| {
            Numbering {
                domains,
                first_domain,
                first_device,
                first_group,
                groups_backwards: down,
                backwards,
            }
        })
}

pub(crate) fn machines() -> impl Strategy<Value = Machine> {
    let slot = prop_oneof![
        gpus().prop_map(Slot::Direct),
        prop::collection::vec((acs(), gpus()), 1..4).prop_map(Slot::Switch),
    ];
    let roots = prop::collection::vec(prop::collection::vec(slot, 1..3), 1..3);
    let driver = select(vec![
        ("580.95.05", NvidiaFlavour::Open),
        ("570.195.03", NvidiaFlavour::Closed),
        ("570.148.08-p2p", NvidiaFlavour::Fork),
    ]);
    (platforms(), driver, prop::bool::weighted(0.1), roots).prop_map(
        |(platform, driver, no_remap, roots)| Machine { platform, driver, no_remap, roots },
    )
}

fn acs() -> impl Strategy<Value = Acs> {
    select(vec![ACS_CLEAR, ACS_REDIRECT, ACS_SOURCE_ONLY])
}

fn gpus() -> impl Strategy<Value = Gpu> {
    const MODELS: [&Model; 5] = [&RTX_PRO_6000, &A6000, &H100_SXM, &RTX_4090, &MI210];
    const DOMAINS: [&str; 4] = ["DMA-FQ", "DMA", "identity", "blocked"];
    let condition = prop_oneof![
        8 => Just(Condition::Healthy),
        1 => Just(Condition::Dead),
        1 => Just(Condition::Asleep),
    ];
    // Mostly alike, as machines are, so that pairs of likes are frequent.
    (
        prop_oneof![3 => Just(0), 1 => 0..MODELS.len()],
        prop_oneof![3 => Just(0), 1 => 0..DOMAINS.len()],
        condition,
        prop::bool::weighted(0.1),
    )
        .prop_map(|(model, domain, condition, narrow)| Gpu {
            model: MODELS[model],
            domain: DOMAINS[domain],
            condition,
            narrow,
        })
}

fn platforms() -> impl Strategy<Value = Platform> {
    let none = Encryption::default();
    let snp = Encryption { sme: false, sev: true, snp: true };
    let sme = Encryption { sme: true, ..none };
    let amd =
        |kernel, iommu, encryption| Platform { kernel, cpu: cpu::EPYC_9334, iommu, encryption };
    let intel = |kernel, iommu| Platform { kernel, cpu: cpu::XEON_8480, iommu, encryption: none };
    select(vec![
        amd(kernels::PVE_6_14, Iommu::AMD_SNP, snp),
        amd(kernels::PVE_6_11, Iommu::AMD_SNP, snp),
        amd(kernels::DEBIAN_6_12, Iommu::AMD, none),
        amd(kernels::UBUNTU_6_8, Iommu::AMD, none),
        amd(kernels::UBUNTU_6_8, Iommu::AMD, sme),
        amd(kernels::STABLE_7_3, Iommu::AMD_SNP_MODE_ZERO, snp),
        amd(kernels::DEBIAN_12, Iommu::Off, none),
        intel(kernels::DEBIAN_6_12, Iommu::INTEL),
        intel(kernels::DEBIAN_12, Iommu::INTEL),
        intel(kernels::DEBIAN_6_12, Iommu::Off),
    ])
}

impl Machine {
    /// Its GPUs, in the order of its roots and slots.
    pub(crate) fn gpus(&self) -> Vec<Gpu> {
        self.roots
            .iter()
            .flatten()
            .flat_map(|slot| match slot {
                Slot::Direct(gpu) => vec![*gpu],
                Slot::Switch(ports) => ports.iter().map(|(_, gpu)| *gpu).collect(),
            })
            .collect()
    }

    /// The machine with something done to one of its GPUs.
    pub(crate) fn with_gpu(&self, number: usize, change: impl FnOnce(&mut Gpu)) -> Self {
        let mut machine = self.clone();
        let mut gpus = machine.roots.iter_mut().flatten().flat_map(|slot| match slot {
            Slot::Direct(gpu) => vec![gpu],
            Slot::Switch(ports) => ports.iter_mut().map(|(_, gpu)| gpu).collect(),
        });
        if let Some(gpu) = gpus.nth(number) {
            change(gpu);
        }
        machine
    }

    /// The machine with redirect on every switch port, or on none.
    pub(crate) fn with_redirect(&self, acs: Acs) -> Self {
        let mut machine = self.clone();
        for slot in machine.roots.iter_mut().flatten() {
            if let Slot::Switch(ports) = slot {
                for (there, _) in ports.iter_mut() {
                    *there = acs;
                }
            }
        }
        machine
    }

    /// What the reader sees of it, and the addresses of its GPUs in the order of [`Self::gpus`].
    pub(crate) fn look(&self, numbering: Numbering) -> (Snapshot, Vec<PciAddress>) {
        let Platform { kernel, cpu, iommu, encryption } = self.platform;
        let mut host = HostBuilder::new("generated", kernel, cpu);
        host.iommu(iommu, "DMA-FQ").encryption(encryption);
        host.nvidia(self.driver.0, self.driver.1);
        if self.no_remap {
            host.nvidia_param("DmaRemapPeerMmio", "0");
        }
        let mut groups = Groups { numbering, next: numbering.first_group };
        let mut addresses: Vec<Vec<PciAddress>> = vec![Vec::new(); self.roots.len()];
        let mut order: Vec<usize> = (0..self.roots.len()).collect();
        if numbering.backwards {
            order.reverse();
        }
        for (place, root) in order.into_iter().enumerate() {
            addresses[root] = self.root(&mut host, place, &self.roots[root], &mut groups);
        }
        (look(host.tree().unwrap()), addresses.concat())
    }

    fn root(
        &self,
        host: &mut HostBuilder,
        place: usize,
        slots: &[Slot],
        groups: &mut Groups,
    ) -> Vec<PciAddress> {
        let number = u8::try_from(place).unwrap();
        let numbering = groups.numbering;
        let (domain, bus) = if numbering.domains {
            (numbering.first_domain + u32::from(number), 0x10)
        } else {
            (numbering.first_domain, number * 0x40)
        };
        let root = host.root_bus(domain, bus, i32::from(number));
        let model = match self.platform.iommu {
            Iommu::Intel { .. } => XEON_ROOT_PORT,
            _ => EPYC_ROOT_PORT,
        };
        let mut addresses = Vec::new();
        let mut next = bus + 1;
        for (slot, device) in slots.iter().zip(numbering.first_device..) {
            let port =
                host.port(root, Port::root(model, device, next).function(1).group(groups.take()));
            next += 1;
            match slot {
                Slot::Direct(gpu) => addresses.push(host.device(port, function(gpu, groups))),
                Slot::Switch(ports) => {
                    let upstream = Port::upstream(PEX89, next).group(groups.take());
                    next += 1;
                    let downstream: Vec<Port> = ports
                        .iter()
                        .zip(0..)
                        .map(|((acs, _), index)| {
                            next += 1;
                            Port::downstream(PEX89, index, next - 1).acs(*acs).group(groups.take())
                        })
                        .collect();
                    let buses = host.switch(port, upstream, &downstream);
                    for (bus, (_, gpu)) in buses.into_iter().zip(ports) {
                        addresses.push(host.device(bus, function(gpu, groups)));
                    }
                }
            }
        }
        addresses
    }
}

struct Groups {
    numbering: Numbering,
    next: u32,
}

impl Groups {
    fn take(&mut self) -> u32 {
        self.next += 1;
        if self.numbering.groups_backwards { 900 - self.next } else { self.next }
    }
}

fn function(gpu: &Gpu, groups: &mut Groups) -> Function {
    let driver = if gpu.model.vendor == 0x1002 { "amdgpu" } else { "nvidia" };
    let function = Function::of(gpu.model)
        .driver(driver)
        .domain(gpu.domain)
        .condition(gpu.condition)
        .group(groups.take());
    if gpu.narrow { function.link(Link { generation: 4, width: 4 }) } else { function }
}

/// Verdicts by the numbers of the two GPUs.
pub(crate) fn matrix(machine: &Machine, numbering: Numbering) -> Vec<Vec<Option<Pair>>> {
    let (snapshot, gpus) = machine.look(numbering);
    let mut verdicts = verdicts(&snapshot);
    gpus.iter().map(|from| gpus.iter().map(|to| verdicts.remove(&(*from, *to))).collect()).collect()
}
