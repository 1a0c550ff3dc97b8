//! `/proc/driver/nvidia`: version, parameters, one GPU's information (NVIDIA's open kernel modules,
//! `kernel-open/nvidia/nv-procfs.c`).

use std::collections::BTreeMap;

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::driver::{DriverFlavour, DriverVersion, GpuInformation};

/// The line `NVRM version: …`. `None` if the text has no such line or the line no version.
pub fn version(text: &str) -> Option<DriverVersion> {
    let line = text.lines().find(|line| line.trim_start().starts_with("NVRM version:"))?.trim();
    let body = line.strip_prefix("NVRM version:")?;
    let version = body.split_ascii_whitespace().find(|word| is_version(word))?;
    Some(DriverVersion {
        version: version.to_owned(),
        flavour: flavour(body, version),
        line: line.to_owned(),
    })
}

/// Two or more numbers with full stops; a suffix may follow a hyphen.
fn is_version(word: &str) -> bool {
    let number = word.split_once('-').map_or(word, |(number, _)| number);
    number.contains('.')
        && number
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a version text says that the build has peer-to-peer patches.
pub fn names_patches(text: &str) -> bool {
    text.to_ascii_lowercase().contains("p2p")
}

fn flavour(line: &str, version: &str) -> DriverFlavour {
    if names_patches(version) || names_patches(line) {
        DriverFlavour::Fork
    } else if line.contains("Open Kernel Module") {
        DriverFlavour::Open
    } else {
        DriverFlavour::Closed
    }
}

/// `/proc/driver/nvidia/params`: `Name: value` lines; quotes around text are taken off.
pub fn params(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| {
            let value = value.trim();
            let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            (name.trim().to_owned(), inner.unwrap_or(value).to_owned())
        })
        .filter(|(name, _)| !name.is_empty())
        .collect()
}

/// `/proc/driver/nvidia/gpus/ADDRESS/information`.
pub fn information(address: PciAddress, text: &str) -> GpuInformation {
    let mut gpu = GpuInformation {
        address,
        model: Observed::Absent,
        uuid: Observed::Absent,
        minor: Observed::Absent,
        excluded: Observed::Absent,
    };
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "Model" if !value.is_empty() => gpu.model = Observed::Known(value.to_owned()),
            // Question marks stand there until the GPU was initialised.
            "GPU UUID" if !value.is_empty() && !value.contains('?') => {
                gpu.uuid = Observed::Known(value.to_owned());
            }
            "Device Minor" => {
                gpu.minor = value.parse().map_or_else(
                    |_| Observed::Unreadable(format!("{value:?} is no number")),
                    Observed::Known,
                );
            }
            "GPU Excluded" | "Blacklisted" => {
                gpu.excluded = match value {
                    "Yes" => Observed::Known(true),
                    "No" => Observed::Known(false),
                    other => Observed::Unreadable(format!("{other:?} is neither Yes nor No")),
                };
            }
            _ => {}
        }
    }
    gpu
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(&str, DriverFlavour)>) {
        let seen = version(line);
        let seen = seen.as_ref().map(|seen| (seen.version.as_str(), seen.flavour));
        assert_eq!(seen, expected);
    }

    #[test]
    fn versions() {
        check(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (builder@host)  Tue Sep 23\n\
             GCC version:  gcc version 12.2.0\n",
            Some(("580.95.05", DriverFlavour::Open)),
        );
        check(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  460.56  Tue Feb 23 23:33:26 UTC 2021",
            Some(("460.56", DriverFlavour::Closed)),
        );
        check(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.16-p2p  Release Build",
            Some(("570.86.16-p2p", DriverFlavour::Fork)),
        );
        check(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build  (P2P)",
            Some(("595.71.05", DriverFlavour::Fork)),
        );
        check("NVRM version: NVIDIA UNIX Kernel Module", None);
        check("GCC version:  gcc version 12.2.0", None);
        check("", None);
    }

    #[test]
    fn parameters() {
        let seen =
            params("DmaRemapPeerMmio: 1\nRegistryDwords: \"A=1;B=0x2\"\nEmpty: \"\"\n: 3\nnone\n");
        let seen: Vec<String> =
            seen.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(seen, ["DmaRemapPeerMmio=1", "Empty=", "RegistryDwords=A=1;B=0x2"]);
    }

    #[track_caller]
    fn check_information(text: &str, expected: &str) {
        let gpu = information("0000:41:00.0".parse().unwrap(), text);
        let seen = format!("{} | {} | {} | {}", gpu.model, gpu.uuid, gpu.minor, gpu.excluded);
        assert_eq!(seen, expected);
    }

    #[test]
    fn one_gpu() {
        check_information(
            "Model: \t\t NVIDIA RTX A4000\nIRQ:   \t\t 120\nGPU UUID: \t GPU-1f2e3d4c-0000-1111-2222-333344445555\n\
             Bus Location: \t 0000:41:00.0\nDevice Minor: \t 3\nGPU Excluded:\t No\n",
            "NVIDIA RTX A4000 | GPU-1f2e3d4c-0000-1111-2222-333344445555 | 3 | false",
        );
        check_information(
            "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: \t 0\nBlacklisted:\t Yes\n",
            "Unknown | none | 0 | true",
        );
        check_information(
            "Device Minor: many\nGPU Excluded: perhaps\n",
            "none | none | unknown (\"many\" is no number) | unknown (\"perhaps\" is neither Yes nor No)",
        );
        check_information("", "none | none | none | none");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(NVRM version:|Device Minor:|GPU UUID:|\"|:|\n| |[0-9.x-]{0,4}|é){0,60}") {
            let address = "0000:41:00.0".parse().unwrap();
            prop_assert_eq!(information(address, &text).address, address);
            prop_assert!(version(&text).is_none_or(|version| version.version.contains('.')));
            prop_assert!(params(&text).keys().all(|name| !name.is_empty()));
        }
    }
}
