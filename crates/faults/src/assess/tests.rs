//! Each kind from lines of our own making, and what must not be taken for it.

use peerway_core::diagnose::assessment::Assessment;
use peerway_klog::Scanner;

use super::{Case, assess};
use crate::collect::{Collector, Filter};
use crate::material::{Material, SourceKind};
use crate::partial;

/// All assessments of some files, by their contents.
fn words(files: &[&str]) -> Vec<String> {
    let mut material = Material::default();
    let mut all = Collector::new(Vec::new(), Filter::default());
    let mut lines = 0;
    for text in files {
        let mut one = Collector::new(Vec::new(), Filter::default());
        let mut scanner = Scanner::new();
        scanner.feed(text.as_bytes(), &mut one);
        scanner.finish(&mut one);
        let kind = material.add("file", text.as_bytes(), &one.clone().finish(scanner.lines()));
        if kind == SourceKind::KernelLog {
            all.append(&one, lines, 0);
            lines += scanner.lines();
        }
    }
    material.log = material.has(SourceKind::KernelLog).then(|| all.finish(lines));
    let snapshot = partial::snapshot("file", &material);
    let case = Case { material: &material, snapshot: &snapshot };
    assess(&case).iter().map(|one| word(one.assessment)).collect()
}

fn word(assessment: Assessment) -> String {
    serde_json::to_value(assessment).unwrap().as_str().unwrap().to_owned()
}

#[track_caller]
fn check(files: &[&str], leading: &str, beside: &[&str]) {
    let words = words(files);
    assert_eq!(words[0], leading, "{words:?}");
    for one in beside {
        assert!(words.contains(&(*one).to_owned()), "{one} is missing: {words:?}");
    }
}

#[track_caller]
fn never(files: &[&str], not: &str) {
    let words = words(files);
    assert!(!words.contains(&not.to_owned()), "{words:?}");
}

fn amd(driver: &str, device: &str, address: &str, flags: &str) -> String {
    format!(
        "[  100.000001] {driver} {device}: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0012 \
         address={address} flags={flags}]\n"
    )
}

#[test]
fn peer_access_by_the_regions_of_the_log() {
    let log = format!(
        "[    1.0] x\n[    1.000000] pci 0000:21:00.0: [10de:2bb5] type 00 class 0x030200\n\
         [    1.000000] pci 0000:21:00.0: BAR 1 [mem 0x1c000000000-0x1dfffffffff 64bit pref]\n{}",
        amd("nvidia", "0000:11:00.0", "0x1c000003000", "0x0020")
    );
    check(&[&log], "iommu_fault_gpu_p2p", &[]);
}

#[test]
fn peer_access_by_what_addresses_look_like() {
    let two = [
        amd("nvidia", "0000:11:00.0", "0x1c000000000", "0x0020"),
        amd("nvidia", "0000:21:00.0", "0x18000001000", "0x0020"),
    ]
    .concat();
    check(&[&two], "iommu_fault_gpu_p2p", &[]);
    // One GPU alone, so high that no memory is there.
    check(&[&amd("nvidia", "0000:11:00.0", "0x1c000000000", "0x0020")], "iommu_fault_gpu_p2p", &[]);
    // The same addresses of a network adapter are its own affair.
    check(&[&amd("ice", "0000:21:00.0", "0x18000001000", "0x0020")], "iommu_fault_nongpu", &[]);
    never(&[&amd("ice", "0000:21:00.0", "0x18000001000", "0x0020")], "iommu_fault_gpu_p2p");
}

#[test]
fn regions_from_another_file() {
    let log = "DMAR: [DMA Write NO_PASID] Request device [05:00.0] fault addr 0x3000009000 [fault \
               reason 0x05] PTE Write access is not set\n";
    let regions = r#"{"0000:05:00.0": {"bar0": "0x50000000", "bar1": "0x2800000000"},
                      "0000:06:00.0": {"bar0": "0x60000000", "bar1": "0x3000000000"}}"#;
    check(&[log, regions], "iommu_fault_gpu_p2p", &[]);
    check(&[log], "iommu_fault_unknown_device", &[]);
}

#[test]
fn gpus_that_fault_elsewhere() {
    let memory = amd("amdgpu", "0000:04:00.0", "0x41de00040", "0x0070");
    check(&[&memory], "iommu_fault_gpu_other", &[]);
    let scattered: String = ["0x5a7201180", "0x5aa000000", "0x5a9c00000", "0x0"]
        .iter()
        .map(|address| amd("nvidia", "0000:41:00.0", address, "0x0020"))
        .collect();
    check(&[&scattered], "iommu_fault_gpu_other", &[]);
    // Beside a failed peer test they are the driver's own way of peer access.
    let test = "[./simpleP2P] - Starting...\n> Peer access from A RTX 4090 (GPU0) -> A RTX 4090 \
                (GPU1) : Yes\nVerification error @ element 1: val = 0.000000, ref = 4.000000\n\
                Test failed!\n";
    check(
        &[&scattered, test],
        "gpu_p2p_driver_error",
        &["iommu_fault_gpu_other", "p2p_verification_failure"],
    );
    // Integrated graphics, by their place.
    let integrated = "DMAR: [DMA Read NO_PASID] Request device [00:02.0] fault addr 0x8a000000 \
                      [fault reason 0x06] PTE Read access is not set\n";
    check(&[integrated], "iommu_fault_gpu_other", &[]);
    // One GPU at an address where memory may be, though it is even.
    check(&[&amd("amdgpu", "0000:0a:00.0", "0x400000000", "0x0000")], "iommu_fault_gpu_other", &[]);
    // One low page, read again and again.
    let low = "AMD-Vi: Event logged [IO_PAGE_FAULT device=02:00.0 domain=0x0011 \
               address=0x0000000000002000 flags=0x0000]\n";
    check(&[low], "iommu_fault_gpu_other", &[]);
}

#[test]
fn devices_that_are_no_gpus() {
    check(&[&amd("mlx5_core", "0000:c1:00.0", "0x7b657064", "0x0000")], "iommu_fault_nongpu", &[]);
    check(&[&amd("vfio-pci", "0000:04:11.0", "0x7b657064", "0x0000")], "iommu_fault_nongpu", &[]);
    check(
        &[&amd("vfio-pci", "0000:c6:00.0", "0x1c2801000", "0x0050")],
        "iommu_fault_unknown_device",
        &[],
    );
    let ring = ["ff8101b0", "ff8101c0", "ff810200", "ff810240"].map(|address| {
        format!(
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=06:00.0 domain=0x0012 \
             address=0x00000000{address} flags=0x0070]\n"
        )
    });
    let ring = ring.concat();
    check(&[&ring], "iommu_fault_nongpu", &[]);
    // The same board in another slot, whose class one of the logs says.
    let twin = "pci 0000:07:00.0: [8086:15ef] type 00 class 0x0c0330\n\
        DMAR: [DMA Write NO_PASID] Request device [07:00.0] fault addr 0x6a874000 [fault reason 0x05] x\n\
        DMAR: [DMA Write NO_PASID] Request device [06:00.0] fault addr 0x6a874000 [fault reason 0x05] x\n";
    check(&[twin], "iommu_fault_nongpu", &[]);
    never(&[twin], "iommu_fault_unknown_device");
}

#[test]
fn events_that_are_no_page_faults() {
    let table = "Nov 14 11:52:19 h kernel: iommu ivhd1: AMD-Vi: Event logged \
        [ILLEGAL_DEV_TABLE_ENTRY device=0000:07:00.0 pasid=0x00000 address=0x135300000 flags=0x0080]\n";
    check(&[table], "iommu_event_other", &[]);
    let smmu = "arm-smmu fd800000.smmu: Unhandled context fault: fsr=0x402, iova=0x00002000, \
                fsynr=0x11, cbfrsynra=0x100, cb=1\n";
    check(&[smmu], "smmu_fault", &[]);
    let rmp = "[ +0.000398] vfio-pci 0000:c2:00.0: AMD-Vi: Event logged [RMP_PAGE_FAULT \
               vmg_tag=0x0000, gpa=0x750b8784, flags_rmp=0x0000, flags=0x0020]\n";
    check(&[rmp], "rmp_fault", &[]);
}

const FAILED: &str =
    "[   50.500000] NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x62:0x65:1792)\n";

#[test]
fn gpus_that_do_not_start() {
    check(&[FAILED], "nvidia_init_fail", &[]);
    let refused = format!(
        "{FAILED}[   51.000000] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT \
         domain=0x0012 address=0xf8fd0000 flags=0x0020]\n"
    );
    check(&[&refused], "nvidia_init_fail_iommu", &["iommu_fault_gpu_other"]);
    // Minutes apart they are two things.
    let apart = format!("{FAILED}{}", amd("nvidia", "0000:41:00.0", "0xf8fd0000", "0x0020"));
    check(&[&apart], "iommu_fault_gpu_other", &["nvidia_init_fail"]);
    let window = "NVRM: memdescMapIommu: 0x800000e87910000-0x800000e87910fff is not addressable by \
                  GPU 0x100 [0x0-0x7fffffffffff]\n";
    check(&[window], "nvidia_init_fail_iommu", &[]);
    // It ran before: the Xid is the cause.
    let ran = format!(
        "[   10.000000] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n{FAILED}"
    );
    check(&[&ran], "xid", &["nvidia_init_fail"]);
    // The system processor died minutes before; or it never came up.
    let died = format!(
        "[   10.000000] NVRM: Xid (PCI:0000:41:00): 119, pid=7, name=python, Timeout\n{FAILED}"
    );
    check(&[&died], "xid", &["nvidia_init_fail"]);
    let start = died.replace("   10.0", "   45.0");
    check(&[&start], "nvidia_init_fail", &["xid"]);
}

#[test]
fn errors_that_gpus_report() {
    let xid = "NVRM: Xid (PCI:0000:51:00): 31, pid=7, name=python, MMU Fault: ENGINE GRAPHICS \
               faulted @ 0x7ffc_53f8b000.\n";
    check(&[xid], "xid", &[]);
    let sxid = "nvidia-nvswitch1: SXid (PCI:0000:03:00.0): 22013, Non-fatal, Link 01 Minion\n";
    check(&[sxid], "sxid", &[]);
    let fault = "amdgpu 0000:75:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8)\n";
    check(&[fault], "gpu_mmu_fault", &[]);
    let engine = "amdgpu 0000:11:00.0: amdgpu: SDMA gets an Register Write SRBM_WRITE command in \
                  non-privilege command buffer\n";
    let test = "amdgpu 0000:11:00.0: amdgpu: [sdma0] address:0x58000 ring:2, for process \
                rocm-bandwidth- pid 5 thread rocm-bandwidth- pid 5\n";
    check(&[&format!("{engine}{test}")], "gpu_p2p_driver_error", &[]);
    check(&[engine], "gpu_mmu_fault", &[]);
    let noise =
        "[4115.157667] NVRM: iovaspaceDestruct_IMPL: 4 left-over mappings in IOVAS 0x3f00\n";
    check(&[noise], "driver_noise", &[]);
}

#[test]
fn resets_and_links() {
    let stuck = "vfio-pci 0000:02:00.0: Unable to change power state from D3cold to D0, device \
                 inaccessible\nvfio-pci 0000:02:00.0: reset done\n";
    check(&[stuck], "vfio_reset", &[]);
    // An ordinary reset is none.
    check(
        &["vfio-pci 0000:02:00.0: resetting\nvfio-pci 0000:02:00.0: reset done\n"],
        "no_finding",
        &[],
    );
    // A hung device answers no invalidation.
    let follows = "vfio-pci 0000:02:00.0: not ready 65535ms after FLR; giving up\n\
        AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=0000:02:00.0 address=0x100003760]\n";
    check(&[follows], "vfio_reset", &["iommu_event_other"]);
    let qemu = "kvm: -device vfio-pci,host=0000:02:00.0: vfio 0000:02:00.0: Unable to power on device, \
                stuck in D3\n";
    check(&[qemu], "vfio_reset", &[]);
    let link = "pcieport 0000:00:07.0: pciehp: Slot(12): Link Down\n\
                NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.\n";
    check(&[link], "xid", &[]);
}

#[test]
fn address_maps() {
    let invalid = "[    5.0] x\nNVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n\
                   NVRM: BAR1 is 0M @ 0x0 (PCI:0000:57:00.0)\n";
    check(&[&format!("{invalid}{FAILED}")], "bar_unassigned", &["nvidia_init_fail"]);
    let aligned = "NVRM: The peer DMA address 0x1900400000 is not aligned at 0x20000000\n\
                   NVRM: IOMMU mapping failed from GPU1 to GPU0\n";
    check(&[aligned], "bar_alignment", &[]);
    never(&[aligned], "iommu_fault_gpu_p2p");
    let small = "pci 0000:e5:00.0: [10de:2b85] type 00 class 0x030000 PCIe Legacy Endpoint\n\
        pci 0000:e5:00.0: BAR 0 [mem 0xc0000000-0xc3ffffff]\n\
        pci 0000:e5:00.0: BAR 1 [mem 0xb0630000000-0xb063fffffff 64bit pref]\n";
    check(&[small], "bar_too_small", &[]);
    let amd = "amdgpu 0000:03:00.0: amdgpu: Detected VRAM RAM=24560M, BAR=256M\n";
    check(&[amd], "bar_too_small", &[]);
    never(&[&amd.replace("BAR=256M", "BAR=32768M")], "bar_too_small");
    // No class is said, but nothing else has regions of this size.
    let no_room = "[    2.0] x\npci 0000:21:00.0: BAR 1: no space for [mem size 0x1000000000 64bit pref]\n\
        pci 0000:21:00.0: BAR 1: failed to assign [mem size 0x1000000000 64bit pref]\n";
    check(&[no_room], "bar_unassigned", &[]);
    let large = small.replace("0xb063fffffff", "0xb0e2fffffff");
    never(&[&large], "bar_too_small");
}

#[test]
fn checks_that_refuse() {
    let bridge = "xe 0000:08:00.0: cannot be used for peer-to-peer DMA as the client and provider \
                  (0000:04:00.0) do not share an upstream bridge or whitelisted host bridge\n";
    check(&[bridge], "p2p_host_bridge", &[]);
    let redirect = "nvme 0000:08:00.0: ACS redirect is set between the client and provider \
                    (0000:04:00.0)\n";
    check(&[redirect], "acs_redirect", &[]);
    let distance = "ACS redirect is enabled on: 0000:0e:01.0\n host bridge 0000:00:00.0: NOT \
                    whitelisted\nmap_type = PCI_P2PDMA_MAP_NOT_SUPPORTED\n";
    check(&[distance], "acs_redirect", &[]);
    let listing =
        "\t\tACSCtl: SrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl-\n";
    check(&[listing], "acs_exonerated", &[]);
}

#[test]
fn hosts_and_boots() {
    let on = "[    4.246111] AMD-Vi: IOMMU SNP support enabled.\n[   13.7] kvm_amd: SEV-SNP enabled \
              (ASIDs 1 - 99)\n";
    check(&[on], "snp_host_state", &[]);
    let off = "[    0.0] Command line: BOOT_IMAGE=/vmlinuz iommu=pt mem_encrypt=on\n[   32.381854] \
               AMD-Vi: SNP: IOMMU is disabled or configured in passthrough mode, SNP cannot be \
               supported\n";
    check(&[off], "snp_host_state", &["cmdline"]);
    let line = "[    0.000000] Command line: BOOT_IMAGE=/vmlinuz amd_iommu=on \
                pcie_acs_override=downstream\n[    0.577075] perf/amd_iommu: Detected AMD IOMMU #0\n";
    check(&[line], "cmdline", &[]);
    check(&["BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt\n"], "cmdline", &[]);
}

#[test]
fn logs_of_programs_and_listings() {
    let nccl = "[1] NCCL INFO Channel 00 : 1[41000] -> 0[11000] via P2P/IPC\n";
    check(&[nccl, "root=/dev/sda1 intel_iommu=off\n"], "nccl_log", &["cmdline"]);
    let groups =
        "IOMMU Group 1:\n\t01:00.0 VGA compatible controller [0300]: NVIDIA X [10de:2482]\n";
    check(&[groups], "iommu_groups", &[]);
    check(&["hostpci0: 0000:01:00.0,pcie=1\n"], "tenant_config", &[]);
    let table = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n";
    check(&[table], "p2p_driver_unsupported", &[]);
    let far = "\tGPU0\tGPU1\nGPU0\tX\tSYS\nGPU1\tSYS\tX\n";
    check(&[far], "p2p_topology", &[]);
    let passed = "> Peer access from A (GPU0) -> A (GPU1) : Yes\nTest passed\n";
    check(&[passed], "p2p_ok", &[]);
    let fast = "> Peer access from NVIDIA RTX PRO 6000 (GPU0) -> NVIDIA RTX PRO 6000 (GPU1) : Yes\n\
                cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 130.1GB/s\n";
    check(&[fast], "p2p_verification_failure", &[]);
}

#[test]
fn nothing_and_nothing_readable() {
    let log =
        "Thu May 14 19:29:14 2020 kern.info kernel: [ 2545.359831] phy2: restart was requested\n";
    check(&[log], "no_finding", &[]);
    check(&["some prose about a problem\n"], "could_not_look", &[]);
    check(&[""], "could_not_look", &[]);
}
