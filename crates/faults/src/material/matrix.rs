//! Tables of `p2pBandwidthLatencyTest` and of `nvbandwidth`: who can reach whom, and how fast.

use std::collections::BTreeMap;

use peerway_core::address::PciAddress;

/// What such a program printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrices {
    /// Devices by index.
    pub devices: BTreeMap<u32, PciAddress>,
    /// Pairs that the driver says can reach each other.
    pub can: u32,
    /// Pairs that it says cannot.
    pub cannot: u32,
    /// Copies between different devices with peer access off, GB/s.
    pub disabled: Vec<f64>,
    /// The same with peer access on.
    pub enabled: Vec<f64>,
}

/// Reads a program's output.
pub fn read(text: &str) -> Option<Matrices> {
    let mut found = Matrices::default();
    let mut is_table = false;
    let mut table: Option<bool> = None;
    for line in text.lines() {
        let line = line.trim();
        if line.contains("Bandwidth") && line.contains("Matrix (GB/s)") {
            is_table = true;
            // Reads and writes in one direction; both directions at once are another quantity.
            table = line.starts_with("Unidirectional").then(|| line.contains("P2P=Enabled"));
        } else if line.contains("P2P Connectivity Matrix") {
            is_table = true;
            table = None;
        } else if let Some(rest) = line.strip_prefix("Device: ") {
            device(rest, &mut found);
        } else if line.starts_with("Device=") && line.contains("Access Peer Device=") {
            is_table = true;
            found.cannot += u32::from(line.contains(" CANNOT "));
            found.can += u32::from(line.contains(" CAN "));
        } else if let Some(enabled) = table {
            let Some(row) = row(line) else {
                if !line.contains("D\\D") && !line.is_empty() {
                    table = None;
                }
                continue;
            };
            if enabled { found.enabled.extend(row) } else { found.disabled.extend(row) }
        }
    }
    is_table.then_some(found)
}

/// `0, GeForce GTX 1080 Ti, pciBusID: 82, pciDeviceID: 0, pciDomainID:0`: hexadecimal.
fn device(rest: &str, found: &mut Matrices) {
    let number = |name: &str| {
        let (_, after) = rest.split_once(name)?;
        let digits = after.trim_start().split(',').next()?;
        u32::from_str_radix(digits.trim(), 16).ok()
    };
    let index = rest.split(',').next().and_then(|index| index.trim().parse().ok());
    let (Some(index), Some(bus)) = (index, number("pciBusID:")) else { return };
    let slot = number("pciDeviceID:").unwrap_or(0);
    let domain = number("pciDomainID:").unwrap_or(0);
    let (Ok(bus), Ok(slot)) = (u8::try_from(bus), u8::try_from(slot)) else { return };
    if let Some(address) = PciAddress::new(domain, bus, slot, 0) {
        found.devices.insert(index, address);
    }
}

/// A row's values without the diagonal.
fn row(line: &str) -> Option<Vec<f64>> {
    let mut words = line.split_whitespace();
    let index: usize = words.next()?.parse().ok()?;
    let values: Option<Vec<f64>> = words.map(|word| word.parse().ok()).collect();
    let values = values.filter(|values| values.len() > 1)?;
    Some(
        values
            .into_iter()
            .enumerate()
            .filter(|(column, _)| *column != index)
            .map(|(_, value)| value)
            .collect(),
    )
}

impl Matrices {
    /// Mean of both kinds of copy, where both were measured.
    pub fn means(&self) -> Option<(f64, f64)> {
        Some((mean(&self.disabled)?, mean(&self.enabled)?))
    }
}

#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "tables are short")]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_capabilities() {
        let text = "Device: 0, Some GPU, pciBusID: a1, pciDeviceID: 0, pciDomainID:0\n\
            Device=0 CAN Access Peer Device=1\nDevice=1 CANNOT Access Peer Device=0\n\
            Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0      1\n     0 911.0  \
            20.0\n     1  22.0 920.0\nUnidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix \
            (GB/s)\n   D\\D     0      1\n     0 912.0   9.0\n     1   9.0 922.0\n";
        let found = read(text).unwrap();
        assert_eq!(found.devices[&0].to_string(), "0000:a1:00.0");
        assert_eq!((found.can, found.cannot), (1, 1));
        assert_eq!(found.means(), Some((21.0, 9.0)));
        assert_eq!(read("nothing"), None);
    }
}
