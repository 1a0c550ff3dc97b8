//! A run: looks at the server, then drives one level of load after the other.

use std::collections::BTreeMap;
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::clock::now;
use crate::exchange::{Limits, Line};
use crate::level::{self, Ground};
use crate::probe::{self, Known};
use crate::prompt::{Asking, Extras, Prompts, Writer};
use crate::record::{Recorder, RunLine, hash};
use crate::reply::{Outcome, Reading};
use crate::report::{Bench, DEFINITIONS, Finding, Level, Load, Weight};
use crate::target::{BadUrl, ConnectError, Connector, Endpoint, Target, Trust};
use crate::ticks::Arrivals;
use crate::verdict;

/// Descriptors beside those of the slots.
const SPARE_DESCRIPTORS: u64 = 64;

/// Where the server's metrics are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAt {
    /// At `/metrics`, if anything known stands there.
    Auto,
    /// At this path of the server.
    Path(String),
    /// Not looked at.
    Off,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server.
    pub url: String,
    /// Interface; chat where neither this nor the URL says so.
    pub endpoint: Option<Endpoint>,
    /// Model; the server's first where it is not named.
    pub model: Option<String>,
    /// Levels of load, one after the other.
    pub loads: Vec<Load>,
    /// Length of a level's window.
    pub duration: Duration,
    /// Measured requests after which a level ends earlier.
    pub requests: Option<u64>,
    /// Requests of each slot before the window of a closed loop.
    pub warm_up: u64,
    /// Time before the window at a rate.
    pub rate_warm_up: Duration,
    /// Most requests in flight at a rate.
    pub most_in_flight: usize,
    /// How requests arrive at a rate.
    pub arrivals: Arrivals,
    /// Most tokens of an answer.
    pub output_tokens: u64,
    /// Where prompts come from.
    pub prompts: Prompts,
    /// Seed of prompts, arrivals and sampling.
    pub seed: u64,
    /// Temperature; 0 is greedy.
    pub temperature: f64,
    /// Whether answers are to be of the full length, where the server can.
    pub ignore_eos: bool,
    /// Further header lines, the key among them.
    pub headers: Vec<(String, String)>,
    /// Whom to trust over https.
    pub trust: Trust,
    /// How long anything may take.
    pub limits: Limits,
    /// The server's metrics.
    pub metrics: MetricsAt,
    /// Name of the run.
    pub run: String,
    /// When the run begins, RFC 3339, UTC.
    pub began: String,
    /// Name of a field of the chunks with the server's own time stamps.
    pub stamp: Option<String>,
    /// Where records go, for the document.
    pub record: Option<String>,
}

impl Settings {
    /// The defaults, for a server.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            endpoint: None,
            model: None,
            loads: vec![Load::Concurrency(1)],
            duration: Duration::from_secs(30),
            requests: None,
            warm_up: 1,
            rate_warm_up: Duration::from_secs(3),
            most_in_flight: 4096,
            arrivals: Arrivals::default(),
            output_tokens: 128,
            prompts: Prompts::Words(256),
            seed: 1,
            temperature: 0.0,
            ignore_eos: true,
            headers: Vec::new(),
            trust: Trust::default(),
            limits: Limits::default(),
            metrics: MetricsAt::Auto,
            run: "run".to_owned(),
            began: String::new(),
            stamp: None,
            record: None,
        }
    }
}

/// Where a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Number of the level.
    pub level: usize,
    /// Its load.
    pub load: Load,
    /// Whether the window has begun.
    pub measuring: bool,
    /// Since the window began, or since the level did.
    pub elapsed: Duration,
    /// Requests measured so far.
    pub requests: u64,
    /// Tokens of answers that are over.
    pub tokens: u64,
    /// Requests in flight.
    pub in_flight: u64,
}

/// Why there is no result at all.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The address.
    #[error(transparent)]
    Url(#[from] BadUrl),
    /// A header line that would be two.
    #[error(
        "cannot send the header {0:?}: it holds a line end or another control character; take it out"
    )]
    Header(String),
    /// Loads that are none.
    #[error("cannot drive a load of {0}: it must be above 0")]
    Load(Load),
    /// No way to the server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No model to ask for.
    #[error("cannot tell which model to ask for: {0}; name one with --model")]
    Model(String),
    /// Too few descriptors.
    #[error(
        "cannot hold {wanted} connections: this process may open {limit} files; raise the limit (ulimit -n)"
    )]
    Descriptors {
        /// Wanted.
        wanted: u64,
        /// Allowed.
        limit: u64,
    },
    /// The machine.
    #[error("cannot start a thread or a timer of the client: {0}")]
    System(std::io::Error),
    /// The records.
    #[error(
        "cannot write the records: {0}; the run is over and its figures are lost with them, run it again without --record or where there is room"
    )]
    Record(std::io::Error),
}

/// Drives a server. `record` takes the raw records; `progress` is told where the run is, about ten
/// times a second.
///
/// # Errors
/// What keeps the run from beginning. What goes wrong later is part of the result.
pub fn run(
    settings: Settings,
    record: Option<Box<dyn Write + Send>>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Bench, RunError> {
    let target = Target::parse(&settings.url)?;
    check(&settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Every look at the sockets takes all that has come; tasks in between are short.
        .event_interval(61)
        .on_thread_park(crate::gather::before_waiting)
        .build()
        .map_err(RunError::System)?;
    let settings = Rc::new(settings);
    let recorder =
        record.map(|out| Recorder::new(out).map(Rc::new)).transpose().map_err(RunError::System)?;
    let local = tokio::task::LocalSet::new();
    let bench = local.block_on(&runtime, sweep(&settings, &target, recorder.as_ref(), progress))?;
    drop(local);
    drop(runtime);
    if let Some(recorder) = recorder {
        match Rc::try_unwrap(recorder) {
            Ok(recorder) => recorder.finish(&settings.run).map_err(RunError::Record)?,
            Err(_) => return Err(RunError::Record(std::io::Error::other("they are still in use"))),
        }
    }
    Ok(bench)
}

fn check(settings: &Settings) -> Result<(), RunError> {
    for (name, value) in &settings.headers {
        if name.is_empty() || [name, value].iter().any(|word| word.chars().any(char::is_control)) {
            return Err(RunError::Header(name.escape_default().to_string()));
        }
    }
    for load in &settings.loads {
        let good = match load {
            Load::Concurrency(slots) => *slots > 0,
            Load::Rate(rate) => rate.is_finite() && *rate > 0.0,
        };
        if !good {
            return Err(RunError::Load(*load));
        }
    }
    let slots = |load: &Load| match load {
        Load::Concurrency(slots) => u64::from(*slots),
        Load::Rate(_) => u64::try_from(settings.most_in_flight).unwrap_or(u64::MAX),
    };
    let wanted = settings.loads.iter().map(slots).max().unwrap_or(0) + SPARE_DESCRIPTORS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: maximum.map_or(Some(wanted), |most| Some(most.min(wanted))),
            maximum,
        };
        let limit = maximum.unwrap_or(u64::MAX);
        if limit < wanted || setrlimit(Resource::Nofile, raised).is_err() {
            return Err(RunError::Descriptors { wanted, limit: current.unwrap_or(limit) });
        }
    }
    Ok(())
}

async fn sweep(
    settings: &Rc<Settings>,
    target: &Target,
    recorder: Option<&Rc<Recorder>>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Bench, RunError> {
    let connector = Connector::new(target, &settings.trust, settings.limits.connect).await?;
    let known = probe::look(settings, target, &connector).await?;
    let run_began = now();
    if let Some(recorder) = recorder {
        let (prompts, prompt_size) = settings.prompts.kind();
        recorder.write(&RunLine {
            kind: "run",
            form: 1,
            run: &settings.run,
            began: &settings.began,
            tool_version: env!("CARGO_PKG_VERSION"),
            url: &settings.url,
            model: &known.asking.model,
            engine: known.engine.as_deref(),
            engine_version: known.version.as_deref(),
            seed: settings.seed,
            temperature: settings.temperature,
            output_tokens: settings.output_tokens,
            ignore_eos: known.asking.extras.ignore_eos,
            prompts,
            prompt_size,
            bodies_hash: bodies_hash(&known.asking, settings),
        });
    }
    let mut bench = head(settings, &known);
    for (index, load) in settings.loads.iter().enumerate() {
        let reading = Reading { keep_text: recorder.is_some(), stamp: settings.stamp.clone() };
        let line = Line::new(connector.clone(), settings.limits, reading);
        let path = target.path(known.asking.endpoint);
        let writer = Writer::new(
            &known.asking,
            settings.prompts.clone(),
            &path,
            &target.authority(),
            &settings.headers,
        );
        let place = (run_began, index, *load);
        let ground = Ground::new(line, writer, Rc::clone(settings), recorder.map(Rc::clone), place);
        let metrics = known.metrics.clone();
        let level = level::run(Rc::new(ground), metrics, target.authority(), progress)
            .await
            .map_err(RunError::System)?;
        bench.findings.extend(verdict::findings(&level, known.asking.extras.ignore_eos));
        let stop = stop_after(&level, settings.loads.get(index + 1));
        bench.levels.push(level);
        if let Some(text) = stop {
            bench.findings.push(Finding { weight: Weight::Warning, load: Some(*load), text });
            break;
        }
    }
    bench.findings.extend(verdict::of_run(&bench));
    bench.findings.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    Ok(bench)
}

/// Prompts that the hash looks at: every further one follows from seed and size.
const HASHED: u64 = 16;

/// Hash of what is asked, whatever the model is called and whatever counts the server sends along:
/// the first prompts of the first level.
fn bodies_hash(asking: &Asking, settings: &Settings) -> String {
    let plain = Asking { model: String::new(), extras: Extras::all(false), ..asking.clone() };
    let writer = Writer::new(&plain, settings.prompts.clone(), "/", "host", &[]);
    let mut all = String::new();
    let mut one = Vec::new();
    for number in 0..HASHED {
        writer.write(0, number, &mut one);
        let text = String::from_utf8_lossy(&one);
        all.push_str(text.split_once("\r\n\r\n").map_or("", |(_, body)| body));
        all.push('\n');
    }
    hash(&all)
}

/// Why there is no use in going on to the next level, if there is none.
fn stop_after(level: &Level, next: Option<&Load>) -> Option<String> {
    let next = next?;
    if level.requests.get(&Outcome::Complete).copied().unwrap_or(0) == 0 {
        return Some(
            "no request of this level was completed: the levels after it are left out".to_owned(),
        );
    }
    match (level.load, next, verdict::capped(level)) {
        (Load::Concurrency(now), Load::Concurrency(then), Some(_)) if *then > now => Some(
            "more at a time would only wait in the server: the levels after this one are left out"
                .to_owned(),
        ),
        _ => None,
    }
}

fn head(settings: &Settings, known: &Known) -> Bench {
    Bench {
        url: settings.url.clone(),
        endpoint: known.asking.endpoint,
        model: known.asking.model.clone(),
        engine: known.engine.clone(),
        engine_version: known.version.clone(),
        run: settings.run.clone(),
        seed: settings.seed,
        temperature: settings.temperature,
        output_tokens: settings.output_tokens,
        arrivals: settings.arrivals,
        extras: known.asking.extras.into(),
        definitions: DEFINITIONS
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect::<BTreeMap<_, _>>(),
        levels: Vec::new(),
        findings: known.findings.clone(),
        record: settings.record.clone(),
    }
}
