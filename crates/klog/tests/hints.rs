//! What is drawn from a log about the host that wrote it.

#![expect(clippy::unwrap_used, reason = "addresses written here")]

use peerway_klog::hints::{Confidence, DeviceClass, Hints, IommuState, Tristate, hints};
use peerway_klog::notice::Platform;
use peerway_klog::nvidia::Stage;
use peerway_klog::xid::Weight;
use peerway_klog::{Region, Scanner, Summary};

fn of(log: &str) -> Hints {
    let mut summary = Summary::new();
    let mut scanner = Scanner::new();
    scanner.feed(log.as_bytes(), &mut summary);
    scanner.finish(&mut summary);
    hints(&summary.report())
}

#[track_caller]
fn check_class(log: &str, device: &str, class: DeviceClass, confidence: Confidence) {
    let hints = of(log);
    let device = device.parse().unwrap();
    let seen = hints.devices.get(&device).map(|hint| (hint.class, hint.confidence));
    assert_eq!(seen, Some((class, confidence)), "{hints:#?}");
}

const FAULT: &str =
    "AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0001 address=0x1000 flags=0x0000]";

#[test]
fn classes_from_drivers_class_codes_and_addresses() {
    use Confidence::{Certain, Possible, Probable};
    let line = |driver: &str| format!("{driver} 0000:41:00.0: {FAULT}\n");
    check_class(&line("nvidia"), "41:00.0", DeviceClass::Gpu, Certain);
    check_class(&line("mlx5_core"), "41:00.0", DeviceClass::Nic, Certain);
    check_class(&line("nvme"), "41:00.0", DeviceClass::Storage, Certain);
    check_class(&line("xhci_hcd"), "41:00.0", DeviceClass::Usb, Certain);
    check_class(&line("vfio-pci"), "41:00.0", DeviceClass::Unknown, Possible);
    let native =
        format!("nvidia 0000:41:00.0: enabling device (0000 -> 0003)\n{}", line("vfio-pci"));
    check_class(&native, "41:00.0", DeviceClass::Gpu, Certain);
    let code =
        format!("pci 0000:41:00.0: [15b3:1021] type 00 class 0x020000\n{}", line("vfio-pci"));
    check_class(&code, "41:00.0", DeviceClass::Nic, Certain);
    let function = format!("ice 0000:04:00.0 eno1: link up\nvfio-pci 0000:04:11.2: {FAULT}\n");
    check_class(&function, "04:11.2", DeviceClass::Nic, Probable);
    check_class(
        "xe 0000:07:00.0: cannot be used for peer-to-peer DMA as the client and provider (0000:03:00.0) do not share\n",
        "07:00.0",
        DeviceClass::Gpu,
        Certain,
    );
    check_class(
        "ccp 0000:02:00.5: sev enabled\n",
        "02:00.5",
        DeviceClass::SecurityProcessor,
        Certain,
    );
    assert!(of(&line("vfio-pci")).devices.values().all(|hint| hint.given_away));
}

#[test]
fn banners_alone_prove_nothing_about_the_iommu() {
    let translated = "iommu: Default domain type: Translated\n";
    assert_eq!(of(translated).iommu, IommuState::Unknown);
    assert_eq!(of(translated).default_passthrough, Some(false));
    let off = format!("Command line: ro iommu=off\n{translated}");
    assert_eq!(of(&off).iommu, IommuState::Off);
    let grouped = format!("{off}pci 0000:41:00.0: Adding to iommu group 3\n");
    assert_eq!(of(&grouped).iommu, IommuState::On);
    assert_eq!(of("DMAR: IOMMU disabled\n").iommu, IommuState::Off);
    assert_eq!(of("DMAR-IR: Enabled IRQ remapping in x2apic mode\n").iommu, IommuState::Unknown);
}

#[test]
fn the_last_boot_decides_about_snp() {
    let on = "Linux version 6.11.0\nSEV-SNP: RMP table physical range [0x0 - 0x1]\n\
              AMD-Vi: IOMMU SNP support enabled.\n";
    let off = "Linux version 6.11.0\nAMD-Vi: SNP: IOMMU disabled or configured in passthrough \
               mode, SNP cannot be supported.\n";
    let both = of(&format!("{on}{off}"));
    assert_eq!((both.snp, both.snp_evidence), (Tristate::No, vec![Platform::SnpOffPassthrough]));
    let both = of(&format!("{off}{on}"));
    assert_eq!((both.snp, both.snp_evidence), (Tristate::Yes, vec![Platform::SnpIommuEnabled]));
    assert_eq!(of("kvm_amd: SEV enabled (ASIDs 1 - 9)\n").snp, Tristate::Unknown);
    assert_eq!(of("Memory Encryption Features active: AMD SME\n").sme, Tristate::Yes);
}

#[test]
fn the_first_stage_that_failed_is_the_cause() {
    let log = "[  100.000000] NVRM: GPU0 nvAssertOkFailedNoLog: Assertion failed: Invalid argument [NV_ERR_INVALID_ARGUMENT]\n\
               [  100.000001] NVRM: GPU0 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP\n\
               [  100.000002] NVRM: GPU0 RmInitAdapter: Cannot initialize GSP firmware RM\n\
               [  100.000003] NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x62:0x40:2168)\n\
               [  100.900000] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0001 address=0xfff00000 flags=0x0020]\n";
    let hints = of(log);
    let [failure] = hints.init_failures.as_slice() else { panic!("{hints:#?}") };
    assert_eq!(failure.device, "41:00.0".parse().ok());
    assert_eq!(failure.stage, Some(Stage::Wpr2));
    assert!(failure.assertion.as_deref().is_some_and(|text| text.contains("INVALID_ARGUMENT")));
    assert_eq!(failure.codes, [(0x62, 0x40)]);
    assert_eq!((failure.iommu_events, failure.seconds_to_events), (1, Some(0)));
    // A stage that runs before is the cause even where it was logged by a later attempt.
    let log = "NVRM: kfspSendBootCommands_GH100: FSP boot cmds failed. RM cannot boot.\n\
               NVRM: kfspPollForQueueEmpty_IMPL: Timed out waiting for FSP command queue to be empty.\n";
    assert_eq!(of(log).init_failures[0].stage, Some(Stage::FspQueue));
    assert_eq!(Stage::FspQueue.needs_system_memory(), Some(false));
}

#[test]
fn xids_come_with_their_weight_and_advice_last() {
    let hints = of(
        "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)\n\
                    NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n",
    );
    let seen: Vec<_> = hints.xids.iter().map(|xid| (xid.number, xid.weight)).collect();
    assert_eq!(seen, [(79, Weight::Critical), (154, Weight::Advice)]);
}

#[test]
fn patterns_of_addresses() {
    let fault = |address: u64| {
        format!(
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:05:00.0 domain=0x0001 address={address:#x} flags=0x0070]\n"
        )
    };
    let log: String = (0..9).map(|step| fault(0xff61_0000 + step * 64)).collect();
    let [pattern] = of(&log).patterns[..] else { panic!("one row") };
    assert!(!pattern.constant && pattern.below_4g);
    assert_eq!((pattern.alignment_bits, pattern.median_step), (6, Some(64)));
    let [pattern] = of(&fault(0x1000).repeat(5)).patterns[..] else { panic!("one row") };
    assert!(pattern.constant);
}

#[test]
fn events_are_counted_by_region() {
    let log = "nvidia 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0001 address=0x24000000000 flags=0x0020]\n\
               nvidia 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0001 address=0x24000001000 flags=0x0020]\n\
               nvidia 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0001 address=0x28000000000 flags=0x0020]\n";
    let regions = vec![
        Region { start: 0x240_0000_0000, end: 0x25f_ffff_ffff, tag: 7 },
        Region { start: 0x200_0000_0000, end: 0x23f_ffff_ffff, tag: 9 },
    ];
    let mut summary = Summary::with_regions(regions);
    let mut scanner = Scanner::new();
    scanner.feed(log.as_bytes(), &mut summary);
    scanner.finish(&mut summary);
    let report = summary.report();
    let [hits] = report.requesters[0].regions[..] else { panic!("{report:#?}") };
    assert_eq!((hits.tag, hits.count, hits.offset_lowest, hits.offset_highest), (7, 2, 0, 0x1000));
}
