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
const KEYS: [&str; 8] = [
    "hostpci",
    "lxc.cgroup.devices.allow",
    "lxc.cgroup2.devices.allow",
    "lxc.mount.entry",
    "pciPassthru",
    "NVIDIA_VISIBLE_DEVICES",
    "- NVIDIA_VISIBLE_DEVICES",
    "nvidia.com/gpu",
];

/// Reads a configuration; whether it is one.
pub fn read(text: &str, material: &mut Material) -> bool {
    let before = material.configured.len();
    for line in text.lines() {
        if let Some(device) = hostdev(line) {
            material.devices.entry(device).or_default();
            material.configured.push(Configured {
                key: "hostdev".to_owned(),
                value: line.trim().to_owned(),
                device: Some(device),
            });
            continue;
        }
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

/// `<address domain='0x0000' bus='0x01' slot='0x00' function='0x0'/>` of the source of a libvirt
/// `hostdev`; the guest's own addresses have a type.
fn hostdev(line: &str) -> Option<PciAddress> {
    let line = line.trim();
    if !line.starts_with("<address ") || line.contains("type=") {
        return None;
    }
    let number = |name: &str| {
        let (_, rest) = line.split_once(name)?;
        let digits = rest.trim_start_matches(['\'', '"']).strip_prefix("0x")?;
        let end = digits.find(['\'', '"'])?;
        u32::from_str_radix(digits.get(..end)?, 16).ok()
    };
    let byte = |name: &str| number(name).and_then(|number| u8::try_from(number).ok());
    PciAddress::new(number("domain=")?, byte("bus=")?, byte("slot=")?, byte("function=")?)
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
        let xml = "  <address domain='0x0000' bus='0x65' slot='0x00' function='0x1'/>\n";
        assert!(read(xml, &mut material));
        assert_eq!(material.configured[4].device.unwrap().to_string(), "0000:65:00.1");
        assert!(!read("key: value\n", &mut Material::default()));
    }
}
