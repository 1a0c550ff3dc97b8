//! Codes of findings: `PW` and four digits, fixed for ever once published.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// A finding's code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Code(&'static str);

impl Code {
    /// Its text, `PW0201`.
    pub const fn text(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

macro_rules! codes {
    ($($(#[$about:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$about])* pub const $name: Code = Code($text);)*

        /// All codes, in the order of the table.
        pub const ALL: &[Code] = &[$($name),*];
    };
}

codes! {
    // 01: kernel and command line.
    /// A word of the command line does nothing.
    NO_OP_WORD = "PW0101";
    /// `iommu=pt` or a relative: every device is passed through, SNP is lost.
    PASSTHROUGH_BOOT = "PW0102";
    /// Passed through by default, yet this group translates.
    TRANSLATES_DESPITE_PASSTHROUGH = "PW0103";
    /// `iommu=soft` switches no IOMMU off.
    IOMMU_SOFT = "PW0104";
    /// No IOMMU is active.
    IOMMU_OFF = "PW0105";
    /// `pcie_acs_override` pretends isolation.
    ACS_OVERRIDE = "PW0106";
    /// Nothing of the kernel's own is known about this release.
    KERNEL_UNKNOWN = "PW0107";
    // 02: pairs and routes.
    /// Raw peer addresses under a translating domain.
    RAW_UNDER_TRANSLATION = "PW0201";
    /// Redirect on the ports between two devices below one switch.
    ACS_REDIRECT = "PW0202";
    /// Nobody knows whether the root complex forwards.
    FORWARDING_UNKNOWN = "PW0203";
    /// The driver has the kernel map peer memory here.
    MAPPED_BY_DRIVER = "PW0204";
    /// An identity domain on an SNP host.
    IDENTITY_UNDER_SNP = "PW0205";
    /// The encryption bit in entries for peer memory.
    ENCRYPTION_BIT = "PW0206";
    /// Both devices are in a guest: decided there.
    DECIDED_IN_GUEST = "PW0207";
    /// This system is a guest; its host decides.
    HOST_NOT_VISIBLE = "PW0208";
    /// The stock driver does not offer peer access on this board.
    BOARD_OFFERS_NONE = "PW0209";
    /// The target's memory is not reachable at all.
    TARGET_UNREACHABLE = "PW0210";
    /// The target lies above what the requester can address.
    BEYOND_ADDRESS_WIDTH = "PW0211";
    /// The requests turn in the switch and never meet the IOMMU.
    TURNS_IN_SWITCH = "PW0212";
    /// A domain that refuses all DMA.
    BLOCKED_DOMAIN = "PW0213";
    /// The route passes something that could not be read.
    ROUTE_UNKNOWN = "PW0214";
    /// No driver is bound, or one whose way of addressing peers is not known.
    ADDRESSING_UNKNOWN = "PW0215";
    /// Untranslated: the device reaches all host memory.
    UNTRANSLATED = "PW0216";
    /// NVLink carries the pair.
    NVLINK = "PW0217";
    /// Boards with NVLink whose links cannot be seen.
    NVLINK_NOT_VISIBLE = "PW0218";
    /// Identity without hardware pass-through maps memory only.
    SOFTWARE_IDENTITY = "PW0219";
    /// A link of the route is far below what it should be.
    NARROW_LINK = "PW0220";
    /// A driver with peer-to-peer patches: always raw addresses.
    FORKED_DRIVER = "PW0221";
    /// Two tenants: no peer access between them is isolation.
    ACROSS_TENANTS = "PW0222";
    /// A peer map is in force for the pair.
    PEER_MAP = "PW0223";
    /// A peer map that does not do what it should.
    PEER_MAP_SPOILED = "PW0224";
    // 03: driver.
    /// `ForceP2P` makes every capability answer worthless.
    FORCED_CAPABILITY = "PW0301";
    /// `DmaRemapPeerMmio=1` does not mean that peer memory is mapped.
    REMAP_PARAMETER = "PW0302";
    /// Which mechanism of peer access the driver uses.
    P2P_MECHANISM = "PW0303";
    /// A workaround is in force.
    WORKAROUND = "PW0304";
    /// A switch of the environment is misspelled or has no effect.
    SWITCH_WITHOUT_EFFECT = "PW0305";
    /// This generation needs the open kernel modules.
    CLOSED_DRIVER = "PW0306";
    /// What the driver's tools say is no evidence.
    TOOLS_SAY_OK = "PW0307";
    /// GPUs without a driver.
    NO_DRIVER = "PW0308";
    // 04: memory encryption and firmware.
    /// SNP is on: no untranslated device.
    SNP_ACTIVE = "PW0401";
    /// SME is on and this kernel sets the encryption bit on MMIO.
    SME_ACTIVE = "PW0402";
    /// SNP was possible and is off.
    SNP_OFF = "PW0403";
    /// Whether SNP is on could not be established.
    SNP_UNKNOWN = "PW0404";
    /// Firmware settings that bear on this.
    FIRMWARE_SETTINGS = "PW0405";
    /// A device that no IOMMU covers.
    NOT_COVERED = "PW0406";
    /// Root ports without access control although an IOMMU is on.
    NO_ACS_ON_ROOT_PORTS = "PW0407";
    /// Firmware wants memory of a GPU mapped one to one.
    UNITY_MAPPING = "PW0408";
    // 05: tenants.
    /// Another tenant is protected.
    PROTECTED_TENANT = "PW0501";
    /// More than one tenant claims a device.
    CONTESTED = "PW0502";
    /// A group is shared by devices of different tenants.
    SHARED_GROUP = "PW0503";
    /// Bound to VFIO and held by nobody who was seen.
    IDLE_VFIO = "PW0504";
    // 06: what the kernel log says has happened.
    /// Refused requests inside a peer's memory.
    PEER_FAULTS = "PW0601";
    /// Refused requests of a GPU that are not peer access.
    GPU_FAULTS = "PW0602";
    /// Refused requests of other devices.
    DEVICE_FAULTS = "PW0603";
    /// The log lost events.
    LOG_LOST_EVENTS = "PW0604";
    /// The NVIDIA driver could not bring a GPU up.
    INIT_FAILED = "PW0605";
    /// Xids, and errors of the switches of `NVLink`.
    XID = "PW0606";
    /// IOMMU events that are no page faults, SMMU and reverse-map events.
    IOMMU_EVENTS = "PW0607";
    /// Errors inside a GPU of another make, which read like IOMMU faults.
    GPU_OWN_ERRORS = "PW0608";
    /// Reset, power-state or ownership trouble, and errors of the link.
    DEVICE_STATE = "PW0609";
    /// Peer access refused by the kernel's or the driver's own checks.
    PEER_REFUSED = "PW0610";
    /// Loud lines that mean nothing.
    LOUD_LINES = "PW0611";
    // 07: what could not be seen.
    /// Something could not be read.
    COULD_NOT_LOOK = "PW0701";
    /// The kernel log was not looked at.
    LOG_NOT_READ = "PW0702";
    /// A sleeping device was left alone.
    ASLEEP = "PW0703";
    /// What imported files come to.
    IMPORTED = "PW0704";
    // 08: devices.
    /// A device does not answer.
    DEAD_DEVICE = "PW0801";
    /// A memory window smaller than the memory.
    SMALL_BAR = "PW0802";
    /// A region without an address.
    UNASSIGNED_BAR = "PW0803";
    /// An external device.
    EXTERNAL_DEVICE = "PW0804";
}

/// The code of a text, in either case.
pub fn parse(text: &str) -> Option<Code> {
    ALL.iter().copied().find(|code| code.0.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_ordered() {
        assert!(ALL.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(parse("pw0201"), Some(RAW_UNDER_TRANSLATION));
        assert_eq!(parse("PW9999"), None);
    }
}
