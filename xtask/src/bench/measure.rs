//! Runs of programs, with what they took.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use wait4::Wait4 as _;

/// What runs of one command took: medians.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// From start to end.
    pub wall: Duration,
    /// Processor time in the program itself.
    pub user: Duration,
    /// Processor time in the kernel for it.
    pub system: Duration,
}

impl Taken {
    fn of(mut runs: Vec<Self>) -> Result<Self> {
        let mut middle = |key: fn(&Self) -> Duration| {
            runs.sort_by_key(key);
            runs.get(runs.len() / 2).map(key)
        };
        let (Some(wall), Some(user), Some(system)) =
            (middle(|run| run.wall), middle(|run| run.user), middle(|run| run.system))
        else {
            bail!("nothing was run");
        };
        Ok(Self { wall, user, system })
    }
}

/// Runs commands in turn, so that whatever else the machine does meets all of them: once to warm
/// the caches, then `times` times. Medians, in the order of the commands.
///
/// # Errors
/// A command that cannot be started, or that ends otherwise than with 0, 1 (findings) or 3 (undecided).
pub fn in_turn(commands: &mut [Command], times: usize) -> Result<Vec<Taken>> {
    let mut runs: Vec<Vec<Taken>> = commands.iter().map(|_| Vec::new()).collect();
    for command in commands.iter_mut() {
        once(command)?;
    }
    for _ in 0..times {
        for (command, runs) in commands.iter_mut().zip(&mut runs) {
            runs.push(once(command)?);
        }
    }
    runs.into_iter().map(Taken::of).collect()
}

fn once(command: &mut Command) -> Result<Taken> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let ended = child.wait4().with_context(|| format!("cannot wait for {command:?}"))?;
    let wall = begun.elapsed();
    if !matches!(ended.status.code(), Some(0 | 1 | 3)) {
        bail!("{command:?} failed: {}", ended.status);
    }
    Ok(Taken { wall, user: ended.rusage.utime, system: ended.rusage.stime })
}

/// Most memory that a command has resident, in bytes. What the kernel accounts to a child begins
/// with its parent's, so that the child is asked itself: its standard output is a full pipe, and
/// at its one write, at the end, it waits while `/proc/PID/status` is read.
///
/// # Errors
/// A command that cannot be started or does not come to its output.
pub fn peak_resident(command: &mut Command) -> Result<u64> {
    let (mut reader, mut writer) = std::io::pipe().context("cannot make a pipe")?;
    // As much as a pipe holds (`pipe(7)`).
    writer.write_all(&vec![b'.'; 64 << 10]).context("cannot fill a pipe")?;
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let peak = wait_for_write(child.id());
    // The command holds the writing end; without this the pipe would never end.
    command.stdout(Stdio::null());
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).context("cannot empty a pipe")?;
    child.wait().with_context(|| format!("cannot wait for {command:?}"))?;
    peak.with_context(|| format!("{command:?} never came to its output"))
}

fn wait_for_write(pid: u32) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    for _ in 0..10_000 {
        if read("wchan")?.contains("pipe_write") {
            let status = read("status")?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            return Some(kibibytes * 1024);
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Milliseconds, for tables.
pub fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

/// Mebibytes, for tables.
pub fn mebibytes(bytes: u64) -> String {
    format!("{}.{}", bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_peaks() {
        let taken = in_turn(&mut [Command::new("true"), Command::new("false")], 3).unwrap();
        assert_eq!(taken.len(), 2);
        let mut missing = [Command::new("/no/such/program")];
        assert!(in_turn(&mut missing, 1).unwrap_err().to_string().contains("cannot start"));
        let mut echo = Command::new("echo");
        let peak = peak_resident(echo.arg("something")).unwrap();
        assert!((1 << 16..1 << 27).contains(&peak), "{peak}");
        assert_eq!(mebibytes(5 * 1024 * 1024 + 512 * 1024), "5.5");
        assert_eq!(milliseconds(Duration::from_micros(1250)), "1.2");
    }
}
