//! `test`: measures on the GPUs. Correctness first, speed only where data was right.

mod baseline;
mod kept;
mod look;
mod page;
mod probe;
mod verdict;
mod view;
mod watch;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use peerway_cli_read::args::Format;
use peerway_cli_read::output::complain;
use peerway_cli_read::{Exit, Global};
use peerway_core::document::{Document, Head};
use peerway_core::snapshot::Snapshot;
use peerway_gpu::{
    AllReduceResult, ChildNote, Claim, Depth, GpuSeen, HostRates, Launch, Measurement, Mode,
    PairResult, Precondition, Progress, SelfCheck, Settings, TogetherResult, View, WorkEvidence,
    measure_watched,
};
use peerway_read::root::Root;
use schemars::JsonSchema;
use serde::Serialize;

use baseline::Comparison;
use look::Look;
use watch::HostWatch;

use crate::change::children::snapshot_of;
use crate::say::{internal, print, undecided, usage};

/// The hidden subcommand of the processes that open GPUs.
const CHILD: &str = "gpu-test-child";

/// Arguments of `test`.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag of the command line")]
pub(crate) struct TestArgs {
    /// One GPU of a pair: address, GPU UUID, or index
    #[arg(value_name = "A", requires = "to", conflicts_with = "all_pairs")]
    from: Option<String>,
    /// The other one; both directions are measured
    #[arg(value_name = "B")]
    to: Option<String>,
    /// Every pair of GPUs (the default)
    #[arg(long)]
    all_pairs: bool,
    /// How much is tested
    #[arg(long, value_enum, default_value_t = Thoroughness::Standard)]
    depth: Thoroughness,
    /// libcuda to load instead of the system's libcuda.so.1
    #[arg(long, value_name = "PATH")]
    cuda: Option<PathBuf>,
    /// libnccl to load instead of the system's libnccl.so.2
    #[arg(long, value_name = "PATH")]
    nccl: Option<PathBuf>,
    /// Measure in the view of a container or process: lxc:ID or pid:N, where libcuda is only in
    /// there
    #[arg(long = "in", value_name = "WHERE")]
    within: Option<view::Wanted>,
    /// Compare with an earlier answer of test --format json
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Directory for the result, for status to show; without it /var/lib/peerway, or the user's own
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The same transfers within each GPU, too
    #[arg(long)]
    loopback: bool,
    /// Seconds that one of the processes that open GPUs may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    child_limit: u64,
    /// Measure GPUs that others use: it takes memory and time from them
    #[arg(long)]
    allow_in_use: bool,
    /// As little as shows every part, for a look at this command where GPUs are slow or simulated
    #[arg(long, hide = true)]
    small: bool,
    /// Files of the host that is watched, below a directory instead of /
    #[arg(long, value_name = "DIR", hide = true)]
    records: Option<PathBuf>,
}

/// How much is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Thoroughness {
    /// Ranges up to 4 MiB; speeds from short copies
    Quick,
    /// Ranges up to 64 MiB, and samples over all free memory
    Standard,
    /// Ranges up to 1 GiB, and samples over all free memory
    Full,
}

/// The document of `test`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Test {
    /// How much was tested.
    depth: Depth,
    /// What to know about the look at the host that came before.
    notes: Vec<String>,
    /// CUDA version that the driver offers: 1000 * major + 10 * minor.
    driver_version: Option<i32>,
    /// The GPUs that were looked at.
    gpus: Vec<GpuSeen>,
    /// The driver's claims.
    claims: Vec<Claim>,
    /// What kept the measurement, or parts of it, from running.
    preconditions: Vec<Precondition>,
    /// Ordered pairs with P2P.
    pairs: Vec<PairResult>,
    /// The same transfers staged through the host. Damage here is no P2P fault.
    control: Vec<PairResult>,
    /// The same transfers within one GPU.
    loopback: Vec<PairResult>,
    /// Several transfers at once.
    together: Vec<TogetherResult>,
    /// Rates between GPUs and host memory.
    host_rates: Vec<HostRates>,
    /// All-reduce by NCCL.
    all_reduce: Vec<AllReduceResult>,
    /// Whether each GPU's own checking kernel found damage that was planted for it.
    self_checks: Vec<SelfCheck>,
    /// Children that did not end as they should.
    children: Vec<ChildNote>,
    /// What the host recorded during work that is about no single pair.
    evidence: Vec<WorkEvidence>,
    /// What changed since an earlier measurement, if one was named.
    comparison: Option<Comparison>,
}

impl Test {
    /// Field by field: `host` is a name in the head of every document.
    fn new(
        depth: Depth,
        mut notes: Vec<String>,
        measured: Measurement,
        comparison: Option<Comparison>,
    ) -> Self {
        notes.extend(measured.notes);
        Self {
            depth,
            notes,
            driver_version: measured.driver_version,
            gpus: measured.gpus,
            claims: measured.claims,
            preconditions: measured.preconditions,
            pairs: measured.pairs,
            control: measured.control,
            loopback: measured.loopback,
            together: measured.together,
            host_rates: measured.host,
            all_reduce: measured.all_reduce,
            self_checks: measured.self_checks,
            children: measured.children,
            evidence: measured.evidence,
            comparison,
        }
    }
}

/// Runs a process that opens a GPU, if that is what this one was started for.
pub(crate) fn dispatch(arguments: &[OsString]) -> Option<ExitCode> {
    match arguments.split_first() {
        Some((word, [])) if word == CHILD => Some(peerway_gpu::child_main()),
        Some((word, rest)) if word == probe::PROBE => Some(probe::run(rest).into()),
        Some((word, rest)) if word == view::ENTER => Some(peerway_gpu::enter_main(rest)),
        _ => None,
    }
}

/// The JSON Schema of the document.
pub(crate) fn schema() -> Exit {
    let schema = schemars::schema_for!(Document<Test>);
    match serde_json::to_string_pretty(&schema) {
        Ok(text) => print(&text, Exit::Fine),
        Err(error) => internal(&format!("cannot render the schema: {error}")),
    }
}

/// Runs the command.
pub(crate) fn run(global: &Global, arguments: &TestArgs) -> Exit {
    if global.host != "live" {
        return usage(&format!(
            "cannot measure on {:?}: test runs on the GPUs of this host only; leave --host out",
            global.host
        ));
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return internal(&format!("cannot find this program's own file: {error}")),
    };
    let baseline = match arguments.baseline.as_deref().map(baseline::read).transpose() {
        Ok(baseline) => baseline,
        Err(why) => return usage(&why),
    };
    let mut notes = Vec::new();
    // Before anything is measured, so that a result is not lost for want of a place.
    let keep = kept::Keep::open(arguments.state.as_deref());
    let look = Look::take(&program, arguments.records.as_deref(), look::LIMIT);
    notes.extend(look.holder_gaps());
    let place = arguments.records.clone().unwrap_or_else(|| PathBuf::from("/"));
    let before = keep.is_ok().then(|| state(&place).ok()).flatten();
    let mut settings = match settings(program, arguments, &look) {
        Ok(settings) => settings,
        Err(why) => return usage(&why),
    };
    if let Some(wanted) = &arguments.within {
        match view(wanted) {
            Ok(view) => settings.view = Some(view),
            Err(why) => return undecided(&why),
        }
    }
    let progress = Shown::new();
    let mut watch = HostWatch::new(place.clone(), look.known());
    let measured = measure_watched(&settings, &mut |step| progress.show(step), &mut watch);
    progress.clear();
    // In a container, or in its view, a part of the GPUs is what there is.
    let exit = verdict::exit(&measured, arguments.within.is_none() && is_host());
    let view = arguments.within.as_ref().map(ToString::to_string);
    let kept = keep.and_then(|keep| {
        let how = (view.as_deref(), settings.depth);
        keep_result(keep, (&place, before.as_ref()), &measured, how, &mut notes)
    });
    if let Err(why) = kept {
        notes.push(format!("the result is not kept for peerway status: {why}"));
    }
    let comparison = baseline.map(|baseline| baseline.compare(&measured, settings.depth));
    let exit = comparison.as_ref().map_or(exit, |comparison| exit.and(comparison.exit()));
    let test = Test::new(settings.depth, notes, measured, comparison);
    let text = match global.format {
        Format::Text => Ok(page::page(&test, exit)),
        Format::Json => serde_json::to_string_pretty(&document(test)),
        Format::Jsonl => serde_json::to_string(&document(test)),
    };
    match text {
        Ok(text) => print(&text, exit),
        Err(error) => internal(&format!("cannot render the document: {error}")),
    }
}

/// Keeps a result, if there is one.
fn keep_result(
    keep: kept::Keep,
    (place, before): (&Path, Option<&Snapshot>),
    measured: &Measurement,
    (view, depth): (Option<&str>, Depth),
    notes: &mut Vec<String>,
) -> Result<(), String> {
    let root = Root::open(place).map_err(|error| error.to_string())?;
    let after = state(place).map_err(|why| {
        notes.push(format!(
            "the result replaces no prediction: the host could not be looked at: {why}"
        ));
    });
    let seen = [before, after.as_ref().ok()];
    match kept::brief(&root, measured, (view, depth, Timestamp::now()), seen) {
        Some(test) => keep.replace(&test),
        // The last one stays.
        None => Ok(()),
    }
}

/// The state of the host in which data is right or wrong: another state makes a result say nothing.
fn state(place: &Path) -> Result<Snapshot, String> {
    let host =
        if place == Path::new("/") { "live".to_owned() } else { place.display().to_string() };
    snapshot_of(PathBuf::from("/proc/self/exe"), &host, &[])
}

/// Whether this process sees all processes of the machine: it is in no container. The number is
/// the kernel's (`include/linux/proc_ns.h`, `PROC_PID_INIT_INO`).
fn is_host() -> bool {
    rustix::fs::readlink("/proc/self/ns/pid", Vec::new())
        .is_ok_and(|name| name.as_bytes() == b"pid:[4026531836]")
}

/// The process whose view is wanted, as this host shows it.
fn view(wanted: &view::Wanted) -> Result<View, String> {
    let root = Root::open(Path::new("/")).map_err(|error| error.to_string())?;
    wanted.resolve(&root).map_err(|why| format!("cannot measure in {wanted}: {why}"))
}

fn document(test: Test) -> Document<Test> {
    let head = Head {
        schema: "peerway/test/1".to_owned(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: "live".to_owned(),
        generated_at: Timestamp::now().to_string(),
    };
    Document { head, body: test }
}

fn settings(program: PathBuf, arguments: &TestArgs, look: &Look) -> Result<Settings, String> {
    let mut settings = Settings::new(Launch {
        program,
        arguments: vec![CHILD.to_owned()],
        environment: Vec::new(),
        unset: Vec::new(),
        clean: false,
    });
    settings.cuda.clone_from(&arguments.cuda);
    settings.nccl.clone_from(&arguments.nccl);
    settings.loopback = arguments.loopback;
    settings.child_limit = Duration::from_secs(arguments.child_limit);
    settings.allow_in_use = arguments.allow_in_use;
    // In a container's view only its own GPUs matter.
    let tenant = arguments.within.as_ref().and_then(view::Wanted::tenant);
    let own = look.gpus_of(tenant.as_deref());
    settings.in_use = look.in_use();
    settings.in_use_unknown = look.unknown();
    settings.in_use.retain(|used| own.contains(&used.gpu));
    settings.depth = match arguments.depth {
        Thoroughness::Quick => Depth::Quick,
        Thoroughness::Standard => Depth::Standard,
        Thoroughness::Full => Depth::Full,
    };
    if settings.depth == Depth::Quick {
        settings.speed_bytes = 32 << 20;
        settings.together_bytes = 4 << 20;
        settings.all_reduce_sizes.retain(|bytes| *bytes <= 4 << 20);
    }
    if arguments.small {
        settings.largest = Some(64 << 10);
        settings.sample = Some(false);
        settings.modes = vec![Mode::Peer];
        settings.speed_bytes = 1 << 20;
        settings.together_bytes = 1 << 20;
        settings.all_reduce_sizes.retain(|bytes| *bytes <= 4 << 10);
        settings.all_reduce_iterations = 2;
    }
    if let (Some(from), Some(to)) = (&arguments.from, &arguments.to) {
        let find = |spelling: &str| {
            look.find(spelling).map_err(|hint| format!("cannot find the GPU {spelling:?}: {hint}"))
        };
        let (from, to) = (find(from)?, find(to)?);
        if from == to {
            return Err(format!(
                "{from} is one GPU, and a pair takes two; --loopback measures within a GPU"
            ));
        }
        settings.gpus = vec![from, to];
    } else if !settings.in_use.is_empty() && !settings.allow_in_use && !own.is_empty() {
        // Named one by one, so that those in use are not even opened.
        settings.gpus = own;
    } else {
        settings.expected = own;
    }
    Ok(settings)
}

/// What is going on, on standard error, where a person watches.
struct Shown {
    terminal: bool,
    start: Instant,
}

impl Shown {
    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), start: Instant::now() }
    }

    fn show(&self, progress: &Progress) {
        if let (true, Progress::Begin { work, .. }) = (self.terminal, progress) {
            complain(&format!("\r\u{1b}[K{:6.1} s  {work}", self.start.elapsed().as_secs_f64()));
        }
    }

    fn clear(&self) {
        if self.terminal {
            complain("\r\u{1b}[K");
        }
    }
}
