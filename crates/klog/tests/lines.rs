//! Lines of every dialect, and what they mean. One `check` per line or group of lines.

#![expect(clippy::expect_used, reason = "writing to a string cannot fail")]
#![expect(clippy::needless_raw_string_hashes, reason = "as the tool that updates them writes them")]

use std::fmt::Write;

use expect_test::{Expect, expect};
use peerway_klog::{Event, Notice, Scanner, Sink};

/// Prints what is found, one line each, without what is absent.
#[derive(Default)]
struct Print(String);

impl Sink for Print {
    fn event(&mut self, event: &Event<'_>) {
        let mut text = vec![format!("{} {} {}", event.iommu, event.kind, event.requester)];
        if let Some(driver) = event.driver {
            text.push(format!("driver={driver}"));
        }
        if let Some(unit) = event.unit {
            text.push(format!("unit={unit}"));
        }
        if let Some(address) = event.address {
            text.push(format!("address={address}"));
        }
        let sure = if event.access.certain { "" } else { "?" };
        text.push(format!("{}{sure}", event.access.direction));
        let numbers = [
            ("flags", event.flags),
            ("rmp", event.rmp_flags),
            ("pasid", event.pasid),
            ("domain", event.domain),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                text.push(format!("{name}={value:#x}"));
            }
        }
        if let Some(reason) = event.reason {
            text.push(format!("reason={:#x} ({})", reason.code, reason.text));
        }
        if let Some(words) = event.words {
            text.push(format!("words={words:x?}"));
        }
        if event.cut {
            text.push("cut".to_owned());
        }
        writeln!(self.0, "{}", text.join(" ")).expect("to a string");
    }

    fn notice(&mut self, notice: &Notice<'_>) {
        let driver = notice.driver.map(|driver| format!(" driver={driver}")).unwrap_or_default();
        writeln!(self.0, "{:?}{driver}", notice.fact).expect("to a string");
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as the macro makes it")]
#[track_caller]
fn check(log: &str, expected: Expect) {
    let mut print = Print::default();
    let mut scanner = Scanner::new();
    scanner.feed(log.as_bytes(), &mut print);
    scanner.finish(&mut print);
    expected.assert_eq(&print.0);
}

#[test]
fn amd_page_faults() {
    check(
        "nvidia 0000:c1:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x001a address=0x28000001000 flags=0x0020]",
        expect![[r#"
            amd-vi io_page_fault 0000:c1:00.0 driver=nvidia address=0x28000001000 write? flags=0x20 domain=0x1a
        "#]],
    );
    check(
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:c1:00.0 domain=0x001a address=0x28000001000 flags=0x0000]",
        expect![[r#"
            amd-vi io_page_fault 0000:c1:00.0 address=0x28000001000 read? flags=0x0 domain=0x1a
        "#]],
    );
    check(
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=c1:00.0 domain=0x001a address=0x00000000fdf80000 flags=0x0070]",
        expect![[r#"
            amd-vi io_page_fault 0000:c1:00.0 address=0xfdf80000 write flags=0x70 domain=0x1a
        "#]],
    );
    check(
        "pci 10000:e1:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x001a address=0x1000 flags=0x0008]",
        expect![[r#"
            amd-vi io_page_fault 10000:e1:00.0 driver=pci address=0x1000 interrupt flags=0x8 domain=0x1a
        "#]],
    );
}

#[test]
fn the_iommus_own_function_is_no_requester() {
    check(
        "pci 0000:00:00.2: AMD-Vi: Event logged [IO_PAGE_FAULT device=41:00.0 domain=0x0001 address=0x0000000000001000 flags=0x0000]",
        expect![[r#"
            amd-vi io_page_fault 0000:41:00.0 address=0x1000 read? flags=0x0 domain=0x1
        "#]],
    );
}

#[test]
fn amd_events_in_several_messages() {
    check(
        "[   10.000001] AMD-Vi: Event logged [\n[   10.000009] INVALID_DEVICE_REQUEST device=00:00.2 address=0x000000fdf8000040 flags=0x0a00]",
        expect![[r#"
            amd-vi invalid_device_request 0000:00:00.2 address=0xfdf8000040 unknown? flags=0xa00
        "#]],
    );
    check(
        "AMD-Vi: Event logged [Device not attached to domain properly]\nAMD-Vi:   device=0000:41:00.0 domain=0x0003",
        expect![[r#"
            amd-vi device_not_attached 0000:41:00.0 unknown? domain=0x3
        "#]],
    );
    check(
        "iommu ivhd2: AMD-Vi: Event logged [ILLEGAL_DEV_TABLE_ENTRY device=0000:41:00.0 pasid=0x00000 address=0x4512a01000 flags=0x0020]\n\
         iommu ivhd2: AMD-Vi: Control Reg : 0xc22000142148d\n\
         AMD-Vi: DTE[0]: 6000000000000003\nAMD-Vi: DTE[1]: 0000000000000001\n\
         AMD-Vi: DTE[2]: 2000003088b3e013\nAMD-Vi: DTE[3]: 0000000000000000\n\
         nvidia 0000:41:00.0: probe with driver nvidia failed with error -1",
        expect![[r#"
            amd-vi illegal_dev_table_entry 0000:41:00.0 unit=ivhd2 address=0x4512a01000 unknown? flags=0x20 pasid=0x0 words=[6000000000000003, 1, 2000003088b3e013, 0]
            DeviceState { what: ProbeFailed, device: Some(0000:41:00.0) } driver=nvidia
        "#]],
    );
    check(
        "iommu ivhd0: AMD-Vi: Event logged [ILLEGAL_COMMAND_ERROR address=0x100244800]\n\
         AMD-Vi: CMD[0]: 00000000\nAMD-Vi: CMD[1]: 00000010\nAMD-Vi: CMD[2]: 00000000\nAMD-Vi: CMD[3]: 00000000",
        expect![[r#"
            amd-vi illegal_command_error unknown unit=ivhd0 address=0x100244800 unknown? words=[0, 10, 0, 0]
        "#]],
    );
}

#[test]
fn amd_events_about_tables_and_queues() {
    check(
        "iommu ivhd0: AMD-Vi: Event logged [DEV_TAB_HARDWARE_ERROR device=0000:41:00.0 address=0xfffff000 flags=0x0000]",
        expect![[r#"
            amd-vi dev_tab_hardware_error 0000:41:00.0 unit=ivhd0 address=0xfffff000 unknown? flags=0x0
        "#]],
    );
    check(
        "iommu ivhd0: AMD-Vi: Event logged [PAGE_TAB_HARDWARE_ERROR device=0000:41:00.0 pasid=0x0000 address=0xfffff000 flags=0x0030]",
        expect![[r#"
            amd-vi page_tab_hardware_error 0000:41:00.0 unit=ivhd0 address=0xfffff000 write flags=0x30 pasid=0x0
        "#]],
    );
    check(
        "iommu ivhd0: AMD-Vi: Event logged [COMMAND_HARDWARE_ERROR address=0xfffff000 flags=0x0000]",
        expect![[r#"
            amd-vi command_hardware_error unknown unit=ivhd0 address=0xfffff000 unknown? flags=0x0
        "#]],
    );
    check(
        "AMD-Vi: Completion-Wait loop timed out\n\
         iommu ivhd0: AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=0000:41:00.0 address=0x40fb46400]",
        expect![[r#"
            IommuStuck
            amd-vi iotlb_inv_timeout 0000:41:00.0 unit=ivhd0 address=0x40fb46400 unknown?
        "#]],
    );
    check(
        "iommu ivhd0: AMD-Vi: Event logged [INVALID_PPR_REQUEST device=0000:41:00.0 pasid=0x00012 address=0x7f00 flags=0x0001 tag=0x00a]",
        expect![[r#"
            amd-vi invalid_ppr_request 0000:41:00.0 unit=ivhd0 address=0x7f00 unknown? flags=0x1 pasid=0x12
        "#]],
    );
    check(
        "iommu ivhd0: AMD-Vi: Event logged [UNKNOWN event[0]=0x0000000a event[1]=0x00000001 event[2]=0x00000002 event[3]=0x00000003",
        expect![[r#"
            amd-vi amd_unknown unknown unit=ivhd0 unknown? words=[a, 1, 2, 3]
        "#]],
    );
}

#[test]
fn reverse_map_faults() {
    check(
        "vfio-pci 0000:a1:00.0: AMD-Vi: Event logged [RMP_PAGE_FAULT vmg_tag=0x0000, gpa=0x53ab0000, flags_rmp=0x0000, flags=0x0020]",
        expect![[r#"
            amd-vi rmp_page_fault 0000:a1:00.0 driver=vfio-pci address=0x53ab0000 write? flags=0x20 rmp=0x0
        "#]],
    );
    check(
        "AMD-Vi: Event logged [RMP_PAGE_FAULT device=0000:a1:00.0, vmg_tag=0x0002, gpa=0x53ab0000, flags_rmp=0x0001, flags=0x0030]",
        expect![[r#"
            amd-vi rmp_page_fault 0000:a1:00.0 address=0x53ab0000 write flags=0x30 rmp=0x1
        "#]],
    );
    check(
        "AMD-Vi: Event logged [RMP_HW_ERROR device=0000:a1:00.0, vmg_tag=0x0002, spa=0x53ab0000, flags=0x0000]",
        expect![[r#"
            amd-vi rmp_hw_error 0000:a1:00.0 address=0x53ab0000 read? flags=0x0
        "#]],
    );
}

#[test]
fn vtd_from_old_to_new() {
    check(
        "dmar: DRHD: handling fault status reg 2\ndmar: DMAR:[DMA Read] Request device [03:00.0] fault addr ffaea000 \nDMAR:[fault reason 06] PTE Read access is not set",
        expect![[r#"
            vt-d dma_fault 0000:03:00.0 address=0xffaea000 read reason=0x6 (PTE Read access is not set)
        "#]],
    );
    check(
        "DMAR: [DMA Write] Request device [03:00.0] fault addr fd000000 [fault reason 05] PTE Write access is not set",
        expect![[r#"
            vt-d dma_fault 0000:03:00.0 address=0xfd000000 write reason=0x5 (PTE Write access is not set)
        "#]],
    );
    check(
        "DMAR: [DMA Write] Request device [03:00.0] PASID ffffffff fault addr fd000000 [fault reason 12] non-zero reserved fields in PTE",
        expect![[r#"
            vt-d dma_fault 0000:03:00.0 address=0xfd000000 write reason=0xc (non-zero reserved fields in PTE)
        "#]],
    );
    check(
        "DMAR: [DMA Read NO_PASID] Request device [0x03:0x00.0] fault addr 0xfd000000 [fault reason 0x06] PTE Read access is not set",
        expect![[r#"
            vt-d dma_fault 0000:03:00.0 address=0xfd000000 read reason=0x6 (PTE Read access is not set)
        "#]],
    );
    check(
        "DMAR: [DMA Read NO_PASID] Request device [03:00.0] fault addr 0xfd000000 [fault reason 0x06] PTE Read access is not set",
        expect![[r#"
            vt-d dma_fault 0000:03:00.0 address=0xfd000000 read reason=0x6 (PTE Read access is not set)
        "#]],
    );
    check(
        "DMAR: [DMA Read NO_PASID] Request device [0001:03:00.0] fault addr 0xfd000000 [fault reason 0x06] PTE Read access is not set",
        expect![[r#"
            vt-d dma_fault 0001:03:00.0 address=0xfd000000 read reason=0x6 (PTE Read access is not set)
        "#]],
    );
    check(
        "DMAR: [DMA Write PASID 0x2b] Request device [03:00.0] fault addr 0x7f7f00001000 [fault reason 0x61] SM: A reason of the future",
        expect![[r#"
            vt-d dma_fault 0000:03:00.0 address=0x7f7f00001000 write pasid=0x2b reason=0x61 (SM: A reason of the future)
        "#]],
    );
    check(
        "DMAR: [DMA Read] Request device [6a:01.0] PASID 1f\n               fault addr 7f7f00001000 [fault reason 113]\n               SM: Present bit in first-level paging entry is clear",
        expect![[r#"
            vt-d dma_fault 0000:6a:01.0 address=0x7f7f00001000 read pasid=0x1f reason=0x71 (SM: Present bit in first-level paging entry is clear)
        "#]],
    );
}

#[test]
fn vtd_interrupts_and_queues() {
    check(
        "DMAR: [INTR-REMAP] Request device [f0:1f.7] fault index 0x8000 [fault reason 0x25] Blocked a compatibility format interrupt request",
        expect![[r#"
            vt-d interrupt_remap_fault 0000:f0:1f.7 interrupt reason=0x25 (Blocked a compatibility format interrupt request)
        "#]],
    );
    check(
        "dmar: INTR-REMAP: Request device [[00:1f.7] fault index 1c\nINTR-REMAP:[fault reason 38] Blocked an interrupt request due to source-id verification failure",
        expect![[r#"
            vt-d interrupt_remap_fault 0000:00:1f.7 interrupt reason=0x26 (Blocked an interrupt request due to source-id verification failure)
        "#]],
    );
    check(
        "DMAR: VT-d detected Invalidation Queue Error: Reason f",
        expect![[r#"
        vt-d invalidation_queue_error unknown unknown? flags=0xf
    "#]],
    );
    check(
        "DMAR: VT-d detected Invalidation Time-out Error: SID 4100",
        expect![[r#"
        vt-d invalidation_timeout 0000:41:00.0 unknown?
    "#]],
    );
    check(
        "DMAR: VT-d detected Invalidation Completion Error: SID 0",
        expect![[r#"
        vt-d invalidation_completion_error 0000:00:00.0 unknown?
    "#]],
    );
}

#[test]
fn arm_smmus() {
    check(
        "arm-smmu-v3 fc900000.iommu: event 0x10 received:\narm-smmu-v3 fc900000.iommu: \t0x0000300000000010\n\
         arm-smmu-v3 fc900000.iommu: \t0x0000020800000000\narm-smmu-v3 fc900000.iommu: \t0x00000000fe200000\n\
         arm-smmu-v3 fc900000.iommu: \t0x0000000000000000",
        expect![[r#"
            smmu-v3 f_translation stream 0x3000 unit=fc900000.iommu address=0xfe200000 read words=[300000000010, 20800000000, fe200000, 0]
        "#]],
    );
    check(
        "arm-smmu-v3 arm-smmu-v3.1.auto: event 0x13 received:\narm-smmu-v3 arm-smmu-v3.1.auto: \t0x0000300000000013\n\
         arm-smmu-v3 arm-smmu-v3.1.auto: \t0x0000020000000000\narm-smmu-v3 arm-smmu-v3.1.auto: \t0x00000000fe200000\n\
         arm-smmu-v3 arm-smmu-v3.1.auto: \t0x0000000000000000\n\
         arm-smmu-v3 arm-smmu-v3.1.auto: event: F_PERMISSION client: 0003:30:00.0 sid: 0x3000 ssid: 0x0 iova: 0xfe200000 ipa: 0x0\n\
         arm-smmu-v3 arm-smmu-v3.1.auto: unpriv data write s1 \"Input address caused fault\" stag: 0x0",
        expect![[r#"
            smmu-v3 f_permission 0003:30:00.0 unit=arm-smmu-v3.1.auto address=0xfe200000 write words=[300000000013, 20000000000, fe200000, 0]
        "#]],
    );
    check(
        "arm-smmu-v3 smmu0: event: C_BAD_STE client: (unassigned sid) sid: 0x77 ssid: 0x0\n\
         arm-smmu-v3 smmu0: event: F_CD_FETCH client: fd000000.gpu sid: 0x8 ssid: 0x1 fetch_addr: 0x8000",
        expect![[r#"
            smmu-v3 c_bad_ste stream 0x77 unit=smmu0 unknown?
            smmu-v3 f_cd_fetch fd000000.gpu unit=smmu0 unknown? pasid=0x1
        "#]],
    );
    check(
        "arm-smmu 5000000.iommu: Unhandled context fault: fsr=0x402, iova=0x9c400000, fsynr=0x11, cbfrsynra=0x1420, cb=3",
        expect![[r#"
            smmu-v2 context_fault stream 0x1420 unit=5000000.iommu address=0x9c400000 write flags=0x402
        "#]],
    );
    check(
        "arm-smmu 5000000.iommu: Unexpected global fault, this could be serious\n\
         arm-smmu 5000000.iommu: \tGFSR 0x80000002, GFSYNR0 0x00000000, GFSYNR1 0x00000880, GFSYNR2 0x00000000",
        expect![[r#"
            smmu-v2 global_fault stream 0x880 unit=5000000.iommu unknown? flags=0x80000002
        "#]],
    );
    check(
        "arm-smmu-v3 smmu0: EVTQ overflow detected -- events lost",
        expect![[r#"
        EventsLost(Overflow)
    "#]],
    );
}

#[test]
fn two_smmus_at_once_do_not_mix() {
    check(
        "arm-smmu-v3 a.iommu: event 0x10 received:\narm-smmu-v3 b.iommu: event 0x12 received:\n\
         arm-smmu-v3 a.iommu: \t0x0000010000000010\narm-smmu-v3 b.iommu: \t0x0000020000000012\n\
         arm-smmu-v3 a.iommu: \t0x0000020800000000\narm-smmu-v3 b.iommu: \t0x0000020000000000\n\
         arm-smmu-v3 a.iommu: \t0x000000000000a000\narm-smmu-v3 b.iommu: \t0x000000000000b000\n\
         arm-smmu-v3 b.iommu: \t0x0000000000000000\narm-smmu-v3 a.iommu: \t0x0000000000000000",
        expect![[r#"
            smmu-v3 f_translation stream 0x100 unit=a.iommu address=0xa000 read words=[10000000010, 20800000000, a000, 0]
            smmu-v3 f_access stream 0x200 unit=b.iommu address=0xb000 write words=[20000000012, 20000000000, b000, 0]
        "#]],
    );
}

#[test]
fn xen() {
    check(
        "(XEN) AMD-Vi: IO_PAGE_FAULT: 0000:21:00.0 d0 addr 00000000fdf80000 flags 0x30 RW PR",
        expect![[r#"
            amd-vi io_page_fault 0000:21:00.0 address=0xfdf80000 write flags=0x30
        "#]],
    );
    check(
        "(XEN) AMD-Vi: IO_PAGE_FAULT: domain = 0, device id = 0x2100, fault address = 0xfdf8000020, flags = 0x08",
        expect![[r#"
            amd-vi io_page_fault 0000:21:00.0 address=0xfdf8000020 interrupt flags=0x8 domain=0x0
        "#]],
    );
    check(
        "(XEN) [VT-D]DMAR:[DMA Write] Request device [0000:02:00.0] fault addr 3fc000000\n(XEN) [VT-D]DMAR: reason 05 - PTE Write access is not set",
        expect![[r#"
            vt-d dma_fault 0000:02:00.0 address=0x3fc000000 write reason=0x5 (PTE Write access is not set)
        "#]],
    );
    check("(XEN) Command line: placeholder iommu=no", expect![[""]]);
}

#[test]
fn cut_wrapped_and_run_together() {
    // Cut after a whole field, and inside one: half an address is no address.
    check(
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=01:00.0 domain=0x0014 address=0x0000000000001000",
        expect![[r#"
            amd-vi io_page_fault 0000:01:00.0 address=0x1000 unknown? domain=0x14 cut
        "#]],
    );
    check(
        "nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0014 address=0x2400",
        expect![[r#"
            amd-vi io_page_fault 0000:41:00.0 driver=nvidia unknown? domain=0x14 cut
        "#]],
    );
    check(
        "DMAR: [DMA Write NO_PASID] Request device [01:00.0] fault addr 0x28000",
        expect![[r#"
        vt-d dma_fault 0000:01:00.0 write cut
    "#]],
    );
    check(
        "DMAR: [DMA Write NO_PASID] Request device [01:00.0] fault addr 0x2800000000 [fault rea",
        expect![[r#"
            vt-d dma_fault 0000:01:00.0 address=0x2800000000 write cut
        "#]],
    );
    // The front is gone.
    check(
        "IO_PAGE_FAULT device=05:00.0 domain=0x0012 address=0x00000000ff6102c0 flags=0x0070",
        expect![[r#"
            amd-vi io_page_fault 0000:05:00.0 address=0xff6102c0 write flags=0x70 domain=0x12 cut
        "#]],
    );
    check(
        "rite NO_PASID] Request device [01:00.0] fault addr 0x2800000000 [fault reason 0x05] PTE Write access is not set",
        expect![[r#"
            vt-d dma_fault 0000:01:00.0 address=0x2800000000 unknown? reason=0x5 (PTE Write access is not set)
        "#]],
    );
    // Wrapped by a mail program.
    check(
        "[    1.000000] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0018\naddress=0x4d7201000 flags=0x0020]",
        expect![[r#"
            amd-vi io_page_fault 0000:41:00.0 driver=nvidia address=0x4d7201000 write? flags=0x20 domain=0x18
        "#]],
    );
    // Without the line feed between two.
    check(
        "nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0018 address=0x1000 flags=0x0020]nvidia 0000:42:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0019 address=0x2000 flags=0x0000]",
        expect![[r#"
            amd-vi io_page_fault 0000:41:00.0 driver=nvidia address=0x1000 write? flags=0x20 domain=0x18
            amd-vi io_page_fault 0000:41:00.0 driver=nvidia address=0x1000 write? flags=0x20 domain=0x18
            amd-vi io_page_fault 0000:42:00.0 driver=nvidia address=0x2000 read? flags=0x0 domain=0x19
        "#]],
    );
    check(
        "x hardware restart was requested[ 2545.370652] nvidia 0000:42:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0019 address=0x2000 flags=0x0000]",
        expect![[r#"
            amd-vi io_page_fault 0000:42:00.0 driver=nvidia address=0x2000 read? flags=0x0 domain=0x19
        "#]],
    );
}

#[test]
fn what_is_no_fault() {
    // A quotation, a program's own line, another process's record, a search for it.
    check(
        "AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x.... address=0x... flags=0x....]",
        expect![[""]],
    );
    check(
        "Nov 30 16:52:04 host watcher[71]: nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0014 address=0x2400 flags=0x0000]",
        expect![[""]],
    );
    check(
        "12,7,1000,-;nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0014 address=0x2400 flags=0x0000]",
        expect![[""]],
    );
    check(
        "{\"_TRANSPORT\":\"syslog\",\"MESSAGE\":\"DMAR: [DMA Read NO_PASID] Request device [03:00.0] fault addr 0xfd000000 [fault reason 0x06] PTE Read access is not set\"}",
        expect![[""]],
    );
    check("root: COMMAND=/usr/bin/grep -c IO_PAGE_FAULT /var/log/kern.log", expect![[""]]);
    check("DMAR: DRHD: handling fault status reg 3", expect![[""]]);
    check("usb usb1: Manufacturer: Linux 6.9.0-snp-host xhci-hcd", expect![[""]]);
}

#[test]
fn rate_limits() {
    check(
        "amd_iommu_report_page_fault: 10432 callbacks suppressed",
        expect![[r#"
        Suppressed { function: "amd_iommu_report_page_fault", count: 10432, iommu_events: true }
    "#]],
    );
    check(
        "dmar_fault: 29 callbacks suppressed",
        expect![[r#"
        Suppressed { function: "dmar_fault", count: 29, iommu_events: true }
    "#]],
    );
    check(
        "arm_smmu_evtq_thread: 5 callbacks suppressed\narm_smmu_context_fault: 6 callbacks suppressed",
        expect![[r#"
            Suppressed { function: "arm_smmu_evtq_thread", count: 5, iommu_events: true }
            Suppressed { function: "arm_smmu_context_fault", count: 6, iommu_events: true }
        "#]],
    );
    // Overflow messages, not events; and nothing of the IOMMU at all.
    check(
        "amd_iommu_int_thread: 27 callbacks suppressed",
        expect![[r#"
        Suppressed { function: "amd_iommu_int_thread", count: 27, iommu_events: false }
    "#]],
    );
    check(
        "show_signal_msg: 14 callbacks suppressed",
        expect![[r#"
        Suppressed { function: "show_signal_msg", count: 14, iommu_events: false }
    "#]],
    );
    check(
        "AMD-Vi: IOMMU event log overflow\nAMD-Vi: IOMMU Event log restarting",
        expect![[r#"
        EventsLost(Overflow)
        EventsLost(Restart)
    "#]],
    );
}

#[test]
fn boot_lines() {
    check(
        "[    0.000000] Linux version 6.8.12-9-pve (build@host) (gcc 12.2.0)\n[    0.000000] Command line: BOOT_IMAGE=/boot/vmlinuz ro iommu=pt",
        expect![[r#"
            Boot { release: "6.8.12-9-pve" }
            CommandLine { parameters: "BOOT_IMAGE=/boot/vmlinuz ro iommu=pt" }
        "#]],
    );
    check(
        "iommu: Default domain type: Passthrough (set via kernel command line)\niommu: Default domain type: Translated \niommu: DMA domain TLB invalidation policy: lazy mode",
        expect![[r#"
            Banner(DefaultPassthroughByCommandLine)
            Banner(DefaultTranslated)
            Banner(Lazy)
        "#]],
    );
    check(
        "DMAR: IOMMU disabled\nDMAR: Intel-IOMMU force enabled due to platform opt in\nDMAR: Intel(R) Virtualization Technology for Directed I/O",
        expect![[r#"
            Banner(VtdDisabled)
            Banner(VtdForcedByPlatform)
            Banner(VtdActive)
        "#]],
    );
    check(
        "AMD-Vi: Unknown option - 'on'\nAMD-Vi: Interrupt remapping enabled\nPCI-DMA: using GART IOMMU.",
        expect![[r#"
            Banner(AmdUnknownOption)
            Banner(AmdActive)
            Banner(Gart)
        "#]],
    );
    check(
        "pci 0000:41:00.0: Adding to iommu group 20\npci 10000:e1:00.0: Adding to iommu group 21\nnvidia 0000:41:00.0: Removing from iommu group 20",
        expect![[r#"
            GroupJoined { device: 0000:41:00.0, group: 20 } driver=pci
            GroupJoined { device: 10000:e1:00.0, group: 21 } driver=pci
            GroupLeft { device: 0000:41:00.0, group: 20 } driver=nvidia
        "#]],
    );
    check(
        "iommu: Adding device 0000:41:00.0 to group 7\niommu: Removing device 0000:41:00.0 from group 7\nAMD-Vi: Initialized for Passthrough Mode",
        expect![[r#"
            GroupJoined { device: 0000:41:00.0, group: 7 }
            GroupLeft { device: 0000:41:00.0, group: 7 }
            Banner(AmdPassthrough)
        "#]],
    );
    check(
        "pci 0000:41:00.0: [10de:2bb5] type 00 class 0x030200 PCIe Endpoint\npci 0000:41:00.0: BAR 0 [mem 0x80000000-0x83ffffff]\npci 0000:41:00.0: reg 0x1c: [mem 0x2000000000-0x200fffffff 64bit pref]\npci 0000:41:00.0: VF BAR 0 [mem 0x1000-0x1fff]",
        expect![[r#"
            DeviceFound { device: 0000:41:00.0, id: 10de:2bb5, class: 197120 } driver=pci
            Bar { device: 0000:41:00.0, index: 0, state: Found, start: Some(0x80000000), size: Some(67108864) } driver=pci
            Bar { device: 0000:41:00.0, index: 3, state: Found, start: Some(0x2000000000), size: Some(268435456) } driver=pci
            DriverSeen { device: 0000:41:00.0 } driver=pci
        "#]],
    );
    check(
        "pci 0000:41:00.0: BAR 1: no space for [mem size 0x800000000 64bit pref]\npci 0000:41:00.0: BAR 1 [mem size 0x800000000 64bit pref]: failed to assign\npci 0000:41:00.0: BAR 14: no space for [mem size 0x100000]",
        expect![[r#"
            Bar { device: 0000:41:00.0, index: 1, state: NoSpace, start: None, size: Some(34359738368) } driver=pci
            Bar { device: 0000:41:00.0, index: 1, state: Failed, start: None, size: Some(34359738368) } driver=pci
            DriverSeen { device: 0000:41:00.0 } driver=pci
        "#]],
    );
}

#[test]
fn boots_are_counted() {
    let boots = |log: &str| {
        let mut scanner = Scanner::new();
        scanner.feed(log.as_bytes(), &mut ());
        scanner.finish(&mut ());
        scanner.boot()
    };
    let version = "[    0.000000] Linux version 6.8.0 (x)\n";
    assert_eq!(boots(version), 0);
    assert_eq!(boots(&format!("usb 1-1: x\nusb 1-1: y\n{version}")), 1);
    assert_eq!(boots(&format!("{version}usb 1-1: x\n{version}")), 1);
    let mark = "-- Boot 0123456789abcdef --\n";
    assert_eq!(boots(&format!("{mark}{version}usb 1-1: x\n{mark}{version}{mark}usb 1-1: x\n")), 2);
}

#[test]
fn snp_and_memory_encryption() {
    check(
        "SEV-SNP: RMP table physical range [0x0000007e80000000 - 0x0000007f9fffffff]\nAMD-Vi: IOMMU SNP support enabled.\nAMD-Vi: Extended features (0xa5bf7320a2294aee, 0x1d): PPR X2APIC NX SNP\nccp 0000:02:00.5: SEV API:1.55 build:40\nccp 0000:02:00.5: SEV-SNP API:1.55 build:40\nkvm_amd: SEV-SNP enabled (ASIDs 1 - 99)",
        expect![[r#"
            Platform { state: RmpReserved, device: None }
            Platform { state: SnpIommuEnabled, device: None }
            Platform { state: AmdFeatures, device: None }
            Platform { state: SevFirmware, device: Some(0000:02:00.5) } driver=ccp
            Platform { state: SnpFirmware, device: Some(0000:02:00.5) } driver=ccp
            Platform { state: KvmSnpEnabled, device: None }
        "#]],
    );
    check(
        "AMD-Vi: SNP: IOMMU disabled or configured in passthrough mode, SNP cannot be supported.\nAMD-Vi: SNP: IOMMU disabled, SNP cannot be supported.\nAMD-Vi: SNP: IOMMU is configured with V2 page table mode, SNP cannot be supported.\nAMD-Vi: SNP: IOMMU SNP feature not enabled, SNP cannot be supported.\nAMD-Vi: SNP: RMP initialization failed, SNP cannot be supported.",
        expect![[r#"
            Platform { state: SnpOffPassthrough, device: None }
            Platform { state: SnpOffIommuOff, device: None }
            Platform { state: SnpOffPageTables, device: None }
            Platform { state: SnpOffFeature, device: None }
            Platform { state: SnpOffRmp, device: None }
        "#]],
    );
    check(
        "SEV-SNP: Memory for the RMP table has not been reserved by BIOS\nSEV-SNP: Memory reserved for the RMP table does not cover full system RAM (expected 0x1 got 0x2)",
        expect![[r#"
            Platform { state: RmpNotReserved, device: None }
            Platform { state: RmpTooSmall, device: None }
        "#]],
    );
    check(
        "Memory Encryption Features active: AMD SME\nMemory Encryption Features active: AMD SEV SEV-ES SEV-SNP\nccp 0000:02:00.5: psp: TSME enabled\niommu: Memory encryption detected - Disabling default IOMMU Passthrough",
        expect![[r#"
            Platform { state: SmeActive, device: None }
            Platform { state: SevGuest, device: None }
            Platform { state: TsmeActive, device: Some(0000:02:00.5) } driver=ccp
            Banner(PassthroughOffByEncryption)
        "#]],
    );
}

#[test]
fn nvidia_lines() {
    check(
        "NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python, GPU has fallen off the bus.\nNVRM: Xid (PCI:0000:41:00 GPU-I:05): 31, pid=77, name=x, MMU Fault: ENGINE CE3 faulted @ 0x7f12_00001000. Fault is of type FAULT_PTE",
        expect![[r#"
            Xid { device: 0000:41:00.0, number: 79, address: None } driver=nvidia
            Xid { device: 0000:41:00.0, number: 31, address: Some(0x7f1200001000) } driver=nvidia
        "#]],
    );
    check(
        "nvidia-nvswitch2: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        expect![[r#"
            Sxid { device: 0000:05:00.0, number: 20034, fatal: Some(true) } driver=nvidia-nvswitch
        "#]],
    );
    check(
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x@y)\nNVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19",
        expect![[r#"
            NvidiaDriver { version: "580.159.04", open: true } driver=nvidia
            NvidiaDriver { version: "535.129.03", open: false } driver=nvidia
        "#]],
    );
    check(
        "NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x62:0x65:1792)\nNVRM: GPU 0000:41:00.0: rm_init_adapter failed, device minor number 2",
        expect![[r#"
            NvidiaInitFailed { device: 0000:41:00.0, stage: 98, status: 101 } driver=nvidia
            NvidiaInit { stage: Open, device: Some(0000:41:00.0) } driver=nvidia
        "#]],
    );
    check(
        "NVRM: kfspPollForQueueEmpty_IMPL: Timed out waiting for FSP command queue to be empty.\nNVRM: GPU0 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP\nNVRM: gpuWaitForGfwBootComplete_TU102: failed to wait for GFW_BOOT: (progress 0x3)\nNVRM: kfspSendBootCommands_GH100: FSP boot cmds failed. RM cannot boot.",
        expect![[r#"
            NvidiaInit { stage: FspQueue, device: None } driver=nvidia
            NvidiaInit { stage: Wpr2, device: None } driver=nvidia
            NvidiaInit { stage: GfwBoot, device: None } driver=nvidia
            NvidiaInit { stage: FspBootCommand, device: None } driver=nvidia
        "#]],
    );
    check(
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR1 is 0M @ 0x0 (PCI:0000:41:00.0)\nNVRM: The peer DMA address 0x1800400000 is not aligned at 0x20000000\nNVRM: IOMMU mapping failed from GPU1 to GPU0",
        expect![[r#"
            Bar { device: 0000:41:00.0, index: 1, state: Invalid, start: Some(0x0), size: Some(0) } driver=nvidia
            Nvidia { what: PeerAlignment, device: None, address: Some(0x1800400000) } driver=nvidia
            Nvidia { what: PeerMapFailed, device: None, address: None } driver=nvidia
        "#]],
    );
    check(
        "NVRM: GPU 0000:41:00.0 is already bound to vfio-pci.\nNVRM: Attempting to remove device 0000:41:00.0 with non-zero usage count!\nNVRM: iovaspaceDestruct_IMPL: 4 left-over mappings in IOVAS 0x3e00",
        expect![[r#"
            Nvidia { what: AlreadyBound, device: Some(0000:41:00.0), address: None } driver=nvidia
            Nvidia { what: UnbindWaits, device: Some(0000:41:00.0), address: None } driver=nvidia
            Nvidia { what: CleanupNoise, device: None, address: None } driver=nvidia
        "#]],
    );
}

#[test]
fn other_device_lines() {
    check(
        "vfio-pci 0000:41:00.0: Unable to change power state from D3cold to D0, device inaccessible\nvfio-pci 0000:41:00.0: not ready 1023ms after FLR; waiting\nvfio-pci 0000:41:00.0: not ready 65535ms after FLR; giving up\nvfio-pci 0000:41:00.0: Relaying device request to user (#3)",
        expect![[r#"
            DeviceState { what: StuckInD3Cold, device: Some(0000:41:00.0) } driver=vfio-pci
            DeviceState { what: NotReady, device: Some(0000:41:00.0) } driver=vfio-pci
            DeviceState { what: ResetFailed, device: Some(0000:41:00.0) } driver=vfio-pci
            DeviceState { what: VfioReleaseAsked, device: Some(0000:41:00.0) } driver=vfio-pci
        "#]],
    );
    check(
        "nvidia: probe of 0000:41:00.0 failed with error -1\npci 0000:41:00.0: probe with driver nvidia failed with error -1",
        expect![[r#"
            DeviceState { what: ProbeFailed, device: Some(0000:41:00.0) } driver=nvidia
            DeviceState { what: ProbeFailed, device: Some(0000:41:00.0) } driver=nvidia
        "#]],
    );
    check(
        "pcieport 0000:40:01.1: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Receiver ID)\npcieport 0000:40:01.1:    [21] ACSViol                (First)\npcieport 0000:40:01.1: pciehp: Slot(3): Link Down",
        expect![[r#"
            PcieError { what: NonFatal, device: Some(0000:40:01.1) } driver=pcieport
            PcieError { what: AcsViolation, device: Some(0000:40:01.1) } driver=pcieport
            PcieError { what: LinkDown, device: Some(0000:40:01.1) } driver=pcieport
        "#]],
    );
    check(
        "xe 0000:07:00.0: cannot be used for peer-to-peer DMA as the client and provider (0000:03:00.0) do not share an upstream bridge or whitelisted host bridge\npci 0000:07:00.0: ACS redirect is set between the client and provider (0000:00:06.0)",
        expect![[r#"
            PeerDma { what: NoSharedBridge, client: Some(0000:07:00.0), provider: Some(0000:03:00.0) } driver=xe
            PeerDma { what: AcsRedirect, client: Some(0000:07:00.0), provider: Some(0000:00:06.0) } driver=pci
        "#]],
    );
    check(
        "pci 0000:40:01.1: Configured ACS to 0x0011\nWarning: PCIe ACS overrides enabled; This may allow non-IOMMU protected peer-to-peer DMA",
        expect![[r#"
            Acs { what: Configured, device: Some(0000:40:01.1) } driver=pci
            Acs { what: OverridePretends, device: None }
        "#]],
    );
    check(
        "amdgpu 0000:74:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32771)\namdgpu 0000:74:00.0: amdgpu:   in page starting at address 0x0000717e0fb08000 from client 0x1b (UTCL2)\namdgpu 0000:74:00.0: amdgpu: SDMA gets an Register Write SRBM_WRITE command in non-privilege command buffer",
        expect![[r#"
            Gpu { what: MmuFault, device: Some(0000:74:00.0), address: None } driver=amdgpu
            Gpu { what: MmuFaultAddress, device: Some(0000:74:00.0), address: Some(0x717e0fb08000) } driver=amdgpu
            Gpu { what: CopyEngine, device: Some(0000:74:00.0), address: None } driver=amdgpu
        "#]],
    );
    check(
        "ixgbe 0000:03:00.0 enp3s0: Detected Tx Unit Hang\niommu: Cannot change default domain: Group has more than one device",
        expect![[r#"
            DriverSeen { device: 0000:03:00.0 } driver=ixgbe
            DomainRefused { device: None, why: SeveralDevices }
        "#]],
    );
}

#[test]
fn lost_records_of_kmsg_are_counted() {
    check(
        "6,10,1000,-;usb 1-1: new device\n SUBSYSTEM=usb\n DEVICE=c189:1\n6,11,1100,-;DMAR: IOMMU disabled\n6,15,1200,c;usb 1-1: x\n6,16,1300,-;usb 1-1: y",
        expect![[r#"
            Banner(VtdDisabled)
            RecordsLost { count: 3 }
        "#]],
    );
}
