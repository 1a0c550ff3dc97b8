//! The closed lists of what notices say, each with its word in documents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! coded {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash,
            Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The code in documents.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}
pub(crate) use coded;

coded! {
    /// How events were lost.
    Lost {
        /// The hardware's event log was full.
        Overflow = "overflow",
        /// The kernel restarts the event log after an overflow.
        Restart = "restart",
        /// An event could not be written.
        NotWritten = "not-written",
        /// The page request queue was full.
        PageRequests = "page-requests",
    }
}

coded! {
    /// What a boot line says about the IOMMU. Several mislead alone: "translated" is printed with
    /// the IOMMU off, and "passthrough" while an untrusted port still translates.
    Banner {
        /// `Default domain type: Translated`.
        DefaultTranslated = "default-translated",
        /// `Default domain type: Translated (set via kernel command line)`.
        DefaultTranslatedByCommandLine = "default-translated-by-command-line",
        /// `Default domain type: Passthrough`.
        DefaultPassthrough = "default-passthrough",
        /// `Default domain type: Passthrough (set via kernel command line)`.
        DefaultPassthroughByCommandLine = "default-passthrough-by-command-line",
        /// Unmapped addresses are flushed from the IOMMU later (lazy).
        Lazy = "lazy",
        /// Unmapped addresses are flushed at once (strict).
        Strict = "strict",
        /// `DMAR: IOMMU enabled`: asked for on the command line.
        VtdAskedFor = "vtd-asked-for",
        /// `DMAR: IOMMU disabled`.
        VtdDisabled = "vtd-disabled",
        /// The platform demands the IOMMU (DMA protection of external ports).
        VtdForcedByPlatform = "vtd-forced-by-platform",
        /// VT-d translates DMA: `Intel(R) Virtualization Technology for Directed I/O`.
        VtdActive = "vtd-active",
        /// `DMAR: Firmware forces DMA remapping off`.
        VtdForcedOff = "vtd-forced-off",
        /// `DMAR-IR: Enabled IRQ remapping`: interrupts only, says nothing about DMA.
        InterruptRemapping = "interrupt-remapping",
        /// AMD's driver initialised an IOMMU.
        AmdActive = "amd-active",
        /// AMD's driver of old kernels initialised for passthrough.
        AmdPassthrough = "amd-passthrough",
        /// An AMD IOMMU was found, which does not mean that it is in use.
        AmdFound = "amd-found",
        /// `AMD-Vi: Unknown option - '…'`, such as `amd_iommu=on`.
        AmdUnknownOption = "amd-unknown-option",
        /// `DMAR: Unknown option - '…'`.
        VtdUnknownOption = "vtd-unknown-option",
        /// The aperture of old AMD processors: no IOMMU that isolates.
        Gart = "gart",
        /// Memory encryption overrode the configured passthrough.
        PassthroughOffByEncryption = "passthrough-off-by-encryption",
    }
}

coded! {
    /// Why the kernel refused, or changed, a group's domain type.
    DomainRefusal {
        /// A driver is bound (up to 6.3).
        DriverBound = "driver-bound",
        /// The group has several devices (up to 6.3).
        SeveralDevices = "several-devices",
        /// The group is held by VFIO or another owner (up to 6.3).
        NotDefaultDomain = "not-default-domain",
        /// The device demands another type.
        DeviceDemands = "device-demands",
        /// The allocation failed; the kernel falls back to translation and reports success.
        FellBack = "fell-back",
        /// Firmware demands a one-to-one region, so VFIO cannot take the device.
        FirmwareRegion = "firmware-region",
    }
}

coded! {
    /// What the log says about SEV, SNP and memory encryption on this host.
    Platform {
        /// `AMD-Vi: IOMMU SNP support enabled.`: SNP rules the IOMMU; identity domains are out.
        SnpIommuEnabled = "snp-iommu-enabled",
        /// SNP off: the IOMMU is off or in passthrough.
        SnpOffPassthrough = "snp-off-passthrough",
        /// SNP off: the IOMMU is off.
        SnpOffIommuOff = "snp-off-iommu-off",
        /// SNP off: the IOMMU uses version 2 page tables.
        SnpOffPageTables = "snp-off-page-tables",
        /// SNP off: the IOMMU lacks the feature, or firmware left it off.
        SnpOffFeature = "snp-off-feature",
        /// SNP off: the reverse map table could not be set up.
        SnpOffRmp = "snp-off-rmp",
        /// SNP was refused for another reason.
        SnpOffOther = "snp-off-other",
        /// Firmware reserved a reverse map table (necessary, not sufficient).
        RmpReserved = "rmp-reserved",
        /// Firmware reserved none.
        RmpNotReserved = "rmp-not-reserved",
        /// It does not cover all memory.
        RmpTooSmall = "rmp-too-small",
        /// It is not valid.
        RmpInvalid = "rmp-invalid",
        /// The kernel could not map it.
        RmpUnmapped = "rmp-unmapped",
        /// SNP initialisation failed at run time.
        SnpInitFailed = "snp-init-failed",
        /// The security processor answers: `SEV-SNP API:…`.
        SnpFirmware = "snp-firmware",
        /// The security processor answers: `SEV API:…`.
        SevFirmware = "sev-firmware",
        /// `ccp …: sev enabled`.
        SevEnabled = "sev-enabled",
        /// `kvm_amd: SEV-SNP enabled`.
        KvmSnpEnabled = "kvm-snp-enabled",
        /// `kvm_amd: SEV-SNP disabled` or `unusable`.
        KvmSnpDisabled = "kvm-snp-disabled",
        /// `kvm_amd: SEV enabled`, `SEV-ES enabled`, and the older `SEV supported`.
        KvmSev = "kvm-sev",
        /// `kvm_amd: SEV disabled`, and relatives.
        KvmSevDisabled = "kvm-sev-disabled",
        /// Memory encryption is active in the kernel (`mem_encrypt=on`).
        SmeActive = "sme-active",
        /// This kernel is a guest under SEV, SEV-ES or SEV-SNP.
        SevGuest = "sev-guest",
        /// This kernel is a guest under Intel TDX.
        TdxGuest = "tdx-guest",
        /// `SEV: memory encryption not enabled by BIOS`.
        SmeOffInFirmware = "sme-off-in-firmware",
        /// The memory controller encrypts everything, without the kernel's doing.
        TsmeActive = "tsme-active",
        /// `AMD-Vi: Extended features`: what the hardware can do.
        AmdFeatures = "amd-features",
        /// `AMD-Vi: Force to disable Virtual APIC due to SNP`.
        SnpWithoutVirtualApic = "snp-without-virtual-apic",
        /// A dump of a reverse map entry.
        RmpEntry = "rmp-entry",
    }
}

coded! {
    /// What the kernel's own peer-to-peer code says.
    PeerDma {
        /// Client and provider share no bridge, and their host bridges are not on the list.
        NoSharedBridge = "no-shared-bridge",
        /// ACS redirect is set between the two.
        AcsRedirect = "acs-redirect",
        /// The host bridge is not on the list.
        HostBridgeNotListed = "host-bridge-not-listed",
        /// QEMU could not map a peer's BAR for the guest.
        VfioMapFailed = "vfio-map-failed",
    }
}

coded! {
    /// Changes of ACS.
    Acs {
        /// `disabled ACS redirect` (`pci=disable_acs_redir=`).
        RedirectDisabled = "redirect-disabled",
        /// `Configured ACS to 0x…`.
        Configured = "configured",
        /// The device has no ACS capability to configure.
        NoCapability = "no-capability",
        /// `PCIe ACS overrides enabled`: pretends isolation, changes no routing.
        OverridePretends = "override-pretends",
        /// A flag string of `pci=config_acs=` is malformed.
        BadFlags = "bad-flags",
    }
}

coded! {
    /// Errors on PCI Express.
    PcieError {
        /// Corrected by the hardware.
        Corrected = "corrected",
        /// Uncorrected, the link still works.
        NonFatal = "nonfatal",
        /// Uncorrected and fatal.
        Fatal = "fatal",
        /// An ACS violation: a request with a wrong requester ID or a forbidden path.
        AcsViolation = "acs-violation",
        /// Downstream port containment cut the link.
        Contained = "contained",
        /// A hot-plug port lost its link, or its card.
        LinkDown = "link-down",
        /// A completion never came.
        CompletionTimeout = "completion-timeout",
    }
}

coded! {
    /// Reset, power-state and ownership trouble.
    DeviceState {
        /// The device stays in D3cold: its configuration space cannot be read.
        StuckInD3Cold = "stuck-in-d3cold",
        /// A reset begins.
        Resetting = "resetting",
        /// A reset ended. No proof that the device works.
        ResetDone = "reset-done",
        /// Not ready after a reset, the kernel waits.
        NotReady = "not-ready",
        /// Not ready after a reset, the kernel gave up.
        ResetFailed = "reset-failed",
        /// Transactions were pending when the reset began.
        PendingTransaction = "pending-transaction",
        /// VFIO asks the user to give the device back.
        VfioReleaseAsked = "vfio-release-asked",
        /// VFIO waits until the user gives the device back.
        VfioReleaseBlocked = "vfio-release-blocked",
        /// Other VFIO trouble (a BAR that cannot be reserved, a header that cannot be read …).
        VfioTrouble = "vfio-trouble",
        /// A driver's probe failed.
        ProbeFailed = "probe-failed",
    }
}

coded! {
    /// What the log says about a BAR.
    BarState {
        /// Found at this range during enumeration.
        Found = "found",
        /// Given this range by the kernel.
        Assigned = "assigned",
        /// No room in the bridge windows.
        NoSpace = "no-space",
        /// Not assigned.
        Failed = "failed",
        /// NVIDIA's driver finds a BAR of size 0.
        Invalid = "invalid",
        /// The range collides with another.
        Conflict = "conflict",
    }
}

coded! {
    /// Errors of a GPU's own memory management or engines, which are no IOMMU events.
    GpuError {
        /// A page fault in the GPU's own page tables.
        MmuFault = "mmu-fault",
        /// The line after it that gives the address.
        MmuFaultAddress = "mmu-fault-address",
        /// A copy engine (SDMA) met a command that it may not execute.
        CopyEngine = "copy-engine",
        /// A ring or engine hung.
        Timeout = "timeout",
    }
}

coded! {
    /// What NVIDIA's driver says beside Xids and initialisation.
    NvidiaState {
        /// The GPU no longer answers on the bus.
        FellOffBus = "fell-off-bus",
        /// Calls fail because it no longer answers: a consequence.
        Lost = "lost",
        /// Another driver holds the device.
        AlreadyBound = "already-bound",
        /// The probe was not called for some devices: another driver holds them.
        ProbeNotCalled = "probe-not-called",
        /// The probe failed for some devices.
        ProbeFailed = "probe-failed",
        /// A BAR's address is refused for P2P by an alignment check of the driver, not the IOMMU.
        PeerAlignment = "peer-alignment",
        /// The driver could not set up P2P between two GPUs, for whatever reason.
        PeerMapFailed = "peer-map-failed",
        /// The platform gave an address that the GPU cannot reach.
        NotAddressable = "not-addressable",
        /// An unbind waits for users of the GPU, without limit.
        UnbindWaits = "unbind-waits",
        /// A removal went on after its wait.
        UnbindContinues = "unbind-continues",
        /// A removal failed.
        UnbindFailed = "unbind-failed",
        /// Clean-up assertions that mean nothing by themselves.
        CleanupNoise = "cleanup-noise",
        /// Another assertion or check failed in the driver; the text has the status.
        Assertion = "assertion",
    }
}
