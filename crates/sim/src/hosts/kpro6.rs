//! The reference host and its variants: eight RTX PRO 6000 on an EPYC with SEV-SNP, four of them
//! a container's and four a confidential guest's, P2P broken under translation.
//!
//! | from, to | verdict |
//! |---|---|
//! | any two of the container's four | broken: raw bus addresses meet a translating domain |
//! | any two of the guest's four | unknown: decided inside the guest |

use peerway_core::address::PciAddress;

use crate::build::function::{EPYC_ROOT_PORT, Function, Port};
use crate::build::kmsg::{ERROR, WARNING};
use crate::build::model::{AST_VGA, BCM57416, Link, NVME, PSP, RTX_PRO_6000};
use crate::build::tenants::{Process, Tenant, Vm};
use crate::build::{Bus, Encryption, HostBuilder, Iommu, NvidiaFlavour, address, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

/// One GPU slot: bus, NUMA node, group, framebuffer aperture.
struct Slot {
    bus: u8,
    node: i32,
    group: u32,
    aperture: u64,
}

/// Apertures of 128 GiB lie 256 GiB apart from 0x20000000000; the order is the firmware's.
const fn slot(bus: u8, node: i32, group: u32, place: u64) -> Slot {
    Slot { bus, node, group, aperture: 0x200_0000_0000 + place * 0x40_0000_0000 }
}

/// Node 0: the container's.
const CONTAINER: [Slot; 4] =
    [slot(0x01, 0, 42, 1), slot(0x11, 0, 61, 5), slot(0x61, 0, 28, 0), slot(0x71, 0, 10, 4)];
/// Node 1: the guest's.
const GUEST: [Slot; 4] =
    [slot(0x81, 1, 101, 2), slot(0x91, 1, 117, 3), slot(0xe1, 1, 90, 6), slot(0xf1, 1, 72, 7)];

/// Windows of five seconds with faults, and what each lets through for one device
/// (`DEFAULT_RATELIMIT_BURST`).
const WINDOWS: u64 = 6;
const BURST: u64 = 10;

/// Fault events that stand in the log.
pub const FAULT_EVENTS: u64 = WINDOWS * BURST * 4;
/// Fault events that the rate limiter counted away, by its notices: 400 more a notice than the
/// one before, for four devices in all windows but the first.
pub const FAULTS_SUPPRESSED: u64 = 4 * (1_200 + 1_600 + 2_000 + 2_400 + 2_800);

/// Process number of the serving process's scheduler, which holds the four GPUs.
pub const SERVING_PID: u32 = 48_213;
/// Process number of the guest's QEMU.
pub const GUEST_PID: u32 = 6_121;

/// The container's GPUs.
pub fn container_gpus() -> [PciAddress; 4] {
    CONTAINER.map(|slot| address(0, slot.bus, 0, 0))
}

/// The guest's GPUs.
pub fn guest_gpus() -> [PciAddress; 4] {
    GUEST.map(|slot| address(0, slot.bus, 0, 0))
}

/// The reference host and its variants with the right answers: they are the same for all four,
/// since none of them changes a domain.
pub(super) fn expected() -> Vec<ExpectedHost> {
    let hosts = [
        ("kpro6", kpro6()),
        ("kpro6-pve7", pve7()),
        ("kpro6-pve7-mailbox", pve7_mailbox()),
        ("fsp", fsp()),
    ];
    let expect = |(name, builder)| {
        ExpectedHost::new(name, builder).all(&container_gpus(), Verdict::Broken, "PW0201").all(
            &guest_gpus(),
            Verdict::Unknown,
            "PW0207",
        )
    };
    hosts.map(expect).into()
}

/// The machine as recorded.
pub fn kpro6() -> HostBuilder {
    let mut host = machine("kpro6", kernels::PVE_6_14, true);
    fault_stream(&mut host);
    host
}

/// The same after an update to a 7.0 kernel, with BAR1 P2P chosen.
pub fn pve7() -> HostBuilder {
    let mut host = machine("kpro6-pve7", kernels::PVE_7_0, true);
    host.nvidia_param("RegistryDwords", "RMPcieP2PType=1");
    fault_stream(&mut host);
    host
}

/// The same with that kernel and stock driver parameters: mailbox P2P.
pub fn pve7_mailbox() -> HostBuilder {
    let mut host = machine("kpro6-pve7-mailbox", kernels::PVE_7_0, true);
    fault_stream(&mut host);
    host
}

/// The same boards without SNP and without SME; under identity they fail at the FSP's boot
/// command.
pub fn fsp() -> HostBuilder {
    let mut host = machine("fsp", kernels::PVE_6_14, false);
    fault_stream(&mut host);
    host
}

fn machine(name: &str, kernel: &str, confidential: bool) -> HostBuilder {
    let mut host = HostBuilder::new(name, kernel, cpu::EPYC_9334);
    let words = if confidential { " mem_encrypt=on kvm_amd.sev=1" } else { "" };
    host.command_line(&format!("root=ZFS=rpool/ROOT/pve-1 boot=zfs quiet amd_iommu=on{words}"));
    host.nodes(2)
        .iommu(if confidential { Iommu::AMD_SNP } else { Iommu::AMD }, "DMA-FQ")
        .encryption(Encryption { sme: confidential, sev: confidential, snp: confidential })
        .nvidia("580.95.05", NvidiaFlavour::Open)
        .firmware_tables()
        .first_aperture(0x100_0000_0000)
        .dmi("sys_vendor", "Supermicro")
        .dmi("product_name", "AS -4125GS-TNRT")
        .dmi("board_vendor", "Supermicro")
        .dmi("board_name", "H13DSG-O-CPU")
        .dmi("bios_vendor", "American Megatrends International, LLC.")
        .dmi("bios_version", "3.1")
        .dmi("bios_date", "12/05/2024");
    let mut first_bus = None;
    for slot in &CONTAINER {
        let root = gpu_slot(&mut host, slot, "nvidia");
        first_bus.get_or_insert(root);
    }
    for slot in &GUEST {
        let root = gpu_slot(&mut host, slot, "vfio-pci");
        if slot.bus == 0x81 {
            let port = host.port(root, Port::root(EPYC_ROOT_PORT, 3, 0x82).function(1));
            host.device(port, Function::of(&NVME).driver("nvme"));
        }
    }
    if let Some(root) = first_bus {
        ordinary_devices(&mut host, root);
    }
    tenants(&mut host, confidential);
    host
}

/// A host bridge of its own, one root port, one GPU.
fn gpu_slot(host: &mut HostBuilder, slot: &Slot, driver: &'static str) -> Bus {
    let root = host.root_bus(0, slot.bus & 0xf0, slot.node);
    let port = host.port(root, Port::root(EPYC_ROOT_PORT, 1, slot.bus).function(1));
    let gpu = Function::of(&RTX_PRO_6000).driver(driver).group(slot.group);
    host.device(port, gpu.bar_at(2, slot.aperture));
    root
}

fn ordinary_devices(host: &mut HostBuilder, root: Bus) {
    let nic = host.port(root, Port::root(EPYC_ROOT_PORT, 3, 0x02).function(1));
    host.device(nic, Function::of(&BCM57416).driver("bnxt_en"));
    host.device(nic, Function::of(&BCM57416).at(0, 1).driver("bnxt_en"));
    let display = Port::root(EPYC_ROOT_PORT, 5, 0x03).function(2).link(Link::GEN2_X1);
    let display = host.port(root, display);
    host.device(display, Function::of(&AST_VGA).driver("ast"));
    let internal = Port::root(EPYC_ROOT_PORT, 7, 0x05).function(1).without_acs();
    let internal = host.port(root, internal);
    host.device(internal, Function::of(&PSP).at(0, 5).driver("ccp"));
}

fn tenants(host: &mut HostBuilder, confidential: bool) {
    let nodes = ["nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm"];
    let nodes: Vec<String> = nodes.iter().map(|name| format!("/dev/{name}")).collect();
    let serving = Process::new(SERVING_PID, "sglang::schedul")
        .uid(100_000)
        .cgroup("/lxc/129/ns/system.slice/sglang.service")
        .environment("NCCL_P2P_DISABLE", "1");
    let serving = nodes.iter().fold(serving, |process, node| process.holds(node.as_str()));
    host.process(serving);
    let raw = Vec::new();
    host.tenant(Tenant::Lxc { id: 129, name: "inference", nodes, raw });
    host.tenant(Tenant::Vm(Vm {
        id: 132,
        name: if confidential { "snp-sandbox" } else { "sandbox" },
        devices: guest_gpus().to_vec(),
        snp: confidential,
        pid: Some(GUEST_PID),
    }));
}

/// Each of the container's GPUs writes to its peers' apertures, and reads now and then.
fn fault_stream(host: &mut HostBuilder) {
    let log = host.log();
    let second = 1_000_000;
    for window in 0..WINDOWS {
        for (index, requester) in CONTAINER.iter().enumerate() {
            let device = address(0, requester.bus, 0, 0);
            let start = 9_200 * second + window * 6 * second;
            log.at(start + 40_000 * u64::from(requester.bus));
            if window > 0 {
                let count = 800 + 400 * window;
                let text = format!("amd_iommu_report_page_fault: {count} callbacks suppressed");
                log.line(WARNING, text);
            }
            for event in 0..BURST {
                let targets = CONTAINER.iter().enumerate().filter(|(other, _)| *other != index);
                let targets: Vec<u64> = targets.map(|(_, slot)| slot.aperture).collect();
                let base = targets.iter().cycle().nth(usize::try_from(event).unwrap_or(0));
                let target = base.copied().unwrap_or(0) + offset(window, event);
                let flags = if event % 5 == 4 { 0x0000 } else { 0x0020 };
                let text = format!(
                    "AMD-Vi: Event logged [IO_PAGE_FAULT domain={:#06x} address={target:#x} \
                     flags={flags:#06x}]",
                    requester.group
                );
                log.device(ERROR, "nvidia", device, text);
            }
        }
    }
}

/// The first windows fault at the start of the apertures, later ones deeper inside.
fn offset(window: u64, event: u64) -> u64 {
    match window {
        0 => 0,
        1 => 0x1000,
        _ => window * 0x2_0000 + event * 0x1000 + 0x40,
    }
}
