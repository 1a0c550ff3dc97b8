//! Kernel, processor, memory encryption.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::observed::Observed;

/// The running kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// `/proc/sys/kernel/osrelease`.
    pub release: Observed<String>,
    /// `/proc/cmdline`, without the newline.
    pub command_line: Observed<String>,
    /// Whether `/proc/kallsyms` has the data symbol `iommu_dma_ops`: the kernel's old style, in
    /// which a translated device has a DMA operations table.
    pub iommu_dma_ops: Observed<bool>,
    /// `/sys/kernel/security/lockdown`: `none`, `integrity` or `confidentiality`.
    pub lockdown: Observed<String>,
    /// Lines of this boot's kernel log that state SNP, SME or IOMMU facts, as read.
    pub log_facts: Observed<Vec<String>>,
}

/// Major and minor number of a kernel release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KernelVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number; 0 if the release names none.
    pub patch: u32,
}

impl KernelVersion {
    /// From a release such as `6.14.11-5-bpo12-pve`; `None` if it does not start with a version.
    pub fn from_release(release: &str) -> Option<Self> {
        let end = release
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .unwrap_or(release.len());
        let mut parts = release.get(..end)?.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        let patch = parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        Some(Self { major, minor, patch })
    }

    /// Whether this is at least `major.minor`.
    pub fn at_least(self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)
    }
}

impl Kernel {
    /// Version of the release, where it was read and has one.
    pub fn version(&self) -> Option<KernelVersion> {
        KernelVersion::from_release(self.release.known()?)
    }
}

/// The processor, from `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// `vendor_id`.
    pub vendor: Observed<String>,
    /// `cpu family`.
    pub family: Observed<u32>,
    /// `model`.
    pub model: Observed<u32>,
    /// `model name`.
    pub name: Observed<String>,
    /// `flags`, the words that bear on this program only.
    pub flags: Observed<Vec<String>>,
    /// Physical address bits of `address sizes`.
    pub physical_bits: Observed<u32>,
    /// Logical processors.
    pub threads: Observed<u32>,
}

impl Cpu {
    /// AMD Zen or later (`drivers/pci/p2pdma.c`, `cpu_supports_p2pdma`: AMD, family 17h up).
    pub fn is_zen(&self) -> Observed<bool> {
        self.vendor.as_ref().and_then(|vendor| {
            if vendor == "AuthenticAMD" {
                self.family.as_ref().map(|family| *family >= 0x17)
            } else {
                Observed::Known(false)
            }
        })
    }

    /// Whether a flag is set.
    pub fn has_flag(&self, flag: &str) -> Observed<bool> {
        self.flags.as_ref().map(|flags| flags.iter().any(|word| word == flag))
    }
}

/// State of SME and SEV-SNP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryEncryption {
    /// Secure Memory Encryption in the kernel's page tables.
    pub sme: Established,
    /// SEV-SNP on the host: decides whether untranslated device-table entries are legal.
    pub snp: Established,
}

/// A yes, a no or an unknown, with what it rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Established {
    /// The answer.
    pub state: Tristate,
    /// Source and value of each observation behind it.
    pub evidence: Vec<(String, String)>,
}

/// Yes, no, or nobody could tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tristate {
    /// Yes.
    Yes,
    /// No.
    No,
    /// Nobody could tell.
    #[default]
    Unknown,
}

impl From<Observed<bool>> for Tristate {
    fn from(seen: Observed<bool>) -> Self {
        match seen {
            Observed::Known(true) => Self::Yes,
            Observed::Known(false) => Self::No,
            Observed::Absent | Observed::Unreadable(_) => Self::Unknown,
        }
    }
}

impl fmt::Display for Tristate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(release: &str, expected: Option<(u32, u32, u32)>) {
        let seen = KernelVersion::from_release(release).map(|v| (v.major, v.minor, v.patch));
        assert_eq!(seen, expected);
    }

    #[test]
    fn releases() {
        check("6.14.11-5-bpo12-pve", Some((6, 14, 11)));
        check("7.0-rc4", Some((7, 0, 0)));
        check("5.10.0-38-amd64", Some((5, 10, 0)));
        check("6", None);
        check("", None);
        check("next-20260101", None);
        check("99999999999.1.0", None);
    }
}
