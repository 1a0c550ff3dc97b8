//! All-reduce times.

use super::Row;
use crate::allreduce::{Arm, Levels, Times, ring};
use crate::hardware::Link;
use crate::interval::Interval;

/// A published all-reduce time.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    what: &'static str,
    ranks: u32,
    arm: Arm,
    kib: f64,
    micros: f64,
    source: &'static str,
}

const fn sum(what: &'static str, arm: Arm, kib: f64, micros: f64, source: &'static str) -> Sum {
    Sum { what, ranks: 8, arm, kib, micros, source }
}

/// Microseconds of 32 MiB at a bus bandwidth in GB/s.
fn of_rate(ranks: u32, gigabytes: f64) -> f64 {
    32.0 * 1_048_576.0 * ring(ranks) / gigabytes / 1e3
}

/// Times that were published and are not what the assumed curves are made of.
pub fn sums() -> Vec<Sum> {
    const SWITCHED: &str = "rtx6kpro: 8 GPUs behind switches";
    const SOCKETS: &str = "rtx6kpro: 8 GPUs, two sockets, NCCL as it comes";
    const TUNED: &str = "the same, corrected topology or PROTO=LL";
    const PCIE: &str = "sglang 34528: 8 GPUs, two sockets; whether its NCCL used P2P is not stated";
    let nccl = "8 GPUs, NCCL over P2P";
    let kernel = "8 GPUs, one-shot kernels";
    let mut all = vec![
        sum(nccl, Arm::Peer, 0.25, 24.6, SWITCHED),
        sum(nccl, Arm::Peer, 32.0, 24.5, SWITCHED),
        sum(nccl, Arm::Peer, 64.0, 24.1, SWITCHED),
        sum(nccl, Arm::Peer, 256.0, 28.0, SWITCHED),
        sum(kernel, Arm::PeerKernel, 0.25, 7.5, SWITCHED),
        sum(kernel, Arm::PeerKernel, 32.0, 16.5, SWITCHED),
        sum(kernel, Arm::PeerKernel, 64.0, 25.9, SWITCHED),
        sum(nccl, Arm::Peer, 32.0, 48.0, SOCKETS),
        sum(nccl, Arm::Peer, 64.0, 49.0, SOCKETS),
        sum(nccl, Arm::Peer, 128.0, 52.0, SOCKETS),
        sum(nccl, Arm::Peer, 256.0, 57.0, SOCKETS),
        sum(nccl, Arm::Peer, 32.0, 26.0, TUNED),
        sum(nccl, Arm::Peer, 64.0, 26.0, TUNED),
        sum(nccl, Arm::Peer, 128.0, 32.0, TUNED),
        sum(nccl, Arm::Peer, 256.0, 37.0, TUNED),
        sum(kernel, Arm::PeerKernel, 12.0, 5.3, PCIE),
        sum(kernel, Arm::PeerKernel, 96.0, 15.3, PCIE),
        sum(kernel, Arm::PeerKernel, 384.0, 34.6, PCIE),
        sum("8 GPUs, NCCL", Arm::Host, 12.0, 205.0, PCIE),
        sum("8 GPUs, NCCL", Arm::Host, 96.0, 585.0, PCIE),
        sum("8 GPUs, NCCL", Arm::Host, 384.0, 1169.0, PCIE),
        sum(nccl, Arm::Peer, 2.0, 25.0, "aikitoria: 8 x RTX 5090, up to 2 KiB"),
    ];
    for (ranks, arm, gigabytes, what, source) in [
        (8, Arm::Peer, 45.7, nccl, "aikitoria: 8 x RTX 5090, 45.7 GB/s"),
        (8, Arm::Peer, 22.2, nccl, "rtx6kpro: 8 x RTX PRO 6000 as it comes, 22.2 GB/s"),
        (8, Arm::Peer, 41.1, nccl, "the same, tuned, 41.1 GB/s"),
        (4, Arm::Host, 30.3, "4 GPUs, NCCL through host memory", "rtx6kpro: 30.3 GB/s"),
    ] {
        let micros = of_rate(ranks, gigabytes);
        all.push(Sum { what, ranks, arm, kib: 32_768.0, micros, source });
    }
    all
}

impl Sum {
    /// The row, with what the assumed curves say.
    pub fn row(&self) -> Row {
        let times = Times::seeds(Link::Pcie5, self.ranks);
        let at = |level: usize| {
            times.all_reduce(self.arm, Levels { host: level, peer: level }, self.kib * 1024.0) * 1e6
        };
        Row {
            what: format!("{}, {} KiB", self.what, self.kib),
            unit: "µs",
            published: Interval::exact(self.micros),
            model: Interval::new(at(0), at(1), at(2)),
            source: self.source,
        }
    }
}
