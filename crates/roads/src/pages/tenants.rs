//! Pages of the gates on tenants and of the constraints.

use super::Page;
use crate::gate::GateCode;

pub(super) const PAGES: &[Page] = &[
    Page {
        code: GateCode::Contested,
        title: "nobody else claims the devices",
        text: "\
A device is one tenant's only if no other claim on it exists. A stopped virtual machine that names it in
its configuration, a second container with its node, a rule that lets every container open all GPUs, a
process of somebody else: each is a claim, and each may be exercised at any moment. A contested device
passes no gate.

A configuration that could not be read may hold a claim, so it leaves the gate unknown.",
        sources: "configurations of Proxmox VE, LXC and libvirt; /proc/PID/fd",
    },
    Page {
        code: GateCode::OneTenant,
        title: "all devices are one tenant's",
        text: "\
Peer access across tenants is not a fault to be cured: its absence is isolation. So all devices of a goal
belong to one tenant. For `acs-direct` the same holds for everything below the common bridges, since
without redirect whatever hangs there reaches its neighbours without the IOMMU.",
        sources: "this program's own rule; PCI Express Base Specification 6.12",
    },
    Page {
        code: GateCode::Holders,
        title: "every holder of the devices was seen and can be stopped",
        text: "\
A change under a running job corrupts its data, so every change begins without holders: processes with
a descriptor or a mapping of the devices' nodes. Those of the goal's own tenant pass the gate, since the
plan stops the tenant first (or the operator does). The driver's persistence daemon passes too: it is told
to let go of each device. Anybody else's holder fails it.

A process that could not be looked into leaves the gate unknown, which does not pass. Run as root.",
        sources: "/proc/PID/fd and /proc/PID/maps; kernel-open/nvidia/nv-pci.c",
    },
    Page {
        code: GateCode::Protected,
        title: "none of the devices is protected",
        text: "\
Every tenant but the goal's is protected: no step of any plan may name a device, a group or a service of
theirs, and the proof that they were untouched is part of every result. `--protect` names tenants on top;
naming the goal's own closes every road that would change its devices.

This is a constraint, not a fact.",
        sources: "this program's own rule",
    },
    Page {
        code: GateCode::Excluded,
        title: "the operator has not excluded the road",
        text: "\
`--exclude ROAD` takes a road out of consideration. It stays on the list, closed by this constraint, with
all its gates, so that what the exclusion costs can be seen. Leaving the option out lifts it.",
        sources: "this program's own rule",
    },
    Page {
        code: GateCode::Reboot,
        title: "a reboot is allowed",
        text: "\
A reboot stops every tenant of the host, and firmware or kernel settings that it brings may keep a
confidential guest from starting again or passing its attestation. So by default there is none while
another tenant runs, or may run.

This is a constraint, not a fact: `--allow-reboot` lifts it in a window that every tenant agreed to, and
`--no-reboot` makes it hold whoever is there.",
        sources: "this program's own rule",
    },
    Page {
        code: GateCode::Confidential,
        title: "the tenant's memory is not encrypted against the host",
        text: "\
Inside an encrypted guest the GPU driver handles DMA differently, and peer copies between passed-through
GPUs have not been seen to work there. So `vfio-guest` is for tenants whose memory is not confidential.
Where a tenant's configuration could not be read, nobody knows.",
        sources: "NVIDIA open kernel modules, os_cc_enabled; no report of success known",
    },
    Page {
        code: GateCode::DriverShared,
        title: "only the goal's devices use the driver that would be reloaded",
        text: "\
Replacing the driver or changing its parameters needs its kernel modules unloaded, which takes every GPU
on that driver away for a while, whoever's it is. The gate fails if a device that is not the goal's is
bound to it, and names the tenant. GPUs that are given to guests are bound to VFIO and not affected.",
        sources: "/sys/bus/pci/drivers/*; the driver's modules have one count of users, not one per GPU",
    },
];
