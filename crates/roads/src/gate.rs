//! A gate: one condition that a road must pass on this host.

use std::fmt;

use peerway_core::snapshot::kernel::Tristate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a condition holds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Passed {
    /// It holds, by what was read.
    Yes,
    /// It does not hold.
    No,
    /// Nobody could tell; never read as yes.
    Unknown,
}

impl From<Tristate> for Passed {
    fn from(state: Tristate) -> Self {
        match state {
            Tristate::Yes => Self::Yes,
            Tristate::No => Self::No,
            Tristate::Unknown => Self::Unknown,
        }
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        })
    }
}

macro_rules! codes {
    ($($(#[$about:meta])* $name:ident = $word:literal;)*) => {
        /// What a gate is about.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
        )]
        pub enum GateCode {
            $($(#[$about])* #[serde(rename = $word)] $name,)*
        }

        impl GateCode {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its word, as in `peerway explain sme-mmio`.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

codes! {
    /// There is something to connect.
    Goal = "goal";
    /// Something is broken that the road could cure.
    BrokenPairs = "broken-pairs";
    /// The devices belong to a guest, which decides for itself.
    DecidedInGuest = "decided-in-guest";
    /// The requesters' groups translate.
    Translating = "translating";
    /// A driver that is not VFIO's is bound.
    BoundDriver = "bound-driver";
    /// The driver uses raw bus addresses.
    RawAddresses = "raw-addresses";
    /// The driver offers peer access on these boards.
    DriverOffers = "driver-offers";
    /// The targets' memory can be addressed at all.
    Reachable = "reachable";
    /// The root complex forwards peer requests.
    Routing = "routing";
    /// Entries for MMIO without the encryption bit.
    SmeMmio = "sme-mmio";
    /// SNP's treatment of peer MMIO.
    RmpMmio = "rmp-mmio";
    /// SNP forbids untranslated devices.
    SnpIdentity = "snp-identity";
    /// The IOMMU has a pass-through mode.
    PassThroughMode = "pass-through-mode";
    /// Which of its two ways of peer access the driver uses.
    P2pMechanism = "p2p-mechanism";
    /// The addresses to map are free and stay so.
    AddressesFree = "addresses-free";
    /// Everything in the requesters' groups is the tenant's.
    GroupMembers = "group-members";
    /// Nobody else claims the devices.
    Contested = "contested";
    /// All devices are one tenant's.
    OneTenant = "one-tenant";
    /// Who holds the devices now, and that they can be released.
    Holders = "holders";
    /// The kernel module fits this kernel.
    Module = "module";
    /// Secure Boot and lockdown let it happen.
    SecureBoot = "secure-boot";
    /// The kernel can change the group's type.
    KernelEra = "kernel-era";
    /// A lost race while unbinding would need a reboot.
    UnbindHazard = "unbind-hazard";
    /// No device is external.
    Untrusted = "untrusted";
    /// Nothing of the kind failed before.
    KnownFailure = "known-failure";
    /// Device nodes keep their numbers.
    Minors = "minors";
    /// A common switch.
    CommonSwitch = "common-switch";
    /// Access control could be read.
    AcsReadable = "acs-readable";
    /// Groups are what they say.
    RealGroups = "real-groups";
    /// The tenant's memory is not encrypted against the host.
    Confidential = "confidential";
    /// The driver's source is open.
    OpenDriver = "open-driver";
    /// Only the tenant uses the driver.
    DriverShared = "driver-shared";
    /// There is something to set.
    PolicyApplies = "policy-applies";
    /// A reboot is allowed.
    Reboot = "reboot";
    /// SNP may be given up.
    KeepSnp = "keep-snp";
    /// None of the devices is protected.
    Protected = "protected";
    /// The operator has not excluded the road.
    Excluded = "excluded";
}

impl fmt::Display for GateCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.word())
    }
}

/// One condition, with what was read and what would lift it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    /// What it is about; `peerway explain CODE` has the page.
    pub code: GateCode,
    /// Whether it holds.
    pub passed: Passed,
    /// Whether it decides about the road; some are shown only.
    pub closes: bool,
    /// Whether it is a constraint (a choice) rather than a fact.
    pub constraint: bool,
    /// What was read, as `source = value`.
    pub read: String,
    /// What would lift it; absent where it holds.
    pub lifts: Option<String>,
}

impl Gate {
    /// It holds.
    pub(crate) fn pass(code: GateCode, read: impl Into<String>) -> Self {
        Self::new(code, Passed::Yes, read.into(), None)
    }

    /// It does not hold.
    pub(crate) fn fail(code: GateCode, read: impl Into<String>, lifts: impl Into<String>) -> Self {
        Self::new(code, Passed::No, read.into(), Some(lifts.into()))
    }

    /// Nobody could tell.
    pub(crate) fn unknown(
        code: GateCode,
        read: impl Into<String>,
        lifts: impl Into<String>,
    ) -> Self {
        Self::new(code, Passed::Unknown, read.into(), Some(lifts.into()))
    }

    fn new(code: GateCode, passed: Passed, read: String, lifts: Option<String>) -> Self {
        let read = if read.is_empty() { "no device of the goal".to_owned() } else { read };
        Self { code, passed, closes: true, constraint: false, read, lifts }
    }

    /// Shown, without deciding.
    #[must_use]
    pub(crate) fn shown(mut self) -> Self {
        self.closes = false;
        self
    }

    /// A choice, not a fact.
    #[must_use]
    pub(crate) fn constraint(mut self) -> Self {
        self.constraint = true;
        self
    }
}
