//! Where the time of a command goes: system calls by `strace`, samples by `perf`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// System calls of a command and of its threads: name and count, the most frequent first.
///
/// # Errors
/// `strace` that cannot be started.
pub fn calls(program: &Path, arguments: &[&str], directory: &Path) -> Result<Vec<(String, u64)>> {
    let listing = directory.join("strace");
    Command::new("strace")
        .args(["-f", "-c", "-S", "calls", "-o"])
        .arg(&listing)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot start strace")?;
    let text = fs::read_to_string(&listing)
        .with_context(|| format!("cannot read {}", listing.display()))?;
    Ok(text.lines().filter_map(call).filter(|(name, _)| name != "total").collect())
}

/// `% time, seconds, usecs/call, calls, [errors,] syscall`.
fn call(line: &str) -> Option<(String, u64)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [share, _, _, count, .., name] = words.as_slice() else { return None };
    share.parse::<f64>().ok()?;
    Some(((*name).to_owned(), count.parse().ok()?))
}

/// Shares of the samples by what `perf report` sorts by, in percent, largest first; `None` where
/// `perf` is not there or may not look.
///
/// # Errors
/// A profile that cannot be read.
pub fn samples(
    program: &Path,
    arguments: &[&str],
    sort: &str,
    directory: &Path,
) -> Result<Option<Vec<(String, String)>>> {
    let data = directory.join("perf.data");
    let recorded = Command::new("perf")
        .args(["record", "-q", "-F", "4000", "-o"])
        .arg(&data)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if recorded.is_err() || !data.is_file() {
        return Ok(None);
    }
    let report = Command::new("perf")
        .args(["report", "-q", "--stdio", "--percent-limit", "1", "--sort", sort, "-i"])
        .arg(&data)
        .stderr(Stdio::null())
        .output()
        .context("cannot start perf report")?;
    let text = String::from_utf8_lossy(&report.stdout);
    let rows = text.lines().filter_map(|line| {
        let (share, name) = line.trim().split_once("  ")?;
        share.ends_with('%').then(|| (name.trim().to_owned(), share.to_owned()))
    });
    Ok(Some(rows.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_summary() {
        let row = " 38.23    0.300489           3     92448      4155 openat2";
        assert_eq!(call(row), Some(("openat2".to_owned(), 92_448)));
        let row = "  1.80    0.014124           1     10005           newfstatat";
        assert_eq!(call(row), Some(("newfstatat".to_owned(), 10_005)));
        assert_eq!(call("------ ----------- ----------- --------- --------- ---------"), None);
        assert_eq!(call("% time     seconds  usecs/call     calls    errors syscall"), None);
    }
}
