//! Registry keys of NVIDIA's driver: `RegistryDwords` for all GPUs, `RegistryDwordsPerDevice` for
//! single ones (`kernel-open/nvidia/nv-reg.h`).

use std::fmt;

use crate::address::PciAddress;
use crate::snapshot::Snapshot;

/// Where the driver shows its effective parameters.
pub(super) const PARAMS: &str = "/proc/driver/nvidia/params";

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Whom it is for; all GPUs if absent.
    pub(super) device: Option<PciAddress>,
    /// Its name as written.
    pub(super) name: String,
    /// Its number.
    pub(super) value: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={:#x}", self.name, self.value)?;
        match self.device {
            Some(device) => write!(out, " for {device}"),
            None => Ok(()),
        }
    }
}

impl Key {
    /// The parameter that it stands in.
    pub(super) fn source(&self) -> String {
        let parameter =
            if self.device.is_some() { "RegistryDwordsPerDevice" } else { "RegistryDwords" };
        format!("{PARAMS} ({parameter})")
    }
}

/// All keys with a number.
pub(super) fn keys(snapshot: &Snapshot) -> Vec<Key> {
    let Some(params) = snapshot.nvidia.params.known() else { return Vec::new() };
    let text = |name| params.get(name).map(String::as_str).unwrap_or_default();
    let mut keys = Vec::new();
    for pair in text("RegistryDwords").trim_matches('"').split(';') {
        keys.extend(key(None, pair));
    }
    let mut device = None;
    for pair in text("RegistryDwordsPerDevice").trim_matches('"').split(';') {
        match pair.split_once('=') {
            // Keys belong to the device named before them.
            Some((name, address)) if name.trim().eq_ignore_ascii_case("pci") => {
                device = address.trim().parse().ok();
            }
            Some(_) if device.is_some() => keys.extend(key(device, pair)),
            Some(_) | None => {}
        }
    }
    keys
}

/// Keys of one name, whatever its case.
pub(super) fn keys_named(snapshot: &Snapshot, name: &str) -> Vec<Key> {
    keys(snapshot).into_iter().filter(|key| key.name.eq_ignore_ascii_case(name)).collect()
}

/// What holds for one GPU: its own key before that for all.
pub(super) fn value_for(snapshot: &Snapshot, device: PciAddress, name: &str) -> Option<Key> {
    let keys = keys_named(snapshot, name);
    let own = keys.iter().rfind(|key| key.device == Some(device));
    own.or_else(|| keys.iter().rfind(|key| key.device.is_none())).cloned()
}

fn key(device: Option<PciAddress>, pair: &str) -> Option<Key> {
    let (name, value) = pair.split_once('=')?;
    let value = value.trim();
    let value = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => value.parse().ok()?,
    };
    Some(Key { device, name: name.trim().to_owned(), value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, at};

    #[test]
    fn keys_for_all_and_for_one() {
        let host = Host::amd()
            .parameter("RegistryDwords", "ForceP2P=0x11; RMPcieP2PType=2;Broken;Text=none")
            .parameter("RegistryDwordsPerDevice", "Lost=1;pci=0000:41:00.0;RMPcieP2PType=1");
        let shown: Vec<String> = keys(&host.snapshot).iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            ["ForceP2P=0x11", "RMPcieP2PType=0x2", "RMPcieP2PType=0x1 for 0000:41:00.0"]
        );
        let of = |device| value_for(&host.snapshot, at(device), "rmpciep2ptype").unwrap().value;
        assert_eq!((of(A), of(B)), (2, 1));
    }
}
