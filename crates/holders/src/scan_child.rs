//! The holder scan in a child of its own.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Instant;

use peerway_walls::{Capability, MountPolicy, Plan, Report};
use rustix::io::Errno;

use crate::child::{self, SpawnError};
use crate::list::{HolderList, Line, VERSION};
use crate::scan::{Record, ScanOptions, scan_each};

/// The hidden first argument.
pub(crate) const COMMAND: &str = "__holders";

/// A list longer than this is broken off: 64 MiB hold some 100,000 holders.
const LIST_LIMIT: usize = 64 << 20;

/// A scan that goes on in a child.
#[derive(Debug)]
pub struct ScanChild {
    child: Child,
    answers: ChildStdout,
}

/// What a child found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    /// The list, as far as it came; look at [`HolderList::is_complete`].
    pub list: HolderList,
    /// The walls that the child stood behind, if it came to say so.
    pub walls: Option<Report>,
    /// Why the list broke off, if it did.
    pub gap: Option<String>,
}

impl ScanChild {
    /// Starts the scan. To be called before the walls go up.
    pub fn spawn(options: &ScanOptions) -> Result<Self, SpawnError> {
        Self::spawn_program(None, options)
    }

    /// The same with another program that calls [`crate::dispatch`].
    pub fn spawn_program(
        program: Option<&Path>,
        options: &ScanOptions,
    ) -> Result<Self, SpawnError> {
        let mut child = child::start(program, COMMAND, options, Stdio::null())?;
        let answers = child.stdout.take().ok_or(SpawnError::Pipes)?;
        Ok(Self { child, answers })
    }

    /// Waits for the list until the deadline. Whatever happens, this comes back then: a list that
    /// broke off is a gap.
    pub fn collect(mut self, deadline: Instant) -> Collected {
        let mut collector = Collector::default();
        let mut buffer = vec![0_u8; 64 << 10];
        let gap = loop {
            match child::wait_readable(&self.answers, deadline) {
                Ok(true) => {}
                Ok(false) => break Some("the scan for holders did not answer in time".to_owned()),
                Err(e) => break Some(format!("the scan for holders cannot be waited for: {e}")),
            }
            match rustix::io::read(&self.answers, &mut buffer) {
                Ok(0) => break collector.finish(),
                Ok(read) => {
                    if let Err(gap) = collector.take(buffer.get(..read).unwrap_or_default()) {
                        break Some(gap);
                    }
                }
                Err(Errno::INTR) => {}
                Err(e) => break Some(format!("the list of holders cannot be read: {e}")),
            }
        };
        drop(self.answers);
        child::let_go(&mut self.child);
        if gap.is_some() {
            collector.list.end = None;
        }
        Collected { list: collector.list, walls: collector.walls, gap }
    }
}

/// Puts the lines together.
#[derive(Debug, Default)]
struct Collector {
    list: HolderList,
    walls: Option<Report>,
    begun: bool,
    pending: Vec<u8>,
    taken: usize,
}

impl Collector {
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.taken = self.taken.saturating_add(bytes.len());
        if self.taken > LIST_LIMIT {
            return Err("the list of holders is longer than can be".to_owned());
        }
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            self.line(line)?;
            rest = after.get(1..).unwrap_or_default();
        }
        self.pending = rest.to_vec();
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let garbled = |e: serde_json::Error| format!("the list of holders is garbled: {e}");
        match serde_json::from_slice(line).map_err(garbled)? {
            Line::Begin { version: VERSION, walls } if !self.begun => {
                self.begun = true;
                self.walls = Some(walls);
            }
            Line::Begin { version, .. } => {
                return Err(format!(
                    "the scan for holders speaks version {version}, not {VERSION}"
                ));
            }
            Line::Failed(why) => return Err(why),
            _ if !self.begun || self.list.end.is_some() => {
                return Err("the list of holders is out of order".to_owned());
            }
            Line::Process(process) => self.list.processes.push(process),
            Line::Unreadable(process) => self.list.unreadable.push(process),
            Line::End(end) => self.list.end = Some(end),
        }
        Ok(())
    }

    /// Nothing more will come.
    fn finish(&self) -> Option<String> {
        let whole = self.list.end.is_some() && self.pending.is_empty();
        (!whole).then(|| "the scan for holders ended before its list did".to_owned())
    }
}

/// The child's work.
pub(crate) fn main(options: &str) -> Result<(), Failed> {
    let mut out = BufWriter::with_capacity(32 << 10, std::io::stdout());
    let done = work(options, &mut out);
    if let Err(Failed::Said(why)) = &done {
        send(&mut out, &Line::Failed(why.clone()))?;
    }
    out.flush().map_err(|_| Failed::Unheard)?;
    done
}

/// Why the child ends without a list.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Its parent is told.
    Said(String),
    /// Its parent is gone, so there is nobody to tell.
    Unheard,
}

fn work(options: &str, out: &mut impl Write) -> Result<(), Failed> {
    let said = |e: &dyn std::fmt::Display| Failed::Said(e.to_string());
    let options: ScanOptions = serde_json::from_str(options).map_err(|e| said(&e))?;
    let walls = walls().raise().map_err(|e| said(&e))?;
    child::end_when_unheard().map_err(|e| said(&e))?;
    send(out, &Line::Begin { version: VERSION, walls })?;
    let mut unheard = false;
    let end = scan_each(&options, |record| {
        let line = match record {
            Record::Process(process) => Line::Process(process),
            Record::Unreadable(process) => Line::Unreadable(process),
        };
        unheard = send(out, &line).is_err();
        if unheard { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if unheard {
        return Err(Failed::Unheard);
    }
    send(out, &Line::End(end.map_err(|e| said(&e))?))
}

fn walls() -> Plan {
    Plan::new()
        .write_to(std::io::stdout())
        .write_to(std::io::stderr())
        .keep(Capability::SysPtrace, "what other users' processes hold cannot be seen")
        .keep(Capability::DacReadSearch, "other users' descriptors cannot be listed")
        .without_landlock("it hides what other processes hold")
        .mounts(MountPolicy::Always)
}

fn send(out: &mut impl Write, line: &Line) -> Result<(), Failed> {
    let bytes = line.to_bytes().map_err(|e| Failed::Said(e.to_string()))?;
    out.write_all(&bytes).map_err(|_| Failed::Unheard)
}
