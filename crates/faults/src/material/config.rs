//! Configuration of virtual machines and containers: which devices it names.

use peerway_core::address::PciAddress;

use super::Material;

/// One line that gives a guest something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// The line's key: `hostpci0`, `lxc.mount.entry`.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The device that it names.
    pub device: Option<PciAddress>,
}

/// Keys that give devices to a guest.
const KEYS: [&str; 5] = [
    "hostpci",
    "lxc.cgroup.devices.allow",
    "lxc.cgroup2.devices.allow",
    "lxc.mount.entry",
    "pciPassthru",
];

/// Reads a configuration; whether it is one.
pub fn read(text: &str, material: &mut Material) -> bool {
    let before = material.configured.len();
    for line in text.lines() {
        let Some((key, value)) = line.split_once([':', '=']) else { continue };
        let key = key.trim();
        if !KEYS.iter().any(|front| key.starts_with(front)) {
            continue;
        }
        let value = value.trim().trim_matches('"');
        let device = device(value);
        if let Some(device) = device {
            material.devices.entry(device).or_default();
        }
        let (key, value) = (key.to_owned(), value.to_owned());
        material.configured.push(Configured { key, value, device });
    }
    material.configured.len() > before
}

/// `0000:01:00.0,pcie=1`, and without a function, which means all of them.
fn device(value: &str) -> Option<PciAddress> {
    let first = value.split([',', ';']).next()?.trim();
    let first = first.strip_prefix("host=").unwrap_or(first);
    first.parse().ok().or_else(|| format!("{first}.0").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_with_and_without_a_function() {
        let mut material = Material::default();
        let text = "cores: 4\nhostpci0: 0000:01:00,pcie=1\nhostpci1: mapping=gpu,pcie=1\n\
                    hostpci2: 02:00.1\nlxc.cgroup2.devices.allow: c 195:* rwm\n";
        assert!(read(text, &mut material));
        let devices: Vec<Option<String>> = material
            .configured
            .iter()
            .map(|one| one.device.map(|device| device.to_string()))
            .collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(devices, [some("0000:01:00.0"), None, some("0000:02:00.1"), None]);
        assert!(!read("key: value\n", &mut Material::default()));
    }
}
