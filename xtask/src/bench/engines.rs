//! `worth bench` on real servers: a small model with random weights, written by a script of ours,
//! served by what comes in packages. What was typed and what was answered is the report.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::python;
use crate::root;

mod llama;
mod vllm;

/// Longest that a server may take to start.
const START: Duration = Duration::from_mins(10);
/// Longest that it may take to end when it is asked to.
const STOP: Duration = Duration::from_secs(30);
/// What each is asked.
const RUNS: [&str; 4] = [
    "--concurrency 1,4,8 --duration 5 --output-tokens 64 --prompt-words 32",
    "--endpoint completions --rate 5,20 --duration 5 --warm-up 1 --output-tokens 32 --prompt-words 32",
    "--concurrency 2 --requests 8 --duration 20 --output-tokens 24 --prompt-words 32 --stop-at-end --temperature 0.8",
    "--concurrency 2 --requests 4 --duration 20 --output-tokens 24 --prompt-words 1000",
];

/// A server that runs.
struct Server {
    title: &'static str,
    /// From what it was made.
    made: String,
    running: Running,
}

/// Measures, and gives the report.
///
/// # Errors
/// A package that cannot be had or built, a server that does not start.
pub fn report() -> Result<String> {
    let peerway = build()?;
    let mut out = "A Llama of two layers with random weights (`xtask/src/bench/engines/model.py`): what it says \
                   is noise, and the servers are real. No figure here says anything about an engine's speed.\n"
        .to_owned();
    // One at a time: each has the processors for itself.
    for server in [llama::server, vllm::server] {
        let Server { title, made, running } = server()?;
        out.push_str(&format!("\n## {title}\n\n{made}\n"));
        for words in RUNS {
            out.push_str(&asked(&peerway, &running.url, words)?);
        }
    }
    Ok(out)
}

/// What was typed and what was answered.
fn asked(peerway: &Path, url: &str, words: &str) -> Result<String> {
    let output = Command::new(peerway)
        .args(["worth", "bench", url])
        .args(words.split(' '))
        .stdin(Stdio::null())
        .output()
        .context("cannot start peerway")?;
    let said = [output.stdout, output.stderr].concat();
    Ok(format!(
        "\n```text\n$ peerway worth bench {url} {words}\n{}\nexit {}\n```\n",
        String::from_utf8_lossy(&said).trim_end(),
        output.status.code().unwrap_or(-1)
    ))
}

/// Where everything of this is.
fn place() -> PathBuf {
    root().join("target/bench/python")
}

/// A file by its place in the tree: the page says it.
fn folder(file: &Path) -> &Path {
    file.strip_prefix(root()).unwrap_or(file)
}

/// Writes the model in one of its forms.
fn model(python: &Path, form: &str, name: &str) -> Result<PathBuf> {
    let file = place().join(name);
    let script = root().join("xtask/src/bench/engines/model.py");
    python::run(Command::new(python).arg(script).arg(form).arg(&file))?;
    Ok(file)
}

fn build() -> Result<PathBuf> {
    python::run(
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--release", "--quiet", "--package", "peerway", "--bin", "peerway"])
            .current_dir(root()),
    )?;
    Ok(root().join("target/release/peerway"))
}

/// A running server; it ends when this is dropped.
struct Running {
    child: Child,
    url: String,
}

impl Running {
    /// Starts one that takes `--host` and `--port`, and waits until it says that it is well.
    fn start(mut command: Command, log: &str) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = fs::File::create(place().join(log))?;
        let child = command
            .current_dir(root())
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A group of its own: what a server starts ends with it.
            .process_group(0)
            .spawn()
            .context("cannot start the server")?;
        let mut running = Self { child, url: format!("http://127.0.0.1:{port}") };
        let begun = Instant::now();
        while !is_well(port) {
            if let Some(status) = running.child.try_wait()? {
                bail!("the server ended at once: {status}");
            }
            if begun.elapsed() > START {
                bail!("the server did not start in time");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(running)
    }
}

/// Both have `/health`, which is refused, or no success, before the model is there.
fn is_well(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream
            .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(4096).read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
}

impl Running {
    /// Sends a signal to the server and all that it started, where any of it still runs.
    fn signal(&self, signal: &str) -> bool {
        let group = format!("-{}", self.child.id());
        let sent = Command::new("kill").args([signal, "--", &group]).stderr(Stdio::null()).status();
        sent.is_ok_and(|status| status.success())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let begun = Instant::now();
        self.signal("-TERM");
        // Signal 0 finds out whether anybody is left; the child itself, once it is waited for, is not.
        while begun.elapsed() < STOP {
            drop(self.child.try_wait());
            if !self.signal("-0") {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.signal("-KILL");
        drop(self.child.wait());
    }
}
