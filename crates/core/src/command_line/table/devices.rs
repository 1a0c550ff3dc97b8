//! Words of PCI, of drivers, and the rest.

use super::Value::{Any, Begins, Is, On};
use super::{Entry, entry, since};
use crate::command_line::Effect::{
    Addresses, AtsOff, Binding, ClearsRedirect, Display, Firmware, Interrupts, Link, Lockdown,
    NoEffect, NoSuchOption, NvidiaParameter, PretendsIsolation, Processors, SetsAcs, Snp,
};

pub(super) static ENTRIES: &[Entry] = &[
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
