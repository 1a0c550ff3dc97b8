//! Processors.

/// A processor as `/proc/cpuinfo` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuModel {
    /// `vendor_id`.
    pub vendor: &'static str,
    /// `cpu family`.
    pub family: u32,
    /// `model`.
    pub model: u32,
    /// `model name`.
    pub name: &'static str,
    /// Logical processors of the host.
    pub threads: u32,
    /// Physical address bits.
    pub physical_bits: u32,
    /// Runs under a hypervisor.
    pub guest: bool,
    /// Has Secure Memory Encryption.
    pub has_sme: bool,
}

/// Two AMD EPYC 9334 (Zen 4).
pub const EPYC_9334: CpuModel = CpuModel {
    vendor: "AuthenticAMD",
    family: 25,
    model: 17,
    name: "AMD EPYC 9334 32-Core Processor",
    threads: 128,
    physical_bits: 52,
    guest: false,
    has_sme: true,
};

/// One AMD EPYC 9575F (Zen 5).
pub const EPYC_9575F: CpuModel = CpuModel {
    family: 26,
    model: 2,
    name: "AMD EPYC 9575F 64-Core Processor",
    threads: 128,
    ..EPYC_9334
};

/// AMD Ryzen 9 7950X: no memory encryption for guests.
pub const RYZEN_7950X: CpuModel = CpuModel {
    family: 25,
    model: 97,
    name: "AMD Ryzen 9 7950X 16-Core Processor",
    threads: 32,
    physical_bits: 48,
    has_sme: false,
    ..EPYC_9334
};

/// Intel Xeon Platinum 8480+ (Sapphire Rapids).
pub const XEON_8480: CpuModel = CpuModel {
    vendor: "GenuineIntel",
    family: 6,
    model: 143,
    name: "Intel(R) Xeon(R) Platinum 8480+",
    threads: 224,
    physical_bits: 52,
    guest: false,
    has_sme: false,
};

/// Intel Core i9-14900HX of a laptop.
pub const CORE_14900HX: CpuModel = CpuModel {
    model: 183,
    name: "Intel(R) Core(TM) i9-14900HX",
    threads: 32,
    physical_bits: 46,
    ..XEON_8480
};

/// Ampere Altra Max; Arm kernels give no vendor text.
pub const ALTRA: CpuModel = CpuModel {
    vendor: "ARM",
    family: 8,
    model: 0xd0c,
    name: "Neoverse-N1",
    threads: 128,
    physical_bits: 48,
    guest: false,
    has_sme: false,
};

/// An EPYC seen from inside a virtual machine.
pub const EPYC_GUEST: CpuModel = CpuModel {
    name: "AMD EPYC-Genoa Processor",
    threads: 32,
    guest: true,
    has_sme: false,
    ..EPYC_9334
};
