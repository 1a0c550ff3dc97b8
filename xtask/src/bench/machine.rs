//! What a figure was measured on.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::root;

/// Processor, kernel, load, versions, date, as a list.
///
/// # Errors
/// A file of procfs that cannot be read.
pub fn describe() -> Result<String> {
    let cpuinfo = read("/proc/cpuinfo")?;
    let field = |name: &str| {
        cpuinfo
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == name)
            .map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let virtual_machine = if cpuinfo.contains(" hypervisor") { ", a virtual machine" } else { "" };
    let memory = read("/proc/meminfo")?
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:").map(|rest| rest.trim().to_owned()))
        .unwrap_or_default();
    let load = read("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    let lines = [
        format!("{}, {processors} processors{virtual_machine}, {memory}", field("model name")),
        format!("Linux {}", read("/proc/sys/kernel/osrelease")?.trim()),
        format!(
            "{}; {}",
            first_line("rustc", &["--version"])?,
            first_line("lspci", &["--version"])?
        ),
        format!("revision {}", revision()?),
        format!("{}; load average {load} before the run", today()),
    ];
    Ok(lines.map(|line| format!("- {line}\n")).concat())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}

/// The commit, and whether the product's sources differ from it.
fn revision() -> Result<String> {
    let hash = first_line("git", &["rev-parse", "--short=12", "HEAD"])?;
    let changed = first_line("git", &["status", "--porcelain", "--untracked-files=no", "crates"])?;
    Ok(if changed.is_empty() { hash } else { format!("{hash} and changes not yet in it") })
}

fn first_line(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
