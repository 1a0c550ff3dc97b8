//! One child from start to end, with its events.

use std::time::{Duration, Instant};

use peerway_core::address::PciAddress;

use super::{Ongoing, Progress};
use crate::evidence::{Evidence, WorkEvidence};
use crate::parent::{Launch, Limits, run_child};
use crate::protocol::{Event, Request, Work};
use crate::result::{ChildNote, Engine, Operation, Verdict};
use crate::status::ends_the_process;

/// What became of a child's work.
pub(super) struct Done {
    pub(super) events: Vec<Event>,
    /// The step that it was at, if it did not come to its end.
    pub(super) step: Option<String>,
    /// The engine and operation of that step.
    pub(super) cell: Option<(Engine, Operation)>,
    /// It was killed, or it reported a step that hung.
    pub(super) hung: bool,
    /// A context was lost, or the process broke down.
    pub(super) broken: bool,
    /// Why the work did not come to its end; none if it did.
    pub(super) failure: Option<String>,
    /// Standard error.
    pub(super) log: Vec<String>,
    /// What the host recorded meanwhile.
    pub(super) evidence: Evidence,
}

impl Done {
    /// What became of that which has no verdict of its own.
    pub(super) fn verdict(&self) -> Verdict {
        if self.hung {
            Verdict::Hung
        } else if self.broken {
            Verdict::Broken
        } else {
            Verdict::NotRun
        }
    }
}

/// Notes are few; a child that makes them up is cut off.
const MOST_NOTES: usize = 64;

/// So are answers: some for each pair, pattern and size.
const MOST_EVENTS: usize = 1 << 16;

/// Reads an answer. What it says may come from a library that somebody else chose, and goes to a
/// terminal: control characters become question marks.
fn answer(line: &str) -> Result<Event, serde_json::Error> {
    let mut value = serde_json::from_str(line)?;
    make_plain(&mut value);
    serde_json::from_value(value)
}

fn make_plain(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) if text.chars().any(char::is_control) => {
            *text = plain(text);
        }
        serde_json::Value::Array(all) => all.iter_mut().for_each(make_plain),
        serde_json::Value::Object(all) => all.values_mut().for_each(make_plain),
        _ => {}
    }
}

/// Text without control characters.
fn plain(text: &str) -> String {
    text.replace(|one: char| one.is_control(), "?")
}

impl Work {
    /// In words.
    fn describe(&self) -> String {
        match self {
            Self::Inventory { .. } => "inventory".to_owned(),
            Self::SelfCheck { gpu } => format!("self-check of {gpu}"),
            Self::Pair(work) => format!("{} to {} ({:?})", work.from, work.to, work.mode),
            Self::Together(_) => "transfers at once".to_owned(),
            Self::Speed(work) => format!("speed of {} to {} ({:?})", work.from, work.to, work.mode),
            Self::Host { gpu, .. } => format!("host rates of {gpu}"),
            Self::AllReduce(work) if work.apart => {
                format!("all-reduce between processes ({:?})", work.arm)
            }
            Self::AllReduce(work) => format!("all-reduce ({:?})", work.arm),
            Self::Rank(work) => format!("rank {}", work.number),
            Self::Partner { .. } => "second process".to_owned(),
        }
    }

    fn pair(&self) -> Option<(PciAddress, PciAddress)> {
        match self {
            Self::Pair(work) => Some((work.from, work.to)),
            Self::Speed(work) => Some((work.from, work.to)),
            Self::Inventory { .. }
            | Self::SelfCheck { .. }
            | Self::Together(_)
            | Self::Host { .. }
            | Self::AllReduce(_)
            | Self::Rank(_)
            | Self::Partner { .. } => None,
        }
    }
}

impl Ongoing<'_> {
    /// Runs work in a child of its own that opens `gpus`.
    pub(super) fn run(&mut self, work: Work, gpus: &[PciAddress]) -> Done {
        self.run_with(work, gpus, &[])
    }

    /// As [`Self::run`], with variables for this child only.
    pub(super) fn run_with(
        &mut self,
        work: Work,
        gpus: &[PciAddress],
        environment: &[(&str, &str)],
    ) -> Done {
        let mut done = Done {
            events: Vec::new(),
            step: None,
            cell: None,
            hung: false,
            broken: false,
            failure: None,
            log: Vec::new(),
            evidence: Evidence::default(),
        };
        if let Some(gpu) = gpus.iter().find(|gpu| self.stuck.contains(gpu)) {
            done.failure = Some(format!("GPU {gpu} is held by a process that can't be killed"));
            return done;
        }
        let name = work.describe();
        let pair = work.pair();
        (self.observer)(&Progress::Begin { work: name.clone(), pair });
        let request = Request {
            cuda: self.settings.cuda.clone(),
            nccl: self.settings.nccl.clone(),
            arguments: self.settings.launch.arguments.clone(),
            work,
        };
        self.watch.begin(gpus);
        let late = self.watch.between();
        if !late.is_quiet() {
            let work = format!("between two children, before {name}");
            self.result.evidence.push(WorkEvidence { work, evidence: late });
        }
        self.listen(&request, gpus, environment, &name, &mut done);
        done.evidence = self.watch.end();
        if pair.is_none() && !done.evidence.is_quiet() {
            let evidence = done.evidence.clone();
            self.result.evidence.push(WorkEvidence { work: name, evidence });
        }
        (self.observer)(&Progress::End);
        done
    }

    fn listen(
        &mut self,
        request: &Request,
        gpus: &[PciAddress],
        environment: &[(&str, &str)],
        name: &str,
        done: &mut Done,
    ) {
        let launch = self.launch(environment);
        // A step that ends late still ends, and the check and the closer look add to it.
        let left = self.settings.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            done.failure = Some("the time for everything was up before this began".to_owned());
            return;
        }
        let total = self.settings.child_limit.min(left.unwrap_or(Duration::MAX));
        let step = self.settings.step_limit;
        let limits = Limits { total, quiet: step * 4, step: step / 4 };
        let text = match serde_json::to_string(request) {
            Ok(text) => text,
            Err(error) => {
                done.failure = Some(error.to_string());
                return;
            }
        };
        let (observer, watch) = (&mut self.observer, &mut self.watch);
        let notes = &mut self.result.notes;
        let mut ended = false;
        let outcome = run_child(&launch, &text, limits, &mut |line| match answer(line) {
            Ok(Event::Step { cell, text }) => {
                observer(&Progress::Step(text.clone()));
                watch.sample();
                done.step = Some(text);
                done.cell = cell;
            }
            Ok(Event::Note(note)) => {
                if notes.len() < MOST_NOTES && !notes.contains(&note) {
                    notes.push(note);
                }
            }
            Ok(Event::End) => ended = true,
            Ok(Event::Failed { hung, text, code }) => {
                done.hung |= hung;
                done.broken |= code.is_some_and(ends_the_process);
                done.failure = Some(text);
            }
            Ok(event) if done.events.len() < MOST_EVENTS => done.events.push(event),
            Ok(_) => done.failure = Some("it gave more answers than there are questions".into()),
            Err(error) => done.failure = Some(format!("an answer that is none: {error}")),
        });
        match outcome {
            Ok(end) => {
                // One that cannot be ended hangs, whatever it said last.
                done.hung |= !ended && (end.still_there() || end.timed_out && end.went_quiet);
                done.broken |= end.crashed() && !ended;
                if !ended && done.failure.is_none() {
                    let step = done.step.as_deref().unwrap_or("its start");
                    let last = end.log.iter().rev().find(|line| !line.trim().is_empty());
                    let said =
                        last.map_or(String::new(), |line| format!("; it said: {}", plain(line)));
                    done.failure = Some(format!("the child {} (at: {step}){said}", end.describe()));
                }
                if end.timed_out || end.still_there() {
                    self.result.children.push(ChildNote {
                        work: name.to_owned(),
                        step: done.step.clone(),
                        pid: end.pid,
                        end: end.describe(),
                        hung: end.went_quiet || end.still_there(),
                        still_there: end.still_there(),
                    });
                }
                if end.still_there() {
                    self.stuck.extend(gpus);
                }
                done.log = end.log.iter().map(|line| plain(line)).collect();
            }
            Err(error) => done.failure = Some(format!("cannot run the child: {error}")),
        }
    }

    /// The child's program and environment.
    fn launch(&self, environment: &[(&str, &str)]) -> Launch {
        let mut launch = self.settings.launch.clone();
        if let Some(view) = &self.settings.view {
            let process = [view.pid.to_string(), view.start.to_string()];
            let arguments = view.arguments.iter().chain(&process).chain(&launch.arguments);
            launch.arguments = arguments.cloned().collect();
            // What the operator has in the environment is not for whoever owns that view.
            launch.clean = true;
        }
        let fixed = [
            // Ordinals by bus position, so that they mean the same everywhere.
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
            // No files in anybody's home.
            ("CUDA_CACHE_DISABLE", "1"),
            // A kernel that is loaded at its first launch can wait for one that waits for it.
            ("CUDA_MODULE_LOADING", "EAGER"),
            ("CUDA_LAUNCH_BLOCKING", "0"),
            // A queue for every stream.
            ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
        ];
        // What somebody set for a server of theirs would change what is measured here.
        let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        launch.unset.extend(inherited.filter(|name| name.starts_with("NCCL_")));
        for (name, value) in fixed.iter().chain(environment) {
            launch.environment.push(((*name).to_owned(), (*value).to_owned()));
        }
        launch
    }
}
