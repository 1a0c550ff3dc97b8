//! Carrying out the steps of a script.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use peerway_lab_protocol::{How, Outcome, Step};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{Context as _, Result};

/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(5);
pub(super) const SEARCH_PATH: &str = "/lab/bin:/bin:/sbin:/usr/bin:/usr/sbin";

/// Carries steps out, and keeps those that were started.
#[derive(Debug, Default)]
pub(super) struct Runner {
    started: BTreeMap<String, Running>,
}

/// A command whose output is being gathered.
#[derive(Debug)]
struct Running {
    child: Child,
    stdout: Gathered,
    stderr: Gathered,
}

/// What a pipe gave so far.
#[derive(Debug)]
struct Gathered {
    bytes: Arc<Mutex<Vec<u8>>>,
    lines: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Runner {
    /// Carries one step out.
    ///
    /// # Errors
    /// Where its program cannot be started, or a step is stopped that was not started.
    pub(super) fn carry_out(&mut self, step: &Step) -> Result<Outcome> {
        let began = Instant::now();
        let end = began + Duration::from_millis(step.deadline_ms);
        let mut outcome = match step.how {
            How::Run => {
                let mut running = Running::spawn(step)?;
                drop(running.child.stdin.take());
                running.finish(end)?
            }
            How::Start => {
                let mut running = Running::spawn(step)?;
                let spoke = running.stdout.first_line(end);
                let mut outcome = running.so_far()?;
                outcome.timed_out = !spoke && outcome.status.is_none();
                self.started.insert(step.name.clone(), running);
                outcome
            }
            How::Stop => {
                let running = self.started.remove(&step.name);
                let mut running =
                    running.ok_or_else(|| format!("step {:?} was not started", step.name))?;
                drop(running.child.stdin.take());
                running.finish(end)?
            }
        };
        outcome.name.clone_from(&step.name);
        outcome.milliseconds = u64::try_from(began.elapsed().as_millis())?;
        Ok(outcome)
    }
}

impl Running {
    fn spawn(step: &Step) -> Result<Self> {
        let (program, arguments) =
            step.argv.split_first().ok_or_else(|| format!("step {:?} is empty", step.name))?;
        let mut child = Command::new(program)
            .args(arguments)
            .envs(&step.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that a deadline ends its children too.
            .process_group(0)
            .spawn()
            .context(|| format!("cannot start {program}"))?;
        let stdout = child.stdout.take().ok_or("no pipe for standard output")?;
        let stderr = child.stderr.take().ok_or("no pipe for standard error")?;
        Ok(Self { child, stdout: Gathered::from(stdout), stderr: Gathered::from(stderr) })
    }

    fn finish(mut self, end: Instant) -> Result<Outcome> {
        let (status, timed_out) = loop {
            if let Some(status) = self.child.try_wait()? {
                break (status, false);
            }
            if Instant::now() >= end {
                let group = Pid::from_raw(i32::try_from(self.child.id())?);
                kill_process_group(group.ok_or("a child without a number")?, Signal::KILL)?;
                break (self.child.wait()?, true);
            }
            std::thread::sleep(POLL);
        };
        let mut outcome = outcome(Some(status));
        outcome.timed_out = timed_out;
        outcome.stdout = self.stdout.all(end);
        outcome.stderr = self.stderr.all(end);
        Ok(outcome)
    }

    fn so_far(&mut self) -> Result<Outcome> {
        let mut outcome = outcome(self.child.try_wait()?);
        outcome.stdout = self.stdout.text();
        outcome.stderr = self.stderr.text();
        Ok(outcome)
    }
}

impl Gathered {
    fn from(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (sender, lines) = mpsc::channel();
        let shared = Arc::clone(&bytes);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A read error ends the gathering like the end of the pipe does.
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                let new = buffer.get(..count).unwrap_or_default();
                shared.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(new);
                // Nobody listens any more once the first line was seen.
                if new.contains(&b'\n') && sender.send(()).is_err() {}
            }
        });
        Self { bytes, lines, thread }
    }

    /// Waits for a line; `false` where none came.
    fn first_line(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    fn text(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// All of it, once the pipe is closed; a grandchild may keep it open, which is not waited for beyond
    /// the deadline.
    fn all(&self, end: Instant) -> String {
        while !self.thread.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.text()
    }
}

fn outcome(status: Option<ExitStatus>) -> Outcome {
    Outcome {
        name: String::new(),
        status: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        timed_out: false,
        stdout: String::new(),
        stderr: String::new(),
        kernel: Vec::new(),
        milliseconds: 0,
    }
}
