//! Lines that are no IOMMU event and still bear on the diagnosis.

use peerway_core::address::{BusAddress, PciAddress, VendorDevice};

use crate::event::When;
use crate::nvidia::Stage;

mod codes;

pub(crate) use codes::coded;
pub use codes::{
    Acs, Banner, BarState, DeviceState, DomainRefusal, GpuError, Lost, NvidiaState, PcieError,
    PeerDma, Platform,
};

/// A line that is no IOMMU event and still bears on the diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice<'a> {
    /// Line number, from 1, in what the scanner was fed.
    pub line: u64,
    /// Number of the boot within the input: 0 up to the first `Linux version` line.
    pub boot: u32,
    /// When it was logged.
    pub when: When<'a>,
    /// The message, without its envelope.
    pub text: &'a [u8],
    /// Driver, bus or class name in front of the device that the line is about.
    pub driver: Option<&'a str>,
    /// What it says.
    pub fact: Fact<'a>,
}

/// What a notice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact<'a> {
    /// `function: N callbacks suppressed`: that many messages were dropped by a rate limit.
    Suppressed {
        /// The function that would have logged.
        function: &'a str,
        /// How many messages.
        count: u64,
        /// Whether those messages were IOMMU events.
        iommu_events: bool,
    },
    /// Events were lost in hardware.
    EventsLost(Lost),
    /// The IOMMU does not complete its commands: the host is in trouble.
    IommuStuck,
    /// A boot line about the IOMMU.
    Banner(Banner),
    /// `Adding to iommu group N`.
    GroupJoined {
        /// The device.
        device: PciAddress,
        /// The group.
        group: u32,
    },
    /// `Removing from iommu group N`.
    GroupLeft {
        /// The device.
        device: PciAddress,
        /// The group.
        group: u32,
    },
    /// A domain type was refused or changed.
    DomainRefused {
        /// The device, where the line names it.
        device: Option<PciAddress>,
        /// Why.
        why: DomainRefusal,
    },
    /// SEV, SNP and memory encryption.
    Platform {
        /// What is said.
        state: Platform,
        /// The security processor, where the line is its driver's.
        device: Option<PciAddress>,
    },
    /// `Command line: …`.
    CommandLine {
        /// The parameters.
        parameters: &'a str,
    },
    /// `Linux version …`: a boot begins.
    Boot {
        /// The kernel's release.
        release: &'a str,
    },
    /// A PCI function was enumerated.
    DeviceFound {
        /// Where.
        device: PciAddress,
        /// What.
        id: VendorDevice,
        /// Class code, 24 bits.
        class: u32,
    },
    /// A BAR of a function (not of its virtual functions).
    Bar {
        /// The function.
        device: PciAddress,
        /// Number, 0 to 5.
        index: u8,
        /// What is said.
        state: BarState,
        /// First address.
        start: Option<BusAddress>,
        /// Size in bytes.
        size: Option<u64>,
    },
    /// The kernel's peer-to-peer code.
    PeerDma {
        /// What is said.
        what: PeerDma,
        /// Who wants to reach (the device that the line is about).
        client: Option<PciAddress>,
        /// Whose memory, or which port.
        provider: Option<PciAddress>,
    },
    /// ACS was changed.
    Acs {
        /// What is said.
        what: Acs,
        /// The port.
        device: Option<PciAddress>,
    },
    /// A PCI Express error.
    PcieError {
        /// Which.
        what: PcieError,
        /// The port or device that reports.
        device: Option<PciAddress>,
    },
    /// Reset, power-state and ownership trouble.
    DeviceState {
        /// Which.
        what: DeviceState,
        /// The device.
        device: Option<PciAddress>,
    },
    /// NVIDIA's driver is loaded.
    NvidiaDriver {
        /// Its version, such as `580.159.04`.
        version: &'a str,
        /// Whether it is the open flavour.
        open: bool,
    },
    /// An Xid.
    Xid {
        /// The GPU (the driver prints no function; 0 is meant).
        device: PciAddress,
        /// The number.
        number: u32,
        /// A faulting address in the GPU's own address space, where the text has one.
        address: Option<BusAddress>,
    },
    /// An error of an `NVSwitch`.
    Sxid {
        /// The switch.
        device: PciAddress,
        /// The number.
        number: u32,
        /// Whether the line says fatal or non-fatal.
        fatal: Option<bool>,
    },
    /// A stage of the GPU's initialisation failed.
    NvidiaInit {
        /// Which.
        stage: Stage,
        /// The GPU, where the line names it.
        device: Option<PciAddress>,
    },
    /// `RmInitAdapter failed! (0x62:0x40:2192)`: the summary of a failed initialisation.
    NvidiaInitFailed {
        /// The GPU.
        device: PciAddress,
        /// First number: the stage (`osinit.c`).
        stage: u32,
        /// Second number: an `NV_STATUS`.
        status: u32,
    },
    /// Other lines of NVIDIA's driver.
    Nvidia {
        /// Which.
        what: NvidiaState,
        /// The GPU, where the line names it.
        device: Option<PciAddress>,
        /// The address that the line is about.
        address: Option<BusAddress>,
    },
    /// An error inside a GPU of another make.
    Gpu {
        /// Which.
        what: GpuError,
        /// The GPU.
        device: Option<PciAddress>,
        /// The address in the GPU's own address space.
        address: Option<BusAddress>,
    },
    /// A line that names a device and its driver, and nothing else of interest.
    DriverSeen {
        /// The device.
        device: PciAddress,
    },
    /// Records of `/dev/kmsg` are missing before this one.
    RecordsLost {
        /// How many sequence numbers are missing.
        count: u64,
    },
}

impl Fact<'_> {
    /// The kind in documents (`driver_events[].kind` for those that concern a device).
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Suppressed { .. } => "suppressed",
            Self::EventsLost(_) => "iommu_events_lost",
            Self::IommuStuck => "iommu_stuck",
            Self::Banner(_) => "iommu_banner",
            Self::GroupJoined { .. } => "group_joined",
            Self::GroupLeft { .. } => "group_left",
            Self::DomainRefused { .. } => "domain_refused",
            Self::Platform { .. } => "platform",
            Self::CommandLine { .. } => "command_line",
            Self::Boot { .. } => "boot",
            Self::DeviceFound { .. } => "device_found",
            Self::Bar { .. } => "bar",
            Self::PeerDma { .. } => "peer_dma",
            Self::Acs { .. } => "acs",
            Self::PcieError { .. } => "pcie_error",
            Self::DeviceState { .. } => "device_state",
            Self::NvidiaDriver { .. } => "nvidia_driver",
            Self::Xid { .. } => "xid",
            Self::Sxid { .. } => "sxid",
            Self::NvidiaInit { .. } => "nvidia_init",
            Self::NvidiaInitFailed { .. } => "nvidia_init_failed",
            Self::Nvidia { .. } => "nvidia",
            Self::Gpu { .. } => "gpu_error",
            Self::DriverSeen { .. } => "driver_seen",
            Self::RecordsLost { .. } => "records_lost",
        }
    }

    /// The device that the notice is about.
    pub const fn device(&self) -> Option<PciAddress> {
        match self {
            Self::GroupJoined { device, .. }
            | Self::GroupLeft { device, .. }
            | Self::DeviceFound { device, .. }
            | Self::Bar { device, .. }
            | Self::Xid { device, .. }
            | Self::Sxid { device, .. }
            | Self::NvidiaInitFailed { device, .. }
            | Self::DriverSeen { device, .. } => Some(*device),
            Self::DomainRefused { device, .. }
            | Self::Platform { device, .. }
            | Self::Acs { device, .. }
            | Self::PcieError { device, .. }
            | Self::DeviceState { device, .. }
            | Self::NvidiaInit { device, .. }
            | Self::Nvidia { device, .. }
            | Self::Gpu { device, .. } => *device,
            Self::PeerDma { client, .. } => *client,
            Self::Suppressed { .. }
            | Self::EventsLost(_)
            | Self::IommuStuck
            | Self::Banner(_)
            | Self::CommandLine { .. }
            | Self::Boot { .. }
            | Self::NvidiaDriver { .. }
            | Self::RecordsLost { .. } => None,
        }
    }

    /// The code in documents (`driver_events[].code`): an Xid's number, a stage, a state.
    pub fn code(&self) -> Code {
        match self {
            Self::EventsLost(what) => Code::Word(what.as_str()),
            Self::Banner(what) => Code::Word(what.as_str()),
            Self::DomainRefused { why, .. } => Code::Word(why.as_str()),
            Self::Platform { state, .. } => Code::Word(state.as_str()),
            Self::Bar { state, .. } => Code::Word(state.as_str()),
            Self::PeerDma { what, .. } => Code::Word(what.as_str()),
            Self::Acs { what, .. } => Code::Word(what.as_str()),
            Self::PcieError { what, .. } => Code::Word(what.as_str()),
            Self::DeviceState { what, .. } => Code::Word(what.as_str()),
            Self::Xid { number, .. } | Self::Sxid { number, .. } => Code::Number(*number),
            Self::NvidiaInit { stage, .. } => Code::Word(stage.as_str()),
            Self::NvidiaInitFailed { stage, status, .. } => Code::Pair(*stage, *status),
            Self::Nvidia { what, .. } => Code::Word(what.as_str()),
            Self::Gpu { what, .. } => Code::Word(what.as_str()),
            Self::Suppressed { .. }
            | Self::IommuStuck
            | Self::GroupJoined { .. }
            | Self::GroupLeft { .. }
            | Self::CommandLine { .. }
            | Self::Boot { .. }
            | Self::DeviceFound { .. }
            | Self::NvidiaDriver { .. }
            | Self::DriverSeen { .. }
            | Self::RecordsLost { .. } => Code::None,
        }
    }
}

/// Code of a notice, ordered and without allocation; `Display` gives the document's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// None.
    None,
    /// A word.
    Word(&'static str),
    /// A decimal number.
    Number(u32),
    /// Stage and status of a failed initialisation, hexadecimal.
    Pair(u32, u32),
}

impl std::fmt::Display for Code {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Word(word) => out.pad(word),
            Self::Number(number) => out.pad(&number.to_string()),
            Self::Pair(stage, status) => out.pad(&format!("{stage:#x}:{status:#x}")),
        }
    }
}
