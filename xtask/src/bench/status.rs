//! `status` on the reference host, recorded and built in, and on this machine.

use std::process::Command;

use anyhow::{Result, bail};

use super::measure::{in_turn, mebibytes, milliseconds, peak_resident};
use super::scan::build;
use crate::root;

/// How often each is run.
const TIMES: usize = 31;

/// Measures, and gives the report.
///
/// # Errors
/// A program that is missing or fails.
pub fn report() -> Result<String> {
    let programs = build()?;
    let fixture = root().join("fixtures/hosts/kpro6.host").display().to_string();
    let hosts = [
        ("recorded: `fixtures/hosts/kpro6.host`", fixture.as_str()),
        ("built in: `sim:kpro6`", "sim:kpro6"),
        ("live: this machine", "live"),
    ];
    let status = |host: &str| {
        let mut command = Command::new(&programs.peerway);
        command.args(["status", "--host", host]);
        command
    };
    let mut out = "\n## status\n\nMedians of runs in turn. Processor time includes the children \
                   that a live look starts.\n\n\
                   | host | wall, ms | user, ms | system, ms | peak, MiB |\n|:--|--:|--:|--:|--:|\n"
        .to_owned();
    let mut commands = hosts.map(|(_, host)| status(host));
    let taken = in_turn(&mut commands, TIMES)?;
    for ((name, host), taken) in hosts.iter().zip(taken) {
        let peak = peak_resident(&mut status(host))?;
        out.push_str(&format!(
            "| {name} | {} | {} | {} | {} |\n",
            milliseconds(taken.wall),
            milliseconds(taken.user),
            milliseconds(taken.system),
            mebibytes(peak),
        ));
    }
    out.push_str(&per_process(&mut status("live"))?);
    Ok(out)
}

/// What processes on the machine add to a live look: measured with and without many of them.
fn per_process(live: &mut Command) -> Result<String> {
    const MORE: u32 = 1_000;
    let before = in_turn(std::slice::from_mut(live), TIMES)?;
    let mut sleepers = Vec::new();
    for _ in 0..MORE {
        match Command::new("sleep").arg("600").spawn() {
            Ok(child) => sleepers.push(child),
            Err(_) => break,
        }
    }
    let started = sleepers.len();
    let with = in_turn(std::slice::from_mut(live), TIMES);
    for sleeper in &mut sleepers {
        // One that ended by itself needs no end.
        if sleeper.kill().is_ok() {
            sleeper.wait()?;
        }
    }
    let (Some(before), Some(with)) = (before.first().copied(), with?.first().copied()) else {
        bail!("one command was run");
    };
    let started = u32::try_from(started).unwrap_or(MORE);
    let added = with.wall.saturating_sub(before.wall).as_secs_f64() * 1e3;
    Ok(format!(
        "\nA live look with {started} more processes (`sleep`) takes {} ms instead of {} ms: {:.1} \
         ms for 1,000 processes.\n",
        milliseconds(with.wall),
        milliseconds(before.wall),
        added * 1e3 / f64::from(started.max(1)),
    ))
}
