//! Configuration space as hardware shows it (PCI Express Base Specification, chapter 7).

use peerway_core::snapshot::pci::Acs;
use peerway_read::tree::Node;

use super::model::Link;

/// Bytes of configuration space of a PCI Express function.
const SIZE: usize = 4096;
const POWER_MANAGEMENT: usize = 0x40;
const PCI_EXPRESS: usize = 0x60;
/// End of the PCI Express capability structure, version 2.
const STANDARD_END: usize = PCI_EXPRESS + 0x3c;
const EXTENDED: usize = 0x100;

/// Configuration space of one function under construction.
#[derive(Debug)]
pub(super) struct ConfigSpace {
    bytes: Vec<u8>,
    /// Offset of the last extended capability, whose next pointer is still 0.
    last: Option<usize>,
    /// First free byte for an extended capability.
    end: usize,
    hidden: bool,
}

/// The identity part of the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) vendor: u16,
    pub(super) device: u16,
    pub(super) class: u32,
    pub(super) command: u16,
    pub(super) multifunction: bool,
    pub(super) bridge: bool,
}

/// What the PCI Express capability says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Express {
    pub(super) type_code: u16,
    pub(super) best: Link,
    pub(super) current: Link,
    pub(super) function_level_reset: bool,
}

/// Numbers and windows of a bridge.
#[derive(Clone, Copy, Debug)]
pub(super) struct BridgeNumbers {
    pub(super) primary: u8,
    pub(super) secondary: u8,
    pub(super) subordinate: u8,
    pub(super) memory: Option<(u64, u64)>,
    pub(super) prefetch: Option<(u64, u64)>,
}

impl ConfigSpace {
    pub(super) fn new(header: Header, hidden: bool) -> Self {
        let mut space = Self { bytes: vec![0; SIZE], last: None, end: EXTENDED, hidden };
        space.put16(0x00, header.vendor);
        space.put16(0x02, header.device);
        space.put16(0x04, header.command);
        // Capability list present.
        space.put16(0x06, 0x0010);
        space.put32(0x08, header.class << 8 | 0xa1);
        space.put8(0x0c, 0x10);
        let layout = u8::from(header.bridge) | u8::from(header.multifunction) << 7;
        space.put8(0x0e, layout);
        space.put8(0x34, 0x40);
        space.put8(0x3c, 0xff);
        space.put8(0x3d, 1);
        // Power management, version 3, D0.
        space.put32(POWER_MANAGEMENT, 0xc803_6001);
        space.put32(POWER_MANAGEMENT + 4, 0x0000_0008);
        space
    }

    /// A conventional function inside the root complex: power management only.
    pub(super) fn without_express(&mut self) {
        self.put8(POWER_MANAGEMENT + 1, 0);
    }

    pub(super) fn subsystem(&mut self, (vendor, device): (u16, u16)) {
        self.put16(0x2c, vendor);
        self.put16(0x2e, device);
    }

    /// A BAR register, two for a 64-bit one. `index` counts from 0.
    pub(super) fn bar(&mut self, index: u8, value: u64, wide: bool) {
        let at = 0x10 + 4 * usize::from(index);
        self.put32(at, half(value));
        if wide {
            self.put32(at + 4, half(value >> 32));
        }
    }

    pub(super) fn bridge(&mut self, numbers: BridgeNumbers) {
        self.put(0x18, &[numbers.primary, numbers.secondary, numbers.subordinate, 0]);
        // A window whose base lies above its limit is closed.
        self.put(0x1c, &[0xf1, 0x01]);
        let (base, limit) = numbers.memory.unwrap_or((0xfff0_0000, 0));
        self.put16(0x20, low(base >> 16) & 0xfff0);
        self.put16(0x22, low(limit >> 16) & 0xfff0);
        let (base, limit) = numbers.prefetch.unwrap_or((0xfff0_0000, 0));
        self.put16(0x24, low(base >> 16) & 0xfff0 | 1);
        self.put16(0x26, low(limit >> 16) & 0xfff0 | 1);
        self.put32(0x28, half(base >> 32));
        self.put32(0x2c, half(limit >> 32));
        self.put16(0x3e, 0x0002);
    }

    pub(super) fn express(&mut self, express: Express) {
        let Express { type_code, best, current, .. } = express;
        self.put8(POWER_MANAGEMENT + 1, 0x60);
        let port = matches!(type_code, 4 | 6);
        let slot = if port { 0x100 } else { 0 };
        self.put32(PCI_EXPRESS, u32::from(0x0002 | type_code << 4 | slot) << 16 | 0x0010);
        // Payload up to 512 bytes, extended tags; FLR is bit 28.
        let reset = u32::from(express.function_level_reset) << 28;
        self.put32(PCI_EXPRESS + 0x04, 0x0000_8022 | reset);
        // Payload of 256 bytes, reads of 512, extended tags on, relaxed ordering.
        self.put16(PCI_EXPRESS + 0x08, 0x2930);
        self.put32(
            PCI_EXPRESS + 0x0c,
            u32::from(best.generation) | u32::from(best.width) << 4 | 0x0040_0c00,
        );
        self.put16(PCI_EXPRESS + 0x10, 0x0040);
        // Bit 13: the data link layer is up (ports only).
        let up = u16::from(port) << 13;
        let status = u16::from(current.generation) | u16::from(current.width) << 4 | 0x1000 | up;
        self.put16(PCI_EXPRESS + 0x12, status);
        self.put32(PCI_EXPRESS + 0x24, 0x0001_0012);
        self.put16(PCI_EXPRESS + 0x28, 0x0009);
        let speeds = (1_u32 << best.generation.min(7)) - 1;
        self.put32(PCI_EXPRESS + 0x2c, speeds << 1);
        self.put16(PCI_EXPRESS + 0x30, u16::from(best.generation));
        self.extended(0x0001, 2, 0x48);
    }

    /// Access Control Services (7.7.11).
    pub(super) fn acs(&mut self, acs: Acs) {
        let at = self.extended(0x000d, 1, 8);
        self.put16(at + 4, acs.capability);
        self.put16(at + 6, acs.control);
    }

    /// Address Translation Services (10.5.1).
    pub(super) fn ats(&mut self, enabled: bool) {
        let at = self.extended(0x000f, 1, 8);
        self.put16(at + 4, 0x0020);
        self.put16(at + 6, u16::from(enabled) << 15);
    }

    /// PASID, 16 bits wide (7.8.8).
    pub(super) fn pasid(&mut self) {
        let at = self.extended(0x001b, 1, 8);
        self.put16(at + 4, 0x1006);
    }

    /// Resizable BAR with one entry (7.8.6): sizes from 64 MiB to `largest`.
    pub(super) fn resizable(&mut self, index: u8, current: u64, largest: u64) {
        let at = self.extended(0x0015, 1, 12);
        let code = |size: u64| size.max(1 << 20).trailing_zeros().saturating_sub(20);
        // Bit n + 4 stands for 2^n MiB; the sizes above 2^27 MiB have no bit here.
        let sizes = (6..=code(largest).min(27)).fold(0_u32, |bits, n| bits | 1 << (n + 4));
        self.put32(at + 4, sizes);
        self.put32(at + 8, u32::from(index) | 1 << 5 | code(current) << 8);
    }

    /// Adds an extended capability and gives its offset.
    fn extended(&mut self, id: u16, version: u16, length: usize) -> usize {
        let at = self.end;
        self.end = (at + length).next_multiple_of(4);
        if let Some(last) = self.last {
            // Version in bits 3:0, next offset in bits 15:4.
            let version = self.bytes.get(last + 2).copied().unwrap_or(0) & 0x0f;
            let next = u16::try_from(at).unwrap_or(0) << 4;
            self.put16(last + 2, next | u16::from(version));
        }
        self.last = Some(at);
        if self.hidden {
            // The hypervisor leaves the chain and takes the name away.
            self.put32(at, 0);
        } else {
            self.put16(at, id);
            self.put16(at + 2, version);
        }
        at
    }

    /// As a node that holds the recorded parts: the header with the standard capabilities, and
    /// the extended ones, as far as the reader may see.
    pub(super) fn into_node(self, readable: u64) -> Node {
        let limit = usize::try_from(readable).unwrap_or(SIZE);
        let part = |start: usize, end: usize| {
            let bytes = self.bytes.get(start..end.min(limit)).unwrap_or_default();
            (u64::try_from(start).unwrap_or(0), bytes.to_vec())
        };
        let end = (self.end + 4).next_multiple_of(32).min(SIZE);
        let mut parts = vec![part(0, STANDARD_END.next_multiple_of(32)), part(EXTENDED, end)];
        parts.retain(|(_, bytes)| !bytes.is_empty());
        Node::Sparse { size: 4096, readable, parts }
    }

    fn put8(&mut self, at: usize, value: u8) {
        self.put(at, &[value]);
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    }
}

/// Configuration space of a device that no longer answers.
pub(super) fn dead() -> Node {
    Node::File(vec![0xff; SIZE])
}

fn low(value: u64) -> u16 {
    let [a, b, ..] = value.to_le_bytes();
    u16::from_le_bytes([a, b])
}

fn half(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
