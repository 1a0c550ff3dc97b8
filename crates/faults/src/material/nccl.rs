//! NCCL and RCCL logs: which transport was chosen for whom.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;

/// What such logs say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nccl {
    /// Whether there is one.
    pub seen: bool,
    /// Channels by transport: `P2P/IPC`, `SHM/direct/direct`, `NET/IB/0`.
    pub transports: BTreeMap<String, u64>,
    /// Devices that channels name.
    pub devices: BTreeSet<PciAddress>,
    /// Whether rings or trees were connected at last.
    pub connected: bool,
    /// The first warning or failure.
    pub failure: Option<String>,
}

/// Warnings that mean nothing: no InfiniBand, no plugin.
const HARMLESS: [&str; 3] = ["libibverbs", "No plugin found", "NET/Plugin"];

impl Nccl {
    /// Reads a log; whether it is one.
    pub fn read(&mut self, text: &str) -> bool {
        let is = ["NCCL INFO", "NCCL WARN", "NCCL version", "RCCL version"]
            .iter()
            .any(|words| text.contains(words));
        if !is {
            return false;
        }
        self.seen = true;
        for line in text.lines() {
            if let Some((channel, transport)) = line.split_once(" via ")
                && channel.contains("Channel ")
            {
                let transport = transport.split(" comm ").next().unwrap_or(transport).trim();
                *self.transports.entry(transport.to_owned()).or_default() += 1;
                self.devices.extend(channel.split(['[', ']']).filter_map(bus_id));
            }
            if let Some((_, rest)) = line.split_once("busId ") {
                self.devices.extend(rest.split_whitespace().next().and_then(bus_id));
            }
            self.connected |= line.contains("Connected all");
            let failed = line.contains("NCCL WARN")
                || line.contains("CUDA failure")
                || line.contains("illegal memory access")
                || line.contains("unhandled cuda error");
            if failed && !HARMLESS.iter().any(|words| line.contains(words)) {
                self.failure.get_or_insert_with(|| line.trim().chars().take(160).collect());
            }
        }
        true
    }

    /// Whether peer access over PCIe carries any channel.
    pub fn uses_p2p(&self) -> bool {
        self.transports.keys().any(|transport| transport.starts_with("P2P"))
    }
}

/// `1[21000]`: the device as a number, domain, bus (8 bits), device (8), function (4). Newer
/// versions print an index there, which is smaller than any bus.
fn bus_id(text: &str) -> Option<PciAddress> {
    let number = u64::from_str_radix(text, 16).ok().filter(|number| *number >= 0x1000)?;
    if text.len() > 12 {
        return None;
    }
    let byte = |shift: u32| u8::try_from(number >> shift & 0xff).ok();
    let domain = u32::try_from(number >> 20).ok()?;
    let function = u8::try_from(number & 0xf).ok()?;
    PciAddress::new(domain, byte(12)?, byte(4)?, function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_and_devices() {
        let mut nccl = Nccl::default();
        let text = "[1] NCCL INFO Channel 00 : 1[41000] -> 0[11000] via P2P/IPC\n\
            h:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via SHM/direct/direct\n\
            [1] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n";
        assert!(nccl.read(text));
        let devices: Vec<String> = nccl.devices.iter().map(ToString::to_string).collect();
        assert_eq!(devices, ["0000:11:00.0", "0000:41:00.0"]);
        assert!(nccl.uses_p2p());
        assert_eq!(nccl.transports.len(), 2);
        assert!(!nccl.connected);
        assert_eq!(nccl.failure, None);
        assert!(!Nccl::default().read("nothing"));
    }
}
