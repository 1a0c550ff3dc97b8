//! Configuration of Proxmox guests (`qm.conf(5)`, `pct.conf(5)`; `PVE::QemuServer::PCI` and
//! `PVE::Mapping::PCI` read the same lines).
//!
//! Only the part before the first `[section]` is the current state: what follows are pending
//! changes, snapshots and internal data.

use std::collections::BTreeMap;

use peerway_core::address::PciAddress;

use super::lxc::{Container, Grant, Granted, raw, raw_line};

/// A device of the host as a configuration names it: without a function it means all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceSpec {
    /// The function named, or function 0.
    pub address: PciAddress,
    /// No function was named.
    pub all_functions: bool,
}

impl DeviceSpec {
    /// `[dddd:]bb:dd[.f]`; domain 0 without one.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(address) = text.parse() {
            return Some(Self { address, all_functions: false });
        }
        let address = format!("{text}.0").parse().ok()?;
        Some(Self { address, all_functions: true })
    }

    /// Whether a function is meant.
    pub fn covers(self, address: PciAddress) -> bool {
        self.address == address || (self.all_functions && self.address.same_device(address))
    }
}

/// One passed-through device of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passthrough {
    /// The words that ask for it: `hostpci0: 0000:81:00`.
    pub text: String,
    /// The device stays with its own driver (`mdev`, `driver=keep`).
    pub keeps_driver: bool,
    /// What is passed through.
    pub target: Target,
}

/// What a configuration passes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// These devices.
    Devices(Vec<DeviceSpec>),
    /// One of the devices of a mapping.
    Mapping(String),
}

/// The part of a VM's configuration that bears on devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vm {
    /// Its own name.
    pub name: Option<String>,
    /// Its memory is encrypted against the host.
    pub confidential: bool,
    /// What it takes.
    pub passthrough: Vec<Passthrough>,
    /// Lines that ask for a device in words that this program does not know.
    pub unclear: Vec<String>,
}

/// `key: value` lines of the current state.
fn current(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim(), value.trim()))
}

/// `key` with digits after it, and nothing else.
fn is_numbered(key: &str, stem: &str) -> bool {
    key.strip_prefix(stem)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `/etc/pve/qemu-server/ID.conf`.
pub fn vm(text: &str) -> Vm {
    let mut vm = Vm::default();
    for (key, value) in current(text) {
        match key {
            "name" => vm.name = Some(value.to_owned()),
            "amd-sev" | "intel-tdx" => vm.confidential = true,
            "args" => args(value, &mut vm),
            _ if is_numbered(key, "hostpci") => hostpci(key, value, &mut vm),
            _ => {}
        }
    }
    vm
}

fn hostpci(key: &str, value: &str, vm: &mut Vm) {
    let text = format!("{key}: {value}");
    let mut target = None;
    let mut keeps_driver = false;
    let mut clear = true;
    for (index, item) in value.split(',').enumerate() {
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name.trim(), value),
            None if index == 0 => ("host", item),
            None => continue,
        };
        match name {
            "host" => {
                let hosts: Vec<Option<DeviceSpec>> =
                    value.split(';').map(DeviceSpec::parse).collect();
                clear &= hosts.iter().all(Option::is_some);
                target = Some(Target::Devices(hosts.into_iter().flatten().collect()));
            }
            "mapping" => target = Some(Target::Mapping(value.trim().to_owned())),
            "mdev" => keeps_driver = true,
            "driver" => keeps_driver |= value.trim() == "keep",
            _ => {}
        }
    }
    if !clear || target.is_none() {
        vm.unclear.push(text.clone());
    }
    if let Some(target) = target {
        vm.passthrough.push(Passthrough { text, keeps_driver, target });
    }
}

/// `args:`, handed to QEMU as they stand.
fn args(value: &str, vm: &mut Vm) {
    let words = shell_words(value);
    vm.confidential |= is_confidential(words.iter().map(String::as_str));
    let devices = qemu_devices(words.iter().map(String::as_str));
    if !devices.is_empty() {
        vm.passthrough.push(Passthrough {
            text: "args: -device vfio-pci".to_owned(),
            keeps_driver: false,
            target: Target::Devices(devices),
        });
    }
}

/// Splits at blanks; quotes and backslashes keep them (`PVE::Tools::split_args`).
fn shell_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(one) = characters.next() {
        match (one, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(characters.next()),
            (one, Some(open)) if one == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(one);
                word.get_or_insert_default();
            }
            (blank, None) if blank.is_whitespace() => words.extend(word.take()),
            (one, _) => word.get_or_insert_default().push(one),
        }
    }
    words.extend(word);
    words
}

/// Longest place of a device in QEMU's arguments.
const LONGEST: usize = 1024;

/// Devices that QEMU's arguments pass through: `vfio-pci,host=…`, `sysfsdev=…`, or JSON.
pub fn qemu_devices<'a>(words: impl Iterator<Item = &'a str>) -> Vec<DeviceSpec> {
    let mut devices = Vec::new();
    for word in words.filter(|word| word.contains("vfio-pci")) {
        for key in ["host", "sysfsdev"] {
            devices.extend(word.match_indices(key).filter_map(|(at, _)| {
                let value = word.get(at + key.len()..)?;
                // No further than a path is long: a word may name the key many times.
                let end = value.bytes().take(LONGEST).position(|one| matches!(one, b',' | b'}'));
                let end = end.or_else(|| (value.len() <= LONGEST).then_some(value.len()))?;
                let value = value.get(..end)?.trim_matches(['=', ':', '"', ' ']);
                DeviceSpec::parse(value.rsplit('/').next()?)
            }));
        }
    }
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// Whether QEMU's arguments ask for encrypted guest memory.
pub fn is_confidential<'a>(mut words: impl Iterator<Item = &'a str>) -> bool {
    const SIGNS: [&str; 4] =
        ["sev-snp-guest", "sev-guest", "tdx-guest", "confidential-guest-support"];
    words.any(|word| SIGNS.iter().any(|sign| word.contains(sign)))
}

/// `/etc/pve/lxc/ID.conf`.
pub fn container(text: &str) -> Container {
    let mut container = Container::default();
    let lines = text.lines().take_while(|line| !line.starts_with('['));
    for line in lines.map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some((key, value)) = raw_line(line) {
            if let Some(what) = raw(key, value) {
                container.grants.push(Grant { text: line.to_owned(), what });
            }
            continue;
        }
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if key == "hostname" {
            container.name = Some(value.to_owned());
        } else if is_numbered(key, "dev") {
            let first = value.split(',').next().unwrap_or_default();
            let path = first.strip_prefix("path=").unwrap_or(first);
            let what = Granted::Node(path.to_owned());
            container.grants.push(Grant { text: line.to_owned(), what });
        }
    }
    container
}

/// One alternative of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// The cluster node that it is for.
    pub node: Option<String>,
    /// Its devices, taken together.
    pub devices: Vec<DeviceSpec>,
}

/// `/etc/pve/mapping/pci.cfg`: alternatives by mapping.
pub fn mappings(text: &str) -> BTreeMap<String, Vec<Alternative>> {
    let mut mappings: BTreeMap<String, Vec<Alternative>> = BTreeMap::new();
    let mut id = None;
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if !line.starts_with([' ', '\t']) {
            let name = line.trim().to_owned();
            mappings.entry(name.clone()).or_default();
            id = Some(name);
            continue;
        }
        let Some(properties) = line.trim().strip_prefix("map ") else { continue };
        let Some(alternatives) = id.as_ref().and_then(|id| mappings.get_mut(id)) else { continue };
        let value = |wanted: &str| {
            properties
                .split(',')
                .filter_map(|item| item.split_once('='))
                .find_map(|(name, value)| (name.trim() == wanted).then_some(value.trim()))
        };
        alternatives.push(Alternative {
            node: value("node").map(str::to_owned),
            devices: value("path")
                .map(|path| path.split(';').filter_map(DeviceSpec::parse).collect())
                .unwrap_or_default(),
        });
    }
    mappings
}

/// One line of `/run/qemu-server/pci-id-reservations`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// What is reserved.
    pub device: DeviceSpec,
    /// For which VM.
    pub vm: String,
    /// Its process; absent while it starts.
    pub pid: Option<u32>,
}

/// `ADDRESS ID pid:N` or `ADDRESS ID time:N` lines.
pub fn reservations(text: &str) -> Vec<Reservation> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let device = DeviceSpec::parse(words.next()?)?;
            let vm = words.next()?.to_owned();
            let pid = words.next()?.strip_prefix("pid:").and_then(|pid| pid.parse().ok());
            Some(Reservation { device, vm, pid })
        })
        .collect()
}

#[cfg(test)]
#[path = "proxmox/tests.rs"]
mod tests;
