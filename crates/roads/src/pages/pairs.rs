//! Pages of the gates on pairs, routes and groups.

use super::Page;
use crate::gate::GateCode;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: GateCode::Goal,
        title: "there are two devices of one tenant to connect",
        text: "\
A road is judged for one goal: the GPUs (or declared accelerators) of one tenant. Without being asked,
it is the tenant with the most broken pairs; else the one with the most undecided pairs. `--goal TENANT`
or a list of devices (`--device`) names another.

The gate fails where there is one device or none, since there is nothing to connect. Accelerators that
are no GPUs by class are declared with `--accelerator FILE`.",
        sources: "this program's own rule",
    },
    Page {
        code: GateCode::BrokenPairs,
        title: "there is a broken pair that the road could cure",
        text: "\
A change of the host is not worth its risk where nothing is broken. The gate counts the verdicts of the
goal's ordered pairs, predicted or measured. It fails if all of them work or are merely slow; it is
unknown if none is broken and some are undecided, such as where NVLink cannot be seen from outside.

What lifts an unknown: `peerway test` measures, and a measured verdict replaces the predicted one.",
        sources: "this program's own rule; `peerway diagnose` lists the pairs",
    },
    Page {
        code: GateCode::DecidedInGuest,
        title: "the devices are the host's to decide about",
        text: "\
A device bound to VFIO lives in its guest's own IOMMU domain, whatever the type of its group says. The
host neither can nor may change what is mapped there. The other way round, a system that is itself a
guest does not see its host's IOMMU and access control.

So the road is closed in both cases, and the lift is to run Peerway on the other side. On new kernels
nothing in the kernel protects an idle VFIO group from a change of its type: this gate does.",
        sources: "drivers/vfio/vfio_iommu_type1.c; drivers/iommu/iommu.c, iommu_group_store_type; \
                  tried on kernels 6.1, 6.12 and 7.3",
    },
    Page {
        code: GateCode::Translating,
        title: "the requesters' IOMMU groups translate",
        text: "\
Read from `/sys/kernel/iommu_groups/N/type`: `DMA` and `DMA-FQ` translate, `identity` does not. A road
that adds entries to a translating domain, or that ends translation, has nothing to do where there is
none. Each requester's own group decides about its own requests, so every requester of a broken or
undecided pair is asked. For `vfio-guest` the type does not matter, since VFIO brings a domain of the
guest's; there the gate asks for an IOMMU that covers each device.

Unknown where the file could not be read or the kernel (before 5.11) shows none.",
        sources: "drivers/iommu/iommu.c, iommu_group_show_type",
    },
    Page {
        code: GateCode::RawAddresses,
        title: "the driver hands the GPU raw bus addresses of its peers",
        text: "\
NVIDIA's driver asks the kernel to map peer memory only where the device has a table of DMA operations.
Kernels from 6.12 give translated devices none, so the driver falls back to the peer's bus address and
says nothing; peer-to-peer builds of the driver do so on every kernel. Under a translating domain such an
address faults.

A peer map and a cleared redirect help exactly these addresses. Where the driver has the kernel map its
peers (5.9 to 6.11), the device uses another address, and an entry at the bus address would be of no use.

It is read from the verdicts of the pairs, which join kernel, driver build, the parameter
`DmaRemapPeerMmio` (1 does not mean that memory is mapped) and what accelerators are declared to do.",
        sources: "kernel-open/nvidia/nv-dma.c, nv_dma_use_map_resource; commit b5c58b2fdc42 \
                  (\"dma-mapping: direct calls for dma-iommu\")",
    },
    Page {
        code: GateCode::DriverOffers,
        title: "the driver offers PCIe peer access on these boards",
        text: "\
Whether a board may do PCIe peer access is decided inside the driver's closed firmware, by product. For
GeForce boards the answer is no, whatever the IOMMU does; for most professional and data-centre boards it
is yes. The table of boards here is from vendor statements and field reports, so a board that is not in
it leaves the gate unknown.

`ForceP2P=0x11` or a peer-to-peer build of the driver overrides the answer. On a board that the stock
driver does not offer peer access on, the key leaves the gate unknown: the answer is overridden, the
path is not made. With a build it passes. Either way everything that the driver's tools say about peer
access stops being evidence.",
        sources: "NVIDIA open kernel modules, p2p_caps.c; table of boards in this program",
    },
    Page {
        code: GateCode::Reachable,
        title: "every target's memory has an address that the requester can use",
        text: "\
A peer's memory region needs an address (firmware or the kernel may have left it without one), its
memory decoding must be on, the device must answer, and the region must end below what the requester can
put on the bus: 2^47 for Turing, Ampere and Ada, 2^52 for Hopper and Blackwell.

Read from `resource`, configuration space and the widths of the chips. What lifts it is in firmware:
Above 4G Decoding, Resizable BAR, the base and size of the MMIO window.",
        sources: "drivers/pci/pci-sysfs.c, resource_show; NVIDIA open kernel modules, hwproject.h",
    },
    Page {
        code: GateCode::Routing,
        title: "the root complex is known to forward peer requests",
        text: "\
A request that is not turned round in a switch goes up to the root complex, which may forward it to the
peer or drop it. AMD's do from family 17h on; for others the kernel keeps a list of host bridges that are
known to. Outside that list nobody knows, and the gate is unknown until a copy with checked data was
measured.

A road that sends requests through the root complex needs this, whichever way the address is translated.",
        sources: "drivers/pci/p2pdma.c, cpu_supports_p2pdma and pci_p2pdma_whitelist",
    },
    Page {
        code: GateCode::GroupMembers,
        title: "everything that shares the devices' IOMMU groups may share what they get",
        text: "\
All functions of a group share one domain. What is mapped for one of them is mapped for all, and a group
has one type. For a peer map the others must be the same tenant's, with no other claim. For an identity
domain they must be functions of the same slot (a GPU's audio function) or bridges: a network controller
of the same tenant would lose its isolation too.

A configuration of a guest or container that could not be read may claim a member, so it leaves the gate
unknown.",
        sources: "drivers/iommu/iommu.c, __iommu_device_set_domain; /sys/kernel/iommu_groups/N/devices",
    },
    Page {
        code: GateCode::RealGroups,
        title: "nothing pretends that groups are isolated",
        text: "\
`pcie_acs_override` makes a patched kernel split groups that the hardware does not isolate. Devices in
such groups can reach each other without the IOMMU, so neither a change of one group's type nor handing
one to a guest means what it seems to.

Read from the kernel command line; the lift is to boot without the word and to take the groups as they
then are.",
        sources: "the out-of-tree patch \"pcie_acs_override\", as some distributions carry it",
    },
    Page {
        code: GateCode::Untrusted,
        title: "no device is external",
        text: "\
The kernel keeps devices behind an external port (Thunderbolt and its like) in a translating domain and
refuses another type. `removable` reads `removable` for them; for everything else there is no such file,
which is the answer that passes.

The device's own attribute and those of every port above it are asked.",
        sources: "drivers/pci/probe.c, pci_set_removable; drivers/iommu/iommu.c, \
                  iommu_get_def_domain_type",
    },
    Page {
        code: GateCode::CommonSwitch,
        title: "broken pairs have a common switch whose ports redirect",
        text: "\
With Request Redirect, Completion Redirect and Egress Control off on the ports between two devices, a
raw address turns round at their common bridge and never meets the IOMMU. That needs a common bridge:
GPUs on root ports of their own have none, and no ACS setting helps them.

Source Validation redirects nothing and is left alone. Only the ports between the two and the common
bridge count, not those above it.",
        sources: "PCI Express Base Specification 6.12 and 7.7.11; drivers/pci/p2pdma.c, \
                  calc_map_type_and_dist",
    },
    Page {
        code: GateCode::AcsReadable,
        title: "access control of every port between the pairs was read",
        text: "\
The ACS words lie beyond the first 64 bytes of configuration space, which only root may read, and a
sleeping port is left alone. An unread port may redirect, so nothing is concluded without it.

After a change the words may come back: every kernel writes its own when a port is reset or resumes, and
from 7.2 on whenever a driver binds. The kernel's groups keep saying that the devices are isolated until
the bus is scanned anew.",
        sources: "drivers/pci/pci.c, pci_restore_state; drivers/pci/pci-driver.c, pci_dma_configure",
    },
];
