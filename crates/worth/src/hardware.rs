//! GPU types: what a step's time depends on, as data.

use schemars::JsonSchema;
use serde::Serialize;

/// How the GPUs of a host are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// PCIe 4.0 x16, 31.5 GB/s a direction.
    Pcie4,
    /// PCIe 5.0 x16, 63 GB/s a direction.
    Pcie5,
    /// NVLink: peer access does not cross the root complex. PCIe 5.0 x16 to the host.
    Nvlink,
    /// NVLink, with PCIe 4.0 x16 to the host.
    NvlinkPcie4,
}

impl Link {
    /// Raw rate of the link to the host, a direction, bytes a second.
    pub const fn host_rate(self) -> f64 {
        match self {
            Self::Pcie4 | Self::NvlinkPcie4 => 31.5e9,
            Self::Pcie5 | Self::Nvlink => 63.0e9,
        }
    }

    /// Whether peer access goes over NVLink.
    pub const fn is_nvlink(self) -> bool {
        matches!(self, Self::Nvlink | Self::NvlinkPcie4)
    }
}

/// A GPU type.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gpu {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its name in full.
    pub title: &'static str,
    /// Memory, bytes.
    pub memory_bytes: f64,
    /// Peak rate of the memory, bytes a second.
    pub memory_rate: f64,
    /// Peak rate of dense matrix products in bfloat16 with 32-bit sums, operations a second.
    pub compute_rate: f64,
    /// Peak rate in 8-bit floating point; absent where it has none.
    pub compute_rate_fp8: Option<f64>,
    /// How several of them are joined.
    pub link: Link,
    /// Compute capability, ten times major plus minor.
    pub capability: u32,
    /// PCI device numbers of its boards.
    pub boards: &'static [u16],
    /// Where the figures come from.
    pub source: &'static str,
}

const SHEET: &str = "vendor data sheet";

#[expect(clippy::too_many_arguments, reason = "a row of the table")]
const fn gpu(
    name: &'static str,
    title: &'static str,
    memory: (f64, f64),
    compute: (f64, Option<f64>),
    link: Link,
    capability: u32,
    boards: &'static [u16],
) -> Gpu {
    Gpu {
        name,
        title,
        memory_bytes: memory.0 * 1e9,
        memory_rate: memory.1 * 1e12,
        compute_rate: compute.0 * 1e12,
        compute_rate_fp8: match compute.1 {
            Some(rate) => Some(rate * 1e12),
            None => None,
        },
        link,
        capability,
        boards,
        source: SHEET,
    }
}

/// Types that are known: memory in GB (10^9, as the driver reports it) and TB/s, dense bfloat16 and
/// FP8 in TFLOPS.
pub const GPUS: &[Gpu] = &[
    Gpu {
        source: "memory and its rate: vendor data sheet; bfloat16: rated between 400 and 500 TFLOPS \
                 by different sources, the middle taken",
        ..gpu(
            "rtx-pro-6000",
            "RTX PRO 6000 Blackwell",
            (102.6, 1.79),
            (450.0, Some(900.0)),
            Link::Pcie5,
            120,
            &[0x2bb1, 0x2bb4, 0x2bb5],
        )
    },
    gpu(
        "rtx-5090",
        "GeForce RTX 5090",
        (34.2, 1.792),
        (209.5, Some(419.0)),
        Link::Pcie5,
        120,
        &[0x2b85, 0x2b87],
    ),
    gpu(
        "rtx-4090",
        "GeForce RTX 4090",
        (25.7, 1.008),
        (165.2, Some(330.3)),
        Link::Pcie4,
        89,
        &[0x2684],
    ),
    gpu("rtx-3090", "GeForce RTX 3090", (25.7, 0.936), (71.0, None), Link::Pcie4, 86, &[0x2204]),
    gpu(
        "rtx-6000-ada",
        "RTX 6000 Ada",
        (51.5, 0.960),
        (364.2, Some(728.5)),
        Link::Pcie4,
        89,
        &[0x26b1],
    ),
    gpu("rtx-a6000", "RTX A6000", (51.5, 0.768), (154.8, None), Link::Pcie4, 86, &[0x2230]),
    gpu("l4", "L4", (24.1, 0.300), (121.0, Some(242.0)), Link::Pcie4, 89, &[0x27b8]),
    gpu("l40s", "L40S", (48.3, 0.864), (362.0, Some(733.0)), Link::Pcie4, 89, &[0x26b9]),
    gpu("a100-pcie", "A100 80GB PCIe", (85.9, 1.935), (312.0, None), Link::Pcie4, 80, &[0x20b5]),
    gpu(
        "a100-sxm",
        "A100 80GB SXM",
        (85.9, 2.039),
        (312.0, None),
        Link::NvlinkPcie4,
        80,
        &[0x20b2],
    ),
    gpu("h100-pcie", "H100 PCIe", (85.5, 2.0), (756.0, Some(1513.0)), Link::Pcie5, 90, &[0x2331]),
    gpu("h100-sxm", "H100 SXM", (85.5, 3.35), (989.0, Some(1979.0)), Link::Nvlink, 90, &[0x2330]),
    gpu("h200", "H200 SXM", (150.1, 4.8), (989.0, Some(1979.0)), Link::Nvlink, 90, &[0x2335]),
    gpu("b200", "B200", (192.0, 8.0), (2250.0, Some(4500.0)), Link::Nvlink, 100, &[0x2901]),
];

/// A type by its name.
pub fn find(name: &str) -> Option<Gpu> {
    let wanted = name.to_ascii_lowercase().replace(['_', ' '], "-");
    GPUS.iter().find(|gpu| gpu.name == wanted).copied()
}

/// The type of a board by its PCI device number.
pub fn of_board(device: u16) -> Option<Gpu> {
    GPUS.iter().find(|gpu| gpu.boards.contains(&device)).copied()
}

/// All names, for a message.
pub fn names() -> String {
    GPUS.iter().map(|gpu| gpu.name).collect::<Vec<_>>().join(", ")
}
