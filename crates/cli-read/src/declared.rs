//! The accelerator file: what the operator says about devices that this program does not know.
//!
//! ```toml
//! [[accelerator]]
//! name = "training card"
//! requester = "1234:5678"            # vendor:device, or a PCI address
//! memory = { function = 1, bar = 2 } # a function of the same slot, or { address = "…", bar = 2 }
//! addressing = "raw"                 # or "mapped": has the kernel map the peer's memory
//! root_complex_forwards = true       # whether this host's root complex is known to forward
//! ```

use peerway_core::address::{PciAddress, VendorDevice};
use peerway_core::snapshot::pci::Addressing;
use peerway_read::host::{Declared, Match, Memory};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    accelerator: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    requester: String,
    memory: MemoryEntry,
    addressing: Addressing,
    #[serde(default)]
    root_complex_forwards: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryEntry {
    function: Option<u8>,
    address: Option<PciAddress>,
    bar: u8,
}

/// Reads declarations.
///
/// # Errors
/// What is wrong, with the line where the TOML itself is.
pub fn parse(text: &str) -> Result<Vec<Declared>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    file.accelerator.into_iter().map(declared).collect()
}

fn declared(entry: Entry) -> Result<Declared, String> {
    let requester = entry
        .requester
        .parse::<VendorDevice>()
        .map(Match::Ids)
        .or_else(|_| entry.requester.parse::<PciAddress>().map(Match::Address))
        .map_err(|_| {
            format!(
                "requester {:?} of {:?} is neither vendor:device nor a PCI address",
                entry.requester, entry.name
            )
        })?;
    let memory = match (entry.memory.function, entry.memory.address) {
        (Some(function), None) if function < 8 => Memory::Function(function),
        (None, Some(address)) => Memory::Address(address),
        _ => {
            return Err(format!(
                "memory of {:?} needs either a function below 8 or an address",
                entry.name
            ));
        }
    };
    if entry.memory.bar > 5 {
        return Err(format!(
            "memory of {:?} names region {}; there are 0 to 5",
            entry.name, entry.memory.bar
        ));
    }
    Ok(Declared {
        name: entry.name,
        requester,
        memory,
        bar: entry.memory.bar,
        addressing: entry.addressing,
        root_complex_forwards: entry.root_complex_forwards,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(memory: &str, rest: &str, expected: &str) {
        let text = format!(
            "[[accelerator]]\nname = \"card\"\nrequester = \"1234:5678\"\nmemory = {memory}\n\
             addressing = \"raw\"\n{rest}"
        );
        let seen = match parse(&text) {
            Ok(found) => format!("{:?} {}", found[0].memory, found[0].root_complex_forwards),
            Err(why) => why.lines().next().unwrap_or_default().to_owned(),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn entries() {
        check("{ function = 1, bar = 2 }", "root_complex_forwards = true", "Function(1) true");
        check("{ address = \"02:00.0\", bar = 2 }", "", "Address(0000:02:00.0) false");
        check(
            "{ bar = 2 }",
            "",
            "memory of \"card\" needs either a function below 8 or an address",
        );
        check(
            "{ function = 9, bar = 2 }",
            "",
            "memory of \"card\" needs either a function below 8 or an address",
        );
        check(
            "{ function = 1, bar = 7 }",
            "",
            "memory of \"card\" names region 7; there are 0 to 5",
        );
        check("{ function = 1, bar = 2 }", "speed = 1", "TOML parse error at line 6, column 1");
    }
}
