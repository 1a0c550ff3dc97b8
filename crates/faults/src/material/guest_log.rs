//! What QEMU and its managers say about devices that they cannot pass through.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;

/// Trouble with passed-through devices, as user space reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestLog {
    /// The lines that say so.
    pub lines: Vec<String>,
    /// Devices that they name.
    pub devices: BTreeSet<PciAddress>,
}

/// Words of such lines (`hw/vfio/pci.c`, `hw/vfio/container.c` of QEMU; `qm` of Proxmox).
const TROUBLE: [&str; 9] = [
    "stuck in D3",
    "error getting device from group",
    "is not viable",
    "failed to setup container",
    "failed to open /dev/vfio/",
    "Unable to power on device",
    "vfio_region_write",
    "failed to reset PCI device",
    "error writing",
];

/// Reads a log; whether it is one.
pub fn read(text: &str) -> Option<GuestLog> {
    let mut found = GuestLog::default();
    for line in text.lines() {
        let about_vfio = line.contains("vfio") || line.contains("PCI device");
        if about_vfio && TROUBLE.iter().any(|words| line.contains(words)) {
            let words = line.split(|character: char| {
                character.is_whitespace() || "'\"=,()".contains(character)
            });
            found.devices.extend(
                words.filter_map(|word| {
                    word.trim_end_matches([':', '.']).parse::<PciAddress>().ok()
                }),
            );
            found.lines.push(line.trim().chars().take(160).collect());
        }
    }
    (!found.lines.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_and_other_lines() {
        let text = "kvm: -device vfio-pci,host=0000:02:00.0,id=hostpci0: vfio 0000:02:00.0: error \
                    getting device from group 12: Input/output error\n";
        let found = read(text).unwrap();
        assert_eq!(found.devices.len(), 1);
        assert_eq!(read("kvm: -device vfio-pci,host=0000:02:00.0\n"), None);
    }
}
