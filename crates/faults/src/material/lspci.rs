//! `lspci` in its common forms: classes, numbers, drivers, memory regions, access control.

use peerway_core::address::{BusAddress, PciAddress, VendorDevice};
use peerway_core::snapshot::pci::Bar;

use super::{ListedDevice, Material};

/// What a port's control word does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcsControl {
    /// The port, where the listing names it; a search's output does not.
    pub device: Option<PciAddress>,
    /// Requests, or completions, are sent up; or egress control is on.
    pub redirects: bool,
}

/// Names of classes, where a listing has no number.
const CLASSES: [(&str, u32); 12] = [
    ("VGA compatible controller", 0x03_0000),
    ("3D controller", 0x03_0200),
    ("Display controller", 0x03_8000),
    ("Processing accelerators", 0x12_0000),
    ("Non-Volatile memory controller", 0x01_0802),
    ("SATA controller", 0x01_0601),
    ("Ethernet controller", 0x02_0000),
    ("Network controller", 0x02_8000),
    ("Infiniband controller", 0x02_0700),
    ("USB controller", 0x0c_0330),
    ("Audio device", 0x04_0300),
    ("PCI bridge", 0x06_0400),
];

/// Reads a listing; whether it is one.
pub fn read(text: &str, material: &mut Material) -> bool {
    let mut current: Option<PciAddress> = None;
    let mut found = false;
    let mut unnamed = ListedDevice::default();
    for line in text.lines() {
        if !line.starts_with([' ', '\t'])
            && let Some(device) = self::line(line, material)
        {
            current = Some(device);
            found = true;
            continue;
        }
        let bare = line.trim();
        if let Some(control) = bare.strip_prefix("ACSCtl:") {
            let set = |name: &str| control.contains(&format!("{name}+"));
            let redirects = set("ReqRedir") || set("CmpltRedir") || set("EgressCtrl");
            material.acs.push(AcsControl { device: current, redirects });
            found = true;
            continue;
        }
        let listed = match current {
            Some(device) => material.devices.entry(device).or_default(),
            None => &mut unnamed,
        };
        if let Some(driver) = bare.strip_prefix("Kernel driver in use: ") {
            listed.driver = Some(driver.trim().to_owned());
        } else if let Some(bar) = region(bare) {
            found = true;
            listed.bars.push(bar);
        }
    }
    found
}

/// `01:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2331] (rev a1)`.
pub(super) fn line(line: &str, material: &mut Material) -> Option<PciAddress> {
    let (device, rest) = PciAddress::parse_prefix(line.as_bytes())?;
    let rest = std::str::from_utf8(rest).ok()?.strip_prefix(' ')?;
    let (class, name) = rest.split_once(": ")?;
    let number = |text: &str| {
        let (_, code) = text.rsplit_once('[')?;
        u32::from_str_radix(code.get(..4)?, 16).ok().map(|code| code << 8)
    };
    let known = CLASSES.iter().find(|(words, _)| class.starts_with(words)).map(|(_, code)| *code);
    let class = number(class).or(known)?;
    let listed = material.devices.entry(device).or_default();
    listed.class = Some(class);
    let ids = name.rsplit('[').find_map(|part| part.get(..9)?.parse::<VendorDevice>().ok());
    let maker = [("NVIDIA", 0x10de), ("Advanced Micro Devices", 0x1002), ("Intel", 0x8086)]
        .iter()
        .find(|(words, _)| name.contains(words))
        .map(|(_, vendor)| VendorDevice { vendor: *vendor, device: 0 });
    listed.id = ids.or(maker);
    Some(device)
}

/// `Region 1: Memory at 40060000000 (64-bit, prefetchable) [size=256M]`.
fn region(line: &str) -> Option<Bar> {
    let (index, rest) = line.strip_prefix("Region ")?.split_once(": Memory at ")?;
    let (start, rest) = rest.split_once(' ')?;
    let assigned = start != "<unassigned>" && start != "<ignored>";
    let start = u64::from_str_radix(start, 16).unwrap_or(0);
    let size = rest.split_once("[size=").and_then(|(_, size)| size.split_once(']'));
    Some(Bar {
        index: index.parse().ok()?,
        start: BusAddress(start),
        size: size.and_then(|(size, _)| bytes(size)).unwrap_or(0),
        memory: true,
        prefetchable: rest.contains(", prefetchable"),
        width: if rest.contains("64-bit") { 64 } else { 32 },
        assigned: assigned && start > 0,
    })
}

fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.chars().last()? {
        'K' => (text.trim_end_matches('K'), 10),
        'M' => (text.trim_end_matches('M'), 20),
        'G' => (text.trim_end_matches('G'), 30),
        'T' => (text.trim_end_matches('T'), 40),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_regions_and_access_control() {
        let mut material = Material::default();
        let text = "c1:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2331] (rev a1)\n\
            \tRegion 1: Memory at 40060000000 (64-bit, prefetchable) [size=256M]\n\
            \tRegion 3: Memory at <unassigned> (64-bit, prefetchable)\n\
            \tKernel driver in use: vfio-pci\n\
            c0:01.0 PCI bridge: Somebody Bridge\n\
            \t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir- UpstreamFwd- EgressCtrl-\n";
        assert!(read(text, &mut material));
        let gpu = &material.devices[&"0000:c1:00.0".parse().unwrap()];
        assert_eq!((gpu.class, gpu.driver.as_deref()), (Some(0x03_0200), Some("vfio-pci")));
        assert_eq!(gpu.id.unwrap().to_string(), "10de:2331");
        assert_eq!((gpu.bars[0].size, gpu.bars[1].assigned), (256 << 20, false));
        assert_eq!(material.acs.len(), 1);
        assert!(material.acs[0].redirects);
    }

    #[test]
    fn the_output_of_a_search_names_no_port() {
        let mut material = Material::default();
        let text = "\t\tACSCtl: SrcValid+ TransBlk- ReqRedir- CmpltRedir- EgressCtrl-\n";
        assert!(read(text, &mut material));
        assert_eq!(material.acs, [AcsControl { device: None, redirects: false }]);
        assert!(!read("no listing\n", &mut Material::default()));
    }
}
