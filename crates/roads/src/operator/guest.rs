//! Configuration of a virtual machine that holds all of the goal's devices.

use crate::guide::Guide;
use crate::scene::Scene;

/// Proxmox and libvirt, with the goal's own addresses.
pub(crate) fn configuration(scene: &Scene<'_>) -> Vec<Guide> {
    let mib: u64 = scene
        .devices()
        .iter()
        .filter_map(|device| scene.snapshot().peer_memory(device))
        .map(|(_, bar)| bar.size >> 20)
        .sum();
    // Regions lie at multiples of their size, so that a window of their sum may be too small.
    let window = mib.saturating_mul(2).checked_next_power_of_two().unwrap_or(mib);
    vec![proxmox(scene, window), libvirt(scene), inside()]
}

fn proxmox(scene: &Scene<'_>, window: u64) -> Guide {
    let mut guide = Guide::new(
        "Proxmox VE: /etc/pve/qemu-server/ID.conf of a new machine",
        &[
            "# first: stop the workload; it moves into this machine",
            "machine: q35",
            "bios: ovmf",
            "cpu: host",
        ],
    );
    for (index, device) in scene.devices().iter().enumerate() {
        guide = guide.line(format!("hostpci{index}: {},pcie=1", device.address));
    }
    let cliques: Vec<String> = (0..scene.devices().len())
        .map(|index| format!("-set device.hostpci{index}.x-nv-gpudirect-clique=0"))
        .collect();
    guide
        .line(
            "# tells the guest's driver that these GPUs may be peers (QEMU 2.11 and later), and \
             gives guest firmware a 64-bit window that holds all their regions",
        )
        .line(format!(
            "args: {} -fw_cfg name=opt/ovmf/X-PciMmio64Mb,string={window}",
            cliques.join(" ")
        ))
        .line(
            "# Proxmox binds every function of each group to vfio-pci at start, and does not give \
             the devices back to the host's driver when the machine stops",
        )
}

fn libvirt(scene: &Scene<'_>) -> Guide {
    let mut guide = Guide::new(
        "libvirt: in the domain's description",
        &["<os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type></os>"],
    );
    for device in scene.devices() {
        let at = device.address;
        guide = guide.line(format!(
            "<hostdev mode='subsystem' type='pci' managed='yes'><source><address \
             domain='{:#06x}' bus='{:#04x}' slot='{:#04x}' function='{:#x}'/></source></hostdev>",
            at.domain(),
            at.bus(),
            at.device(),
            at.function()
        ));
    }
    guide
        .line("# per device, by its alias (hostdev0, hostdev1, …), in <qemu:override>:")
        .line(
            "<qemu:device alias='hostdev0'><qemu:frontend><qemu:property \
             name='x-nv-gpudirect-clique' type='unsigned' value='0'/></qemu:frontend></qemu:device>",
        )
}

fn inside() -> Guide {
    Guide::new(
        "when the guest runs",
        &[
            "# on the host: no line \"PCI peer-to-peer transactions on BARs are not supported\" from \
             QEMU, and no vfio_container_dma_map error; either means that peers are not mapped",
            "# legacy VFIO containers map them; iommufd can from 6.19 on, where QEMU uses it",
            "# in the guest: that peer access is granted proves nothing; measure the data",
            "peerway test",
        ],
    )
}
