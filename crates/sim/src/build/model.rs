//! Kinds of PCI functions: numbers, class, BARs and link as boards of that kind show them.

/// How a BAR is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// I/O ports.
    Io,
    /// 32-bit memory, not prefetchable.
    Memory32,
    /// 64-bit memory, not prefetchable (lies below 4 GiB behind a bridge).
    Memory64,
    /// 64-bit memory, prefetchable.
    Prefetch64,
}

impl BarKind {
    /// Flags that `resource` shows (`include/linux/ioport.h`).
    pub(super) fn flags(self) -> u64 {
        match self {
            Self::Io => 0x40101,
            Self::Memory32 => 0x40200,
            Self::Memory64 => 0x14_0204,
            Self::Prefetch64 => 0x14_220c,
        }
    }

    /// Low bits of the BAR register.
    pub(super) fn register_bits(self) -> u32 {
        match self {
            Self::Io => 1,
            Self::Memory32 => 0,
            Self::Memory64 => 4,
            Self::Prefetch64 => 12,
        }
    }

    /// Whether it occupies two indices.
    pub(super) fn wide(self) -> bool {
        matches!(self, Self::Memory64 | Self::Prefetch64)
    }
}

/// One BAR of a kind of function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarSpec {
    /// Resource index, 0 to 5.
    pub index: u8,
    /// Bytes, a power of two.
    pub size: u64,
    /// Decoding.
    pub kind: BarKind,
}

/// Speed and width of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Generation: 1 (2.5 GT/s) to 6 (64 GT/s).
    pub generation: u8,
    /// Lanes.
    pub width: u8,
}

impl Link {
    /// 32 GT/s, 16 lanes.
    pub const GEN5_X16: Self = Self { generation: 5, width: 16 };
    /// 16 GT/s, 16 lanes.
    pub const GEN4_X16: Self = Self { generation: 4, width: 16 };
    /// 16 GT/s, 4 lanes.
    pub const GEN4_X4: Self = Self { generation: 4, width: 4 };
    /// 8 GT/s, 16 lanes.
    pub const GEN3_X16: Self = Self { generation: 3, width: 16 };
    /// 8 GT/s, 4 lanes.
    pub const GEN3_X4: Self = Self { generation: 3, width: 4 };
    /// 5 GT/s, 1 lane.
    pub const GEN2_X1: Self = Self { generation: 2, width: 1 };

    /// As sysfs writes the speed.
    pub(super) fn speed_text(self) -> &'static str {
        match self.generation {
            1 => "2.5 GT/s PCIe",
            2 => "5.0 GT/s PCIe",
            3 => "8.0 GT/s PCIe",
            4 => "16.0 GT/s PCIe",
            5 => "32.0 GT/s PCIe",
            6 => "64.0 GT/s PCIe",
            _ => "Unknown",
        }
    }
}

/// A kind of endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Marketing name, as a driver would print it.
    pub name: &'static str,
    /// Vendor number.
    pub vendor: u16,
    /// Device number.
    pub device: u16,
    /// Subsystem vendor and device number.
    pub subsystem: (u16, u16),
    /// Class code, 24 bits.
    pub class: u32,
    /// BARs.
    pub bars: &'static [BarSpec],
    /// Best link; `None` for functions inside the root complex.
    pub link: Option<Link>,
    /// Bits of the DMA addresses that its driver asks for.
    pub dma_bits: u8,
    /// Address Translation Services capability.
    pub ats: bool,
    /// PASID capability.
    pub pasid: bool,
    /// Resource index that the Resizable BAR capability names.
    pub resizable: Option<u8>,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const fn memory32(index: u8, size: u64) -> BarSpec {
    BarSpec { index, size, kind: BarKind::Memory32 }
}

const fn memory64(index: u8, size: u64) -> BarSpec {
    BarSpec { index, size, kind: BarKind::Memory64 }
}

const fn prefetch64(index: u8, size: u64) -> BarSpec {
    BarSpec { index, size, kind: BarKind::Prefetch64 }
}

const fn io(index: u8, size: u64) -> BarSpec {
    BarSpec { index, size, kind: BarKind::Io }
}

const NVIDIA: Model = Model {
    name: "NVIDIA GPU",
    vendor: 0x10de,
    device: 0,
    subsystem: (0x10de, 0),
    class: 0x03_0200,
    bars: &[],
    link: Some(Link::GEN5_X16),
    dma_bits: 52,
    ats: false,
    pasid: false,
    resizable: None,
};

/// NVIDIA RTX PRO 6000 Blackwell Server Edition, 96 GB.
pub const RTX_PRO_6000: Model = Model {
    name: "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    device: 0x2bb5,
    subsystem: (0x10de, 0x204e),
    bars: &[memory32(0, 64 * MIB), prefetch64(2, 128 * GIB), prefetch64(4, 32 * MIB)],
    resizable: Some(2),
    ..NVIDIA
};

/// NVIDIA H100 80GB HBM3 (SXM5).
pub const H100_SXM: Model = Model {
    name: "NVIDIA H100 80GB HBM3",
    device: 0x2330,
    subsystem: (0x10de, 0x16c1),
    bars: &[prefetch64(0, 16 * MIB), prefetch64(2, 128 * GIB), prefetch64(4, 32 * MIB)],
    resizable: Some(2),
    ..NVIDIA
};

/// NVIDIA L40S, 48 GB.
pub const L40S: Model = Model {
    name: "NVIDIA L40S",
    device: 0x26b9,
    subsystem: (0x10de, 0x1851),
    bars: &[memory32(0, 16 * MIB), prefetch64(1, 64 * GIB), prefetch64(3, 32 * MIB), io(5, 128)],
    link: Some(Link::GEN4_X16),
    dma_bits: 47,
    resizable: Some(1),
    ..NVIDIA
};

/// NVIDIA RTX A6000, 48 GB.
pub const A6000: Model = Model {
    name: "NVIDIA RTX A6000",
    device: 0x2230,
    subsystem: (0x10de, 0x1459),
    class: 0x03_0000,
    bars: &[memory32(0, 16 * MIB), prefetch64(1, 64 * GIB), prefetch64(3, 32 * MIB), io(5, 128)],
    link: Some(Link::GEN4_X16),
    dma_bits: 47,
    resizable: Some(1),
    ..NVIDIA
};

/// NVIDIA `GeForce` RTX 4090 with a full-size BAR.
pub const RTX_4090: Model = Model {
    name: "NVIDIA GeForce RTX 4090",
    device: 0x2684,
    subsystem: (0x1458, 0x40c0),
    class: 0x03_0000,
    bars: &[memory32(0, 16 * MIB), prefetch64(1, 32 * GIB), prefetch64(3, 32 * MIB), io(5, 128)],
    link: Some(Link::GEN4_X16),
    dma_bits: 47,
    resizable: Some(1),
    ..NVIDIA
};

/// NVIDIA `GeForce` RTX 4090 whose BAR stayed at its size without Resizable BAR.
pub const RTX_4090_SMALL_BAR: Model = Model {
    bars: &[memory32(0, 16 * MIB), prefetch64(1, 256 * MIB), prefetch64(3, 32 * MIB), io(5, 128)],
    ..RTX_4090
};

/// NVIDIA `GeForce` RTX 5090.
pub const RTX_5090: Model = Model {
    name: "NVIDIA GeForce RTX 5090",
    device: 0x2b85,
    subsystem: (0x1043, 0x8a1f),
    class: 0x03_0000,
    bars: &[memory32(0, 64 * MIB), prefetch64(1, 32 * GIB), prefetch64(3, 32 * MIB), io(5, 128)],
    dma_bits: 52,
    resizable: Some(1),
    ..NVIDIA
};

/// Audio function of a `GeForce` or workstation board.
pub const NVIDIA_AUDIO: Model = Model {
    name: "NVIDIA High Definition Audio Controller",
    device: 0x22ba,
    subsystem: (0x10de, 0x1459),
    class: 0x04_0300,
    bars: &[memory32(0, 16 << 10)],
    link: Some(Link::GEN4_X16),
    dma_bits: 64,
    ..NVIDIA
};

/// NVSwitch of the third generation (HGX H100 board).
pub const NVSWITCH: Model = Model {
    name: "NVIDIA NVSwitch",
    device: 0x22a3,
    subsystem: (0x10de, 0x1796),
    class: 0x06_8000,
    bars: &[memory64(0, 32 * MIB)],
    link: Some(Link { generation: 4, width: 2 }),
    ..NVIDIA
};

/// AMD Instinct MI210, 64 GB.
pub const MI210: Model = Model {
    name: "AMD Instinct MI210",
    vendor: 0x1002,
    device: 0x740f,
    subsystem: (0x1002, 0x0c34),
    class: 0x12_0000,
    bars: &[prefetch64(0, 64 * GIB), prefetch64(2, 2 * MIB), memory32(5, 512 << 10)],
    link: Some(Link::GEN4_X16),
    dma_bits: 48,
    ats: true,
    pasid: true,
    resizable: Some(0),
};

/// Intel Data Center GPU Max 1100, 48 GB.
pub const MAX_1100: Model = Model {
    name: "Intel Data Center GPU Max 1100",
    vendor: 0x8086,
    device: 0x0bda,
    subsystem: (0x8086, 0),
    class: 0x03_8000,
    bars: &[prefetch64(0, 16 * MIB), prefetch64(2, 64 * GIB)],
    link: Some(Link::GEN5_X16),
    dma_bits: 52,
    ats: true,
    pasid: true,
    resizable: Some(2),
};

/// NVIDIA (Mellanox) ConnectX-7 network adapter.
pub const CONNECTX7: Model = Model {
    name: "ConnectX-7",
    vendor: 0x15b3,
    device: 0x1021,
    subsystem: (0x15b3, 0x0041),
    class: 0x02_0000,
    bars: &[prefetch64(0, 32 * MIB)],
    link: Some(Link::GEN5_X16),
    dma_bits: 64,
    ats: true,
    pasid: false,
    resizable: None,
};

/// Broadcom BCM57416 10-gigabit network adapter.
pub const BCM57416: Model = Model {
    name: "BCM57416 NetXtreme-E",
    vendor: 0x14e4,
    device: 0x16d8,
    subsystem: (0x15d9, 0x16d8),
    class: 0x02_0000,
    bars: &[prefetch64(0, 64 << 10), prefetch64(2, MIB), prefetch64(4, 32 << 10)],
    link: Some(Link { generation: 3, width: 8 }),
    dma_bits: 64,
    ats: false,
    pasid: false,
    resizable: None,
};

/// Samsung PM9A3 NVMe drive.
pub const NVME: Model = Model {
    name: "PM9A3 NVMe SSD",
    vendor: 0x144d,
    device: 0xa80a,
    subsystem: (0x144d, 0xaa8b),
    class: 0x01_0802,
    bars: &[memory64(0, 16 << 10)],
    link: Some(Link::GEN4_X4),
    dma_bits: 64,
    ats: false,
    pasid: false,
    resizable: None,
};

/// ASPEED display function of a board management controller: a display controller, and no GPU.
pub const AST_VGA: Model = Model {
    name: "ASPEED Graphics Family",
    vendor: 0x1a03,
    device: 0x2000,
    subsystem: (0x15d9, 0x1c16),
    class: 0x03_0000,
    bars: &[memory32(0, 64 * MIB), memory32(1, 256 << 10), io(2, 128)],
    link: Some(Link::GEN2_X1),
    dma_bits: 32,
    ats: false,
    pasid: false,
    resizable: None,
};

/// AMD Secure Processor (PSP) of EPYC 9004, driven by `ccp`.
pub const PSP: Model = Model {
    name: "AMD Secure Processor",
    vendor: 0x1022,
    device: 0x14ca,
    subsystem: (0x15d9, 0x14ca),
    class: 0x10_8000,
    bars: &[memory32(2, MIB), memory32(5, 8 << 10)],
    link: None,
    dma_bits: 48,
    ats: false,
    pasid: false,
    resizable: None,
};

/// Management endpoint of a large PCIe switch (Broadcom PEX89000 family).
pub const SWITCH_MANAGEMENT: Model = Model {
    name: "PEX890xx switch management endpoint",
    vendor: 0x1000,
    device: 0x02b2,
    subsystem: (0x1000, 0x100b),
    class: 0x01_0700,
    bars: &[prefetch64(0, 16 << 10)],
    link: Some(Link { generation: 4, width: 1 }),
    dma_bits: 64,
    ats: false,
    pasid: false,
    resizable: None,
};
