//! The load generator of `worth bench` on a server without a model, beside the clients that are common in Python: processor
//! time a token, lag against the server's own time stamps, memory over many requests.
//!
//! The server runs on the last processor, the client on the first. Every client gets the same
//! answers, at the same pace, from a server of its own.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::measure::mebibytes;
use super::python;
use crate::root;

/// Streams, tokens of an answer, requests of each slot, and how the server paces, of each setting.
const SETTINGS: [Setting; 3] = [
    Setting {
        title: "64 streams, a token every 20 ms",
        script: "step first=20 pace=20",
        slots: 64,
        rounds: 2,
        tokens: 256,
    },
    Setting {
        title: "256 streams, a token every 100 ms",
        script: "step first=100 pace=100",
        slots: 256,
        rounds: 2,
        tokens: 64,
    },
    Setting {
        title: "64 streams, as fast as the server can",
        script: "",
        slots: 64,
        rounds: 8,
        tokens: 256,
    },
];
/// Times that everything is run; the least is reported, since other work only adds.
const TIMES: usize = 3;
/// Clients beside peerway.
const KINDS: [&str; 3] = ["aiohttp", "httpx", "openai"];
/// Requests of the long run.
const LONG: u64 = 1_000_000;

struct Setting {
    title: &'static str,
    script: &'static str,
    slots: u32,
    rounds: u32,
    tokens: u32,
}

struct Programs {
    drive: PathBuf,
    bare: PathBuf,
    mock: PathBuf,
    python: PathBuf,
}

/// What one client took.
struct Taken {
    nanoseconds_per_token: f64,
    tokens_per_second: f64,
    version: String,
}

/// Measures, and gives the report.
///
/// # Errors
/// A program that is missing or fails.
pub fn report() -> Result<String> {
    let programs = build()?;
    Ok([per_token(&programs)?, lag(&programs)?, memory(&programs)?].concat())
}

fn build() -> Result<Programs> {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet", "--package", "peerway-load"])
        .args(["--package", "peerway-load-mock", "--example", "drive", "--example", "bare"])
        .args(["--bin", "peerway-load-mock"])
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the programs cannot be built");
    }
    let release = root().join("target/release");
    Ok(Programs {
        drive: release.join("examples/drive"),
        bare: release.join("examples/bare"),
        mock: release.join("peerway-load-mock"),
        python: python::environment("clients", &["openai", "httpx", "aiohttp"])?,
    })
}

/// A server on the last processor; it ends when this is dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(programs: &Programs, script: &str) -> Result<Self> {
        let last = std::thread::available_parallelism()?.get() - 1;
        let mut child = pinned(&programs.mock, last)
            .arg("0")
            .args(script.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the mock")?;
        let mut url = String::new();
        let out = child.stdout.take().context("the mock has no output")?;
        BufReader::new(out).read_line(&mut url).context("cannot read the mock's address")?;
        if !url.starts_with("http://") {
            bail!("the mock did not start");
        }
        Ok(Self { child, url: url.trim().to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its standard input closes, which ends it; waiting leaves no zombie.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// A command that runs on one processor only.
fn pinned(program: &Path, processor: usize) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(processor.to_string()).arg(program);
    command
}

fn document(command: &mut Command) -> Result<Value> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The load generator of `worth bench`, without the rest of the program around it.
fn bench(programs: &Programs, url: &str, slots: u32, tokens: u32) -> Command {
    let mut command = pinned(&programs.drive, 0);
    command.arg(url).args([slots, tokens].map(|count| count.to_string()));
    command
}

fn number(document: &Value, path: &str) -> Result<f64> {
    document.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path}"))
}

fn peerway(programs: &Programs, setting: &Setting) -> Result<Taken> {
    let server = Server::start(programs, setting.script)?;
    let requests = (setting.slots * setting.rounds).to_string();
    let mut command = bench(programs, &server.url, setting.slots, setting.tokens);
    let document = document(command.args(["600", &requests]))?;
    let requests = number(&document, "/levels/0/requests/complete")?;
    if requests < f64::from(setting.slots * setting.rounds) {
        bail!("peerway completed {requests} requests only");
    }
    Ok(Taken {
        nanoseconds_per_token: number(
            &document,
            "/levels/0/client/processor_nanoseconds_per_token",
        )?,
        tokens_per_second: number(&document, "/levels/0/tokens_per_second")?,
        version: format!("peerway {}", env!("CARGO_PKG_VERSION")),
    })
}

fn python_client(
    programs: &Programs,
    kind: &str,
    server: &Server,
    setting: &Setting,
) -> Result<Value> {
    let mut command = pinned(&programs.python, 0);
    command.arg(root().join("xtask/src/bench/load/clients.py")).arg(kind).arg(&server.url);
    command.args([setting.slots, setting.rounds, setting.tokens].map(|count| count.to_string()));
    let document = document(&mut command)?;
    let wanted = f64::from(setting.slots) * f64::from(setting.rounds) * f64::from(setting.tokens);
    let tokens = number(&document, "/tokens")?;
    // Tokens that are a line end or the like show as text too, so that all are counted.
    if tokens < wanted {
        bail!("{kind} saw {tokens} of {wanted} tokens");
    }
    Ok(document)
}

/// What the kernel takes for the waiting and reading, whoever does it.
fn reading_alone(programs: &Programs, setting: &Setting) -> Result<Taken> {
    let server = Server::start(programs, setting.script)?;
    let mut command = pinned(&programs.bare, 0);
    command.arg(&server.url);
    command.args([setting.slots, setting.rounds, setting.tokens].map(|count| count.to_string()));
    taken(&document(&mut command)?, "reading alone")
}

fn python(programs: &Programs, kind: &str, setting: &Setting) -> Result<Taken> {
    let server = Server::start(programs, setting.script)?;
    taken(&python_client(programs, kind, &server, setting)?, kind)
}

fn taken(document: &Value, kind: &str) -> Result<Taken> {
    let tokens = number(document, "/tokens")?;
    Ok(Taken {
        nanoseconds_per_token: number(document, "/processor_ns")? / tokens,
        tokens_per_second: tokens / number(document, "/wall_s")?,
        version: document.pointer("/version").and_then(Value::as_str).unwrap_or(kind).to_owned(),
    })
}

fn per_token(programs: &Programs) -> Result<String> {
    let mut out = format!(
        "## Processor time a token\n\nThe server (`peerway-load-mock`) on one processor, the client \
         on the other; the same answers for all, one chunk a token, about 200 bytes each. User and \
         system time of the client, without the start of the interpreter and one warm-up request a \
         stream; the least of {TIMES} runs in turn. Peerway parses every chunk, keeps percentiles, \
         and measures its own lag meanwhile; the Python clients keep one time a token. Reading alone \
         (`crates/load/examples/bare.rs`) waits, reads and looks at nothing: the kernel's part, which no \
         client that reads each token as it comes can go below; peerway waits a little where tokens \
         come by the thousand, and reads several at once. {}.\n",
        python::version(&programs.python)?
    );
    for setting in SETTINGS {
        out.push_str(&format!(
            "\n### {}\n\n{} requests of {} tokens.\n\n| client | µs a token | ÷ peerway | tokens a second |\n|:--|--:|--:|--:|\n",
            setting.title,
            setting.slots * setting.rounds,
            setting.tokens
        ));
        let mut rows: Vec<Option<Taken>> = KINDS.iter().map(|_| None).collect();
        let (mut ours, mut alone) = (None, None);
        for _ in 0..TIMES {
            least(&mut ours, peerway(programs, &setting)?);
            least(&mut alone, reading_alone(programs, &setting)?);
            for (row, kind) in rows.iter_mut().zip(KINDS) {
                least(row, python(programs, kind, &setting)?);
            }
        }
        let ours = ours.context("nothing was run")?;
        let base = ours.nanoseconds_per_token;
        for row in std::iter::once(ours).chain(alone).chain(rows.into_iter().flatten()) {
            out.push_str(&format!(
                "| {} | {:.2} | {:.1} | {:.0} |\n",
                row.version,
                row.nanoseconds_per_token / 1e3,
                row.nanoseconds_per_token / base,
                row.tokens_per_second,
            ));
        }
    }
    Ok(out)
}

fn least(row: &mut Option<Taken>, taken: Taken) {
    let better = row
        .as_ref()
        .is_none_or(|before| taken.nanoseconds_per_token < before.nanoseconds_per_token);
    if better {
        *row = Some(taken);
    }
}

/// How the tokens of 1,024 streams come: the heading, and the script.
const ARRIVALS: [(&str, &str); 2] = [
    ("Each stream at its own moments", "stamp first=50 pace=50"),
    ("All streams at the same moments, as from one batch", "stamp step first=50 pace=50"),
];

/// Lag against the server's own time stamps.
fn lag(programs: &Programs) -> Result<String> {
    let mut out = "\n## Lag with 1,024 streams\n\nThe server writes the moment (of the clock that \
                   both share) into each chunk before it sends it, a token every 50 ms a stream: \
                   20,480 a second. From that moment to the client's reading, milliseconds; the \
                   sending is part of it. Where all come at the same moments, the last of 1,024 waits \
                   for the reading of those before it, which is the kernel's time for the most part. All \
                   runs are shown.\n"
        .to_owned();
    for (title, script) in ARRIVALS {
        out.push_str(&format!(
            "\n### {title}\n\n| client | p50 | p99 | p99.9 | own waiting, p99 | processor, % |\n\
             |:--|--:|--:|--:|--:|--:|\n"
        ));
        out.push_str(&lag_of(programs, script)?);
    }
    Ok(out)
}

fn lag_of(programs: &Programs, script: &'static str) -> Result<String> {
    let setting = Setting { title: "", script, slots: 1024, rounds: 2, tokens: 100 };
    let mut out = String::new();
    for _ in 0..TIMES {
        let server = Server::start(programs, setting.script)?;
        let mut command = bench(programs, &server.url, setting.slots, setting.tokens);
        let document = document(command.arg("15"))?;
        let at = |path: &str| number(&document, &format!("/levels/0/client/{path}"));
        out.push_str(&format!(
            "| peerway | {:.3} | {:.3} | {:.3} | {:.3} | {:.1} |\n",
            at("stamp_lag_seconds/p50")? * 1e3,
            at("stamp_lag_seconds/p99")? * 1e3,
            at("stamp_lag_seconds/p999")? * 1e3,
            at("loop_lag_seconds/p99")? * 1e3,
            at("processor_share")? * 1e2,
        ));
    }
    let server = Server::start(programs, setting.script)?;
    let document = python_client(programs, "aiohttp", &server, &setting)?;
    out.push_str(&format!(
        "| aiohttp | {:.3} | {:.3} | - | - | {:.1} |\n",
        number(&document, "/lag_ns/p50")? / 1e6,
        number(&document, "/lag_ns/p99")? / 1e6,
        number(&document, "/processor_ns")? / 1e7 / number(&document, "/wall_s")?,
    ));
    Ok(out)
}

/// Resident memory while many requests go by.
fn memory(programs: &Programs) -> Result<String> {
    let records = root().join("target/bench/load-records.jsonl");
    if records.exists() {
        fs::remove_file(&records).context("cannot remove the records of an earlier run")?;
    }
    let server = Server::start(programs, "")?;
    let mut command = bench(programs, &server.url, 64, 2);
    command.args(["300", &LONG.to_string()]).arg(&records);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let begun = Instant::now();
    let mut samples: Vec<(f64, u64)> = Vec::new();
    while child.try_wait()?.is_none() {
        if let Some(resident) = resident(child.id()) {
            samples.push((begun.elapsed().as_secs_f64(), resident));
        }
        std::thread::sleep(Duration::from_millis(250));
        if begun.elapsed() > Duration::from_mins(10) {
            child.kill()?;
        }
    }
    let output = child.wait_with_output()?;
    let document: Value = serde_json::from_slice(&output.stdout).context("no result")?;
    let done = number(&document, "/levels/0/requests/complete")?;
    let lines = BufReader::new(fs::File::open(&records)?).lines().count();
    let size = fs::metadata(&records)?.len();
    fs::remove_file(&records).context("cannot remove the records")?;
    let mut out = format!(
        "\n## Memory over {done} requests\n\n64 streams, two tokens an answer, every request \
         recorded ({lines} lines, {} MiB of records): {:.0} requests a second. Resident memory of \
         the client, MiB:\n\n| part of the run | {} |\n|:--|{}\n| MiB |",
        size >> 20,
        number(&document, "/levels/0/requests_per_second")?,
        (0..=10).map(|tenth| format!("{} %", tenth * 10)).collect::<Vec<_>>().join(" | "),
        "--:|".repeat(11),
    );
    let last = samples.len().saturating_sub(1);
    for tenth in 0..=10 {
        // The first sample may be from before the program has begun.
        let at = (last * tenth / 10).max(2.min(last));
        let resident = samples.get(at).map_or(0, |(_, resident)| *resident);
        out.push_str(&format!(" {} |", mebibytes(resident)));
    }
    out.push('\n');
    Ok(out)
}

fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}
