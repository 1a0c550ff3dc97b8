//! The ACS control word of a port, in its configuration space.

use peerway_core::address::PciAddress;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::files::Files;

/// First extended capability (PCIe 7.6).
const FIRST: u32 = 0x100;
/// Number of ACS, and where its control word stands in it (PCIe 7.7.11).
const ACS_CAPABILITY: u32 = 0x0d;
const ACS_CONTROL: u32 = 6;
/// No more capabilities fit into 4096 bytes: a list that goes round ends.
const MOST: usize = 1024;

/// Offset of the control word, and the word.
pub(super) fn acs(files: &Files, port: PciAddress) -> Result<(u64, u16), Errno> {
    find(&open(files, port, false)?)
}

/// Sets some bits of the word; the others stay.
pub(super) fn write_acs(
    files: &Files,
    port: PciAddress,
    mask: u16,
    bits: u16,
) -> Result<(), Errno> {
    let file = open(files, port, true)?;
    let (offset, before) = find(&file)?;
    let word = before & !mask | bits & mask;
    match rustix::io::pwrite(&file, &word.to_le_bytes(), offset)? {
        2 => Ok(()),
        _ => Err(Errno::IO),
    }
}

fn open(files: &Files, port: PciAddress, write: bool) -> Result<OwnedFd, Errno> {
    files.registers(&format!("/sys/bus/pci/devices/{port}/config"), write)
}

fn find(file: &OwnedFd) -> Result<(u64, u16), Errno> {
    let mut at = FIRST;
    for _ in 0..MOST {
        let mut header = [0; 4];
        if rustix::io::pread(file, &mut header, u64::from(at))? != header.len() {
            break;
        }
        let header = u32::from_le_bytes(header);
        if header & 0xffff == ACS_CAPABILITY {
            let offset = u64::from(at + ACS_CONTROL);
            let mut word = [0; 2];
            if rustix::io::pread(file, &mut word, offset)? != word.len() {
                break;
            }
            return Ok((offset, u16::from_le_bytes(word)));
        }
        at = header >> 20;
        if at < FIRST {
            break;
        }
    }
    Err(Errno::NXIO)
}
