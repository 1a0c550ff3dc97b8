//! Memory regions as JSON: this program's own inventory, or an object by PCI address.

use peerway_core::address::{BusAddress, PciAddress};
use peerway_core::snapshot::iommu::DomainType;
use peerway_core::snapshot::pci::Bar;
use serde_json::{Map, Value};

use super::Material;
use super::peer_test::{PeerTest, says_not_arrived};

/// Above this a region is 64 bits wide.
const FOUR_GIB: u64 = 1 << 32;
/// What a region is taken to be at most, where only its start is said.
const LARGEST: u64 = 1 << 40;

/// Reads an object; whether it said anything.
pub fn read(text: &str, material: &mut Material) -> bool {
    if !text.trim_start().starts_with('{') {
        return false;
    }
    let Ok(Value::Object(object)) = serde_json::from_str::<Value>(text) else { return false };
    if let Some(devices) = object.get("devices").and_then(Value::as_array) {
        return devices.iter().filter(|device| inventory(device, material)).count() > 0;
    }
    let mut said = false;
    for (name, value) in &object {
        let (Ok(device), Some(facts)) = (name.parse::<PciAddress>(), value.as_object()) else {
            continue;
        };
        said |= by_address(device, facts, material);
    }
    // Facts that somebody wrote down beside a test.
    let mut statements = object.values().filter_map(Value::as_str);
    if statements.any(says_not_arrived) {
        material.peer_tests.push(PeerTest { failed: true, ..PeerTest::default() });
        said = true;
    }
    if let Some(kind) = object.get("iommu_group_type").and_then(Value::as_str) {
        material.domain = Some(DomainType::from_word(kind));
        said = true;
    }
    said
}

/// `{"address": …, "bars": [{"index", "start", "size"}]}`.
fn inventory(device: &Value, material: &mut Material) -> bool {
    let address = device.get("address").and_then(Value::as_str);
    let Some(Ok(address)) = address.map(str::parse::<PciAddress>) else { return false };
    let listed = material.devices.entry(address).or_default();
    let text = |name: &str| device.get(name).and_then(Value::as_str);
    listed.driver = text("driver").map(str::to_owned).or(listed.driver.take());
    listed.class = text("class").and_then(hex).and_then(|class| u32::try_from(class).ok());
    for bar in device.get("bars").and_then(Value::as_array).into_iter().flatten() {
        let number = |name: &str| bar.get(name).and_then(number);
        let (Some(index), Some(start)) = (number("index"), number("start")) else { continue };
        let size = number("size").unwrap_or(0);
        listed.bars.push(region(u8::try_from(index).unwrap_or(7), start, size));
    }
    true
}

/// `{"bar0": "0x…", "bar1": {"start": "0x…", "size": 1}}`.
fn by_address(device: PciAddress, facts: &Map<String, Value>, material: &mut Material) -> bool {
    let mut bars = Vec::new();
    for (name, value) in facts {
        let digits = name.to_ascii_lowercase();
        let Some(index) = digits.strip_prefix("bar").and_then(|index| index.parse::<u8>().ok())
        else {
            continue;
        };
        let start = value.get("start").and_then(number).or_else(|| number(value));
        let Some(start) = start.filter(|start| *start > 0) else { continue };
        let size = value.get("size").and_then(number);
        if size.is_none() {
            material.unsized_bars.insert((device, index));
        }
        // A region begins at a multiple of its size.
        let bound =
            start.checked_next_power_of_two().map_or(LARGEST, |_| 1 << start.trailing_zeros());
        bars.push(region(index, start, size.unwrap_or(bound.min(LARGEST))));
    }
    if bars.is_empty() {
        return false;
    }
    material.devices.entry(device).or_default().bars.extend(bars);
    true
}

fn region(index: u8, start: u64, size: u64) -> Bar {
    Bar {
        index,
        start: BusAddress(start),
        size,
        memory: true,
        prefetchable: start >= FOUR_GIB,
        width: if start >= FOUR_GIB { 64 } else { 32 },
        assigned: start > 0,
    }
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str().and_then(hex))
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_by_address() {
        let mut material = Material::default();
        let text = r#"{"0000:01:00.0": {"bar0": "0x50000000", "bar1": "0x3000000000"},
                       "0000:02:00.0": {"bar1": {"start": "0x3800000000", "size": 1024}},
                       "iommu_group_type": "DMA"}"#;
        assert!(read(text, &mut material));
        let first = &material.devices[&"0000:01:00.0".parse().unwrap()];
        assert_eq!(first.bars[1].start, BusAddress(0x30_0000_0000));
        assert_eq!(first.bars[1].size, 0x10_0000_0000);
        assert_eq!(material.unsized_bars.len(), 2);
        assert_eq!(material.domain, Some(DomainType::Dma));
    }

    #[test]
    fn an_inventory_of_this_program() {
        let mut material = Material::default();
        let text = r#"{"schema": "peerway/scan/1", "devices": [{"address": "0000:01:00.0",
            "class": "0x030200", "driver": "nvidia",
            "bars": [{"index": 2, "start": "0x24000000000", "size": 137438953472}]}]}"#;
        assert!(read(text, &mut material));
        let device = &material.devices[&"0000:01:00.0".parse().unwrap()];
        assert_eq!(device.bars[0].size, 128 << 30);
        assert_eq!(device.class, Some(0x03_0200));
    }

    #[test]
    fn other_objects_say_nothing() {
        for text in ["{}", "[1]", "{\"host\": \"x\"}", "{", "not json"] {
            assert!(!read(text, &mut Material::default()), "{text}");
        }
    }
}
