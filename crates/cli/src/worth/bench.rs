//! `worth bench URL`: drives an inference server and says what it did.

mod page;

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use peerway_cli_read::args::Format;
use peerway_cli_read::output::complain;
use peerway_cli_read::{Exit, Global};
use peerway_core::document::{Document, Head};
use peerway_load::prompt::Prompts;
use peerway_load::report::Weight;
use peerway_load::target::{Endpoint, Trust};
use peerway_load::ticks::Arrivals;
use peerway_load::{Bench, Load, MetricsAt, Progress, Settings};

use crate::say::{internal, print, usage};

/// Largest file of prompts.
const LARGEST_PROMPTS: u64 = 256 << 20;

/// Arguments of `worth bench`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    /// The server: http://HOST:PORT, with or without /v1 and what follows it
    #[arg(value_name = "URL")]
    url: String,
    /// Interface to drive (default: what the URL ends with, else chat)
    #[arg(long, value_enum)]
    endpoint: Option<EndpointWord>,
    /// Model to ask for (default: the first that the server lists)
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Requests at any time, level after level
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_values_t = [1, 8, 32],
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    concurrency: Vec<u32>,
    /// Requests a second instead, level after level; each is sent at its moment
    #[arg(long, value_name = "R,R,…", value_delimiter = ',', conflicts_with = "concurrency")]
    rate: Vec<f64>,
    /// How requests arrive at a rate
    #[arg(long, value_enum, default_value_t = ArrivalsWord::Poisson)]
    arrivals: ArrivalsWord,
    /// Seconds of each level's window
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration: u64,
    /// End a level after so many measured requests, if that comes first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Requests of every slot before the window; seconds before it at a rate
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(0..=3_600))]
    warm_up: u64,
    /// Tokens of each answer, at most
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    output_tokens: u64,
    /// Words of each prompt, about as many tokens; the server's own count is reported
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    prompt_words: u64,
    /// Prompts to use in turn instead, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_words")]
    prompts: Option<PathBuf>,
    /// Seed of prompts, arrivals and sampling: compare runs of the same seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Sampling temperature; at 0 two runs can be compared word by word
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f64,
    /// Let answers end where the model ends them
    #[arg(long)]
    stop_at_end: bool,
    /// Environment variable that holds the key
    #[arg(long, value_name = "VARIABLE")]
    api_key_env: Option<String>,
    /// Take any certificate
    #[arg(long)]
    insecure: bool,
    /// Trust this authority too (PEM)
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Path of the server's metrics, or off
    #[arg(long, value_name = "PATH|off", default_value = "/metrics")]
    metrics: String,
    /// Write one JSON line a request here, for worth compare
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Name of the run in its records (default: the time)
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Seconds to the first token
    #[arg(long, value_name = "SECONDS", default_value_t = 120,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    first_limit: u64,
    /// Seconds from token to token
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    idle_limit: u64,
    /// Seconds for a whole request
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    request_limit: u64,
    /// Field of the chunks with the server's own time stamp: nanoseconds of this host's clock
    #[arg(long, value_name = "NAME", hide = true)]
    server_stamp: Option<String>,
}

/// An interface.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum EndpointWord {
    /// /chat/completions
    Chat,
    /// /completions
    Completions,
}

/// How requests arrive.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ArrivalsWord {
    /// As of independent users
    Poisson,
    /// At even times
    Constant,
}

/// The JSON Schema of the document.
pub(crate) fn schema() -> Exit {
    let schema = schemars::schema_for!(Document<Bench>);
    match serde_json::to_string_pretty(&schema) {
        Ok(text) => print(&text, Exit::Fine),
        Err(error) => internal(&format!("cannot render the schema: {error}")),
    }
}

/// Runs the command.
pub(crate) fn run(global: &Global, arguments: &BenchArgs) -> Exit {
    let settings = match settings(arguments) {
        Ok(settings) => settings,
        Err(why) => return usage(&why),
    };
    let record = match arguments.record.as_deref().map(create).transpose() {
        Ok(record) => record,
        Err(why) => return usage(&why),
    };
    let mut shown = Shown::new(&settings);
    let result = peerway_load::run(settings, record, &mut |progress| shown.show(progress));
    shown.clear();
    let bench = match result {
        Ok(bench) => bench,
        Err(error @ (peerway_load::RunError::Url(_) | peerway_load::RunError::Load(_))) => {
            return usage(&error.to_string());
        }
        Err(error) => {
            complain(&format!("peerway: {error}\n"));
            return Exit::Undecided;
        }
    };
    let exit = exit(&bench);
    let text = match global.format {
        Format::Text => Ok(page::page(&bench)),
        Format::Json => serde_json::to_string_pretty(&document(bench)),
        Format::Jsonl => serde_json::to_string(&document(bench)),
    };
    match text {
        Ok(text) => print(&text, exit),
        Err(error) => internal(&format!("cannot render the document: {error}")),
    }
}

fn document(bench: Bench) -> Document<Bench> {
    let head = Head {
        schema: "peerway/worth-bench/1".to_owned(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: "none".to_owned(),
        generated_at: Timestamp::now().to_string(),
    };
    Document { head, body: bench }
}

fn exit(bench: &Bench) -> Exit {
    bench.findings.iter().fold(Exit::Fine, |exit, finding| {
        exit.and(match finding.weight {
            Weight::Info | Weight::Warning => Exit::Fine,
            Weight::Error => Exit::Findings,
            Weight::Undecided => Exit::Undecided,
            Weight::WrongData => Exit::WrongData,
            Weight::Hung => Exit::Hung,
        })
    })
}

fn settings(arguments: &BenchArgs) -> Result<Settings, String> {
    let mut settings = Settings::new(&arguments.url);
    settings.endpoint = arguments.endpoint.map(|word| match word {
        EndpointWord::Chat => Endpoint::Chat,
        EndpointWord::Completions => Endpoint::Completions,
    });
    settings.model.clone_from(&arguments.model);
    settings.loads = if arguments.rate.is_empty() {
        arguments.concurrency.iter().map(|slots| Load::Concurrency(*slots)).collect()
    } else {
        arguments.rate.iter().map(|rate| Load::Rate(*rate)).collect()
    };
    settings.arrivals = match arguments.arrivals {
        ArrivalsWord::Poisson => Arrivals::Poisson,
        ArrivalsWord::Constant => Arrivals::Constant,
    };
    settings.duration = Duration::from_secs(arguments.duration);
    settings.requests = arguments.requests;
    settings.warm_up = arguments.warm_up;
    settings.rate_warm_up = Duration::from_secs(arguments.warm_up);
    settings.output_tokens = arguments.output_tokens;
    settings.prompts = match &arguments.prompts {
        None => Prompts::Words(arguments.prompt_words),
        Some(path) => Prompts::Given(prompts(path)?),
    };
    settings.seed = arguments.seed;
    if !(0.0..=100.0).contains(&arguments.temperature) {
        return Err(format!(
            "cannot sample at a temperature of {}: it is 0 or above, 2 at most with most servers",
            arguments.temperature
        ));
    }
    settings.temperature = arguments.temperature;
    settings.ignore_eos = !arguments.stop_at_end;
    settings.headers = key(arguments.api_key_env.as_deref())?;
    settings.trust = Trust { insecure: arguments.insecure, authorities: arguments.ca.clone() };
    settings.limits.first = Duration::from_secs(arguments.first_limit);
    settings.limits.idle = Duration::from_secs(arguments.idle_limit);
    settings.limits.total = Duration::from_secs(arguments.request_limit);
    settings.metrics = match arguments.metrics.as_str() {
        "off" => MetricsAt::Off,
        "/metrics" => MetricsAt::Auto,
        path if path.starts_with('/') => MetricsAt::Path(path.to_owned()),
        other => {
            return Err(format!(
                "cannot look for metrics at {other:?}: give a path of the server, or off"
            ));
        }
    };
    settings.began = Timestamp::now().to_string();
    settings.run = arguments.run.clone().unwrap_or_else(|| settings.began.clone());
    settings.stamp.clone_from(&arguments.server_stamp);
    settings.record = arguments.record.as_ref().map(|path| path.display().to_string());
    Ok(settings)
}

#[expect(clippy::disallowed_methods, reason = "the command line reads its environment")]
fn key(variable: Option<&str>) -> Result<Vec<(String, String)>, String> {
    let Some(variable) = variable else { return Ok(Vec::new()) };
    let key = std::env::var(variable).map_err(|_| {
        format!("cannot take the key from {variable}: no such variable, or no text")
    })?;
    Ok(vec![("authorization".to_owned(), format!("Bearer {}", key.trim()))])
}

#[expect(clippy::disallowed_types, reason = "the operator's own file, not a host's")]
fn prompts(path: &Path) -> Result<Vec<String>, String> {
    use std::io::Read as _;
    let error = |why: String| format!("cannot use the prompts in {}: {why}", path.display());
    let file = std::fs::File::open(path).map_err(|source| error(source.to_string()))?;
    let mut text = String::new();
    file.take(LARGEST_PROMPTS)
        .read_to_string(&mut text)
        .map_err(|source| error(source.to_string()))?;
    let lines: Vec<String> =
        text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    if lines.is_empty() {
        Err(error("there are none; write one a line".to_owned()))
    } else {
        Ok(lines)
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "the records are the only file that this command writes"
)]
fn create(path: &Path) -> Result<Box<dyn Write + Send>, String> {
    // Never over an earlier run: its records cannot be had again.
    let file = std::fs::File::create_new(path).map_err(|source| {
        format!(
            "cannot write records to {}: {source}; name a file that is not there yet",
            path.display()
        )
    })?;
    Ok(Box::new(file))
}

/// How far the run is, on standard error, where a person watches.
struct Shown {
    bar: Option<ProgressBar>,
    levels: usize,
    duration: Duration,
}

impl Shown {
    fn new(settings: &Settings) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            // The template is a constant; where it were wrong the plain bar would show.
            match ProgressStyle::with_template("{bar:20} {msg}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self { bar, levels: settings.loads.len(), duration: settings.duration }
    }

    fn show(&mut self, progress: &Progress) {
        let Some(bar) = &self.bar else { return };
        let part =
            progress.elapsed.as_millis().saturating_mul(1000) / self.duration.as_millis().max(1);
        bar.set_position(if progress.measuring { u64::try_from(part).unwrap_or(1000) } else { 0 });
        let what = if progress.measuring { "measuring" } else { "warming up" };
        bar.set_message(format!(
            "{} of {}: {}, {what}, {} requests",
            progress.level + 1,
            self.levels,
            progress.load,
            progress.requests
        ));
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
