//! `nvidia-smi`: devices, driver version, size of the BAR1 window.

use peerway_core::address::PciAddress;

use super::Material;

/// The legacy window, MiB.
const LEGACY: u64 = 256;

/// Reads its output; whether it is that.
pub fn read(text: &str, material: &mut Material) -> bool {
    let is =
        ["NVIDIA-SMI ", "NVSMI LOG", "BAR1 Memory Usage"].iter().any(|words| text.contains(words));
    if !is {
        return false;
    }
    let mut current: Option<PciAddress> = None;
    let mut in_window = false;
    for line in text.lines() {
        if let Some(device) = line.split_whitespace().find_map(address) {
            current = Some(device);
            material.devices.entry(device).or_default();
        }
        let line = line.trim();
        if line.ends_with("Memory Usage") {
            in_window = line.starts_with("BAR1");
        } else if let Some((name, value)) = line.split_once(':')
            && in_window
            && name.trim() == "Total"
        {
            let size = value.trim().strip_suffix(" MiB").and_then(|size| size.parse::<u64>().ok());
            if size.is_some_and(|size| size <= LEGACY) {
                material.small_windows.push(current);
            }
            in_window = false;
        }
    }
    true
}

/// Eight domain digits, as this tool prints them.
fn address(word: &str) -> Option<PciAddress> {
    (word.len() == 16).then(|| word.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_windows() {
        let mut material = Material::default();
        let text = "GPU 00000000:41:00.0\n    FB Memory Usage\n        Total : 24564 MiB\n    BAR1 \
                    Memory Usage\n        Total                 : 256 MiB\nGPU 00000000:61:00.0\n    \
                    BAR1 Memory Usage\n        Total : 65536 MiB\n";
        assert!(read(text, &mut material));
        assert_eq!(material.devices.len(), 2);
        assert_eq!(material.small_windows, [Some("0000:41:00.0".parse().unwrap())]);
        assert!(!read("something else", &mut Material::default()));
    }
}
