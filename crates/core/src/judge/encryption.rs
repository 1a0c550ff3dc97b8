//! Does an entry for peer memory carry the encryption bit?

use super::{Answer, Confidence};
use crate::code;
use crate::snapshot::Snapshot;
use crate::snapshot::iommu::IommuVendor;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::PciDevice;

/// Whether this kernel leaves the encryption bit out of entries for MMIO ("iommupt: Do not set
/// C-bit on MMIO backed PTEs": 7.0, and 6.19 stable between 6.19.3 and 6.19.5).
pub fn kernel_has_fix(snapshot: &Snapshot) -> Tristate {
    match snapshot.kernel.version() {
        Some(version) if version.at_least(7, 0) => Tristate::Yes,
        Some(version) if (version.major, version.minor) == (6, 19) => match version.patch {
            0..=2 => Tristate::No,
            3 | 4 => Tristate::Unknown,
            _ => Tristate::Yes,
        },
        Some(_) => Tristate::No,
        None => Tristate::Unknown,
    }
}

/// On AMD with SME active an entry for peer memory carries the encryption bit unless the kernel
/// has the fix: the address that leaves the IOMMU is then nobody's.
pub(crate) fn check(snapshot: &Snapshot, from: &PciDevice) -> Option<Answer> {
    if snapshot.iommu_vendor() != Some(IommuVendor::Amd) {
        return None;
    }
    match (snapshot.memory_encryption.sme.state, kernel_has_fix(snapshot)) {
        (Tristate::No, _) | (_, Tristate::Yes) => None,
        (Tristate::Yes, Tristate::No) => Some(Answer::broken(
            Confidence::Probable,
            code::ENCRYPTION_BIT,
            format!(
                "SME is active and this kernel sets the encryption bit in entries for peer \
                 memory: what {} writes arrives nowhere",
                from.address
            ),
        )),
        (Tristate::Yes, Tristate::Unknown) | (Tristate::Unknown, _) => Some(Answer::unknown(
            code::SME_ACTIVE,
            "whether entries for peer memory carry the encryption bit could not be established \
             (SME state, kernel fix)",
        )),
    }
}
