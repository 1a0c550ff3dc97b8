//! Published curves, used where nothing was measured, and then said to be assumed.

use super::{Backend, Curve, Times, ring};
use crate::hardware::Link;

/// A published curve.
#[derive(Clone, Copy, Debug)]
pub struct PublishedCurve {
    /// Its name here.
    pub name: &'static str,
    /// GPUs that took part.
    pub ranks: u32,
    /// KiB and microseconds.
    pub points: &'static [(f64, f64)],
    /// Where it was published.
    pub source: &'static str,
}

/// NCCL over peer access, four GPUs below one NUMA node. A point at 64 KiB (71 µs) is an outlier of
/// the published table and is left out; the last point is the published bus bandwidth at 32 MiB.
const PEER: PublishedCurve = PublishedCurve {
    name: "nccl-p2p-4",
    ranks: 4,
    points: &[
        (1.0, 13.5),
        (4.0, 13.2),
        (8.0, 13.9),
        (16.0, 14.7),
        (32.0, 15.6),
        (128.0, 24.7),
        (256.0, 40.9),
        (512.0, 71.7),
        (1024.0, 85.2),
        (32_768.0, 1280.7),
    ],
    source: "4 x RTX PRO 6000, one NUMA node, P2P on (local-inference-lab/rtx6kpro)",
};

/// One-shot kernels over peer access on the same host.
const KERNEL: PublishedCurve = PublishedCurve {
    name: "one-shot-4",
    ranks: 4,
    points: &[
        (1.0, 6.1),
        (4.0, 6.5),
        (8.0, 6.4),
        (16.0, 7.7),
        (32.0, 9.2),
        (64.0, 11.8),
        (128.0, 17.6),
        (256.0, 28.7),
        (512.0, 51.0),
        (1024.0, 95.6),
    ],
    source: "4 x RTX PRO 6000, one NUMA node, one-shot kernels of a fork (local-inference-lab/rtx6kpro)",
};

/// NCCL over NVLink between two H200: measured for this project, `docs/hardware/h200-pair.md`.
const NVLINK: PublishedCurve = PublishedCurve {
    name: "nccl-nvlink-2",
    ranks: 2,
    points: &[
        (1.0, 12.24),
        (4.0, 12.55),
        (16.0, 12.87),
        (64.0, 12.95),
        (256.0, 14.05),
        (1024.0, 14.22),
        (4096.0, 33.34),
        (16_384.0, 77.74),
        (65_536.0, 249.95),
    ],
    source: "2 x H200 over NVLink, measured by this project (docs/hardware/h200-pair.md)",
};

/// Eight GPUs behind switches: held against the model, not part of it.
const SWITCHED_NCCL: PublishedCurve = PublishedCurve {
    name: "nccl-switched-8",
    ranks: 8,
    points: &[(0.25, 24.6), (32.0, 24.5), (64.0, 24.1), (256.0, 28.0)],
    source: "8 x RTX PRO 6000 behind PCIe switches, NCCL (local-inference-lab/rtx6kpro)",
};
const SWITCHED_KERNEL: PublishedCurve = PublishedCurve {
    name: "one-shot-switched-8",
    ranks: 8,
    points: &[(0.25, 7.5), (32.0, 16.5), (64.0, 25.9), (256.0, 73.6)],
    source: "8 x RTX PRO 6000 behind PCIe switches, one-shot kernels (local-inference-lab/rtx6kpro)",
};
const TWO_SOCKETS: PublishedCurve = PublishedCurve {
    name: "nccl-two-sockets-8",
    ranks: 8,
    points: &[(32.0, 48.0), (64.0, 49.0), (128.0, 52.0), (256.0, 57.0)],
    source: "8 GPUs, two sockets, NCCL as it comes (local-inference-lab/rtx6kpro)",
};
const TWO_SOCKETS_TUNED: PublishedCurve = PublishedCurve {
    name: "nccl-two-sockets-tuned-8",
    ranks: 8,
    points: &[(32.0, 26.0), (64.0, 26.0), (128.0, 32.0), (256.0, 37.0)],
    source: "the same with a corrected topology or NCCL_PROTO=LL (local-inference-lab/rtx6kpro)",
};

/// Every published curve.
pub fn published() -> [PublishedCurve; 7] {
    [PEER, KERNEL, NVLINK, SWITCHED_NCCL, SWITCHED_KERNEL, TWO_SOCKETS, TWO_SOCKETS_TUNED]
}

/// Latency of NCCL over peer access before its first hop, and of a hop, seconds: the line through
/// the published latencies of four GPUs (6 hops, 13.2 µs) and eight (14 hops, 24.6 µs).
const BASE: f64 = 4.65e-6;
const HOP: f64 = 1.425e-6;

/// How much faster or slower other hosts may be than the one whose curve is used; no second curve
/// of the same set-up was found.
const OTHER_HOSTS: [f64; 3] = [0.85, 1.0, 1.25];

/// NCCL through host memory on four GPUs, latency in seconds and rate in bytes a second: fast,
/// middle, slow. No published curve was found; the middle is what makes a reported single-stream
/// rate plausible. `worth estimate --all-reduce FILE` replaces it by a measurement.
const HOST: [(f64, f64); 3] = [(25e-6, 20e9), (30e-6, 12e9), (48e-6, 10e9)];

/// Bus bandwidth published for 32 MiB through host memory on four RTX PRO 6000
/// (local-inference-lab/rtx6kpro), bytes a second: where the fast end goes to for long messages.
const HOST_LONG: f64 = 30.3e9;

const MIB: f64 = 1_048_576.0;

/// Hops of a ring.
fn hops(ranks: u32) -> f64 {
    2.0 * (f64::from(ranks.max(1)) - 1.0)
}

impl PublishedCurve {
    /// As a curve of seconds by bytes.
    pub fn curve(&self) -> Option<Curve> {
        let points: Vec<(f64, f64)> =
            self.points.iter().map(|(kib, micros)| (kib * 1024.0, micros * 1e-6)).collect();
        Curve::from_points(&points).ok()
    }
}

impl Times {
    /// Assumed times for so many GPUs joined so.
    pub fn seeds(link: Link, ranks: u32) -> Self {
        Self {
            ranks,
            host: host(link, ranks),
            peer: peer(link, ranks),
            kernel: kernel(link, ranks),
            notes: Vec::new(),
        }
    }
}

/// How much longer a byte takes on the link than on PCIe 5.0.
fn slower(link: Link) -> f64 {
    Link::Pcie5.host_rate() / link.host_rate()
}

fn host(link: Link, ranks: u32) -> Backend {
    let [fast, middle, slow] = HOST.map(|(latency, rate)| Curve::line(latency, rate, 4));
    let fast = Curve::from_points(&[
        (1024.0, fast.seconds(1024.0)),
        (MIB, fast.seconds(MIB)),
        (32.0 * MIB, 32.0 * MIB * ring(4) / HOST_LONG),
    ])
    .unwrap_or(fast);
    let curves = [fast, middle, slow].map(|curve| {
        let hop = (curve.latency() - BASE) / hops(4);
        curve.reshaped(BASE + hop * hops(ranks), ring(ranks) / ring(4) * slower(link))
    });
    Backend {
        curves,
        assumed: true,
        source:
            "assumed: 30 µs (25 to 48) and 12 GB/s (20 to 10) for four GPUs through host memory, \
                 latency by hops; the fast end reaches the 30.3 GB/s that were published for 32 MiB"
                .to_owned(),
    }
}

fn peer(link: Link, ranks: u32) -> Backend {
    let seed = if link.is_nvlink() { NVLINK } else { PEER };
    let own = seed.curve().unwrap_or_else(|| Curve::line(BASE, link.host_rate(), ranks));
    let (latency, factor) = if link.is_nvlink() {
        (own.latency() + HOP * (hops(ranks) - hops(2)).max(0.0), ring(ranks) / ring(2))
    } else {
        (BASE + HOP * hops(ranks), ring(ranks) / ring(4) * slower(link))
    };
    let curve = own.reshaped(latency, factor);
    Backend {
        curves: OTHER_HOSTS.map(|other| curve.scaled(other)),
        assumed: true,
        source: format!("assumed: {}, scaled to {ranks} GPUs, -15 to +25 %", seed.source),
    }
}

/// One-shot: every GPU takes in the whole message of every other. The engines have such kernels for
/// 2, 4 and 8 GPUs. Over NVLink no curve is at hand, so NCCL's stands for both.
fn kernel(link: Link, ranks: u32) -> Option<Backend> {
    if link.is_nvlink() || ![2, 4, 8].contains(&ranks) {
        return None;
    }
    let own = KERNEL.curve()?;
    let peers = f64::from(ranks) - 1.0;
    // Published latencies: 6.1 µs for four GPUs, 7.5 µs for eight.
    let curve = own.reshaped(5.05e-6 + 0.35e-6 * peers, peers / 3.0 * slower(link));
    Some(Backend {
        curves: OTHER_HOSTS.map(|other| curve.scaled(other)),
        assumed: true,
        source: format!("assumed: {}, scaled to {ranks} GPUs, -15 to +25 %", KERNEL.source),
    })
}
