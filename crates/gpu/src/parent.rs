//! Children with deadlines. The parent never opens a GPU; a child that hangs is killed with all
//! that it started, and one that can't be killed is reported and left.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use crate::status::GpuError;

/// How a child is started: the program itself with its hidden subcommand.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program; a symbolic link such as `/proc/self/exe` will do.
    pub program: PathBuf,
    /// Arguments that make it a child.
    pub arguments: Vec<String>,
    /// Variables to set beside those inherited.
    pub environment: Vec<(String, String)>,
    /// Variables that the child must not inherit.
    pub unset: Vec<String>,
    /// Whether the child inherits nothing of the environment: it may be somebody else's program.
    pub clean: bool,
}

/// How long a child may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From start to end.
    pub total: Duration,
    /// Between two lines.
    pub quiet: Duration,
    /// What a sound step may take, however short the rest is.
    pub step: Duration,
}

/// How a child ended.
#[derive(Debug)]
pub struct ChildEnd {
    /// Its process id.
    pub pid: u32,
    /// Its exit status; none if it could not be reaped.
    pub status: Option<ExitStatus>,
    /// It was killed because its time was up.
    pub timed_out: bool,
    /// It said nothing for long before that: it was stuck, and not merely slow.
    pub went_quiet: bool,
    /// The last lines of its standard error.
    pub log: Vec<String>,
}

impl ChildEnd {
    /// It could not be killed: the kernel or the driver holds it.
    pub fn still_there(&self) -> bool {
        self.status.is_none()
    }

    /// It ended by a signal that nobody sent to end it.
    pub fn crashed(&self) -> bool {
        const KILL: i32 = 9;
        let signal = self.status.and_then(|status| status.signal());
        !self.timed_out && signal.is_some_and(|signal| signal != KILL)
    }

    /// In words.
    pub fn describe(&self) -> String {
        match (self.status, self.timed_out) {
            (None, _) => format!(
                "process {} can't be killed: the driver holds it; the GPU has to be reset or the \
                 host rebooted",
                self.pid
            ),
            (Some(_), true) if !self.went_quiet => {
                "was still at work when its time was up, and was killed".to_owned()
            }
            (Some(_), true) => "did not answer in its time and was killed".to_owned(),
            (Some(status), false) => format!("ended: {status}"),
        }
    }
}

/// Lines of standard error that are kept.
const LOG_LINES: usize = 20_000;

/// Bytes of a line that are taken; no answer comes near, and what a child prints is its word.
const LONGEST_LINE: usize = 4 << 20;

/// Lines that may wait to be taken: a child that floods waits, and this process keeps its memory.
const WAITING_LINES: usize = 64;

/// A killed process is gone at once unless the kernel holds it; this is ample.
const REAP: Duration = Duration::from_secs(5);

enum Line {
    Out(String),
    OutClosed,
    Log(String),
    LogClosed,
}

/// Runs a child with one request, hands each line of its output on, and sees to its end.
pub fn run_child(
    launch: &Launch,
    request: &str,
    limits: Limits,
    on_line: &mut dyn FnMut(&str),
) -> Result<ChildEnd, GpuError> {
    let start = Instant::now();
    #[expect(clippy::disallowed_methods, reason = "GPUs are only opened in children")]
    let mut command = Command::new(&launch.program);
    if launch.clean {
        command.env_clear();
    }
    for name in &launch.unset {
        command.env_remove(name);
    }
    command
        .args(&launch.arguments)
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that one signal reaches all of it and none of ours.
        .process_group(0);
    // What the child starts comes to this process when the child is gone, and is waited for.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|errno| GpuError::Pipe(errno.into()))?;
    let mut child = command.spawn().map_err(GpuError::Pipe)?;
    let (lines, received) = sync_channel(WAITING_LINES);
    if let Some(out) = child.stdout.take() {
        forward(out, lines.clone(), Line::Out, Line::OutClosed);
    }
    if let Some(log) = child.stderr.take() {
        forward(log, lines, Line::Log, Line::LogClosed);
    }
    // Kept open until the end: its closing tells the child that nobody waits any more.
    let mut input = child.stdin.take();
    if let Some(input) = &mut input {
        // A child that died at once shows in its status.
        drop(writeln!(input, "{request}"));
    }
    let mut log = VecDeque::new();
    let heard = listen(&received, start, limits, &mut log, on_line);
    drop(input);
    let timed_out = heard != Heard::All;
    let status =
        if timed_out { kill(&mut child)? } else { settle(&mut child, &received, &mut log)? };
    drain(&received, &mut log);
    let went_quiet = heard == Heard::Silence;
    Ok(ChildEnd { pid: child.id(), status, timed_out, went_quiet, log: log.into() })
}

/// Reads lines on a thread of its own, since a pipe of a stuck child may never close.
fn forward(
    from: impl Read + Send + 'static,
    to: SyncSender<Line>,
    wrap: fn(String) -> Line,
    closed: Line,
) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            match read_line(&mut reader, &mut bytes) {
                Ok(false) | Err(_) => break,
                Ok(true) => {
                    let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                    if to.send(wrap(text)).is_err() {
                        return;
                    }
                }
            }
        }
        // The listener may be gone already.
        drop(to.send(closed));
    });
}

/// Reads a line, of which no more than [`LONGEST_LINE`] is kept; false at the end.
fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    loop {
        let available = from.fill_buf()?;
        if available.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |end| end + 1);
        let room = LONGEST_LINE.saturating_sub(line.len());
        line.extend(available.iter().take(taken.min(room)));
        from.consume(taken);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// How listening ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// The output closed.
    All,
    /// The time was up, and lines still came.
    Unfinished,
    /// The time was up, and nothing had come for long.
    Silence,
}

/// Hands lines on until the output closes or the time is up.
fn listen(
    received: &Receiver<Line>,
    start: Instant,
    limits: Limits,
    log: &mut VecDeque<String>,
    on_line: &mut dyn FnMut(&str),
) -> Heard {
    let mut heard: Option<Instant> = None;
    // A quarter of the time that it is given is more than any sound step takes; but a limit that is
    // short makes no step shorter.
    let long = (limits.quiet.min(limits.total) / 4).max(limits.step);
    loop {
        let since = heard.unwrap_or(start).elapsed();
        let left = limits.total.saturating_sub(start.elapsed());
        let quiet = limits.quiet.saturating_sub(since);
        // Before each line: whoever floods is never waited for, and has no more time for that.
        let wait = left.min(quiet);
        let line = if wait.is_zero() {
            Err(RecvTimeoutError::Timeout)
        } else {
            received.recv_timeout(wait)
        };
        match line {
            Ok(Line::Out(line)) => {
                heard = Some(Instant::now());
                on_line(&line);
            }
            Ok(Line::OutClosed) | Err(RecvTimeoutError::Disconnected) => return Heard::All,
            Ok(Line::Log(line)) => keep(log, line),
            Ok(Line::LogClosed) => {}
            Err(RecvTimeoutError::Timeout) => {
                let lately = heard.unwrap_or(start).elapsed() < long;
                return if lately { Heard::Unfinished } else { Heard::Silence };
            }
        }
    }
}

fn keep(log: &mut VecDeque<String>, line: String) {
    if log.len() == LOG_LINES {
        log.pop_front();
    }
    log.push_back(line);
}

/// What came on standard error meanwhile.
fn drain(received: &Receiver<Line>, log: &mut VecDeque<String>) {
    let start = Instant::now();
    while let Ok(line) = received.recv_timeout(Duration::from_millis(200)) {
        match line {
            Line::Log(line) => keep(log, line),
            Line::LogClosed => return,
            Line::Out(_) | Line::OutClosed => {}
        }
        if start.elapsed() > Duration::from_secs(2) {
            return;
        }
    }
}

/// The output is closed: the child is about to end. The driver's own exit code may still hang.
fn settle(
    child: &mut Child,
    received: &Receiver<Line>,
    log: &mut VecDeque<String>,
) -> Result<Option<ExitStatus>, GpuError> {
    let mut poll = || {
        // It may have more to say, and could not end while nobody takes it.
        while let Ok(line) = received.try_recv() {
            if let Line::Log(line) = line {
                keep(log, line);
            }
        }
        child.try_wait()
    };
    match reap(&mut poll, REAP)? {
        Some(status) => finish_group(child, status),
        None => kill(child),
    }
}

fn kill(child: &mut Child) -> Result<Option<ExitStatus>, GpuError> {
    kill_group(child.id());
    match reap(&mut || child.try_wait(), REAP)? {
        Some(status) => finish_group(child, status),
        None => Ok(None),
    }
}

/// Ends what a child that is gone has started; no status while something of it is still there.
fn finish_group(child: &Child, status: ExitStatus) -> Result<Option<ExitStatus>, GpuError> {
    kill_group(child.id());
    let Some(group) = group(child.id()) else { return Ok(Some(status)) };
    reap(
        &mut || loop {
            match rustix::process::waitpgid(group, WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                // Nobody is left to wait for.
                Err(Errno::CHILD) => return Ok(Some(status)),
                Ok(None) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        },
        REAP,
    )
}

fn group(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

fn kill_group(pid: u32) {
    if let Some(group) = group(pid) {
        // No such group: it has ended by itself.
        drop(
            rustix::process::kill_process_group(group, Signal::KILL).map_err(std::io::Error::from),
        );
    }
}

/// Waits for an end, but not for ever.
fn reap(
    poll: &mut dyn FnMut() -> std::io::Result<Option<ExitStatus>>,
    limit: Duration,
) -> Result<Option<ExitStatus>, GpuError> {
    let start = Instant::now();
    loop {
        if let Some(status) = poll().map_err(GpuError::Pipe)? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script as a child.
    fn check(script: &str, millis: u64) -> (Vec<String>, ChildEnd) {
        let launch = Launch {
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            environment: vec![("WORD".to_owned(), "set".to_owned())],
            unset: vec!["HOME".to_owned()],
            clean: false,
        };
        let limit = Duration::from_millis(millis);
        check_within(&launch, Limits { total: limit, quiet: limit, step: Duration::ZERO })
    }

    fn check_within(launch: &Launch, limits: Limits) -> (Vec<String>, ChildEnd) {
        let mut lines = Vec::new();
        let end = run_child(launch, "a request", limits, &mut |line| {
            lines.push(line.to_owned());
        })
        .unwrap();
        (lines, end)
    }

    #[test]
    fn lines_and_log_come_back() {
        let (lines, end) =
            check("read line; echo \"$line $WORD ${HOME-none}\"; echo trouble >&2; exit 3", 20_000);
        assert_eq!(lines, ["a request set none"]);
        assert_eq!(end.log, ["trouble"]);
        assert_eq!(end.status.and_then(|status| status.code()), Some(3));
        assert!(!end.timed_out && !end.still_there());
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut line = Vec::new();
        let endless = std::io::repeat(b'x').take(3 * LONGEST_LINE as u64);
        let mut from = BufReader::new(endless.chain(&b"\nnext\n"[..]));
        assert!(read_line(&mut from, &mut line).unwrap());
        assert_eq!(line.len(), LONGEST_LINE);
        line.clear();
        assert!(read_line(&mut from, &mut line).unwrap());
        assert_eq!(line, b"next\n");
        line.clear();
        assert!(!read_line(&mut from, &mut line).unwrap());
    }

    #[test]
    fn what_a_child_leaves_behind_is_waited_for() {
        // The second process ends its parent's hold on it, and would outlive it.
        let (lines, end) = check("(trap '' HUP; sleep 1000) >/dev/null 2>&1 & echo $!", 20_000);
        assert!(!end.timed_out && !end.still_there(), "{end:?}");
        let pid = Pid::from_raw(lines[0].parse().unwrap()).unwrap();
        // Reaped by this process, so nothing of it is left.
        assert_eq!(rustix::process::test_kill_process(pid), Err(Errno::SRCH));
    }

    #[test]
    fn a_silent_child_and_what_it_started_are_killed() {
        let (lines, end) = check("echo $$; sleep 1000 & echo $!; wait", 300);
        assert!(end.timed_out && !end.still_there(), "{end:?}");
        for pid in lines {
            // The group's second process is reaped by whoever adopted it: give that a moment.
            let path = format!("/proc/{pid}/stat");
            let gone = || {
                #[expect(clippy::disallowed_methods, reason = "the test looks at its own host")]
                let stat = std::fs::read_to_string(&path).unwrap_or_default();
                stat.is_empty() || stat.contains(") Z ")
            };
            let start = Instant::now();
            while !gone() && start.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(gone(), "{pid} is still there");
        }
    }

    #[test]
    fn a_flood_has_no_more_time_than_silence() {
        let start = Instant::now();
        let (lines, end) = check("while :; do echo x; done", 300);
        assert!(end.timed_out && !end.went_quiet, "{end:?}");
        assert!(end.describe().contains("still at work"), "{}", end.describe());
        assert!(!lines.is_empty() && start.elapsed() < Duration::from_secs(8));
        let (_, end) = check("sleep 1000", 300);
        assert!(end.timed_out && end.went_quiet, "{end:?}");
        let (_, end) = check("kill -SEGV $$", 20_000);
        assert!(end.crashed(), "{end:?}");
    }

    /// The operator gave it less time than its steps take: nothing is known of the GPUs by that.
    #[test]
    fn a_short_limit_makes_no_hang() {
        let quiet_from_half = |step: u64| {
            let launch = Launch {
                program: "/bin/sh".into(),
                arguments: vec!["-c".to_owned(), "echo begun; sleep 1000".to_owned()],
                environment: Vec::new(),
                unset: Vec::new(),
                clean: false,
            };
            let limit = Duration::from_millis(400);
            let limits = Limits { total: limit, quiet: limit, step: Duration::from_millis(step) };
            let (lines, end) = check_within(&launch, limits);
            assert_eq!(lines, ["begun"]);
            assert!(end.timed_out);
            end.went_quiet
        };
        assert!(!quiet_from_half(5_000));
        assert!(quiet_from_half(0));
    }

    #[test]
    fn a_child_that_cannot_be_reaped_is_reported() {
        let status = reap(&mut || Ok(None), Duration::from_millis(20)).unwrap();
        let end = ChildEnd { pid: 7, status, timed_out: true, went_quiet: true, log: Vec::new() };
        assert!(end.still_there());
        assert!(end.describe().contains("process 7 can't be killed"), "{}", end.describe());
    }
}
