//! What a process that changes a host has others do for it: looking, behind walls that it cannot
//! stand behind itself, and copying, by the operator's program.

use std::cell::RefCell;
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use peerway_cli_read::output::Output;
use peerway_cli_read::{Exit, Global, fail};
use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::tenant::Holder;
use peerway_core::snapshot::{Gap, Snapshot};
use peerway_holders::{ScanChild, ScanOptions};
use peerway_read::collect::holders::from_list;
use peerway_read::root::Root;
use peerway_write::live::Eyes;
use peerway_write::mutator::Copied;
use rustix::process::{Pid, Signal};
use serde::Deserialize;

/// A look has deadlines of its own; this one is for a look that hangs all the same.
const LOOK: Duration = Duration::from_mins(2);
/// What a program is told to reach its verdict in, and what it is given on top.
const PROBE: Duration = Duration::from_secs(30);
const PROBE_MORE: Duration = Duration::from_secs(15);
/// How long the scan for holders may take.
const HOLDERS: Duration = Duration::from_secs(20);
/// How often a child is looked at.
const POLL: Duration = Duration::from_millis(5);
/// How long the pipes of a child that is gone are waited for.
const CLOSED: Duration = Duration::from_secs(5);
/// The longest look at the largest host.
const MOST_OUTPUT: u64 = 1 << 30;
/// The version of `docs/probe.md`.
const PROTOCOL: u32 = 1;

/// The child: looks, and prints what it saw as it is.
pub(super) fn look(global: &Global) -> Exit {
    let looked = match peerway_cli_read::host::look(global) {
        Ok(looked) => looked,
        Err(error) => return fail(&error),
    };
    let mut output = Output::stdout();
    match serde_json::to_string(&looked.snapshot) {
        Ok(text) => output.line(&text),
        Err(_) => return Exit::Internal,
    }
    if output.finish().is_ok() { Exit::Fine } else { Exit::Internal }
}

/// This program and the operator's.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) program: PathBuf,
    pub(super) accelerators: Vec<PathBuf>,
    pub(super) probe: Option<PathBuf>,
    /// The last look.
    pub(super) last: RefCell<Option<Snapshot>>,
}

/// The line of a probe, as far as it decides.
#[derive(Deserialize)]
struct Line {
    protocol: u32,
    from: PciAddress,
    to: PciAddress,
    verdict: String,
    detail: String,
}

impl Eyes for Here {
    fn snapshot(&self) -> Result<Snapshot, String> {
        let snapshot = snapshot_of(self.program.clone(), "live", &self.accelerators)?;
        *self.last.borrow_mut() = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// Nodes are told anew by the devices of the last look: their numbers change when a driver is
    /// bound again, their addresses do not.
    fn holders(&self) -> Result<(Observed<Vec<Holder>>, Vec<Gap>), String> {
        let child = ScanChild::spawn(&ScanOptions::default()).map_err(|error| error.to_string())?;
        if self.last.borrow().is_none() {
            self.snapshot()?;
        }
        let last = self.last.borrow();
        let last = last.as_ref().ok_or("there was no look before")?;
        let found = child.collect(Instant::now() + HOLDERS);
        let mut gaps = Vec::new();
        gaps.extend(found.gap.map(|why| Gap { source: "/proc/PID/fd".to_owned(), why }));
        let (root, nvidia) = (self.root()?, &last.nvidia);
        let holders = from_list(&root, &found.list, &last.devices, nvidia, &mut gaps);
        Ok((holders, gaps))
    }

    fn root(&self) -> Result<Root, String> {
        Root::open(std::path::Path::new("/")).map_err(|error| error.to_string())
    }

    fn can_copy(&self) -> Result<(), String> {
        match &self.probe {
            Some(_) => Ok(()),
            None => Err("nothing would prove that data arrives: name a program that copies \
                         between the devices and checks the data (--probe, see docs/probe.md)"
                .to_owned()),
        }
    }

    fn copy(&self, from: PciAddress, to: PciAddress) -> Result<Copied, String> {
        self.can_copy()?;
        let program = self.probe.clone().unwrap_or_default();
        let shown = program.display().to_string();
        let limit = PROBE.as_millis().to_string();
        let words = ["probe", "--from", &from.to_string(), "--to", &to.to_string()];
        let mut arguments: Vec<String> = words.map(str::to_owned).to_vec();
        arguments.extend(["--deadline-ms".to_owned(), limit]);
        let text = output_of(program, arguments, PROBE + PROBE_MORE)?;
        let line: Line = serde_json::from_str(text.trim())
            .map_err(|error| format!("the answer of {shown}: {error}"))?;
        if (line.protocol, line.from, line.to) != (PROTOCOL, from, to) {
            return Err(format!("{shown} answers something else than it was asked"));
        }
        let detail = format!("{}: {}", line.verdict, line.detail);
        Ok(Copied { from, to, intact: line.verdict == "intact", detail })
    }
}

/// A whole look at a host, by a child.
pub(crate) fn snapshot_of(
    program: PathBuf,
    host: &str,
    accelerators: &[PathBuf],
) -> Result<Snapshot, String> {
    let mut arguments = vec!["--host".to_owned(), host.to_owned()];
    for file in accelerators {
        let file = file.to_str().ok_or_else(|| format!("{} is not text", file.display()))?;
        arguments.extend(["--accelerator".to_owned(), file.to_owned()]);
    }
    arguments.push("snapshot-child".to_owned());
    let text = output_of(program, arguments, LOOK)?;
    serde_json::from_str(&text).map_err(|error| format!("what the look gave: {error}"))
}

/// Standard output of a program that ended well and in time. It gets no input, and a group of its
/// own, so that signals of the terminal are for the one who can take back.
#[expect(clippy::disallowed_methods, reason = "looking and copying are children's")]
fn output_of(program: PathBuf, arguments: Vec<String>, limit: Duration) -> Result<String, String> {
    let shown = program.display().to_string();
    let error = |error: std::io::Error| format!("{shown}: {error}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(error)?;
    let output = child.stdout.take().map(gathered);
    let log = child.stderr.take().map(gathered);
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(error)? {
            Some(status) => break status,
            None if Instant::now() < end => std::thread::sleep(POLL),
            None => {
                let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                if let Some(group) = group {
                    let _gone = rustix::process::kill_process_group(group, Signal::KILL);
                }
                return Err(format!("{shown} did not end within {} s", limit.as_secs()));
            }
        }
    };
    let text = |pipe: Option<Receiver<Vec<u8>>>| {
        let bytes = pipe.and_then(|pipe| pipe.recv_timeout(CLOSED).ok());
        bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    if !status.success() {
        let log = text(log).unwrap_or_default();
        return Err(format!("{shown} ended with {status} {log}").trim_end().to_owned());
    }
    text(output).ok_or_else(|| format!("{shown} ended, and something it started still writes"))
}

/// Reads a pipe to its end on a thread of its own: what a child started may keep it open.
fn gathered(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if pipe.take(MOST_OUTPUT).read_to_end(&mut bytes).is_ok() {
            // Nobody may wait for it any more.
            drop(sender.send(bytes));
        }
    });
    receiver
}
