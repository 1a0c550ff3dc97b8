//! `cargo xtask bench`: figures of the product beside those of its peers, measured in one run.
//!
//! Nothing here is a test: a figure is printed with the machine that it was measured on, and
//! written to `docs/benchmarks`.

pub mod engines;
pub mod faults;
pub mod load;
pub mod machine;
pub mod measure;
pub mod profile;
pub mod python;
pub mod scan;
pub mod status;

use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::root;

const HELP: &str = "\
usage: cargo xtask bench WHAT

  scan   scan of hosts of 100, 1,000 and 10,000 PCI functions beside lspci -vv on the same trees,
         and status on the reference host; writes docs/benchmarks/scan.md
  faults faults on kernel logs of 1 GB, half faults and none, beside rg -c of the bare keyword;
         writes docs/benchmarks/faults.md
  load   worth bench on a server without a model, beside the clients common in Python; writes
         docs/benchmarks/load.md
  engines  worth bench on real servers with a small model of random weights; writes
         docs/benchmarks/engines.md";

/// Runs one benchmark.
///
/// # Errors
/// A program that is missing or fails.
pub fn main(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    match arguments.next().as_deref() {
        Some("scan") => write("scan", &[scan::report()?, status::report()?].concat()),
        Some("faults") => write("faults", &faults::report()?),
        Some("load") => write("load", &load::report()?),
        Some("engines") => write("engines", &engines::report()?),
        Some("help" | "--help" | "-h") | None => {
            println!("{HELP}");
            Ok(())
        }
        Some(other) => bail!("no benchmark {other:?}; `cargo xtask bench help` lists them"),
    }
}

/// Prints a report and writes it to `docs/benchmarks/NAME.md`.
fn write(name: &str, body: &str) -> Result<()> {
    let head = format!(
        "# Benchmark: {name}\n\nWritten by `cargo xtask bench {name}`; do not edit.\n\n{}\n",
        machine::describe()?
    );
    let text = format!("{head}{body}");
    println!("{text}");
    let directory = root().join("docs/benchmarks");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let path = directory.join(format!("{name}.md"));
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
