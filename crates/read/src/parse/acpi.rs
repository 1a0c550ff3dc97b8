//! The ACPI tables that describe IOMMUs: `IVRS` (AMD I/O Virtualization Technology specification,
//! chapter 5) and `DMAR` (Intel VT-d specification, chapter 8).
//!
//! Every offset is checked; a table that is shorter than it says is refused, and a block that does
//! not fit ends the walk.

use std::collections::BTreeMap;

use peerway_core::address::{BusAddress, PciAddress};
use peerway_core::snapshot::firmware::{Dmar, Ivrs, IvrsUnit, UnityRange};
use thiserror::Error;

/// Why a table was refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TableError {
    /// Another table, or none.
    #[error("the table is no {expected}")]
    Signature {
        /// What was looked for.
        expected: &'static str,
    },
    /// The header announces more bytes than there are.
    #[error("the table is cut: {announced} bytes announced, {there} there")]
    Cut {
        /// By the header.
        announced: u64,
        /// In the file.
        there: u64,
    },
}

/// Both tables: blocks begin behind 48 bytes.
const FIRST_BLOCK: usize = 48;

fn byte(table: &[u8], at: usize) -> Option<u8> {
    table.get(at).copied()
}

fn u16_at(table: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*table.get(at..)?.first_chunk()?))
}

fn u32_at(table: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*table.get(at..)?.first_chunk()?))
}

fn u64_at(table: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*table.get(at..)?.first_chunk()?))
}

/// The table within its own length.
fn table<'a>(bytes: &'a [u8], signature: &'static str) -> Result<&'a [u8], TableError> {
    let wrong = TableError::Signature { expected: signature };
    if !bytes.starts_with(signature.as_bytes()) {
        return Err(wrong);
    }
    let length = u32_at(bytes, 4).ok_or(wrong)?;
    let announced = u64::from(length);
    let there = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let within = usize::try_from(length).ok().and_then(|length| bytes.get(..length));
    within.filter(|table| table.len() >= FIRST_BLOCK).ok_or(TableError::Cut { announced, there })
}

/// Blocks of a table: the block, and nothing past the first that does not fit.
fn blocks(table: &[u8], length_of: impl Fn(&[u8]) -> Option<u16>) -> Vec<&[u8]> {
    let mut blocks = Vec::new();
    let mut rest = table.get(FIRST_BLOCK..).unwrap_or_default();
    while let Some(length) = length_of(rest).map(usize::from) {
        // Four bytes are the shortest head; less would never end.
        let Some((block, after)) = rest.split_at_checked(length).filter(|_| length >= 4) else {
            break;
        };
        blocks.push(block);
        rest = after;
    }
    blocks
}

/// IVHD types by what the kernel takes: the highest one wins for each IOMMU
/// (`drivers/iommu/amd/init.c`, `get_highest_supported_ivhd_type`).
const IVHD: [u8; 3] = [0x10, 0x11, 0x40];

/// IVMD flags: unity mapping, exclusion range. Linux makes both a mapping one to one.
const IVMD_MAPPED: u8 = 0x01 | 0x08;

/// Reads an `IVRS` table.
pub fn ivrs(bytes: &[u8]) -> Result<Ivrs, TableError> {
    let table = table(bytes, "IVRS")?;
    let info = u32_at(table, 36).unwrap_or(0);
    let mut ivrs = Ivrs { efr_valid: info & 1 != 0, dma_remap: info & 2 != 0, ..Ivrs::default() };
    let mut units: BTreeMap<PciAddress, (u8, IvrsUnit)> = BTreeMap::new();
    for block in blocks(table, |rest| u16_at(rest, 2)) {
        match byte(block, 0) {
            Some(kind) if IVHD.contains(&kind) => {
                if let Some(unit) = ivhd(kind, block) {
                    add_unit(&mut units, kind, unit);
                }
            }
            Some(0x20..=0x22) => ivrs.memory.extend(ivmd(block)),
            _ => {}
        }
    }
    ivrs.units = units.into_values().map(|(_, unit)| unit).collect();
    Ok(ivrs)
}

fn add_unit(units: &mut BTreeMap<PciAddress, (u8, IvrsUnit)>, kind: u8, unit: IvrsUnit) {
    let there = units.get(&unit.address).map(|(kind, _)| *kind);
    if there.is_none_or(|there| there < kind) {
        units.insert(unit.address, (kind, unit));
    }
}

fn ivhd(kind: u8, block: &[u8]) -> Option<IvrsUnit> {
    let requester = u16_at(block, 4)?;
    let segment = u16_at(block, 16)?;
    // The first type has no feature registers.
    let register = |at| if kind == 0x10 { Some(0) } else { u64_at(block, at) };
    Some(IvrsUnit {
        address: PciAddress::from_requester_id(u32::from(segment), requester),
        efr: register(24)?,
        efr2: register(32)?,
    })
}

fn ivmd(block: &[u8]) -> Option<UnityRange> {
    let flags = byte(block, 1)?;
    let range = UnityRange { start: BusAddress(u64_at(block, 16)?), size: u64_at(block, 24)? };
    (flags & IVMD_MAPPED != 0).then_some(range)
}

/// Reads a `DMAR` table.
pub fn dmar(bytes: &[u8]) -> Result<Dmar, TableError> {
    let table = table(bytes, "DMAR")?;
    let flags = byte(table, 37).unwrap_or(0);
    let mut dmar = Dmar {
        address_width: byte(table, 36).unwrap_or(0).saturating_add(1),
        interrupt_remapping: flags & 1 != 0,
        x2apic_opt_out: flags & 2 != 0,
        dma_control_opt_in: flags & 4 != 0,
        remapping_off: flags & 8 != 0,
        units: 0,
        memory: Vec::new(),
    };
    for block in blocks(table, |rest| u16_at(rest, 2)) {
        match u16_at(block, 0) {
            Some(0) => dmar.units += 1,
            Some(1) => dmar.memory.extend(rmrr(block)),
            _ => {}
        }
    }
    Ok(dmar)
}

fn rmrr(block: &[u8]) -> Option<UnityRange> {
    let (start, end) = (u64_at(block, 8)?, u64_at(block, 16)?);
    // The end is inclusive.
    let size = end.checked_sub(start)?.saturating_add(1);
    Some(UnityRange { start: BusAddress(start), size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table of a head and blocks, with its length filled in.
    fn table_of(signature: &str, head: [u8; 12], blocks: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = signature.as_bytes().to_vec();
        bytes.resize(36, 0);
        bytes.extend(head);
        bytes.extend(blocks.concat());
        let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
        bytes.splice(4..8, length);
        bytes
    }

    /// Fields by offset in a block of a length.
    fn block(length: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (at, field) in fields {
            bytes.splice(*at..*at + field.len(), field.iter().copied());
        }
        bytes
    }

    fn ivhd_block(kind: u8, requester: u16, efr: u64) -> Vec<u8> {
        let length = if kind == 0x10 { 24 } else { 40 };
        let head = [kind, 0, length, 0];
        let mut fields: Vec<(usize, &[u8])> = vec![(0, &head)];
        let (requester, efr) = (requester.to_le_bytes(), efr.to_le_bytes());
        fields.push((4, &requester));
        fields.push((16, &[1, 0]));
        if kind != 0x10 {
            fields.push((24, &efr));
            fields.push((32, &[0, 0x20]));
        }
        block(usize::from(length), &fields)
    }

    #[track_caller]
    fn check_ivrs(bytes: &[u8], expected: &str) {
        let seen = match ivrs(bytes) {
            Ok(ivrs) => {
                let units: Vec<String> = ivrs
                    .units
                    .iter()
                    .map(|unit| format!("{} {:#x} {:#x}", unit.address, unit.efr, unit.efr2))
                    .collect();
                let memory: Vec<String> = ivrs
                    .memory
                    .iter()
                    .map(|range| format!("{}+{:#x}", range.start, range.size))
                    .collect();
                format!(
                    "efr {} remap {} [{}] [{}]",
                    ivrs.efr_valid,
                    ivrs.dma_remap,
                    units.join(", "),
                    memory.join(", ")
                )
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(seen, expected);
    }

    const INFO: [u8; 12] = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn amd() {
        let efr = 1 << 63 | 0x246;
        let unity =
            block(32, &[(0, &[0x22, 1, 32, 0]), (16, &[0, 0, 0x10, 0x7b]), (24, &[0, 0x80])]);
        let plain = block(32, &[(0, &[0x21, 6, 32, 0]), (16, &[0, 0, 0x20]), (24, &[0, 0x10])]);
        check_ivrs(
            &table_of(
                "IVRS",
                INFO,
                &[
                    ivhd_block(0x10, 0xc002, 0),
                    ivhd_block(0x10, 0x0002, 0),
                    ivhd_block(0x40, 0x0002, efr),
                    ivhd_block(0x11, 0x0002, 1),
                    unity,
                    plain,
                ],
            ),
            "efr true remap true [0001:00:00.2 0x8000000000000246 0x2000, 0001:c0:00.2 0x0 0x0] \
             [0x7b100000+0x8000]",
        );
        check_ivrs(&table_of("IVRS", [0; 12], &[]), "efr false remap false [] []");
    }

    #[test]
    fn broken_tables() {
        let whole = table_of("IVRS", INFO, &[ivhd_block(0x11, 0x0002, 1)]);
        check_ivrs(b"", "the table is no IVRS");
        check_ivrs(b"IVRS", "the table is no IVRS");
        check_ivrs(b"DMAR\x30\0\0\0", "the table is no IVRS");
        check_ivrs(&whole[..60], "the table is cut: 88 bytes announced, 60 there");
        check_ivrs(b"IVRS\x08\0\0\0", "the table is cut: 8 bytes announced, 8 there");
        // A block of no length, and one that reaches past the end.
        check_ivrs(&table_of("IVRS", INFO, &[vec![0x11, 0, 0, 0]]), "efr true remap true [] []");
        check_ivrs(&table_of("IVRS", INFO, &[vec![0x11, 0, 200, 0]]), "efr true remap true [] []");
        // A block too short for its own fields.
        check_ivrs(
            &table_of("IVRS", INFO, &[block(20, &[(0, &[0x11, 0, 20, 0])])]),
            "efr true remap true [] []",
        );
    }

    #[track_caller]
    fn check_dmar(bytes: &[u8], expected: &str) {
        let seen = match dmar(bytes) {
            Ok(dmar) => {
                let memory: Vec<String> = dmar
                    .memory
                    .iter()
                    .map(|range| format!("{}+{:#x}", range.start, range.size))
                    .collect();
                let flags = [
                    ("ir", dmar.interrupt_remapping),
                    ("opt-out", dmar.x2apic_opt_out),
                    ("opt-in", dmar.dma_control_opt_in),
                    ("off", dmar.remapping_off),
                ];
                let flags: Vec<&str> =
                    flags.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
                format!(
                    "{} bits [{}] {} units [{}]",
                    dmar.address_width,
                    flags.join(" "),
                    dmar.units,
                    memory.join(", ")
                )
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn intel() {
        let drhd = block(16, &[(2, &[16])]);
        let rmrr =
            block(24, &[(0, &[1, 0, 24]), (8, &[0, 0, 0, 0x7c]), (16, &[0xff, 0xff, 0x0f, 0x7c])]);
        let reversed = block(24, &[(0, &[1, 0, 24]), (8, &[9]), (16, &[1])]);
        check_dmar(
            &table_of(
                "DMAR",
                [45, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                &[drhd.clone(), drhd, rmrr, reversed],
            ),
            "46 bits [ir opt-in] 2 units [0x7c000000+0x100000]",
        );
        check_dmar(
            &table_of("DMAR", [255, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
            "255 bits [opt-out off] 0 units []",
        );
        check_dmar(b"IVRS", "the table is no DMAR");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            head in proptest::sample::select(vec!["IVRS", "DMAR"]),
            length in 0_u32..400,
            rest in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut bytes = head.as_bytes().to_vec();
            bytes.extend(length.to_le_bytes());
            bytes.extend(rest);
            let most = bytes.len() / 4;
            match (ivrs(&bytes), dmar(&bytes)) {
                (Ok(ivrs), Err(_)) => prop_assert!(ivrs.units.len() + ivrs.memory.len() <= most),
                (Err(_), Ok(dmar)) => prop_assert!(dmar.memory.len() <= most),
                (Err(_), Err(_)) => {}
                (Ok(_), Ok(_)) => prop_assert!(false, "two tables in one"),
            }
        }
    }
}
