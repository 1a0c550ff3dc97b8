//! A libvirt domain (`/etc/libvirt/qemu/NAME.xml`), as far as it takes devices of the host.
//!
//! A scanner over tags, not a parser of XML: it takes what libvirt writes, and anything else
//! without failing. Entities and namespaces play no part in what is looked for.

use peerway_core::address::PciAddress;

use super::proxmox::qemu_devices;

/// The part of a domain that bears on devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Its name.
    pub name: Option<String>,
    /// Kind of memory encryption (`sev`, `sev-snp`, `tdx`).
    pub launch_security: Option<String>,
    /// Functions that it takes, ordered.
    pub devices: Vec<PciAddress>,
    /// Source addresses that make no PCI address.
    pub unclear: Vec<String>,
}

/// Elements that are open at once in any real domain stay far below this.
const MOST_OPEN: usize = 256;

/// Reads a domain.
pub fn domain(text: &str) -> Domain {
    let mut domain = Domain::default();
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some((before, tag, after)) = next_tag(rest) {
        if open == ["domain", "name"] && domain.name.is_none() && !before.trim().is_empty() {
            domain.name = Some(before.trim().to_owned());
        }
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            // Back to the element that is closed here, whatever was left open inside.
            if let Some(at) = open.iter().rposition(|one| *one == name.trim()) {
                open.truncate(at);
            }
            continue;
        }
        let (body, is_empty) = match tag.strip_suffix('/') {
            Some(body) => (body, true),
            None => (tag, false),
        };
        let name_end = body.find(|one: char| one.is_ascii_whitespace()).unwrap_or(body.len());
        let (name, attributes) = body.split_at(name_end);
        element(name, attributes, &open, &mut domain);
        if !is_empty && open.len() < MOST_OPEN {
            open.push(name);
        }
    }
    domain.devices.sort_unstable();
    domain.devices.dedup();
    domain
}

fn element(name: &str, attributes: &str, open: &[&str], domain: &mut Domain) {
    match name {
        "launchSecurity" => {
            let kind = attribute(attributes, "type").unwrap_or("unknown");
            domain.launch_security = Some(kind.to_owned());
        }
        "qemu:arg" => {
            let value = attribute(attributes, "value").unwrap_or_default();
            let devices = qemu_devices(std::iter::once(value));
            domain.devices.extend(devices.into_iter().map(|device| device.address));
        }
        // The other address of the element is the guest's own.
        "address" if open.last() == Some(&"source") => {
            let takes = open.iter().any(|one| matches!(*one, "hostdev" | "interface"));
            // USB addresses have no slot.
            if takes && attribute(attributes, "slot").is_some() {
                match address(attributes) {
                    Some(address) => domain.devices.push(address),
                    None => domain.unclear.push(attributes.trim().to_owned()),
                }
            }
        }
        _ => {}
    }
}

/// `domain='0x0000' bus='0xc1' slot='0x00' function='0x0'`; decimal without `0x`.
fn address(attributes: &str) -> Option<PciAddress> {
    let number = |name: &str| -> Option<u32> {
        let Some(value) = attribute(attributes, name) else { return Some(0) };
        match value.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => value.parse().ok(),
        }
    };
    let byte = |name: &str| u8::try_from(number(name)?).ok();
    PciAddress::new(number("domain")?, byte("bus")?, byte("slot")?, byte("function")?)
}

/// The value of an attribute in single or double quotes.
fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    attributes.match_indices(name).find_map(|(at, _)| {
        let begins = attributes.get(..at)?.ends_with(|one: char| one.is_ascii_whitespace());
        let value = attributes.get(at + name.len()..)?.trim_start().strip_prefix('=')?.trim_start();
        let quote = value.chars().next().filter(|one| matches!(one, '\'' | '"'))?;
        let value = value.get(1..)?;
        if begins { value.get(..value.find(quote)?) } else { None }
    })
}

/// Text before the next tag, what stands between its brackets, and the rest. Comments,
/// declarations and instructions are passed over.
fn next_tag(text: &str) -> Option<(&str, &str, &str)> {
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('<')?;
        if let Some(comment) = after.strip_prefix("!--") {
            (_, rest) = comment.split_once("-->")?;
        } else if after.starts_with(['!', '?']) {
            (_, rest) = after.split_once('>')?;
        } else {
            let end = end_of_tag(after)?;
            return Some((before, after.get(..end)?, after.get(end + 1..)?));
        }
    }
}

/// The closing bracket, quotes left aside.
fn end_of_tag(text: &str) -> Option<usize> {
    let mut quote = None;
    text.char_indices().find_map(|(at, one)| match (one, quote) {
        ('>', None) => Some(at),
        ('\'' | '"', None) => {
            quote = Some(one);
            None
        }
        (one, Some(open)) if one == open => {
            quote = None;
            None
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(inner: &str, expected: &str) {
        let domain = domain(&format!("<domain type='kvm'>\n  <name>east</name>{inner}</domain>"));
        let devices: Vec<String> = domain.devices.iter().map(ToString::to_string).collect();
        let seen = format!(
            "{} [{}] {} {:?}",
            domain.name.unwrap_or_default(),
            devices.join(" "),
            domain.launch_security.unwrap_or_default(),
            domain.unclear
        );
        assert_eq!(seen, expected);
    }

    #[test]
    fn devices_of_a_domain() {
        check(
            "<devices><hostdev mode='subsystem' type='pci' managed='yes'><driver name='vfio'/><source>\
             <address domain='0x0000' bus='0xc1' slot='0x00' function='0x1'/></source>\
             <address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/></hostdev></devices>",
            "east [0000:c1:00.1]  []",
        );
        check(
            "<!-- <hostdev><source><address bus='0x01' slot='0'/></source></hostdev> -->\
             <interface type='hostdev'><source><address type=\"pci\" domain=\"0x10000\" bus=\"3\" \
             slot=\"0x1f\" function=\"0x7\"/></source></interface>",
            "east [10000:03:1f.7]  []",
        );
        check(
            "<hostdev type='usb'><source><address bus='1' device='3'/></source></hostdev>",
            "east []  []",
        );
        check(
            "<hostdev><source><address domain='0' bus='0x1c1' slot='0x00'/></source></hostdev>",
            "east []  [\"domain='0' bus='0x1c1' slot='0x00'\"]",
        );
        check(
            "<qemu:commandline><qemu:arg value='-device'/><qemu:arg value='vfio-pci,host=0000:c2:00.0'/>\
             </qemu:commandline>",
            "east [0000:c2:00.0]  []",
        );
    }

    #[test]
    fn encrypted_memory() {
        check(
            "<launchSecurity type='sev-snp' kernelHashes='yes'><policy>0x30000</policy></launchSecurity>",
            "east [] sev-snp []",
        );
        check("<launchSecurity/>", "east [] unknown []");
    }

    #[test]
    fn broken_text_is_read_as_far_as_it_goes() {
        check("<devices><hostdev><source><address bus='0x01' slot=", "east []  []");
        check(
            "<a><b></a><hostdev attr='>'><source><address bus='0x01' slot='0x0'/>",
            "east [0000:01:00.0]  []",
        );
        assert_eq!(domain(""), Domain::default());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(<|>|/|'|\"|=|<source>|<hostdev>|<address |bus=|slot=|'0x[0-9a-f]{0,3}'|<!--|-->|<\\?| |é){0,60}") {
            prop_assert!(domain(&text).devices.len() <= text.len());
        }
    }
}
