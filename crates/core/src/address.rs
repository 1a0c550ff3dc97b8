//! PCI addresses, identifiers and bus addresses: checked where they enter, ordered, one spelling.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a text is not a PCI address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AddressError {
    /// The text has not the shape `[domain:]bus:device.function`.
    #[error("{text:?} is not a PCI address like 0000:01:00.0")]
    Shape {
        /// What was given.
        text: String,
    },
    /// A part is a number, but too large for its field.
    #[error("{part} of the PCI address {text:?} is too large")]
    Range {
        /// What was given.
        text: String,
        /// Which part.
        part: &'static str,
    },
}

/// Address of a PCI function: domain, bus, device and function.
///
/// Domains are 32 bits wide, since VMD and some Arm and Hyper-V hosts number them above `ffff`.
/// Printed as the kernel names it in sysfs (`drivers/pci/probe.c`, `pci_setup_device`): at least
/// four domain digits and as many as needed, lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    /// Device in bits 7 to 3, function in bits 2 to 0 (PCI "devfn").
    devfn: u8,
}

impl PciAddress {
    /// An address from its parts; `None` if the device is above 31 or the function above 7.
    pub const fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        if device > 31 || function > 7 {
            return None;
        }
        Some(Self { domain, bus, devfn: device << 3 | function })
    }

    /// An address from a domain and a 16-bit requester ID (bus, device, function).
    pub const fn from_requester_id(domain: u32, requester_id: u16) -> Self {
        let [bus, devfn] = requester_id.to_be_bytes();
        Self { domain, bus, devfn }
    }

    /// PCI domain (segment).
    pub const fn domain(self) -> u32 {
        self.domain
    }

    /// Bus number.
    pub const fn bus(self) -> u8 {
        self.bus
    }

    /// Device number, 0 to 31.
    pub const fn device(self) -> u8 {
        self.devfn >> 3
    }

    /// Function number, 0 to 7.
    pub const fn function(self) -> u8 {
        self.devfn & 7
    }

    /// The same device with another function; `None` above 7.
    pub const fn with_function(self, function: u8) -> Option<Self> {
        Self::new(self.domain, self.bus, self.device(), function)
    }

    /// Whether two addresses are functions of one device.
    pub const fn same_device(self, other: Self) -> bool {
        self.domain == other.domain && self.bus == other.bus && self.devfn >> 3 == other.devfn >> 3
    }

    /// Reads an address from the front of `text` without allocating; returns it and the rest.
    ///
    /// Takes `bb:dd.f` and `dddd:bb:dd.f` with four to eight domain digits, in either case.
    pub fn parse_prefix(text: &[u8]) -> Option<(Self, &[u8])> {
        let (first, digits, rest) = hex_prefix(text)?;
        let rest = rest.strip_prefix(b":")?;
        let (second, second_digits, rest) = hex_prefix(rest)?;
        if second_digits != 2 {
            return None;
        }
        let (domain, bus, device, rest) = match rest.split_first()? {
            (b'.', _) if digits == 2 => (0, first, second, rest),
            (b':', after) if (4..=8).contains(&digits) => {
                let (third, third_digits, rest) = hex_prefix(after)?;
                if third_digits != 2 {
                    return None;
                }
                (first, second, third, rest)
            }
            _ => return None,
        };
        let rest = rest.strip_prefix(b".")?;
        let (function, rest) = rest.split_first()?;
        let function = char::from(*function).to_digit(8)?;
        // A further digit would make it another number.
        if rest.first().is_some_and(u8::is_ascii_hexdigit) {
            return None;
        }
        let address = Self::new(
            domain,
            u8::try_from(bus).ok()?,
            u8::try_from(device).ok()?,
            u8::try_from(function).ok()?,
        )?;
        Some((address, rest))
    }
}

/// Up to eight hexadecimal digits: value, count, rest. `None` without a digit or with more.
fn hex_prefix(text: &[u8]) -> Option<(u32, usize, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits == 0 || digits > 8 {
        return None;
    }
    let (head, rest) = text.split_at_checked(digits)?;
    let value = head
        .iter()
        .try_fold(0_u32, |value, byte| Some(value << 4 | char::from(*byte).to_digit(16)?))?;
    Some((value, digits, rest))
}

impl FromStr for PciAddress {
    type Err = AddressError;

    /// Takes `01:00.0`, `0000:01:00.0` and the eight-digit domains of NVIDIA's tools.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        match Self::parse_prefix(text.trim().as_bytes()) {
            Some((address, [])) => Ok(address),
            _ if looks_like_address(text) => {
                Err(AddressError::Range { text: text.to_owned(), part: "a part" })
            }
            _ => Err(AddressError::Shape { text: text.to_owned() }),
        }
    }
}

/// Only the characters of an address, with its punctuation: then a number is out of range.
fn looks_like_address(text: &str) -> bool {
    text.contains(':')
        && text.matches('.').count() == 1
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.')
}

impl fmt::Display for PciAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, .. } = self;
        // Through a buffer, so that width and alignment of tables apply.
        out.pad(&format!("{domain:04x}:{bus:02x}:{:02x}.{}", self.device(), self.function()))
    }
}

impl fmt::Debug for PciAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

macro_rules! serde_as_text {
    ($name:ident, $pattern:literal, $about:literal) => {
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        }
        read_as_text!($name, $pattern, $about);
    };
}

macro_rules! read_as_text {
    ($name:ident, $pattern:literal, $about:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string", "pattern": $pattern, "description": $about
                })
            }
        }
    };
}

serde_as_text!(
    PciAddress,
    "^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]$",
    "PCI address: domain, bus, device, function, lower-case hexadecimal"
);

/// Vendor and device number of a PCI function, printed `10de:2bb5`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VendorDevice {
    /// Vendor number.
    pub vendor: u16,
    /// Device number.
    pub device: u16,
}

impl fmt::Display for VendorDevice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04x}:{:04x}", self.vendor, self.device)
    }
}

impl fmt::Debug for VendorDevice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// A number or a bus address that could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text:?} is not a {what}")]
pub struct NumberError {
    text: String,
    what: &'static str,
}

impl FromStr for VendorDevice {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        let error = || NumberError { text: text.to_owned(), what: "pair like 10de:2bb5" };
        let (vendor, device) = text.split_once(':').ok_or_else(error)?;
        Ok(Self {
            vendor: u16::from_str_radix(vendor, 16).map_err(|_| error())?,
            device: u16::from_str_radix(device, 16).map_err(|_| error())?,
        })
    }
}

serde_as_text!(VendorDevice, "^[0-9a-f]{4}:[0-9a-f]{4}$", "vendor and device number");

/// An address on the PCI bus, in bytes. Printed and serialised as text (`0x24000000000`), since
/// numbers above 2^53 do not survive in JSON.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BusAddress(pub u64);

/// Bytes of the longest text of a bus address.
const SPELLED: usize = 18;

impl BusAddress {
    /// Its text, digit by digit into a small place: a report of a storm holds hundreds of thousands.
    fn spell(self, place: &mut [u8; SPELLED]) -> &str {
        *place = *b"0x0000000000000000";
        let shown = usize::try_from((67 - (self.0 | 1).leading_zeros()) / 4).unwrap_or(16);
        let mut left = self.0;
        for byte in place.iter_mut().take(2 + shown).skip(2).rev() {
            let [.., nibble] = (left & 0xf).to_be_bytes();
            *byte = if nibble < 10 { b'0' + nibble } else { b'a' - 10 + nibble };
            left >>= 4;
        }
        let text = place.get(..2 + shown).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }
}

impl fmt::Display for BusAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.spell(&mut [0; SPELLED]))
    }
}

impl fmt::Debug for BusAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for BusAddress {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        let error =
            || NumberError { text: text.to_owned(), what: "bus address like 0x24000000000" };
        let digits = text.strip_prefix("0x").ok_or_else(error)?;
        u64::from_str_radix(digits, 16).map(Self).map_err(|_| error())
    }
}

impl Serialize for BusAddress {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.spell(&mut [0; SPELLED]))
    }
}

read_as_text!(BusAddress, "^0x[0-9a-f]{1,16}$", "bus address in bytes, hexadecimal");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let seen = match text.parse::<PciAddress>() {
            Ok(address) => address.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn every_spelling_becomes_one() {
        check("01:00.0", "0000:01:00.0");
        check("0000:01:00.0", "0000:01:00.0");
        check("00000000:C1:00.0", "0000:c1:00.0");
        check("10000:e1:00.0", "10000:e1:00.0");
        check("ffffffff:ff:1f.7", "ffffffff:ff:1f.7");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        check("01:00", "\"01:00\" is not a PCI address like 0000:01:00.0");
        check("gpu0", "\"gpu0\" is not a PCI address like 0000:01:00.0");
        check("", "\"\" is not a PCI address like 0000:01:00.0");
        check("01:20.0", "a part of the PCI address \"01:20.0\" is too large");
        check("01:00.8", "a part of the PCI address \"01:00.8\" is too large");
        check("100000000:01:00.0", "a part of the PCI address \"100000000:01:00.0\" is too large");
        check("01:00.01", "a part of the PCI address \"01:00.01\" is too large");
    }

    proptest! {
        #[test]
        fn printed_is_read_back(domain: u32, requester_id: u16) {
            let address = PciAddress::from_requester_id(domain, requester_id);
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn bus_addresses_survive_json(value: u64, shift in 0..64_u32) {
            let value = value >> shift;
            prop_assert_eq!(format!("{:>20}", BusAddress(value)), format!("{value:#20x}"));
            let text = serde_json::to_string(&BusAddress(value)).unwrap();
            prop_assert_eq!(serde_json::from_str::<BusAddress>(&text).unwrap(), BusAddress(value));
        }

        #[test]
        fn what_is_accepted_prints_as_it_was_meant(text in "[0-9a-fA-F:.]{0,16}") {
            if let Ok(address) = text.parse::<PciAddress>() {
                let tail = address.to_string();
                prop_assert!(tail.ends_with(&text.to_ascii_lowercase()[text.len() - 7..]));
            }
        }
    }
}
