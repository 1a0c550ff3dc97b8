//! The data-checking copier: `lab-copy probe --from A --to B` speaks the probe protocol of
//! `docs/probe.md`; `lab-copy matrix` does every ordered pair, several at a time; `lab-copy reach`
//! has an engine read from any bus address.

use std::process::ExitCode;
use std::time::Duration;

use peerway_lab_guest::copy::{Limits, Names, Requester, Target};
use peerway_lab_guest::engine::Ended;
use peerway_lab_guest::{Context as _, Result, init};
use peerway_lab_protocol::{Accelerator, Probe, Verdict};

/// Memory that is mapped for a copy: source and destination of the largest one asked for.
const LARGEST_COPY: usize = 4 << 20;
const USAGE: &str = "usage: lab-copy probe --from ADDRESS --to ADDRESS [--bytes N] [--offset N] [--deadline-ms N]\n       \
                     lab-copy matrix [--bytes N] [--offset N] [--deadline-ms N]\n       \
                     lab-copy reach --from ADDRESS --offset BUS-ADDRESS";

#[derive(Debug, Default)]
struct Options {
    from: Option<String>,
    to: Option<String>,
    limits: Limits,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-copy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let command = words.next().ok_or(USAGE)?;
    let options = Options::parse(words)?;
    let accelerators = init::script()?.accelerators;
    match command.as_str() {
        "probe" => {
            let from = options.from.ok_or(USAGE)?;
            let to = options.to.ok_or(USAGE)?;
            let (from, to) = (find(&accelerators, &from)?, find(&accelerators, &to)?);
            print(&probe(from, to, options.limits)?)
        }
        "matrix" => matrix(&accelerators, options.limits),
        "reach" => {
            let from = find(&accelerators, &options.from.ok_or(USAGE)?)?;
            let address = u64::try_from(options.limits.offset)?;
            match Requester::open(from)?.read_from(address, options.limits)? {
                Ended::Yes => Ok(()),
                Ended::No => Err("the engine was still busy at the deadline".into()),
            }
        }
        _ => Err(USAGE.into()),
    }
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"))?;
            match word.as_str() {
                "--from" => options.from = Some(value),
                "--to" => options.to = Some(value),
                "--bytes" => options.limits.bytes = number(&word, &value)?,
                "--offset" => options.limits.offset = number(&word, &value)?,
                "--deadline-ms" => {
                    options.limits.deadline = Duration::from_millis(number(&word, &value)?);
                }
                _ => return Err(format!("unknown option {word}\n{USAGE}").into()),
            }
        }
        if options.limits.bytes > LARGEST_COPY {
            return Err(format!("--bytes is at most {LARGEST_COPY}").into());
        }
        Ok(options)
    }
}

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(option: &str, value: &str) -> Result<T> {
    value.parse().context(|| format!("{option} {value:?}"))
}

fn find<'a>(accelerators: &'a [Accelerator], address: &str) -> Result<&'a Accelerator> {
    let found = accelerators.iter().find(|one| one.engine == address);
    found.ok_or_else(|| format!("{address} is no accelerator of this machine").into())
}

fn probe(from: &Accelerator, to: &Accelerator, limits: Limits) -> Result<Probe> {
    let names = Names { from: &from.engine, to: &to.engine };
    if from.engine == to.engine {
        let detail = "requester and target are the same device".to_owned();
        return Ok(names.without_copy(Verdict::NotRun, detail));
    }
    match (Requester::open(from), Target::open(to, limits.reach())) {
        (Ok(from), Ok(to)) => from.copy_to(&to, names, limits),
        (Err(error), _) | (_, Err(error)) => {
            Ok(names.without_copy(Verdict::Refused, error.to_string()))
        }
    }
}

/// Every ordered pair, in rounds in which each requester copies to the target a fixed distance on, so
/// that no two of them share a target.
fn matrix(accelerators: &[Accelerator], limits: Limits) -> Result<()> {
    let mut opened = Vec::new();
    for one in accelerators {
        let target = Target::open(one, limits.reach())?;
        opened.push((one, Requester::open(one)?, target));
    }
    for distance in 1..opened.len() {
        let targets = opened.iter().cycle().skip(distance);
        let verdicts = std::thread::scope(|scope| {
            let runs: Vec<_> = opened
                .iter()
                .zip(targets)
                .map(|((from, requester, _), (to, _, target))| {
                    let names = Names { from: &from.engine, to: &to.engine };
                    scope.spawn(move || {
                        requester.copy_to(target, names, limits).map_err(|error| error.to_string())
                    })
                })
                .collect();
            runs.into_iter()
                .map(|run| run.join().unwrap_or_else(|_| Err("a copy panicked".to_owned())))
                .collect::<std::result::Result<Vec<Probe>, String>>()
        })?;
        for verdict in &verdicts {
            print(verdict)?;
        }
    }
    Ok(())
}

fn print(probe: &Probe) -> Result<()> {
    println!("{}", serde_json::to_string(probe)?);
    Ok(())
}
