//! The table of words (`Documentation/admin-guide/kernel-parameters.txt`; `drivers/iommu/amd/init.c`,
//! `parse_amd_iommu_options`; `drivers/iommu/intel/iommu.c`, `intel_iommu_setup`;
//! `arch/x86/kernel/pci-dma.c`, `iommu_setup`; `drivers/pci/pci.c`, `pci_setup`).

use super::Effect::{
    self, Addresses, AtsOff, Binding, ClearsRedirect, DisablesSnp, Display, Firmware, Flush,
    Interrupts, IommuOff, Link, Lockdown, Log, NoEffect, NoSuchOption, NvidiaParameter,
    PassThrough, PretendsIsolation, Processors, SetsAcs, Sev, Sme, SmeOff, Snp, TableForm,
    Translates,
};
use super::{Meaning, same_key, switch};

/// Which values of a parameter an entry is about.
enum Value {
    /// Every value, and none.
    Any,
    /// This one.
    Is(&'static str),
    /// All that begin so.
    Begins(&'static str),
    /// On, in any spelling of the kernel's.
    On,
    /// Off, in any spelling of the kernel's.
    Off,
}

struct Entry {
    key: &'static str,
    value: Value,
    meaning: Meaning,
}

const fn entry(
    key: &'static str,
    value: Value,
    effects: &'static [Effect],
    text: &'static str,
) -> Entry {
    Entry { key, value, meaning: Meaning { effects, text, since: None } }
}

const fn since(entry: Entry, major: u32, minor: u32) -> Entry {
    let Entry { key, value, meaning: Meaning { effects, text, .. } } = entry;
    Entry { key, value, meaning: Meaning { effects, text, since: Some((major, minor)) } }
}

/// A word that does not bear on this program.
const UNRELATED: Meaning = Meaning { effects: &[], text: "", since: None };

/// An item of a list whose words are all in the table.
const NO_SUCH_ITEM: Meaning = Meaning {
    effects: &[NoSuchOption],
    text: "no option: the kernel knows no such word here and ignores it",
    since: None,
};

/// What follows a list of devices that was written with commas.
const CUT_LIST: Meaning = Meaning {
    effects: &[NoSuchOption],
    text: "no option: a comma ends the list of devices before it; the kernel separates them with ;",
    since: None,
};

/// Parameters whose value is a list of words.
const LISTS: [&str; 7] = ["amd_iommu", "iommu", "intel_iommu", "pci", "sev", "efi", "intremap"];

/// Lists of which every word is in the table.
const CLOSED: [&str; 4] = ["amd_iommu", "iommu", "intel_iommu", "sev"];

pub(super) fn is_list(key: &str) -> bool {
    LISTS.iter().any(|list| same_key(list, key))
}

/// What a parameter with this value does.
pub(super) fn meaning(key: &str, value: Option<&str>) -> Meaning {
    let text = value.unwrap_or_default();
    let found = ENTRIES.iter().find(|entry| {
        let same = match entry.key.strip_suffix('*') {
            Some(stem) => key.get(..stem.len()).is_some_and(|front| same_key(front, stem)),
            None => same_key(entry.key, key),
        };
        same && match entry.value {
            Any => true,
            Is(word) => text == word,
            Begins(word) => text.starts_with(word),
            On => switch(text) == Some(true),
            Off => switch(text) == Some(false),
        }
    });
    found.map_or(UNRELATED, |entry| entry.meaning)
}

/// What an item of a list does; `before` is the item that it follows.
pub(super) fn item_meaning(key: &str, item: &str, before: Option<&str>) -> Meaning {
    let meaning = meaning(key, Some(item));
    if meaning.is_relevant() {
        return meaning;
    }
    let is_device = item.contains(':') && item.contains('.');
    let after_list = before.is_some_and(|before| {
        before.starts_with("disable_acs_redir=")
            || before.starts_with("config_acs=")
            || before.contains(':')
    });
    if is_device && after_list {
        CUT_LIST
    } else if CLOSED.iter().any(|list| same_key(list, key)) {
        NO_SUCH_ITEM
    } else {
        UNRELATED
    }
}

use Value::{Any, Begins, Is, Off, On};

static ENTRIES: &[Entry] = &[
    // AMD-Vi takes its words by their beginning.
    entry(
        "amd_iommu",
        Begins("off"),
        &[IommuOff, DisablesSnp],
        "AMD-Vi is not driven; host SNP is off with it",
    ),
    entry(
        "amd_iommu",
        Begins("fullflush"),
        &[Flush],
        "older name of iommu.strict=1: strict invalidation",
    ),
    entry(
        "amd_iommu",
        Begins("force_enable"),
        &[NoEffect],
        "drives the IOMMU on boards of a deny list; nothing else",
    ),
    entry(
        "amd_iommu",
        Begins("force_isolation"),
        &[AtsOff, Translates],
        "ATS stays off, and devices with PASID are not forced to identity; does not override iommu=pt",
    ),
    entry(
        "amd_iommu",
        Begins("pgtbl_v2"),
        &[TableForm, DisablesSnp],
        "version 2 page tables; host SNP is off with them unless the IOMMU has EFR2 bit 13 and the kernel is 7.3 or later",
    ),
    entry(
        "amd_iommu",
        Begins("pgtbl_v1"),
        &[TableForm],
        "version 1 page tables, which is the default",
    ),
    entry("amd_iommu", Begins("irtcachedis"), &[Interrupts], "cache of interrupt remapping off"),
    since(
        entry(
            "amd_iommu",
            Begins("nohugepages"),
            &[TableForm],
            "4 KiB pages only in version 1 tables",
        ),
        6,
        12,
    ),
    since(
        entry(
            "amd_iommu",
            Begins("v2_pgsizes_only"),
            &[TableForm],
            "page sizes of version 2 tables only",
        ),
        6,
        12,
    ),
    entry(
        "amd_iommu",
        Begins("on"),
        &[NoSuchOption],
        "no option: AMD-Vi is on by default, and the kernel logs \"AMD-Vi: Unknown option - 'on'\"",
    ),
    entry("amd_iommu", Begins("pt"), &[NoSuchOption], "no option: pass-through is iommu=pt"),
    entry("amd_iommu_dump", Any, &[Log], "the contents of the IVRS table go to the kernel log"),
    entry("amd_iommu_intr", Any, &[Interrupts], "how guests get interrupts: vapic or legacy"),
    // x86 in common.
    entry(
        "iommu",
        Is("pt"),
        &[PassThrough, DisablesSnp],
        "default domains become identity; host SNP is off with it unless the IOMMU has EFR2 bit 13 and the kernel is 7.3 or later",
    ),
    entry("iommu", Is("nopt"), &[Translates], "default domains translate"),
    entry(
        "iommu",
        Is("off"),
        &[IommuOff, DisablesSnp],
        "neither AMD-Vi nor VT-d is driven; host SNP is off with it",
    ),
    entry(
        "iommu",
        Is("soft"),
        &[NoEffect],
        "switches bounce buffers on; the IOMMU is driven all the same",
    ),
    entry("iommu", Is("force"), &[NoEffect], "for the old GART; AMD-Vi and VT-d take no notice"),
    entry("iommu", Is("noforce"), &[NoEffect], "for the old GART; AMD-Vi and VT-d take no notice"),
    entry("iommu", Is("merge"), &[NoEffect], "for the old GART; AMD-Vi and VT-d take no notice"),
    entry("iommu", Is("nomerge"), &[NoEffect], "for the old GART; AMD-Vi and VT-d take no notice"),
    entry("iommu", Is("biomerge"), &[NoEffect], "for the old GART; AMD-Vi and VT-d take no notice"),
    entry("iommu", Is("panic"), &[NoEffect], "for the old GART; AMD-Vi and VT-d take no notice"),
    entry("iommu", Is("nopanic"), &[NoEffect], "for the old GART; AMD-Vi and VT-d take no notice"),
    entry("iommu", Is("forcesac"), &[NoEffect], "for the old GART; AMD-Vi and VT-d take no notice"),
    entry("iommu", Is("allowdac"), &[NoEffect], "for old chipsets with broken 64-bit addressing"),
    entry("iommu", Is("nodac"), &[NoEffect], "for old chipsets with broken 64-bit addressing"),
    entry("iommu", Is("usedac"), &[NoEffect], "for old chipsets with broken 64-bit addressing"),
    entry(
        "iommu",
        Is("on"),
        &[NoSuchOption],
        "no option on x86; the IOMMU is on by default on AMD, and by intel_iommu=on on Intel",
    ),
    entry(
        "iommu.passthrough",
        On,
        &[PassThrough, DisablesSnp],
        "default domains become identity, as with iommu=pt; host SNP is off with it unless the IOMMU has EFR2 bit 13 and the kernel is 7.3 or later",
    ),
    entry("iommu.passthrough", Off, &[Translates], "default domains translate"),
    entry("iommu.strict", On, &[Flush], "translations are flushed at once (domain type DMA)"),
    entry(
        "iommu.strict",
        Off,
        &[Flush],
        "translations are flushed in batches (domain type DMA-FQ)",
    ),
    entry("iommu.forcedac", Any, &[Addresses], "I/O addresses above 4 GiB are not a last resort"),
    // VT-d.
    entry("intel_iommu", Is("on"), &[Translates], "VT-d is driven"),
    entry("intel_iommu", Is("off"), &[IommuOff], "VT-d is not driven"),
    entry(
        "intel_iommu",
        Is("igfx_off"),
        &[PassThrough],
        "the integrated display is not translated",
    ),
    entry(
        "intel_iommu",
        Is("intgpu_off"),
        &[PassThrough],
        "the integrated display is not translated (Debian's kernels)",
    ),
    entry(
        "intel_iommu",
        Is("relax_rmrr"),
        &[Binding],
        "devices with reserved memory may go to guests (Proxmox's kernels)",
    ),
    entry("intel_iommu", Is("forcedac"), &[Addresses], "older name of iommu.forcedac=1"),
    entry("intel_iommu", Is("strict"), &[Flush], "older name of iommu.strict=1"),
    entry("intel_iommu", Is("sp_off"), &[TableForm], "no large pages"),
    entry("intel_iommu", Is("sm_on"), &[TableForm], "scalable mode on"),
    entry("intel_iommu", Is("sm_off"), &[TableForm], "scalable mode off"),
    entry(
        "intel_iommu",
        Is("tboot_noforce"),
        &[IommuOff],
        "a measured launch does not force VT-d on",
    ),
    entry("intel_iommu", Is("pt"), &[NoSuchOption], "no option: pass-through is iommu=pt"),
    entry(
        "intremap",
        Is("off"),
        &[Interrupts],
        "no interrupt remapping: guests with devices are not safe from each other's interrupts, and no x2APIC",
    ),
    entry("intremap", Any, &[Interrupts], "form of interrupt remapping"),
    entry("nox2apic", Any, &[Interrupts], "processors with APIC numbers above 254 cannot be used"),
    entry("x2apic_phys", Any, &[Interrupts], "physical x2APIC mode"),
    // Memory encryption.
    entry(
        "mem_encrypt",
        Is("on"),
        &[Sme],
        "SME: the host's page tables, the IOMMU's too, carry the encryption bit. SNP does not need it",
    ),
    entry("mem_encrypt", Is("off"), &[SmeOff], "no SME, which is the default"),
    entry("sev", Is("nosnp"), &[DisablesSnp], "the host gives SNP up"),
    entry("sev", Is("debug"), &[Log], "more of SEV in the log"),
    entry("kvm_amd.sev", Off, &[Sev, DisablesSnp], "no encrypted guests of any kind"),
    entry("kvm_amd.sev", Any, &[Sev], "encrypted guests, on by default on recent kernels"),
    entry(
        "kvm_amd.sev_es",
        Off,
        &[Sev, DisablesSnp],
        "no guests with encrypted registers, and so none with SNP",
    ),
    entry("kvm_amd.sev_es", Any, &[Sev], "guests with encrypted registers"),
    entry(
        "kvm_amd.sev_snp",
        Off,
        &[Sev, Snp],
        "KVM runs no SNP guests; the IOMMU's part of SNP may be on all the same",
    ),
    entry("kvm_amd.sev_snp", Any, &[Sev, Snp], "KVM runs SNP guests"),
    entry(
        "kvm_amd.ciphertext_hiding_asids",
        Any,
        &[Snp],
        "splits the address-space numbers of SNP guests",
    ),
    entry(
        "kvm_amd.avic",
        Any,
        &[Interrupts],
        "interrupts straight into guests; AMD-Vi may switch it off under SNP",
    ),
    entry("kvm_intel.tdx", Any, &[Sev], "TDX guests"),
    // PCI.
    entry(
        "pci",
        Is("noats"),
        &[AtsOff, SetsAcs],
        "no ATS; translation blocking is set on the ports",
    ),
    since(
        entry(
            "pci",
            Begins("disable_acs_redir="),
            &[ClearsRedirect],
            "clears ReqRedir, CmpltRedir and EgressCtrl on the named ports; from 6.12 on, the other bits take what firmware set, so that groups may merge",
        ),
        4,
        19,
    ),
    since(
        entry(
            "pci",
            Begins("config_acs="),
            &[ClearsRedirect, SetsAcs],
            "sets the ACS bits of the named ports as given; bits not given take what firmware set",
        ),
        6,
        11,
    ),
    entry(
        "pci",
        Is("noacs"),
        &[NoSuchOption],
        "no option: there is no such word for pci=; redirect is cleared by pci=disable_acs_redir= or pci=config_acs=",
    ),
    entry("pci", Is("realloc=off"), &[Addresses], "bridge windows stay as firmware left them"),
    entry(
        "pci",
        Begins("realloc"),
        &[Addresses],
        "bridge windows may be laid out anew where firmware's are too small; moves BARs",
    ),
    entry(
        "pci",
        Is("nocrs"),
        &[Addresses],
        "windows that firmware declares for host bridges are ignored",
    ),
    entry(
        "pci",
        Is("use_crs"),
        &[Addresses],
        "windows that firmware declares for host bridges are used, which is the default",
    ),
    entry(
        "pci",
        Is("big_root_window"),
        &[Addresses],
        "a large window above 4 GiB is added on older AMD hosts",
    ),
    entry(
        "pci",
        Begins("resource_alignment="),
        &[Addresses],
        "larger alignment for the named devices' BARs",
    ),
    entry("pci", Begins("hpmmio"), &[Addresses], "size of the windows of hot-plug bridges"),
    entry(
        "pci",
        Is("assign-busses"),
        &[Addresses],
        "bus numbers are given out anew: recorded addresses may change",
    ),
    entry(
        "pci",
        Is("pcie_bus_peer2peer"),
        &[Link],
        "128-byte payloads everywhere, the one setting that peers anywhere may rely on; costs bandwidth",
    ),
    entry("pci", Begins("pcie_bus_"), &[Link], "how maximum payload sizes are chosen"),
    entry(
        "pci",
        Is("nommconf"),
        &[NoEffect],
        "no extended configuration space: ACS and ATS cannot be read",
    ),
    entry(
        "pcie_acs_override",
        Any,
        &[PretendsIsolation],
        "out of tree (Proxmox's kernels have it): ports without ACS are treated as isolating; routing does not change, and groups prove nothing",
    ),
    entry("pcie_aspm", Any, &[Link], "link power saving"),
    entry("pcie_aspm.policy", Any, &[Link], "link power saving"),
    entry("pcie_ports", Any, &[Link], "which services of PCIe ports the kernel drives"),
    // Binding.
    entry("vfio_pci.ids", Any, &[Binding], "vfio-pci takes every device with these numbers"),
    entry("vfio_pci.*", Any, &[Binding], "a parameter of vfio-pci"),
    entry(
        "vfio_iommu_type1.allow_unsafe_interrupts",
        On,
        &[Binding, Interrupts],
        "guests may have devices without interrupt remapping",
    ),
    entry("vfio_iommu_type1.*", Any, &[Binding], "a parameter of VFIO's IOMMU back end"),
    entry("module_blacklist", Any, &[Binding], "these modules are never loaded"),
    entry("modprobe.blacklist", Any, &[Binding], "these modules are not loaded by themselves"),
    entry(
        "rd.driver.blacklist",
        Any,
        &[Binding],
        "these modules are not loaded from the initial RAM disk",
    ),
    entry("rd.driver.pre", Any, &[Binding], "these modules are loaded first"),
    // NVIDIA.
    entry(
        "nvidia.NVreg_RegistryDwords",
        Any,
        &[NvidiaParameter],
        "registry keys for the driver's resource manager, peer access among them",
    ),
    entry(
        "nvidia.NVreg_RegistryDwordsPerDevice",
        Any,
        &[NvidiaParameter],
        "registry keys for single GPUs",
    ),
    entry(
        "nvidia.NVreg_DmaRemapPeerMmio",
        Any,
        &[NvidiaParameter],
        "whether the driver asks the kernel to map peer BARs; on by default, and without effect from kernel 6.12 on",
    ),
    entry(
        "nvidia.NVreg_EnableResizableBar",
        Any,
        &[NvidiaParameter, Addresses],
        "the driver may resize BAR1",
    ),
    entry(
        "nvidia.NVreg_GrdmaPciTopoCheckOverride",
        Any,
        &[NvidiaParameter],
        "topology check of GPUDirect RDMA; no effect on CUDA peer access",
    ),
    entry(
        "nvidia.NVreg_EnablePCIERelaxedOrderingMode",
        Any,
        &[NvidiaParameter],
        "relaxed ordering",
    ),
    entry(
        "nvidia.*",
        Any,
        &[NvidiaParameter],
        "a parameter of NVIDIA's driver; effective values stand in /proc/driver/nvidia/params",
    ),
    entry(
        "nvidia_drm.*",
        Any,
        &[NvidiaParameter, Display],
        "NVIDIA's display module, which holds a GPU while it drives a console",
    ),
    entry("nvidia_modeset.*", Any, &[NvidiaParameter, Display], "NVIDIA's display module"),
    entry(
        "nvidia_uvm.uvm_disable_hmm",
        Any,
        &[NvidiaParameter],
        "no heterogeneous memory management",
    ),
    entry("nvidia_uvm.*", Any, &[NvidiaParameter], "a parameter of NVIDIA's memory module"),
    entry("nouveau.*", Any, &[Binding, Display], "a parameter of the free driver for NVIDIA GPUs"),
    // The rest.
    entry(
        "nomodeset",
        Any,
        &[Display],
        "no kernel display drivers: amdgpu, i915 and nouveau do not start",
    ),
    entry("video", Any, &[Display], "console of the boot display"),
    entry(
        "initcall_blacklist",
        Any,
        &[Display, Binding],
        "parts of the kernel are not started, often the boot display",
    ),
    entry(
        "efi",
        Is("disable_early_pci_dma"),
        &[Firmware],
        "bus mastering of bridges is off until the kernel takes over",
    ),
    entry("efi", Any, &[Firmware], "how the kernel uses EFI"),
    entry("nosmt", Any, &[Processors], "one thread a core; a policy of SNP guests may ask for it"),
    entry("maxcpus", Any, &[Processors, Snp], "processors stay off; kernel 7.3 refuses SNP then"),
    entry("swiotlb", Any, &[Addresses], "size of the bounce buffers"),
    entry("lockdown", Any, &[Lockdown], "what root may still do to the kernel"),
    entry("module.sig_enforce", Any, &[Lockdown], "only signed modules are loaded"),
];
