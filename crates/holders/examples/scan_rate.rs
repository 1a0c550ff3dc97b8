//! How long a scan for holders takes, for 1,000 processes: the best of a number of scans of
//! `/proc`, each with its own line, and how many system calls that is can be counted from outside.
//!
//! `cargo run --release -p peerway-holders --example scan_rate [SCANS]`

use std::io::Write;
use std::time::{Duration, Instant};

use peerway_holders::{ScanOptions, scan};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scans: u32 = std::env::args().nth(1).map_or(Ok(20), |a| a.parse())?;
    let mut best = Duration::MAX;
    let mut processes = 0;
    let mut out = std::io::stdout().lock();
    for _ in 0..scans {
        let begun = Instant::now();
        let list = scan(&ScanOptions::default())?;
        best = best.min(begun.elapsed());
        processes = list.end.map_or(0, |end| end.processes);
    }
    let per_thousand = best.as_secs_f64() * 1e3 * 1e3 / f64::from(processes.max(1));
    writeln!(out, "{processes} processes, best of {scans} scans: {best:?}")?;
    writeln!(out, "{per_thousand:.2} ms for 1,000 processes")?;
    Ok(())
}
