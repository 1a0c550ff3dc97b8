//! Pages of the gates on kernel, driver and memory encryption.

use super::Page;
use crate::gate::GateCode;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: GateCode::SmeMmio,
        title: "entries for peer memory carry no encryption bit",
        text: "\
With SME active (`mem_encrypt=on` on a processor that has it) the kernel marks memory in page tables with
an encryption bit, in the IOMMU's too. Peer memory is no memory of the host: with the bit set, the address
leaves the IOMMU as nobody's, and what is written is lost. That breaks every road that maps peer memory,
whoever makes the entry.

Kernels from 7.0 on (and 6.19 from about .5) leave the bit out where the caller says that the range is
MMIO. The DMA API and the peer map say so. VFIO's type 1 interface says it in no kernel seen up to 7.3.4,
so for `vfio-guest` the gate asks for SME to be off.

SME counts as active if the option is given and the processor has it, as inactive only on evidence.
Reading an entry back hides the bit: only a copy with checked data proves the fix.

What lifts it: a newer kernel; or booting without `mem_encrypt=on`, which SEV-SNP does not need. Both need
a reboot that every tenant agrees to.",
        sources: "commit e2692c4eeaa4 (\"iommupt: Do not set C-bit on MMIO backed PTEs\"); \
                  drivers/vfio/vfio_iommu_type1.c; AMD memory encryption documentation of the kernel",
    },
    Page {
        code: GateCode::RmpMmio,
        title: "SNP's ownership table does not object to peer memory (shown, not deciding)",
        text: "\
On an SNP host the reverse map table says who owns each page of memory, and requests of devices are
checked against it. What it does to requests that end in another device's memory region depends on what
the table covers, and nobody has measured it with GPUs here. One report says that cross-device copies
worked on an SNP host.

So the gate is unknown wherever SNP is on or may be, it is shown, and it does not close a road: the proof
is the data-checked copy that follows every change, and verification fails on any RMP event of requester
or target.",
        sources: "AMDESE/AMDSEV issue 287; arch/x86/virt/svm/sev.c",
    },
    Page {
        code: GateCode::SnpIdentity,
        title: "untranslated devices are legal on this host",
        text: "\
With SEV-SNP on, an IOMMU device-table entry that is valid and does not translate is illegal. What the
kernel does with a write of `identity` depends on its version: up to 6.12 it is refused; from 6.13 to
6.19.9 it is **accepted, and then every DMA of the device is rejected** (`ILLEGAL_DEV_TABLE_ENTRY`), so
that a GPU whose security processor fetches its firmware by DMA cannot boot; later kernels refuse again.

Peerway refuses whatever the kernel would accept. The exception is hardware with EFR2 bit 13 on every
unit under a kernel of 7.3 or later.

An unknown state of SNP does not pass: a complete log of this boot, or `kvm_amd`'s parameter `sev_snp`,
decides it.",
        sources: "drivers/iommu/amd/init.c, iommu_snp_enable; commits 4402f2627d30, ba17de98545d, \
                  cb2860ad6c4f",
    },
    Page {
        code: GateCode::KeepSnp,
        title: "SNP may be given up",
        text: "\
Booting with the IOMMU in pass-through mode makes the kernel switch SNP off (unless the hardware has EFR2
bit 13 under 7.3 or later). A guest whose memory is encrypted by SNP then cannot start.

This is a constraint, not a fact: it holds by default while a confidential tenant exists, running or not,
and `--give-up snp` lifts it once that tenant agrees.",
        sources: "drivers/iommu/amd/init.c, iommu_snp_enable",
    },
    Page {
        code: GateCode::PassThroughMode,
        title: "identity really passes addresses through",
        text: "\
AMD's IOMMU always has a pass-through mode. VT-d units without it (ecap bit 6 is 0) make older kernels
build an identity domain as a map of memory and reserved regions; peer memory is not in it, and a raw peer
address still faults.

Other makers are not looked into, so the gate is unknown for them.",
        sources: "drivers/iommu/intel/iommu.c, si_domain_init; VT-d specification, ECAP_REG",
    },
    Page {
        code: GateCode::KernelEra,
        title: "the kernel can change the type of these groups",
        text: "\
`/sys/kernel/iommu_groups/N/type` takes writes from 5.11 on; on 5.10 the file is read-only. Groups of
several functions, such as a GPU with its audio function, can be changed from 6.4 on; before, the write
fails with EINVAL.

The kernel wants every function of the group without a driver that uses the DMA API: EBUSY up to 6.3,
EPERM from 6.4 on. The error differs by kernel, so the reason is taken from the state that was read.",
        sources: "drivers/iommu/iommu.c, iommu_group_store_type; the same writes tried on 5.10, 6.1, \
                  6.12 and 7.3",
    },
    Page {
        code: GateCode::Module,
        title: "the peer-map module is made for this kernel",
        text: "\
The peer map lives in a small kernel module, built by DKMS against the kernel's headers. It is made for
kernels 6.1 to 7.3; entries of this kind were measured on 6.1, 6.12 and 7.3. Outside that range the gate
fails until a module was tested there.

Whether the module is built and installed on this host is not read here: it is a need of the plan, and the
step that loads it finds out.",
        sources: "include/linux/iommu.h: iommu_map takes another argument from 6.3 on; measured with \
                  stand-in devices, on VT-d and on an emulated AMD IOMMU",
    },
    Page {
        code: GateCode::SecureBoot,
        title: "lockdown lets it happen",
        text: "\
With Secure Boot many kernels lock themselves down: an unsigned module does not load, and configuration
space cannot be written from user space. Read from `/sys/kernel/security/lockdown`.

For the module the lift is a signature by a key that firmware trusts (`mokutil --import`), which the
operator vouches for (`--module-signed`). For writes to configuration space there is none but to boot
without lockdown. Where the file is not there, securityfs may simply not be mounted: unknown.",
        sources: "security/lockdown/lockdown.c; drivers/pci/pci-sysfs.c, pci_write_config",
    },
    Page {
        code: GateCode::KnownFailure,
        title: "no failure of this road is known for this board, driver and kernel",
        text: "\
Two kinds of memory decide here. Outcomes of earlier transactions on this host: a road that failed with
this board, driver and kernel stays closed until one of the three changes. And reports from elsewhere, as
data with their versions: the security processor of RTX PRO 6000 Blackwell boards failed at its boot
command under an identity domain on an SNP host with kernel 6.14.

A report about other circumstances does not close the road; it is shown, and the control arm (unbind and
bind without any change) and the canary (one device first) decide. Hypotheses for the reported failure:
SNP rejecting the device's DMA (the likeliest), encryption bits in addresses under SME, a bad reset on
rebind, power states, reserved regions. The control arm tells the third and fourth from the others.

Operators add reports of their own with `--knowledge FILE`.",
        sources: "reported; the hypotheses follow from drivers/iommu/amd/iommu.c and the driver's \
                  initialisation",
    },
    Page {
        code: GateCode::BoundDriver,
        title: "the GPU's own driver is bound to every device",
        text: "\
A peer map needs the bound driver's domain; a change of type takes the driver off and has to know which
one to bring back. VFIO's drivers do not count: their domain is a guest's.

Read from the `driver` link of each device.",
        sources: "drivers/pci/pci-driver.c, pci_dma_configure",
    },
    Page {
        code: GateCode::P2pMechanism,
        title: "what the driver puts on the bus lies in whole memory regions (BAR1 access)",
        text: "\
NVIDIA's driver has two ways of PCIe peer access. *BAR1*: the peer's whole memory is visible in its large
region, and that region is all that has to be mapped. *Mailbox*, the default on many boards: requests go
to an aperture in BAR0 and to a mailbox in the large region.

BAR0 is a 32-bit region. Below 4 GiB, under another host bridge, its address is one that the DMA API gives
out first, so mapping it would invite a collision: the gate fails. Under the same host bridge nobody has
established which pages the mailbox takes, and mapping all of BAR0 would open the peer's registers: the
gate is unknown.

It is judged from driver version, registry keys, board, region size and alignment (512 MiB), and from
faults in BAR0 where any were seen. Lift: `driver-policy` chooses BAR1 on Hopper and Blackwell boards.
NVLink comes first on boards that have it: before branch 575 the key that chooses would take the links
away, so there it is no lift.",
        sources: "NVIDIA open kernel modules, kern_bus.c, kern_bus_gh100.c, p2p_caps.c",
    },
    Page {
        code: GateCode::AddressesFree,
        title: "the addresses to map are free in each requester's domain, and stay so",
        text: "\
An entry maps a peer's bus address to itself. The DMA API hands out addresses in the same domain: 32-bit
ones first, then from the top of the device's mask downwards. Where it hands out a mapped one, older
kernels report success and data is lost silently (measured on 6.1 and 6.12); 7.3 fails the request.

So a range passes only if it does not overlap `reserved_regions`, lies within the domain's width, and
either lies above the device's DMA mask, or in the requester's own host bridge (whose windows the kernel
leaves out), or above 4 GiB with 32 TiB or more between it and the top that the DMA API works down from.

The module looks every page up before it maps and refuses if anything is there, and verification repeats
the look and re-reads the mask.",
        sources: "drivers/iommu/dma-iommu.c, iova_reserve_pci_windows and iommu_dma_alloc_iova; VT-d \
                  capability register (MGAW)",
    },
    Page {
        code: GateCode::OpenDriver,
        title: "the driver's kernel modules are NVIDIA's open ones",
        text: "\
Rebuilding needs the source of the function that decides whether the kernel is asked to map peer memory.
The open modules have it; the closed ones do not, and peer-to-peer builds write the raw address of the
peer into the page tables whatever that function says.

Read from `/proc/driver/nvidia/version`, whose line contains the word Open.",
        sources: "kernel-open/nvidia/nv-dma.c; the peer-to-peer builds' own descriptions",
    },
    Page {
        code: GateCode::UnbindHazard,
        title: "unbinding cannot get the host into a state that only a reboot heals",
        text: "\
Unbinding a GPU waits, without end, until nobody uses it. Peerway therefore stops the tenant, switches
persistence off per device, scans descriptors and maps twice, fences the device nodes, and writes from a
child under a watchdog, never with a holder.

On driver branches from 595 a process that opens the GPU in that moment leaves it in a state that only a
reboot heals, and a reboot hits every tenant. There the gate names whom, fails until the operator accepts
it (`--accept unbind-hazard`), and the road is reversible only conditionally.",
        sources: "kernel-open/nvidia/nv-pci.c, nv_pci_remove_helper; reported: \
                  NVIDIA/open-gpu-kernel-modules issues 1119 and 1374",
    },
    Page {
        code: GateCode::Minors,
        title: "every GPU gets the number of its device node back",
        text: "\
`/dev/nvidiaN` takes the lowest free number when the driver binds. Containers are given nodes by number,
so a GPU that comes back under another one would land in the wrong place. Devices are unbound and bound
one after another, so each finds its own number free again, unless a lower one was free before.

Read from `Device Minor` in `/proc/driver/nvidia/gpus/*/information`; the plan waits for the number after
each bind and takes the change back if it is another.",
        sources: "kernel-open/nvidia/nv.c; nv-pci.c, nv_pci_probe",
    },
    Page {
        code: GateCode::PolicyApplies,
        title: "the driver's parameters can change something for the goal",
        text: "\
Parameters can choose BAR1 instead of mailbox access on boards that have it, let the driver grow a
memory region, or let it ask the kernel for entries again where `DmaRemapPeerMmio` is 0. `ForceP2P`
makes the tools say yes on boards that the driver refuses and makes no data path, so it is not proposed.
None of them makes a translating IOMMU pass a raw address.

`RMForceP2PType` was renumbered at branch 575: 2 meant BAR1 and means NVLink since. From 575 on
`RMPcieP2PType` chooses (0 mailbox, 1 BAR1, 2 automatic). Before, `RMForceP2PType` forces one type for
all pairs: NVLink comes first on boards that have it, and with 2 they would lose it, so the gate fails
there.",
        sources: "NVIDIA open kernel modules, nvrm_registry.h and p2p_caps.c",
    },
];
