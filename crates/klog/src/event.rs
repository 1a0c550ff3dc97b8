//! One event of an IOMMU, whatever the dialect.

use std::fmt;

use peerway_core::address::{BusAddress, PciAddress};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// Which family of IOMMU, or whose driver, logged an event.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Iommu {
    /// AMD-Vi (`drivers/iommu/amd/iommu.c`), also as Xen prints it.
    AmdVi,
    /// Intel VT-d (`drivers/iommu/intel/dmar.c`), also as Xen prints it.
    VtD,
    /// Arm SMMU version 1 or 2 (`drivers/iommu/arm/arm-smmu/arm-smmu.c`).
    SmmuV2,
    /// Arm SMMU version 3 (`drivers/iommu/arm/arm-smmu-v3/arm-smmu-v3.c`).
    SmmuV3,
}

impl Iommu {
    /// The name in documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AmdVi => "amd-vi",
            Self::VtD => "vt-d",
            Self::SmmuV2 => "smmu-v2",
            Self::SmmuV3 => "smmu-v3",
        }
    }
}

impl fmt::Display for Iommu {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

macro_rules! kinds {
    ($($(#[$about:meta])* $name:ident = $text:literal, $class:ident;)*) => {
        /// What happened, under the name that the hardware's manual or the kernel gives it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash,
            Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Kind { $($(#[$about])* $name,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in documents.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// A small number for tables.
            #[expect(clippy::as_conversions, reason = "the number of a variant without fields")]
            pub(crate) const fn index(self) -> u8 {
                self as u8
            }

            /// The coarse class that conclusions are drawn from.
            pub const fn class(self) -> Class {
                match self { $(Self::$name => Class::$class,)* }
            }
        }
    };
}

kinds! {
    /// AMD: an access without a translation or without permission.
    IoPageFault = "io_page_fault", Translation;
    /// AMD: a fault of a device that has no domain (6.1 and later).
    DeviceNotAttached = "device_not_attached", Translation;
    /// AMD: the device table entry is not valid. After a change to `identity`: SNP forbids mode 0.
    IllegalDevTableEntry = "illegal_dev_table_entry", Structure;
    /// AMD: hardware error while reading the device table.
    DevTabHardwareError = "dev_tab_hardware_error", Structure;
    /// AMD: hardware error while reading a page table.
    PageTabHardwareError = "page_tab_hardware_error", Structure;
    /// AMD: a command that the IOMMU does not know.
    IllegalCommandError = "illegal_command_error", Structure;
    /// AMD: hardware error while reading the command buffer.
    CommandHardwareError = "command_hardware_error", Structure;
    /// AMD: a device did not answer an invalidation of its translation cache.
    IotlbInvTimeout = "iotlb_inv_timeout", Structure;
    /// AMD: a request that is not allowed at all, such as one into a reserved range.
    InvalidDeviceRequest = "invalid_device_request", Structure;
    /// AMD: a page request that is not allowed.
    InvalidPprRequest = "invalid_ppr_request", Structure;
    /// AMD: an event whose type the kernel does not know.
    AmdUnknown = "amd_unknown", Structure;
    /// SEV-SNP: the reverse map table rejects the access.
    RmpPageFault = "rmp_page_fault", Rmp;
    /// SEV-SNP: hardware error while reading the reverse map table.
    RmpHwError = "rmp_hw_error", Rmp;
    /// Intel: a DMA request was refused; the reason code says why.
    DmaFault = "dma_fault", Translation;
    /// Intel: an interrupt request was refused.
    InterruptRemapFault = "interrupt_remap_fault", Structure;
    /// Intel: the invalidation queue holds something that the hardware refuses.
    InvalidationQueueError = "invalidation_queue_error", Structure;
    /// Intel: a device did not answer an invalidation of its translation cache.
    InvalidationTimeout = "invalidation_timeout", Structure;
    /// Intel: an unexpected or invalid answer to such an invalidation.
    InvalidationCompletionError = "invalidation_completion_error", Structure;
    /// SMMUv3 event 0x10: no translation.
    FTranslation = "f_translation", Translation;
    /// SMMUv3 event 0x11: an address out of range.
    FAddrSize = "f_addr_size", Translation;
    /// SMMUv3 event 0x12: the access flag is clear.
    FAccess = "f_access", Translation;
    /// SMMUv3 event 0x13: no permission.
    FPermission = "f_permission", Translation;
    /// SMMUv3 event 0x02: a stream id out of range.
    CBadStreamId = "c_bad_streamid", Structure;
    /// SMMUv3 event 0x03: the stream table entry could not be fetched.
    FSteFetch = "f_ste_fetch", Structure;
    /// SMMUv3 event 0x04: the stream table entry is not valid.
    CBadSte = "c_bad_ste", Structure;
    /// SMMUv3 event 0x06: the stream is disabled.
    FStreamDisabled = "f_stream_disabled", Structure;
    /// SMMUv3 event 0x08: a substream id (PASID) that is not valid.
    CBadSubstreamId = "c_bad_substreamid", Structure;
    /// SMMUv3 event 0x09: the context descriptor could not be fetched.
    FCdFetch = "f_cd_fetch", Structure;
    /// SMMUv3 event 0x0a: the context descriptor is not valid.
    CBadCd = "c_bad_cd", Structure;
    /// SMMUv3 event 0x25: the virtual machine structure could not be fetched.
    FVmsFetch = "f_vms_fetch", Structure;
    /// SMMUv3: an event of another number.
    SmmuOther = "smmu_other", Structure;
    /// SMMUv2: a fault in a translation context.
    ContextFault = "context_fault", Translation;
    /// SMMUv2: a fault outside every context, such as one of an unknown stream.
    GlobalFault = "global_fault", Structure;
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

/// Coarse class of an event.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A page fault: the address had no translation, or not the right one.
    Translation,
    /// An event about tables, queues, commands or requests: no page fault.
    Structure,
    /// SEV-SNP's reverse map.
    Rmp,
}

/// Direction of the access that was refused.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The device read.
    Read,
    /// The device wrote.
    Write,
    /// The device fetched an instruction.
    Execute,
    /// The device raised an interrupt.
    Interrupt,
    /// The event does not say.
    #[default]
    Unknown,
}

impl Direction {
    /// How many there are.
    pub(crate) const COUNT: usize = 5;
    /// Every one, by its number.
    pub(crate) const ALL: [Self; Self::COUNT] =
        [Self::Read, Self::Write, Self::Execute, Self::Interrupt, Self::Unknown];

    /// A small number for tables.
    #[inline]
    #[expect(clippy::as_conversions, reason = "the number of a variant without fields")]
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The name in documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "execute",
            Self::Interrupt => "interrupt",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

/// Direction of an access, and whether the hardware vouches for it.
///
/// AMD defines the RW bit of a page fault only together with PR (translation present). In the
/// common faults of unmapped addresses (flags `0x0000` and `0x0020`) PR is clear: the direction is
/// then a hint, which real hardware has so far borne out.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Access {
    /// Direction, if the event says one.
    pub direction: Direction,
    /// Whether the specification gives the direction a meaning in this event.
    pub certain: bool,
}

impl Access {
    /// Nothing known.
    pub const UNKNOWN: Self = Self { direction: Direction::Unknown, certain: false };

    /// A direction that the specification vouches for.
    pub const fn certain(direction: Direction) -> Self {
        Self { direction, certain: true }
    }

    /// A direction that the specification leaves undefined in this event.
    pub const fn hint(direction: Direction) -> Self {
        Self { direction, certain: false }
    }
}

/// Bits of the `flags` of an AMD event (AMD document 48882; `EVENT_FLAG_*` in the kernel).
pub mod amd_flags {
    /// The request carried a PASID.
    pub const GN: u32 = 0x001;
    /// No execute.
    pub const NX: u32 = 0x002;
    /// User privilege.
    pub const US: u32 = 0x004;
    /// Interrupt request, not memory.
    pub const INTERRUPT: u32 = 0x008;
    /// A translation was present.
    pub const PRESENT: u32 = 0x010;
    /// Write.
    pub const WRITE: u32 = 0x020;
    /// No permission.
    pub const PERMISSION: u32 = 0x040;
    /// A reserved bit was set, or a level was illegal.
    pub const RESERVED: u32 = 0x080;
    /// A translation request (ATS), not an access.
    pub const TRANSLATION_REQUEST: u32 = 0x100;
}

/// Who sent the refused request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Requester<'a> {
    /// A PCI function (its requester ID: behind a bridge to conventional PCI, the bridge's).
    Pci(PciAddress),
    /// A stream id of an Arm SMMU that the log does not map to a device.
    Stream(u32),
    /// A device that is not on PCI, by its kernel name.
    Named(&'a str),
    /// The event concerns the IOMMU itself, or the log does not say.
    #[default]
    Unknown,
}

impl Requester<'_> {
    /// The PCI address, if it is one.
    pub const fn pci(self) -> Option<PciAddress> {
        match self {
            Self::Pci(address) => Some(address),
            Self::Stream(_) | Self::Named(_) | Self::Unknown => None,
        }
    }
}

impl fmt::Display for Requester<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(address) => fmt::Display::fmt(address, out),
            Self::Stream(id) => out.pad(&format!("stream {id:#x}")),
            Self::Named(name) => out.pad(name),
            Self::Unknown => out.pad("unknown"),
        }
    }
}

/// Why a request was refused, as a code and a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason<'a> {
    /// The hardware's number.
    pub code: u32,
    /// Its meaning: the kernel's text of this code where it is known, else the text in the log.
    pub text: &'a str,
}

/// The time of an event. It is read out of the line's envelope only when it is asked for, since
/// of a storm's events only the first and the last are.
#[derive(Clone, Copy, Debug)]
pub struct When<'a> {
    /// A text that begins with the envelope.
    text: &'a [u8],
    /// How far the envelope goes; 0 where there is none.
    envelope: usize,
    known: Stamp,
}

impl PartialEq for When<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.envelope(), self.known) == (other.envelope(), other.known)
    }
}

impl Eq for When<'_> {}

impl<'a> When<'a> {
    /// Not said.
    pub(crate) const UNKNOWN: Self = Self {
        text: &[],
        envelope: 0,
        known: Stamp { monotonic_us: None, wall: None, since_previous_us: None },
    };

    /// Already read.
    pub(crate) const fn known(known: Stamp) -> Self {
        Self { known, ..Self::UNKNOWN }
    }

    /// Still in an envelope, which is so much of the front of a text.
    pub(crate) const fn raw(text: &'a [u8], envelope: usize) -> Self {
        Self { text, envelope, ..Self::UNKNOWN }
    }

    /// The envelope, where the time is still in one.
    pub(crate) fn envelope(&self) -> &'a [u8] {
        self.text.get(..self.envelope).unwrap_or_default()
    }

    /// The envelope's length, and as many bytes from its start as are asked for, where there are
    /// so many: those behind the envelope mean nothing.
    #[inline]
    pub(crate) fn chunk<const N: usize>(&self) -> Option<(usize, &'a [u8; N])> {
        self.text.first_chunk().map(|chunk| (self.envelope, chunk))
    }

    /// The time.
    pub fn stamp(&self) -> Stamp {
        match self.envelope() {
            [] => self.known,
            envelope => crate::envelope::strip(envelope).stamp,
        }
    }
}

/// One event of an IOMMU. Several lines of one event make one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Number of the first line, from 1, in what the scanner was fed.
    pub line: u64,
    /// Number of the boot within the input: 0 up to the first `Linux version` line.
    pub boot: u32,
    /// When the first line was logged.
    pub when: When<'a>,
    /// Whose event it is.
    pub iommu: Iommu,
    /// What happened.
    pub kind: Kind,
    /// Who sent the request.
    pub requester: Requester<'a>,
    /// Driver, bus or class name in front of the device (`vfio-pci` says nothing about its class).
    pub driver: Option<&'a str>,
    /// Name of the IOMMU that reports (`ivhd1`, `fc900000.iommu`).
    pub unit: Option<&'a str>,
    /// The address that was refused; `None` if the line lacks it or is cut inside it.
    pub address: Option<BusAddress>,
    /// Direction of the access.
    pub access: Access,
    /// The hardware's flag word.
    pub flags: Option<u32>,
    /// Flag word of the reverse map check.
    pub rmp_flags: Option<u32>,
    /// Process address space (SMMU: substream) of the request.
    pub pasid: Option<u32>,
    /// The IOMMU's own number of the domain. No file maps it to a group.
    pub domain: Option<u32>,
    /// Why, where the hardware says it.
    pub reason: Option<Reason<'a>>,
    /// Further words printed with the event: the SMMU's raw record, AMD's device table entry.
    pub words: Option<[u64; 4]>,
    /// The line ends before the event does.
    pub cut: bool,
    /// The message, without its envelope: evidence to quote.
    pub text: &'a [u8],
}

impl Event<'_> {
    /// An event of which only the kind is known.
    pub(crate) const fn new(iommu: Iommu, kind: Kind) -> Self {
        Self {
            line: 0,
            boot: 0,
            when: When::UNKNOWN,
            iommu,
            kind,
            requester: Requester::Unknown,
            driver: None,
            unit: None,
            address: None,
            access: Access::UNKNOWN,
            flags: None,
            rmp_flags: None,
            pasid: None,
            domain: None,
            reason: None,
            words: None,
            cut: false,
            text: &[],
        }
    }

    /// The class of the event's kind.
    pub const fn class(&self) -> Class {
        self.kind.class()
    }
}
