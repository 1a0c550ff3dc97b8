//! The fuzz targets without a fuzzer: each over its corpus, and over what a seeded stream of
//! mutations makes of it. `cargo xtask fuzz` does the same with coverage to guide it; this takes a
//! few seconds, or `PEERWAY_FUZZ_SECONDS` in all, and needs no build of its own.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test reads its corpus and says what it did"
)]

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use peerway_klog::Report;

#[path = "../../../fuzz/src/shared.rs"]
mod shared;

#[path = "../../../fuzz/src/targets/accelerator.rs"]
mod accelerator;
#[path = "../../../fuzz/src/targets/acpi.rs"]
mod acpi;
#[path = "../../../fuzz/src/targets/cgroup.rs"]
mod cgroup;
#[path = "../../../fuzz/src/targets/config_space.rs"]
mod config_space;
#[path = "../../../fuzz/src/targets/cpuinfo.rs"]
mod cpuinfo;
#[path = "../../../fuzz/src/targets/host.rs"]
mod host;
#[path = "../../../fuzz/src/targets/host_file.rs"]
mod host_file;
#[path = "../../../fuzz/src/targets/klog_amd.rs"]
mod klog_amd;
#[path = "../../../fuzz/src/targets/klog_chunks.rs"]
mod klog_chunks;
#[path = "../../../fuzz/src/targets/klog_device.rs"]
mod klog_device;
#[path = "../../../fuzz/src/targets/klog_envelope.rs"]
mod klog_envelope;
#[path = "../../../fuzz/src/targets/klog_json.rs"]
mod klog_json;
#[path = "../../../fuzz/src/targets/klog_nvidia.rs"]
mod klog_nvidia;
#[path = "../../../fuzz/src/targets/klog_parts.rs"]
mod klog_parts;
#[path = "../../../fuzz/src/targets/klog_scan.rs"]
mod klog_scan;
#[path = "../../../fuzz/src/targets/klog_smmu.rs"]
mod klog_smmu;
#[path = "../../../fuzz/src/targets/klog_vtd.rs"]
mod klog_vtd;
#[path = "../../../fuzz/src/targets/libvirt.rs"]
mod libvirt;
#[path = "../../../fuzz/src/targets/lxc.rs"]
mod lxc;
#[path = "../../../fuzz/src/targets/model_config.rs"]
mod model_config;
#[path = "../../../fuzz/src/targets/nvidia.rs"]
mod nvidia;
#[path = "../../../fuzz/src/targets/peer_map.rs"]
mod peer_map;
#[path = "../../../fuzz/src/targets/proxmox.rs"]
mod proxmox;
#[path = "../../../fuzz/src/targets/sysfs.rs"]
mod sysfs;
#[path = "../../../fuzz/src/targets/words.rs"]
mod words;

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 25] = [
    ("accelerator", accelerator::run),
    ("acpi", acpi::run),
    ("cgroup", cgroup::run),
    ("config_space", config_space::run),
    ("cpuinfo", cpuinfo::run),
    ("host", host::run),
    ("host_file", host_file::run),
    ("klog_amd", klog_amd::run),
    ("klog_chunks", klog_chunks::run),
    ("klog_device", klog_device::run),
    ("klog_envelope", klog_envelope::run),
    ("klog_json", klog_json::run),
    ("klog_nvidia", klog_nvidia::run),
    ("klog_parts", klog_parts::run),
    ("klog_scan", klog_scan::run),
    ("klog_smmu", klog_smmu::run),
    ("klog_vtd", klog_vtd::run),
    ("libvirt", libvirt::run),
    ("lxc", lxc::run),
    ("model_config", model_config::run),
    ("nvidia", nvidia::run),
    ("peer_map", peer_map::run),
    ("proxmox", proxmox::run),
    ("sysfs", sysfs::run),
    ("words", words::run),
];

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..start + self.below((length - start).min(64) + 1)
    }
}

/// One input made of others.
fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(input.len() + 1);
        let range = random.range(input.len());
        match random.below(7) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = b"0f9x:[]. \n\0\xff"[random.below(12)],
            2 => input.insert(at, u8::try_from(random.below(256)).unwrap()),
            3 => drop(input.drain(range)),
            4 => {
                let again = input[range].to_vec();
                input.splice(at..at, again);
            }
            5 => {
                let other = &corpus[random.below(corpus.len())];
                let part = other[random.range(other.len())].to_vec();
                input.splice(at..at, part);
            }
            _ => input.truncate(at),
        }
    }
    input.truncate(16 << 10);
    input
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut inputs = vec![Vec::new()];
    for file in std::fs::read_dir(format!("{CORPUS}/{target}")).into_iter().flatten() {
        inputs.push(std::fs::read(file.unwrap().path()).unwrap());
    }
    inputs.sort();
    inputs
}

fn run((name, target): Target, input: &[u8], seed: u64) {
    if catch_unwind(|| target(input)).is_err() {
        panic!("{name}, seed {seed}: {:?}", String::from_utf8_lossy(input));
    }
}

#[test]
fn parsers_take_anything() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seconds: u64 = number("PEERWAY_FUZZ_SECONDS").unwrap_or(5);
    let seed: u64 = number("PEERWAY_FUZZ_SEED").unwrap_or(1);
    let share = Duration::from_secs(seconds) / u32::try_from(TARGETS.len()).unwrap();
    println!("seed {seed} (PEERWAY_FUZZ_SEED)");
    for target in TARGETS {
        let corpus = corpus(target.0);
        corpus.iter().for_each(|input| run(target, input, seed));
        let mut random = Random(seed);
        let (start, mut runs) = (Instant::now(), 0_u64);
        while start.elapsed() < share {
            run(target, &mutated(&corpus, &mut random), seed);
            runs += 1;
        }
        println!("{}: {} inputs, {runs} mutations", target.0, corpus.len());
        assert!(runs > 0 && !corpus.is_empty());
    }
}

/// The targets would find nothing if they looked at nothing.
#[test]
fn a_target_reads_what_it_is_given() {
    let line = b"nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0018 \
        address=0x24000000000 flags=0x0020]\n";
    let report: Report = shared::scan(line);
    assert_eq!(report.events, 1);
}
