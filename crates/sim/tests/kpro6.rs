//! The reference host: its checked-in file is fresh, and every row of its description is there.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use peerway_core::snapshot::iommu::DomainType;
use peerway_core::snapshot::kernel::Tristate;
use peerway_read::host::{Request, collect};
use peerway_read::root::{LARGE, Root};
use peerway_sim::hosts::{self, kpro6};

#[test]
fn checked_in_files_are_fresh() {
    for (name, text) in hosts::fixture_files().unwrap() {
        let path = format!("{}/../../fixtures/hosts/{name}", env!("CARGO_MANIFEST_DIR"));
        #[expect(clippy::disallowed_methods, reason = "a file of this repository")]
        let there = std::fs::read_to_string(&path).unwrap();
        assert!(
            there == text,
            "{name} is stale: run cargo run -p peerway-sim --bin write-fixtures"
        );
    }
}

fn root(name: &str) -> Root {
    Root::recorded(Arc::new(peerway_sim::host(name).unwrap().unwrap()))
}

#[track_caller]
fn check(host: &str, path: &str, expected: &str) {
    assert_eq!(root(host).text(path, LARGE).unwrap(), expected, "{path}");
}

#[test]
fn every_named_host_builds() {
    for name in peerway_sim::NAMES {
        check(name, "/proc/sys/kernel/hostname", name);
    }
    assert!(peerway_sim::host("nobody").is_none());
}

#[test]
fn platform_and_command_line() {
    check("kpro6", "/proc/sys/kernel/osrelease", "6.14.11-5-bpo12-pve");
    let command_line = root("kpro6").text("/proc/cmdline", LARGE).unwrap();
    for word in ["amd_iommu=on", "mem_encrypt=on", "kvm_amd.sev=1"] {
        assert!(command_line.contains(word), "{word}");
    }
    assert!(!command_line.contains("iommu=pt"));
    check("kpro6", "/sys/module/kvm_amd/parameters/sev_snp", "Y");
    check("fsp", "/sys/module/kvm_amd/parameters/sev_snp", "N");
    check("kpro6-pve7", "/proc/sys/kernel/osrelease", "7.0.14-1-pve");
    let nodes = root("kpro6").list("/sys/devices/system/node").unwrap();
    assert_eq!(nodes, ["node0", "node1"]);
}

#[test]
fn gpus_their_groups_drivers_and_nodes() {
    let rows = [
        ("0000:01:00.0", 42, "nvidia", "0", 0x240_0000_0000_u64),
        ("0000:11:00.0", 61, "nvidia", "0", 0x340_0000_0000),
        ("0000:61:00.0", 28, "nvidia", "0", 0x200_0000_0000),
        ("0000:71:00.0", 10, "nvidia", "0", 0x300_0000_0000),
        ("0000:81:00.0", 101, "vfio-pci", "1", 0x280_0000_0000),
        ("0000:91:00.0", 117, "vfio-pci", "1", 0x2c0_0000_0000),
        ("0000:e1:00.0", 90, "vfio-pci", "1", 0x380_0000_0000),
        ("0000:f1:00.0", 72, "vfio-pci", "1", 0x3c0_0000_0000),
    ];
    let root = root("kpro6");
    for (gpu, group, driver, node, aperture) in rows {
        let directory = root.directory(&format!("/sys/bus/pci/devices/{gpu}")).unwrap();
        let known = |name: &str| directory.link_name(name).known().cloned().unwrap();
        assert_eq!(known("iommu_group"), group.to_string());
        assert_eq!(known("driver"), driver);
        assert_eq!(directory.text("numa_node").unwrap(), node);
        assert_eq!(directory.text("device").unwrap(), "0x2bb5");
        let resource = directory.text("resource").unwrap();
        let line = resource.lines().nth(2).unwrap();
        let end = aperture + (128 << 30) - 1;
        assert_eq!(line, format!("{aperture:#018x} {end:#018x} 0x000000000014220c"));
        let members = format!("/sys/kernel/iommu_groups/{group}/devices");
        assert_eq!(root.list(&members).unwrap(), [gpu]);
        let word = root.text(&format!("/sys/kernel/iommu_groups/{group}/type"), LARGE).unwrap();
        assert_eq!(word, "DMA-FQ");
    }
}

#[test]
fn tenants_hold_their_gpus() {
    let serving = format!("/proc/{}", kpro6::SERVING_PID);
    check("kpro6", &format!("{serving}/environ"), "NCCL_P2P_DISABLE=1\0");
    check("kpro6", &format!("{serving}/cgroup"), "0::/lxc/129/ns/system.slice/sglang.service");
    let root = root("kpro6");
    let held = |pid: u32| -> Vec<String> {
        let directory = format!("/proc/{pid}/fd");
        let names = root.list(&directory).unwrap();
        names.iter().map(|name| root.link(&format!("{directory}/{name}")).unwrap()).collect()
    };
    let serving = held(kpro6::SERVING_PID);
    for node in ["nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm"] {
        assert!(serving.contains(&format!("/dev/{node}")), "{node}");
    }
    let guest = held(kpro6::GUEST_PID);
    for group in [101, 117, 90, 72] {
        assert!(guest.contains(&format!("/dev/vfio/{group}")), "{group}");
    }
    let text = root.text("/etc/pve/qemu-server/132.conf", LARGE).unwrap();
    assert!(text.contains("amd-sev: type=snp\n") && text.contains("name: snp-sandbox\n"));
    check("kpro6", "/run/qemu-server/132.pid", &kpro6::GUEST_PID.to_string());
    let text = root.text("/etc/pve/lxc/129.conf", LARGE).unwrap();
    assert!(text.contains("hostname: inference\n") && text.contains("dev3: /dev/nvidia3\n"));
}

#[test]
fn the_kernel_log_has_the_faults_and_says_how_many_it_lost() {
    let log = root("kpro6").text("/dev/kmsg", LARGE).unwrap();
    let faults = log.lines().filter(|line| line.contains("IO_PAGE_FAULT")).count();
    assert_eq!(u64::try_from(faults).unwrap(), kpro6::FAULT_EVENTS);
    let suppressed: u64 = log
        .lines()
        .filter_map(|line| line.split_once("amd_iommu_report_page_fault: ")?.1.split_once(' '))
        .map(|(count, _)| count.parse::<u64>().unwrap())
        .sum();
    assert_eq!(suppressed, kpro6::FAULTS_SUPPRESSED);
    for text in [
        "address=0x24000000000 ",
        "address=0x34000001000 ",
        "AMD-Vi: IOMMU SNP support enabled.",
        "Memory Encryption Features active: AMD SME",
        "pci 0000:01:00.0: Adding to iommu group 42",
        "\n DEVICE=+pci:0000:01:00.0\n",
    ] {
        assert!(log.contains(text), "{text}");
    }
    let other = root("fsp").text("/dev/kmsg", LARGE).unwrap();
    assert!(!other.contains("SNP support enabled") && !other.contains("AMD SME"));
}

#[test]
fn records_are_numbered_and_go_forward_in_time() {
    let log = root("kpro6").text("/dev/kmsg", LARGE).unwrap();
    let mut next = 0_u64;
    let mut last = 0_u64;
    for record in log.lines().filter(|line| !line.starts_with(' ')) {
        let fields: Vec<&str> = record.splitn(4, ',').collect();
        assert_eq!(fields[1].parse::<u64>().unwrap(), next);
        let time = fields[2].parse::<u64>().unwrap();
        assert!(time >= last, "{record}");
        assert!(fields[3].starts_with("-;"));
        next += 1;
        last = time;
    }
    assert!(next > 250);
}

#[test]
fn driver_parameters_by_variant() {
    let registry = |name: &str| {
        let params = root(name).text("/proc/driver/nvidia/params", LARGE).unwrap();
        params.lines().find(|line| line.starts_with("RegistryDwords:")).unwrap().to_owned()
    };
    assert_eq!(registry("kpro6"), "RegistryDwords: \"\"");
    assert_eq!(registry("kpro6-pve7"), "RegistryDwords: \"RMPcieP2PType=1\"");
    assert_eq!(registry("kpro6-pve7-mailbox"), "RegistryDwords: \"\"");
    let version = root("kpro6").text("/proc/driver/nvidia/version", LARGE).unwrap();
    assert!(version.starts_with(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
    ));
    let gpus = root("kpro6").list("/proc/driver/nvidia/gpus").unwrap();
    assert_eq!(gpus, ["0000:01:00.0", "0000:11:00.0", "0000:61:00.0", "0000:71:00.0"]);
}

#[test]
fn a_scan_gives_every_row() {
    let request = Request { privileged: true, ..Request::default() };
    let snapshot = collect(&root("kpro6"), request);
    assert_eq!(snapshot.memory_encryption.snp.state, Tristate::Yes);
    assert_eq!(snapshot.memory_encryption.sme.state, Tristate::Yes);
    assert_eq!(snapshot.kernel.iommu_dma_ops.known(), Some(&false));
    let gpus: Vec<_> = snapshot.devices.iter().filter(|device| device.is_gpu()).collect();
    assert_eq!(gpus.len(), 8);
    for gpu in &gpus {
        assert_eq!(snapshot.domain_of(gpu).known(), Some(&DomainType::DmaFq));
        let (members, link) = (snapshot.group_of(gpu).unwrap(), gpu.link.known().unwrap());
        assert_eq!(members.devices, [gpu.address]);
        assert_eq!((link.max_speed, link.width), (320, 16));
        assert_eq!(gpu.peer_bar().unwrap().size, 128 << 30);
    }
    for (tenant, owned) in [("lxc:129", kpro6::container_gpus()), ("vm:132", kpro6::guest_gpus())] {
        for address in owned {
            let device = snapshot.device(address).unwrap();
            assert_eq!(snapshot.tenant_of(device).unwrap().to_string(), tenant);
            assert!(!snapshot.is_contested(address));
        }
    }
    let guest = snapshot.tenants.iter().find(|tenant| tenant.id.0 == "vm:132").unwrap();
    assert_eq!((guest.confidential, guest.running), (Tristate::Yes, Tristate::Yes));
    assert_eq!(guest.name.known().unwrap(), "snp-sandbox");
    let serving =
        snapshot.holders.known().unwrap().iter().find(|one| one.pid == kpro6::SERVING_PID);
    let switches = &serving.unwrap().switches;
    assert_eq!(*switches, [("NCCL_P2P_DISABLE".to_owned(), "1".to_owned())]);
    // The display chip of the management controller is none, and nothing stayed unread.
    assert_eq!(snapshot.gaps, []);
    for (address, device, target) in
        [("0x24000000000", "0000:01:00.0", 2), ("0x34000001000", "0000:11:00.0", 2)]
    {
        let (found, bar) = snapshot.bar_at(address.parse().unwrap()).unwrap();
        assert_eq!((found.address.to_string().as_str(), bar.index), (device, target));
    }
}
