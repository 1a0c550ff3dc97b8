//! The ACPI tables of IOMMUs.

use peerway_read::parse::acpi;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    if let Ok(table) = acpi::ivrs(bytes) {
        assert!(table.units.windows(2).all(|two| two[0].address < two[1].address));
    }
    if let Ok(table) = acpi::dmar(bytes) {
        assert!(table.units as usize <= bytes.len() / 4);
    }
}
