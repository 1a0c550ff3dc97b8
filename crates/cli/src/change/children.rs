//! What a process that changes a host has others do for it: looking, behind walls that it cannot
//! stand behind itself, and copying, by the operator's program.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use peerway_cli_read::output::Output;
use peerway_cli_read::{Exit, Global, fail};
use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::tenant::Holder;
use peerway_core::snapshot::{Gap, Snapshot};
use peerway_gpu::{ChildEnd, Launch, Limits, run_child};
use peerway_holders::{ScanChild, ScanOptions};
use peerway_read::collect::holders::from_list;
use peerway_read::root::Root;
use peerway_write::live::Eyes;
use peerway_write::mutator::Copied;
use serde::Deserialize;

/// A look has deadlines of its own; this one is for a look that hangs all the same.
const LOOK: Duration = Duration::from_mins(2);
/// What a program is told to reach its verdict in, and what it is given on top.
const PROBE: Duration = Duration::from_secs(30);
const PROBE_MORE: Duration = Duration::from_secs(15);
/// How long the scan for holders may take.
const HOLDERS: Duration = Duration::from_secs(20);
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
        let mut arguments = vec!["--host".to_owned(), "live".to_owned()];
        for file in &self.accelerators {
            let file = file.to_str().ok_or_else(|| format!("{} is not text", file.display()))?;
            arguments.extend(["--accelerator".to_owned(), file.to_owned()]);
        }
        arguments.push("snapshot-child".to_owned());
        let text = output_of(self.program.clone(), arguments, LOOK)?;
        let snapshot: Snapshot =
            serde_json::from_str(&text).map_err(|error| format!("what the look gave: {error}"))?;
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

/// Standard output of a program that ended well and in time.
fn output_of(program: PathBuf, arguments: Vec<String>, limit: Duration) -> Result<String, String> {
    let shown = program.display().to_string();
    let launch =
        Launch { program, arguments, environment: Vec::new(), unset: Vec::new(), clean: false };
    let mut text = String::new();
    let limits = Limits { total: limit, quiet: limit };
    let end: ChildEnd = run_child(&launch, "", limits, &mut |line| {
        text.push_str(line);
        text.push('\n');
    })
    .map_err(|error| format!("{shown}: {error}"))?;
    if end.status.is_some_and(|status| status.success()) {
        return Ok(text);
    }
    Err(format!("{shown} {} {}", end.describe(), end.log.join(" ")).trim_end().to_owned())
}
