//! The last measurement, kept on the host for `status` and `diagnose` to show with its age.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use peerway_core::address::PciAddress;
use peerway_core::judge::judge;
use peerway_core::judge::measured::grounds;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::measured::{
    LAST_TEST, LAST_TEST_SCHEMA, LastTest, Outcome, TestedAllReduce, TestedDepth, TestedGpu,
    TestedPair,
};
use peerway_gpu::{Arm, Depth, Measurement, PairResult, Verdict, WorkEvidence};
use peerway_read::collect::measured::binding;
use peerway_read::root::Root;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::place;

/// A file for the result, opened before anything is measured.
pub(super) struct Keep {
    fresh: PathBuf,
    path: PathBuf,
    file: OwnedFd,
}

/// Where it is kept: as asked for, where reading commands look for it if this is root, else below
/// the user's own state directory.
fn directory(asked: Option<&Path>) -> Option<PathBuf> {
    if let Some(asked) = asked {
        return Some(asked.join("test"));
    }
    if rustix::process::geteuid().is_root() {
        return Path::new(LAST_TEST).parent().map(Path::to_owned);
    }
    place::state_directory(None, "live").ok().map(|path| path.join("test"))
}

impl Keep {
    /// Opens it; why not, in words.
    pub(super) fn open(asked: Option<&Path>) -> Result<Self, String> {
        let directory =
            directory(asked).ok_or_else(|| "no directory for it: give --state DIR".to_owned())?;
        place::make_directories(&directory).map_err(|error| error.to_string())?;
        sweep(&directory);
        let path = directory.join("last.json");
        let fresh = directory.join(format!("last.json.{}", std::process::id()));
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let file = rustix::fs::open(&fresh, flags, mode).map_err(|errno| {
            format!("cannot open {}: {}", fresh.display(), std::io::Error::from(errno))
        })?;
        Ok(Self { fresh, path, file })
    }

    /// Puts the result in the place of the last one.
    pub(super) fn replace(self, test: &LastTest) -> Result<(), String> {
        let text = serde_json::to_string_pretty(test).map_err(|error| error.to_string())?;
        let said = |errno: Errno| {
            format!("cannot write {}: {}", self.path.display(), std::io::Error::from(errno))
        };
        let mut left = text.as_bytes();
        while !left.is_empty() {
            match rustix::io::write(&self.file, left) {
                Ok(count) => left = left.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(said(errno)),
            }
        }
        rustix::fs::fsync(&self.file).map_err(said)?;
        rustix::fs::rename(&self.fresh, &self.path).map_err(said)
    }
}

/// Removes what measurements left that were killed: a signal runs no destructor.
fn sweep(directory: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::open(directory, flags, Mode::empty()) else { return };
    let Ok(entries) = rustix::fs::Dir::read_from(&opened) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy();
        let number = name.strip_prefix("last.json.").and_then(|text| text.parse::<i32>().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else { continue };
        // One that is there may be another test that still runs.
        if rustix::process::test_kill_process(pid) == Err(Errno::SRCH) {
            let gone = rustix::fs::unlinkat(&opened, entry.file_name(), AtFlags::empty());
            drop(gone.map_err(std::io::Error::from));
        }
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        // Gone already where it took the last one's place.
        drop(rustix::fs::unlink(&self.fresh).map_err(std::io::Error::from));
    }
}

/// The brief form of a measurement; none where no pair was measured, or the boot is unknown.
pub(super) fn brief(
    root: &Root,
    measured: &Measurement,
    (view, depth, now): (Option<&str>, Depth, Timestamp),
    seen: [Option<&Snapshot>; 2],
) -> Option<LastTest> {
    let boot_id = root.observe("/proc/sys/kernel/random/boot_id").known()?.clone();
    let mut by_pair: BTreeMap<(PciAddress, PciAddress), Vec<&PairResult>> = BTreeMap::new();
    for row in &measured.pairs {
        by_pair.entry((row.from, row.to)).or_default().push(row);
    }
    if by_pair.is_empty() {
        return None;
    }
    let gpus = measured.gpus.iter().map(|gpu| TestedGpu {
        address: gpu.address,
        uuid: gpu.uuid.clone(),
        binding: binding(root, gpu.address),
    });
    let all_reduce = measured.all_reduce.iter().filter_map(|row| {
        Some(TestedAllReduce {
            gpus: u32::try_from(row.gpus.len()).ok()?,
            processes: row.processes,
            p2p: row.arm == Arm::P2p,
            bytes: row.bytes,
            seconds: row.seconds.filter(|_| row.verdict == Verdict::Intact)?,
        })
    });
    Some(LastTest {
        schema: LAST_TEST_SCHEMA.to_owned(),
        boot_id,
        measured_at: now.to_string(),
        view: view.map(str::to_owned),
        depth: Some(match depth {
            Depth::Quick => TestedDepth::Quick,
            Depth::Standard => TestedDepth::Standard,
            Depth::Full => TestedDepth::Full,
        }),
        gpus: gpus.collect(),
        pairs: by_pair
            .iter()
            .map(|(pair, rows)| tested(*pair, rows, &measured.evidence, seen))
            .collect(),
        all_reduce: all_reduce.collect(),
    })
}

/// Sums up the rows of a pair: what failed in any way failed; what the driver refused in one way
/// and did right in another is right.
fn tested(
    (from, to): (PciAddress, PciAddress),
    rows: &[&PairResult],
    evidence: &[WorkEvidence],
    seen: [Option<&Snapshot>; 2],
) -> TestedPair {
    let [before, after] = seen.map(|snapshot| {
        let snapshot = snapshot?;
        let pair = judge(snapshot, snapshot.device(from)?, snapshot.device(to)?);
        Some(grounds(&pair))
    });
    let any = |verdict| rows.iter().any(|row| row.verdict == verdict);
    let above = rows.iter().any(|row| row.above_line_rate);
    let outcome = if any(Verdict::Damaged) || above {
        Outcome::Damaged
    } else if any(Verdict::Hung) {
        Outcome::Hung
    } else if any(Verdict::Broken) {
        Outcome::Broken
    } else if any(Verdict::Intact) {
        Outcome::Intact
    } else if any(Verdict::Refused) {
        Outcome::Refused
    } else {
        Outcome::NotRun
    };
    let best = |of: fn(&PairResult) -> Option<f64>, better: fn(f64, f64) -> f64| {
        rows.iter().filter_map(|row| of(row)).reduce(better)
    };
    let damage = rows.iter().find_map(|row| row.damage).map(|damage| damage.to_string());
    let mut recorded = Vec::new();
    // What came late, or while everything was moved at once, names its devices.
    let of_all = evidence.iter().map(|one| &one.evidence).filter(|one| one.names(from, to));
    let own = rows.iter().map(|row| &row.evidence);
    for one in own.chain(of_all).filter(|one| one.is_serious()) {
        for text in one.describe() {
            if !recorded.contains(&text) {
                recorded.push(text);
            }
        }
    }
    // Whatever is about no single pair bears on all of them.
    let spans = rows.iter().map(|row| &row.evidence);
    let watched = spans
        .chain(evidence.iter().map(|one| &one.evidence))
        .all(|one| one.gaps.is_empty() && one.lost == 0);
    let right = rows.iter().filter(|row| row.verdict == Verdict::Intact);
    let sampled = right.flat_map(|row| &row.operations).map(|part| part.sampled_bytes).min();
    TestedPair {
        from,
        to,
        outcome,
        damage: damage.or_else(|| above.then(|| "faster than the link can carry".to_owned())),
        sampled_bytes: sampled,
        bandwidth_bytes_per_second: best(|row| row.bandwidth_bytes_per_second, f64::max),
        latency_seconds: best(|row| row.latency_seconds, f64::min),
        line_rate_bytes_per_second: best(|row| row.line_rate_bytes_per_second, f64::max),
        recorded,
        watched: Some(watched),
        // Data that was right is right of a state that did not change meanwhile.
        grounds: after.filter(|after| outcome != Outcome::Intact || before.as_ref() == Some(after)),
    }
}
