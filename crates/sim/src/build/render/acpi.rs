//! ACPI tables of the IOMMU: `IVRS` (AMD I/O Virtualization Technology specification, chapter 5)
//! and `DMAR` (Intel VT-d specification, chapter 8).

use peerway_read::tree::Node;

use super::super::files::Files;
use super::super::layout::Placed;
use super::super::{HostBuilder, Iommu};

const HEADER: usize = 36;

pub(super) fn render(host: &HostBuilder, placed: &[Placed], files: &mut Files) {
    let (name, table) = match host.iommu {
        Iommu::Amd { efr, efr2 } => ("IVRS", ivrs(placed, efr, efr2)),
        Iommu::Intel { .. } => ("DMAR", dmar(host)),
        Iommu::Smmu | Iommu::Off => return,
    };
    files.node(&format!("/sys/firmware/acpi/tables/{name}"), Node::File(table));
}

fn ivrs(placed: &[Placed], efr: u64, efr2: u64) -> Vec<u8> {
    // IVinfo: feature registers valid, 48 bits physical, 48 bits virtual.
    let mut body = (1_u32 | 48 << 8 | 48 << 15).to_le_bytes().to_vec();
    body.extend([0; 8]);
    let units = placed.iter().filter(|one| one.is_iommu());
    for (index, one) in (0_u64..).zip(units) {
        let id = u16::from(one.address.bus()) << 8 | 2;
        let segment = u16::try_from(one.address.domain()).unwrap_or(0);
        // One block of type 0x11: 40 bytes and two device entries (range start and end).
        body.extend([0x11, 0xb0]);
        body.extend(48_u16.to_le_bytes());
        body.extend(id.to_le_bytes());
        body.extend(0x40_u16.to_le_bytes());
        body.extend((0xf000_0000_u64 + index * 0x10_0000).to_le_bytes());
        body.extend(segment.to_le_bytes());
        body.extend([0; 6]);
        body.extend(efr.to_le_bytes());
        body.extend(efr2.to_le_bytes());
        let [_, bus] = id.to_le_bytes();
        body.extend([3, 3, bus, 0]);
        body.extend([4, 0xff, bus | 0x0f, 0]);
    }
    table(*b"IVRS", &body)
}

fn dmar(host: &HostBuilder) -> Vec<u8> {
    // Address width less one, flags: interrupt remapping.
    let mut body = vec![51, 1];
    body.extend([0; 10]);
    for (index, root) in (0_u64..).zip(&host.roots) {
        // One DRHD with a scope that names a bridge on the root bus.
        body.extend([0, 0, 24, 0, 0, 0]);
        body.extend(u16::try_from(root.domain).unwrap_or(0).to_le_bytes());
        body.extend((0xd0ff_c000_u64 + index * 0x0100_0000).to_le_bytes());
        body.extend([2, 8, 0, 0, 0, root.bus, 1, 0]);
    }
    table(*b"DMAR", &body)
}

fn table(signature: [u8; 4], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(0);
    let mut table = signature.to_vec();
    table.extend(length.to_le_bytes());
    table.extend([2, 0]);
    table.extend(*b"PEERWYSIMULATE\0\0\0\0\0\0\0\0\0\0\0\0");
    table.extend(body);
    let sum = table.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if let Some(place) = table.get_mut(9) {
        *place = 0_u8.wrapping_sub(sum);
    }
    table
}
