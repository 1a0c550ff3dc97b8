//! Events as the kernels print them.

use peerway_core::address::PciAddress;

use super::Random;
use crate::event::{Direction, Iommu, Kind};

/// An event to render.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Who.
    pub requester: PciAddress,
    /// Where. Rendered page-aligned where the dialect prints pages.
    pub address: u64,
    /// Whether it wrote.
    pub write: bool,
    /// Whether a translation was present (AMD).
    pub present: bool,
    /// Number of the domain.
    pub domain: u16,
    /// PASID, 20 bits.
    pub pasid: u32,
}

impl Spec {
    /// One of `requesters` GPUs, somewhere.
    pub fn random(random: &mut Random, requesters: u8) -> Self {
        let bus = u8::try_from(1 + random.below(u64::from(requesters.max(1)))).unwrap_or(1);
        let bits = random.next();
        Self {
            requester: PciAddress::new(0, bus, 0, 0)
                .unwrap_or_else(|| PciAddress::from_requester_id(0, 0x100)),
            address: random.next() & 0xffff_ffff_ffff,
            write: bits & 1 != 0,
            present: bits & 2 != 0,
            // A device keeps its domain.
            domain: u16::from(bus),
            pasid: u32::try_from(1 + (bits >> 16 & 0xfff)).unwrap_or(1),
        }
    }
}

/// What a scan must find in a rendered event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Whose.
    pub iommu: Iommu,
    /// What.
    pub kind: Kind,
    /// Who, if the dialect says it.
    pub requester: Option<PciAddress>,
    /// Where, if the dialect says it.
    pub address: Option<u64>,
    /// Direction, if the dialect says it.
    pub direction: Direction,
}

macro_rules! dialects {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// A way in which some kernel prints an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Dialect { $($(#[$about])* $name,)* }

        impl Dialect {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

dialects! {
    /// AMD page fault with the device's driver in front.
    AmdDevice,
    /// AMD page fault without.
    AmdBare,
    /// The same before 6.0: no segment, sixteen digits.
    AmdOld,
    /// The same printed in two messages, before 4.20.
    AmdSplit,
    /// AMD fault of a device without a domain.
    AmdDetached,
    /// AMD device table entry error with its dump.
    AmdDeviceTable,
    /// AMD command error with its dump.
    AmdCommand,
    /// AMD invalid request.
    AmdInvalidRequest,
    /// AMD invalid page request.
    AmdPageRequest,
    /// AMD invalidation time-out.
    AmdTimeout,
    /// AMD event of an unknown type: the kernel forgets the closing bracket.
    AmdUnknown,
    /// SEV-SNP page fault.
    RmpPage,
    /// SEV-SNP hardware error.
    RmpHardware,
    /// VT-d before 4.3: two lines, no space.
    Vtd38,
    /// VT-d 4.3 to 5.9.
    Vtd43,
    /// VT-d 5.10 to 5.13: PASID before the address, decimal reason.
    Vtd511,
    /// VT-d 5.14: an odd `0x` in the address.
    Vtd514,
    /// VT-d 5.15 to 6.19.
    Vtd515,
    /// VT-d 7.2 and later: with the segment.
    Vtd72,
    /// VT-d with a PASID, new form.
    VtdPasid,
    /// VT-d with a PASID, old form spread over three lines.
    VtdThreeLines,
    /// VT-d interrupt.
    VtdInterrupt,
    /// VT-d queue error.
    VtdQueue,
    /// SMMUv2.
    SmmuV2,
    /// SMMUv3 up to 6.13: raw words.
    SmmuV3Raw,
    /// SMMUv3 6.14 and later: raw words and the decoded form.
    SmmuV3Decoded,
    /// Xen on AMD.
    XenAmd,
    /// Xen on Intel.
    XenVtd,
}

const VTD_TEXT: [&str; 2] = ["PTE Read access is not set", "PTE Write access is not set"];

impl Dialect {
    /// Appends the messages of an event, without envelopes.
    pub fn render(self, spec: &Spec, out: &mut Vec<String>) {
        match self {
            Self::AmdDevice
            | Self::AmdBare
            | Self::AmdOld
            | Self::AmdSplit
            | Self::AmdDetached
            | Self::RmpPage
            | Self::RmpHardware
            | Self::XenAmd => amd_fault(self, spec, out),
            Self::AmdDeviceTable
            | Self::AmdCommand
            | Self::AmdInvalidRequest
            | Self::AmdPageRequest
            | Self::AmdTimeout
            | Self::AmdUnknown => amd_other(self, spec, out),
            Self::SmmuV2 | Self::SmmuV3Raw | Self::SmmuV3Decoded => smmu(self, spec, out),
            Self::Vtd38
            | Self::Vtd43
            | Self::Vtd511
            | Self::Vtd514
            | Self::Vtd515
            | Self::Vtd72
            | Self::VtdPasid
            | Self::VtdThreeLines
            | Self::VtdInterrupt
            | Self::VtdQueue
            | Self::XenVtd => vtd(self, spec, out),
        }
    }

    /// What a scan must find in what [`Self::render`] makes.
    pub fn expected(self, spec: &Spec) -> Expected {
        let page = spec.address & !0xfff;
        let direction = if spec.write { Direction::Write } else { Direction::Read };
        let (iommu, kind, address, direction) = match self {
            Self::AmdDevice | Self::AmdBare | Self::AmdOld | Self::AmdSplit | Self::XenAmd => {
                (Iommu::AmdVi, Kind::IoPageFault, Some(spec.address), direction)
            }
            Self::AmdDetached => (Iommu::AmdVi, Kind::DeviceNotAttached, None, Direction::Unknown),
            Self::AmdDeviceTable => {
                (Iommu::AmdVi, Kind::IllegalDevTableEntry, Some(spec.address), Direction::Unknown)
            }
            Self::AmdCommand => {
                (Iommu::AmdVi, Kind::IllegalCommandError, Some(spec.address), Direction::Unknown)
            }
            Self::AmdInvalidRequest => {
                (Iommu::AmdVi, Kind::InvalidDeviceRequest, Some(spec.address), Direction::Unknown)
            }
            Self::AmdPageRequest => {
                (Iommu::AmdVi, Kind::InvalidPprRequest, Some(spec.address), Direction::Unknown)
            }
            Self::AmdTimeout => {
                (Iommu::AmdVi, Kind::IotlbInvTimeout, Some(spec.address), Direction::Unknown)
            }
            Self::AmdUnknown => (Iommu::AmdVi, Kind::AmdUnknown, None, Direction::Unknown),
            Self::RmpPage => (Iommu::AmdVi, Kind::RmpPageFault, Some(spec.address), direction),
            Self::RmpHardware => (Iommu::AmdVi, Kind::RmpHwError, Some(spec.address), direction),
            Self::Vtd38
            | Self::Vtd43
            | Self::Vtd511
            | Self::Vtd514
            | Self::Vtd515
            | Self::Vtd72
            | Self::VtdPasid
            | Self::VtdThreeLines
            | Self::XenVtd => (Iommu::VtD, Kind::DmaFault, Some(page), direction),
            Self::VtdInterrupt => {
                (Iommu::VtD, Kind::InterruptRemapFault, None, Direction::Interrupt)
            }
            Self::VtdQueue => (Iommu::VtD, Kind::InvalidationTimeout, None, Direction::Unknown),
            Self::SmmuV2 => (Iommu::SmmuV2, Kind::ContextFault, Some(spec.address), direction),
            Self::SmmuV3Raw | Self::SmmuV3Decoded => {
                (Iommu::SmmuV3, Kind::FTranslation, Some(spec.address), direction)
            }
        };
        let named =
            !matches!(self, Self::AmdCommand | Self::AmdUnknown | Self::SmmuV2 | Self::SmmuV3Raw);
        Expected { iommu, kind, requester: named.then_some(spec.requester), address, direction }
    }
}

/// Bus, device and function without the domain.
fn short(requester: PciAddress) -> String {
    format!("{:02x}:{:02x}.{}", requester.bus(), requester.device(), requester.function())
}

fn amd_flags(spec: &Spec) -> u32 {
    u32::from(spec.write) << 5 | u32::from(spec.present) << 4
}

fn amd_fault(dialect: Dialect, spec: &Spec, out: &mut Vec<String>) {
    let Spec { requester, address, domain, .. } = spec;
    let flags = amd_flags(spec);
    let short = short(*requester);
    match dialect {
        Dialect::AmdDevice => out.push(format!(
            "nvidia {requester}: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x{domain:04x} \
             address=0x{address:x} flags=0x{flags:04x}]"
        )),
        Dialect::AmdBare => out.push(format!(
            "AMD-Vi: Event logged [IO_PAGE_FAULT device={requester} domain=0x{domain:04x} \
             address=0x{address:x} flags=0x{flags:04x}]"
        )),
        Dialect::AmdOld => out.push(format!(
            "AMD-Vi: Event logged [IO_PAGE_FAULT device={short} domain=0x{domain:04x} \
             address=0x{address:016x} flags=0x{flags:04x}]"
        )),
        Dialect::AmdSplit => {
            out.push("AMD-Vi: Event logged [".to_owned());
            out.push(format!(
                "IO_PAGE_FAULT device={short} domain=0x{domain:04x} address=0x{address:016x} \
                 flags=0x{flags:04x}]"
            ));
        }
        Dialect::AmdDetached => {
            out.push("AMD-Vi: Event logged [Device not attached to domain properly]".to_owned());
            out.push(format!("AMD-Vi:   device={requester} domain=0x{domain:04x}"));
        }
        Dialect::RmpPage => out.push(format!(
            "vfio-pci {requester}: AMD-Vi: Event logged [RMP_PAGE_FAULT vmg_tag=0x0000, \
             gpa=0x{address:x}, flags_rmp=0x0000, flags=0x{flags:04x}]"
        )),
        Dialect::RmpHardware => out.push(format!(
            "AMD-Vi: Event logged [RMP_HW_ERROR device={requester}, vmg_tag=0x0001, \
             spa=0x{address:x}, flags=0x{flags:04x}]"
        )),
        _ => out.push(format!(
            "(XEN) AMD-Vi: IO_PAGE_FAULT: {requester} d{domain} addr {address:016x} flags {flags:#x}{}",
            if spec.write { " RW" } else { "" }
        )),
    }
}

fn amd_other(dialect: Dialect, spec: &Spec, out: &mut Vec<String>) {
    let Spec { requester, address, pasid, .. } = spec;
    let flags = amd_flags(spec);
    let event = "iommu ivhd1: AMD-Vi: Event logged";
    match dialect {
        Dialect::AmdDeviceTable => {
            out.push(format!(
                "{event} [ILLEGAL_DEV_TABLE_ENTRY device={requester} pasid=0x{pasid:05x} \
                 address=0x{address:x} flags=0x{flags:04x}]"
            ));
            out.push("iommu ivhd1: AMD-Vi: Control Reg : 0xc22000142148d".to_owned());
            for index in 0..4 {
                out.push(format!("AMD-Vi: DTE[{index}]: {:016x}", address.rotate_left(index * 16)));
            }
        }
        Dialect::AmdCommand => {
            out.push(format!("{event} [ILLEGAL_COMMAND_ERROR address=0x{address:x}]"));
            for index in 0..4 {
                out.push(format!("AMD-Vi: CMD[{index}]: {pasid:08x}"));
            }
        }
        Dialect::AmdInvalidRequest => out.push(format!(
            "{event} [INVALID_DEVICE_REQUEST device={requester} pasid=0x{pasid:05x} \
             address=0x{address:x} flags=0x0a00]"
        )),
        Dialect::AmdPageRequest => out.push(format!(
            "{event} [INVALID_PPR_REQUEST device={requester} pasid=0x{pasid:05x} \
             address=0x{address:x} flags=0x{flags:04x} tag=0x001]"
        )),
        Dialect::AmdTimeout => {
            out.push(format!(
                "{event} [IOTLB_INV_TIMEOUT device={requester} address=0x{address:x}]"
            ));
        }
        _ => out.push(format!(
            "{event} [UNKNOWN event[0]=0x{pasid:08x} event[1]=0x00000001 event[2]=0x00000002 \
             event[3]=0x00000003"
        )),
    }
}

fn vtd(dialect: Dialect, spec: &Spec, out: &mut Vec<String>) {
    let Spec { requester, pasid, .. } = spec;
    let page = spec.address & !0xfff;
    let short = short(*requester);
    let (op, code) = if spec.write { ("DMA Write", 5) } else { ("DMA Read", 6) };
    let [read, write] = VTD_TEXT;
    let text = if spec.write { write } else { read };
    match dialect {
        Dialect::Vtd38 => {
            out.push(format!("dmar: DMAR:[{op}] Request device [{short}] fault addr {page:x} "));
            out.push(format!("DMAR:[fault reason {code:02}] {text}"));
        }
        Dialect::Vtd43 => out.push(format!(
            "DMAR: [{op}] Request device [{short}] fault addr {page:x} [fault reason {code:02}] {text}"
        )),
        Dialect::Vtd511 => out.push(format!(
            "DMAR: [{op}] Request device [{short}] PASID ffffffff fault addr {page:x} \
             [fault reason {code:02}] {text}"
        )),
        Dialect::Vtd514 => out.push(format!(
            "DMAR: [{op} NO_PASID] Request device [0x{:02x}:0x{:02x}.{}] fault addr 0x{page:x} \
             [fault reason 0x{code:02x}] {text}",
            requester.bus(),
            requester.device(),
            requester.function()
        )),
        Dialect::Vtd515 => out.push(format!(
            "DMAR: [{op} NO_PASID] Request device [{short}] fault addr 0x{page:x} \
             [fault reason 0x{code:02x}] {text}"
        )),
        Dialect::Vtd72 => out.push(format!(
            "DMAR: [{op} NO_PASID] Request device [{requester}] fault addr 0x{page:x} \
             [fault reason 0x{code:02x}] {text}"
        )),
        Dialect::VtdPasid => out.push(format!(
            "DMAR: [{op} PASID 0x{pasid:x}] Request device [{short}] fault addr 0x{page:x} \
             [fault reason 0x71] SM: Present bit in first-level paging entry is clear"
        )),
        Dialect::VtdThreeLines => {
            out.push(format!("DMAR: [{op}] Request device [{short}] PASID {pasid:x}"));
            out.push(format!("               fault addr {page:x} [fault reason 113]"));
            out.push("               SM: Present bit in first-level paging entry is clear".to_owned());
        }
        Dialect::VtdInterrupt => out.push(format!(
            "DMAR: [INTR-REMAP] Request device [{short}] fault index 0x1c [fault reason 0x22] \
             Present field in the IRTE entry is clear"
        )),
        Dialect::VtdQueue => out.push(format!(
            "DMAR: VT-d detected Invalidation Time-out Error: SID {:x}",
            u16::from(requester.bus()) << 8
        )),
        _ => {
            out.push(format!("(XEN) [VT-D]DMAR:[{op}] Request device [{requester}] fault addr {page:x}"));
            out.push(format!("(XEN) [VT-D]DMAR: reason {code:02x} - {text}"));
        }
    }
}

fn smmu(dialect: Dialect, spec: &Spec, out: &mut Vec<String>) {
    let Spec { requester, address, .. } = spec;
    let stream = u64::from(requester.bus()) << 8;
    if dialect == Dialect::SmmuV2 {
        out.push(format!(
            "arm-smmu fd800000.smmu: Unhandled context fault: fsr=0x402, iova=0x{address:08x}, \
             fsynr=0x{:x}, cbfrsynra=0x{stream:x}, cb=1",
            if spec.write { 0x11 } else { 0x01 }
        ));
        return;
    }
    let unit = "arm-smmu-v3 fc900000.iommu:";
    let attributes = u64::from(!spec.write) << 35 | 2 << 40;
    out.push(format!("{unit} event 0x10 received:"));
    for word in [stream << 32 | 0x10, attributes, *address, 0] {
        out.push(format!("{unit} \t0x{word:016x}"));
    }
    if dialect == Dialect::SmmuV3Decoded {
        out.push(format!(
            "{unit} event: F_TRANSLATION client: {requester} sid: 0x{stream:x} ssid: 0x0 \
             iova: 0x{address:x} ipa: 0x0"
        ));
        out.push(format!(
            "{unit} unpriv data {} s1 \"Input address caused fault\" stag: 0x0",
            if spec.write { "write" } else { "read" }
        ));
    }
}
