//! The whole measurement: which children run, in which order, and what follows from what they say.

mod all_reduce;
mod load;
mod outline;
mod pairs;
mod run;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use peerway_core::address::PciAddress;

use crate::enter::View;
use crate::evidence::{Unwatched, Watch};
use crate::parent::Launch;
use crate::plan::{Depth, arena_bytes};
use crate::precondition::{Precondition, Unmet};
use crate::protocol::{Event, Work};
use crate::result::{Engine, Measurement, Mode, Operation, PairResult, Verdict};

/// What to measure, and how.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
pub struct Settings {
    /// How children are started.
    pub launch: Launch,
    /// Whose view they have, if not this process's own.
    pub view: Option<View>,
    /// Path of libcuda; the loader's search for `libcuda.so.1` where none is named.
    pub cuda: Option<PathBuf>,
    /// Path of libnccl; the loader's search for `libnccl.so.2` where none is named.
    pub nccl: Option<PathBuf>,
    /// The GPUs; all that the driver shows where none is named.
    pub gpus: Vec<PciAddress>,
    /// GPUs of the host that the driver should show, as far as the caller could see.
    pub expected: Vec<PciAddress>,
    /// Only this ordered pair, if one is named.
    pub only: Option<(PciAddress, PciAddress)>,
    /// GPUs that somebody uses, as far as the caller could see.
    pub in_use: Vec<InUse>,
    /// Why it can't be said of the others that nobody uses them; none where it can.
    pub in_use_unknown: Option<String>,
    /// Measure GPUs in use all the same, and those of which that is unknown.
    pub allow_in_use: bool,
    /// How memory is made reachable.
    pub modes: Vec<Mode>,
    /// What moves the data.
    pub engines: Vec<Engine>,
    /// How much is tested.
    pub depth: Depth,
    /// The largest range, if it is to be smaller than the depth's.
    pub largest: Option<u64>,
    /// Whether samples are spread over all memory, if other than the depth says.
    pub sample: Option<bool>,
    /// Memory that sampling leaves free on each GPU.
    pub spare_bytes: u64,
    /// What each link can carry.
    pub line_rates: Vec<LineRate>,
    /// Run the transfers from each GPU to itself, too.
    pub loopback: bool,
    /// Run several transfers at once.
    pub together: bool,
    /// Bytes of each of several transfers at once.
    pub together_bytes: u64,
    /// Measure speed where data was right.
    pub speed: bool,
    /// Bytes of one copy for a rate.
    pub speed_bytes: u64,
    /// Bytes of all-reduces; none leaves them out.
    pub all_reduce_sizes: Vec<u64>,
    /// All-reduce also with a process for each GPU, as inference engines run it.
    pub all_reduce_apart: bool,
    /// All-reduces that one figure is taken over.
    pub all_reduce_iterations: u32,
    /// Time for one step on a GPU.
    pub step_limit: Duration,
    /// Time for one child.
    pub child_limit: Duration,
    /// When all of it has to be over, if there is such a time.
    pub deadline: Option<Instant>,
}

/// A GPU that somebody uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The GPU.
    pub gpu: PciAddress,
    /// Who, in words for the operator.
    pub by: String,
}

/// What the narrowest hop from one GPU to another can carry, one way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineRate {
    /// The requester.
    pub from: PciAddress,
    /// The target.
    pub to: PciAddress,
    /// Bytes per second; a measured rate above it means that data vanished.
    pub bytes_per_second: f64,
}

/// What is going on, for progress bars and for joining the kernel log to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A child starts.
    Begin {
        /// Its work in words.
        work: String,
        /// The requester and the target, if it is about a pair.
        pair: Option<(PciAddress, PciAddress)>,
    },
    /// The child begins a step.
    Step(String),
    /// The child has ended.
    End,
}

impl Settings {
    /// Everything, at standard depth.
    pub fn new(launch: Launch) -> Self {
        Self {
            launch,
            view: None,
            cuda: None,
            nccl: None,
            gpus: Vec::new(),
            expected: Vec::new(),
            only: None,
            in_use: Vec::new(),
            in_use_unknown: None,
            allow_in_use: false,
            modes: vec![Mode::Peer, Mode::Vmm, Mode::Ipc],
            engines: vec![Engine::Copy, Engine::Sm],
            depth: Depth::Standard,
            largest: None,
            sample: None,
            // Room for the contexts of this and other processes.
            spare_bytes: 1 << 30,
            line_rates: Vec::new(),
            loopback: false,
            together: true,
            together_bytes: 16 << 20,
            speed: true,
            speed_bytes: 512 << 20,
            all_reduce_sizes: all_reduce_sizes(),
            all_reduce_apart: true,
            all_reduce_iterations: 20,
            step_limit: Duration::from_secs(20),
            child_limit: Duration::from_mins(5),
            deadline: None,
        }
    }

    fn largest(&self) -> u64 {
        self.largest.unwrap_or(u64::MAX).min(self.depth.largest())
    }
}

/// Memory of a GPU that driver, firmware and idle contexts take; more is somebody's.
const MOST_IDLE: u64 = 2 << 30;

/// 1 KiB to 1 GiB in steps of four: small ones tell the latency, large ones the rate, and NCCL's
/// protocols change in between.
fn all_reduce_sizes() -> Vec<u64> {
    (0..=10).map(|step| 1024 << (2 * step)).collect()
}

/// A measurement in progress.
struct Ongoing<'a> {
    settings: &'a Settings,
    observer: &'a mut dyn FnMut(&Progress),
    watch: &'a mut dyn Watch,
    result: Measurement,
    /// GPUs that a child which could not be killed still holds: nothing more is tried with them.
    stuck: BTreeSet<PciAddress>,
    /// GPUs of the test: looked at, and nobody else's.
    usable: Vec<PciAddress>,
}

/// Measures. Never fails: what could not be measured is part of the result.
pub fn measure(settings: &Settings, observer: &mut dyn FnMut(&Progress)) -> Measurement {
    measure_watched(settings, observer, &mut Unwatched)
}

/// Measures, and joins what the host records meanwhile to what is measured.
pub fn measure_watched(
    settings: &Settings,
    observer: &mut dyn FnMut(&Progress),
    watch: &mut dyn Watch,
) -> Measurement {
    let result = Measurement::default();
    let stuck = BTreeSet::new();
    let mut ongoing = Ongoing { settings, observer, watch, result, stuck, usable: Vec::new() };
    let usable = ongoing.inventory();
    let usable = ongoing.self_checks(usable);
    ongoing.usable.clone_from(&usable);
    if usable.len() < 2 && ongoing.result.preconditions.is_empty() {
        ongoing.result.preconditions.push(Precondition::host(
            Unmet::TooFewGpus,
            "fewer than two GPUs: there is no pair to measure",
        ));
    }
    if settings.loopback {
        ongoing.loopback(&usable);
    }
    ongoing.pairs(&usable);
    if settings.together && usable.len() > 1 {
        ongoing.together(&usable);
    }
    if settings.speed {
        ongoing.speed(&usable);
    }
    if !settings.all_reduce_sizes.is_empty() && !usable.is_empty() {
        ongoing.all_reduce(&usable);
        ongoing.take_all_reduce();
    }
    ongoing.result
}

impl Ongoing<'_> {
    /// Looks at the GPUs; returns those that can be measured.
    fn inventory(&mut self) -> Vec<PciAddress> {
        let mut wanted = self.settings.gpus.clone();
        if !self.settings.allow_in_use {
            for used in &self.settings.in_use {
                if wanted.is_empty() || wanted.contains(&used.gpu) {
                    self.result.preconditions.push(Precondition::gpu(
                        Unmet::InUse,
                        used.gpu,
                        format!(
                            "GPU {} is in use by {}: stop that first, or say that it may be \
                             measured all the same",
                            used.gpu, used.by
                        ),
                    ));
                }
            }
            let used: Vec<_> = self.settings.in_use.iter().map(|used| used.gpu).collect();
            if let Some(why) = &self.settings.in_use_unknown {
                let text = format!(
                    "whether GPUs are in use could not be seen ({why}): make that possible, or say \
                     that they may be measured all the same"
                );
                self.result.preconditions.push(Precondition::host(Unmet::InUse, text));
                return Vec::new();
            }
            let named = !wanted.is_empty();
            wanted.retain(|gpu| !used.contains(gpu));
            if named && wanted.is_empty() {
                return Vec::new();
            }
        }
        let needed_bytes = 2 * arena_bytes(self.settings.largest());
        let done = self.run(Work::Inventory { wanted, needed_bytes }, &[]);
        let mut usable = BTreeSet::new();
        for event in done.events {
            match event {
                Event::Version(version) => self.result.driver_version = Some(version),
                Event::Gpu(seen) => {
                    usable.insert(seen.address);
                    self.result.gpus.push(seen);
                }
                Event::Claim(claim) => self.result.claims.push(claim),
                Event::Unmet(unmet) => self.result.preconditions.push(unmet),
                _ => {}
            }
        }
        if let Some(failure) = done.failure
            && !self.result.preconditions.iter().any(Precondition::ends_everything)
        {
            let kind = if done.hung { Unmet::DriverHung } else { Unmet::NoDriver };
            let unmet = Precondition::host(kind, format!("inventory: {failure}"));
            self.result.preconditions.push(unmet);
            usable.clear();
        }
        self.compare_with_host();
        self.look_for_unseen_users();
        for unmet in &self.result.preconditions {
            if let Some(gpu) = unmet.gpu {
                usable.remove(&gpu);
            }
        }
        usable.into_iter().collect()
    }

    /// Memory that is taken speaks of a user even where no process shows.
    fn look_for_unseen_users(&mut self) {
        if self.settings.allow_in_use {
            return;
        }
        let mut unmet = Vec::new();
        for gpu in &self.result.gpus {
            let told = self.result.preconditions.iter().any(|had| had.gpu == Some(gpu.address));
            let (Some(all), Some(free)) = (gpu.memory_bytes, gpu.free_bytes) else { continue };
            let used = all.saturating_sub(free);
            if used > MOST_IDLE && !told {
                let text = format!(
                    "GPU {} has {used} bytes of its memory taken and no process that holds it shows \
                     here: it is in use by somebody, perhaps in a container; stop that first, or \
                     say that it may be measured all the same",
                    gpu.address
                );
                unmet.push(Precondition::gpu(Unmet::InUse, gpu.address, text));
            }
        }
        self.result.preconditions.extend(unmet);
    }

    /// Whether the driver shows all GPUs that the host has for it.
    fn compare_with_host(&mut self) {
        if self.result.preconditions.iter().any(Precondition::ends_everything) {
            return;
        }
        let shown = |gpu: &PciAddress| self.result.gpus.iter().any(|seen| seen.address == *gpu);
        let told = |gpu: &PciAddress| {
            self.result.preconditions.iter().any(|unmet| unmet.gpu == Some(*gpu))
        };
        let missing = self.settings.expected.iter().filter(|gpu| !shown(gpu) && !told(gpu));
        let missing: Vec<String> = missing.map(ToString::to_string).collect();
        if !missing.is_empty() {
            let text = format!(
                "the host has {} GPUs with this driver that it does not show here: {}; their pairs \
                 were not measured",
                missing.len(),
                missing.join(", ")
            );
            self.result.preconditions.push(Precondition::host(Unmet::SomeGpus, text));
        }
    }

    /// Lets each GPU prove that its check finds what is planted.
    fn self_checks(&mut self, gpus: Vec<PciAddress>) -> Vec<PciAddress> {
        let mut trusted = Vec::new();
        for gpu in gpus {
            let done = self.run(Work::SelfCheck { gpu }, &[gpu]);
            let mut why = done.failure;
            let mut checked = false;
            for event in done.events {
                if let Event::SelfCheck(check) = event {
                    checked = true;
                    if let Some(failed) = check.failed.first() {
                        why = Some(failed.clone());
                    }
                    self.result.self_checks.push(check);
                }
            }
            match why {
                None if checked => trusted.push(gpu),
                why if done.hung => self.result.preconditions.push(Precondition::gpu(
                    Unmet::DriverHung,
                    gpu,
                    format!(
                        "GPU {gpu} does not answer ({}): look at the kernel log, and reset it",
                        why.as_deref().unwrap_or("it gave no result")
                    ),
                )),
                why => self.result.preconditions.push(Precondition::gpu(
                    Unmet::CheckBroken,
                    gpu,
                    format!(
                        "the check on GPU {gpu} can't be trusted ({}): look for memory errors and \
                         Xid lines of this GPU",
                        why.as_deref().unwrap_or("it gave no result")
                    ),
                )),
            }
        }
        trusted
    }

    /// Every ordered pair: the control arm, then each mode.
    fn pairs(&mut self, gpus: &[PciAddress]) {
        for from in gpus {
            for to in gpus.iter().filter(|to| *to != from) {
                if self.settings.only.is_some_and(|only| only != (*from, *to)) {
                    continue;
                }
                let control = self.pair((*from, *to), Mode::Staged, &[]);
                let sound = control.iter().all(|row| row.verdict == Verdict::Intact);
                self.result.control.extend(control);
                let mut failed: Vec<Operation> = Vec::new();
                for mode in self.settings.modes.clone() {
                    if mode == Mode::Staged {
                        continue;
                    }
                    let mut rows = self.pair((*from, *to), mode, &failed);
                    failed.extend(pairs::failed_ways(&rows));
                    if !sound {
                        rows.iter_mut().for_each(doubt);
                    }
                    self.result.pairs.extend(rows);
                }
            }
        }
    }
}

/// Says that a failure need not be one of P2P.
fn doubt(row: &mut PairResult) {
    if row.verdict != Verdict::Intact {
        let doubt = "the control arm without P2P failed too: the fault is not P2P's alone";
        row.detail = Some(match row.detail.take() {
            Some(detail) => format!("{detail}; {doubt}"),
            None => doubt.to_owned(),
        });
    }
}
