//! What `/sys/kernel/iommu_groups/N/type` does with a word, by kernel era.
//!
//! | era | group of several | driver bound | held by VFIO | idle `vfio-pci` | identity under SNP |
//! |---|---|---|---|---|---|
//! | up to 5.10 | EACCES | EACCES | EACCES | EACCES | – |
//! | 5.11 – 6.3 | EINVAL | EBUSY | EBUSY | EBUSY | – |
//! | 6.4 – 6.12 | taken | EPERM | EPERM | taken | ENOMEM (6.9 – 6.12) |
//! | 6.13 – 6.19.9 | taken | EPERM | EPERM | taken | taken, and the device breaks |
//! | 6.19.10, 7.0 and later | taken | EPERM | EPERM | taken | EINVAL; from 7.3 taken where the IOMMU allows it |
//!
//! Measured on 5.10, 6.1, 6.12 and 7.3 without SNP; the SNP column is read in
//! `drivers/iommu/amd/iommu.c` (commits 4402f2627d30, ba17de98545d, cb2860ad6c4f).

use peerway_core::snapshot::kernel::KernelVersion;
use rustix::io::Errno;

/// What a write depends on.
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Kernel.
    pub version: KernelVersion,
    /// What `type` reads.
    pub current: &'a str,
    /// What is written.
    pub word: &'a str,
    /// How many devices the group has.
    pub devices: usize,
    /// Drivers that are bound to them.
    pub drivers: &'a [String],
    /// Whether a VFIO container holds the group.
    pub held: bool,
    /// Whether SNP is on.
    pub snp: bool,
    /// Whether the IOMMU allows untranslated entries under SNP (EFR2 bit 13).
    pub mode_zero: bool,
    /// Whether a device of the group hangs on an external port.
    pub untrusted: bool,
    /// Whether the IOMMU has hardware pass-through (VT-d: ecap bit 6).
    pub pass_through: bool,
    /// Whether a reset of one of the devices is in progress.
    pub resetting: bool,
}

/// What a write comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The group has this type now.
    Taken(&'static str),
    /// Refused, and what the kernel logs about it.
    Refused(Errno, Option<&'static str>),
}

/// Whether a driver counts as an owner of its group's DMA (`driver_managed_dma` is not set,
/// `drivers/pci/pci-driver.c`, `pci_dma_configure`).
pub fn owns_dma(driver: &str) -> bool {
    let vfio = driver.starts_with("vfio-") || driver.ends_with("_vfio_pci");
    !vfio && !matches!(driver, "pcieport" | "pci-stub")
}

/// The kernel's answer.
pub fn answer(asked: &Asked<'_>) -> Answer {
    let refused = |errno| Answer::Refused(errno, None);
    let version = asked.version;
    let since = |major, minor| version.at_least(major, minor);
    if !since(5, 11) {
        return refused(Errno::ACCESS);
    }
    let target = match asked.word {
        "identity" => "identity",
        "DMA" => "DMA",
        "DMA-FQ" if since(5, 15) => "DMA-FQ",
        "auto" if since(5, 15) => "DMA-FQ",
        "auto" => "DMA",
        _ => return refused(Errno::INVAL),
    };
    if asked.current == "unknown" {
        return refused(Errno::INVAL);
    }
    let live = asked.current == "DMA" && target == "DMA-FQ";
    if since(6, 4) {
        let owned = asked.held || asked.drivers.iter().any(|driver| owns_dma(driver));
        if owned && !live {
            return refused(Errno::PERM);
        }
    } else {
        if asked.devices != 1 {
            let text = "iommu: Cannot change default domain: Group has more than one device";
            return Answer::Refused(Errno::INVAL, Some(text));
        }
        if asked.held {
            return refused(Errno::BUSY);
        }
        if !asked.drivers.is_empty() && !live {
            return Answer::Refused(Errno::BUSY, Some("iommu: Device is still bound to driver"));
        }
    }
    if since(7, 2) && asked.resetting {
        return refused(Errno::BUSY);
    }
    if target == "identity" {
        if asked.untrusted || !asked.pass_through {
            return refused(Errno::INVAL);
        }
        if asked.snp
            && let Some(errno) = refused_by_snp(version, asked.mode_zero)
        {
            return refused(errno);
        }
    }
    Answer::Taken(target)
}

fn refused_by_snp(version: KernelVersion, mode_zero: bool) -> Option<Errno> {
    let guarded = version >= KernelVersion { major: 6, minor: 19, patch: 10 };
    if !version.at_least(6, 13) {
        Some(Errno::NOMEM)
    } else if !guarded || version.at_least(7, 3) && mode_zero {
        None
    } else {
        Some(Errno::INVAL)
    }
}

/// Whether a device of a group with this type can do DMA at all.
pub fn rejects_all_dma(current: &str, version: KernelVersion, snp: bool, mode_zero: bool) -> bool {
    current == "identity" && snp && !(version.at_least(7, 3) && mode_zero)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Asked<'_> = Asked {
        version: KernelVersion { major: 6, minor: 12, patch: 0 },
        current: "DMA-FQ",
        word: "identity",
        devices: 1,
        drivers: &[],
        held: false,
        snp: false,
        mode_zero: false,
        untrusted: false,
        pass_through: true,
        resetting: false,
    };

    /// One column per kernel that was measured: 5.10, 6.1, 6.12, 7.3.
    #[track_caller]
    fn check(asked: Asked<'_>, expected: [&str; 4]) {
        let seen = [(5, 10, 0), (6, 1, 0), (6, 12, 57), (7, 3, 4)].map(|(major, minor, patch)| {
            let version = KernelVersion { major, minor, patch };
            spell(&answer(&Asked { version, ..asked }))
        });
        assert_eq!(seen.each_ref().map(String::as_str), expected);
    }

    fn spell(answer: &Answer) -> String {
        match answer {
            Answer::Taken(word) => (*word).to_owned(),
            Answer::Refused(errno, _) => match *errno {
                Errno::ACCESS => "EACCES".to_owned(),
                Errno::INVAL => "EINVAL".to_owned(),
                Errno::BUSY => "EBUSY".to_owned(),
                Errno::PERM => "EPERM".to_owned(),
                Errno::NOMEM => "ENOMEM".to_owned(),
                other => other.to_string(),
            },
        }
    }

    #[test]
    fn the_measured_table() {
        let uio = ["uio_pci_generic".to_owned()];
        let vfio = ["vfio-pci".to_owned()];
        let stub = ["pci-stub".to_owned()];
        check(PLAIN, ["EACCES", "identity", "identity", "identity"]);
        let bound = Asked { drivers: &uio, ..PLAIN };
        check(bound, ["EACCES", "EBUSY", "EPERM", "EPERM"]);
        check(Asked { word: "DMA", ..bound }, ["EACCES", "EBUSY", "EPERM", "EPERM"]);
        check(Asked { word: "DMA-FQ", ..bound }, ["EACCES", "EBUSY", "EPERM", "EPERM"]);
        let idle = Asked { drivers: &vfio, ..PLAIN };
        check(idle, ["EACCES", "EBUSY", "identity", "identity"]);
        check(Asked { held: true, ..idle }, ["EACCES", "EBUSY", "EPERM", "EPERM"]);
        let two = Asked { devices: 2, ..PLAIN };
        check(two, ["EACCES", "EINVAL", "identity", "identity"]);
        check(Asked { drivers: &stub, ..two }, ["EACCES", "EINVAL", "identity", "identity"]);
        check(Asked { word: "auto", ..PLAIN }, ["EACCES", "DMA-FQ", "DMA-FQ", "DMA-FQ"]);
        check(Asked { word: "blocked", ..PLAIN }, ["EACCES", "EINVAL", "EINVAL", "EINVAL"]);
    }

    #[test]
    fn identity_under_snp() {
        for ((major, minor, patch), mode_zero, expected) in [
            ((6, 11, 0), false, "ENOMEM"),
            ((6, 12, 57), false, "ENOMEM"),
            ((6, 13, 0), false, "identity"),
            ((6, 14, 11), false, "identity"),
            ((6, 19, 9), false, "identity"),
            ((6, 19, 10), false, "EINVAL"),
            ((7, 0, 14), true, "EINVAL"),
            ((7, 3, 4), false, "EINVAL"),
            ((7, 3, 4), true, "identity"),
        ] {
            let version = KernelVersion { major, minor, patch };
            let asked = Asked { version, snp: true, mode_zero, ..PLAIN };
            assert_eq!(spell(&answer(&asked)), expected, "{version:?} {mode_zero}");
        }
        let version = KernelVersion { major: 6, minor: 14, patch: 11 };
        assert!(rejects_all_dma("identity", version, true, false));
        assert!(!rejects_all_dma("DMA-FQ", version, true, false));
    }

    #[test]
    fn a_reset_in_progress_counts_from_7_2() {
        let asked = Asked { resetting: true, ..PLAIN };
        check(asked, ["EACCES", "identity", "identity", "EBUSY"]);
    }

    #[test]
    fn strict_to_lazy_needs_no_unbinding() {
        let drivers = ["nvidia".to_owned()];
        let asked = Asked { current: "DMA", word: "DMA-FQ", drivers: &drivers, ..PLAIN };
        check(asked, ["EACCES", "DMA-FQ", "DMA-FQ", "DMA-FQ"]);
    }
}
