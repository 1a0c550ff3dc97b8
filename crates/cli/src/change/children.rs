//! What a process that changes a host has others do for it: looking, behind walls that it cannot
//! stand behind itself, and copying, by the operator's program.

use std::cell::RefCell;
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use peerway_cli_read::guard::slow_on_demand;
use peerway_cli_read::output::Output;
use peerway_cli_read::{Exit, Global, fail};
use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::tenant::Holder;
use peerway_core::snapshot::{Gap, Snapshot};
use peerway_holders::{ScanChild, ScanOptions};
use peerway_read::collect::holders::from_list;
use peerway_read::root::{Root, SMALL};
use peerway_write::live::Eyes;
use peerway_write::mutator::Copied;
use rustix::process::{Pid, Signal};
use serde::Deserialize;

use super::kept::Kept;

/// A look has deadlines of its own; this one is for a look that hangs all the same.
const LOOK: Duration = Duration::from_mins(2);
/// What a program is told to reach its verdict in, and what it is given on top.
const PROBE: Duration = Duration::from_secs(30);
const PROBE_MORE: Duration = Duration::from_secs(15);
/// After which a copy is over, whoever began it.
pub(super) const COPY_LIMIT: Duration = PROBE.saturating_add(PROBE_MORE);
/// How long the scan for holders may take.
const HOLDERS: Duration = Duration::from_secs(20);
/// Listing an initramfs of a few hundred megabytes.
const LISTED: Duration = Duration::from_mins(1);
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
    program: PathBuf,
    /// Accelerator files that this command names and that are not kept yet; they outrank those
    /// that are.
    given: RefCell<Vec<PathBuf>>,
    /// Those of each transaction.
    kept: Kept,
    /// Those in use, or why there are none.
    accelerators: RefCell<Result<Vec<PathBuf>, String>>,
    probe: Option<PathBuf>,
    /// The last look.
    last: RefCell<Option<Snapshot>>,
}

impl Here {
    pub(super) fn new(
        program: PathBuf,
        given: Vec<PathBuf>,
        kept: Kept,
        probe: Option<PathBuf>,
    ) -> Self {
        let accelerators = RefCell::new(Ok(given.clone()));
        let given = RefCell::new(given);
        Self { program, given, kept, accelerators, probe, last: RefCell::default() }
    }
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
        let files = self.accelerators.borrow().clone()?;
        let snapshot = snapshot_of(self.program.clone(), "live", &files)?;
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
        // A device's lock may be held for as long as its driver likes.
        let root = Root::open(std::path::Path::new("/")).map_err(|error| error.to_string())?;
        Ok(root.with_slow(slow_on_demand()))
    }

    fn keep_for(&self, id: &str) -> Result<(), String> {
        self.kept.keep(id, &self.given.take())
    }

    fn take_up(&self, id: &str) {
        if self.given.borrow().is_empty() {
            *self.accelerators.borrow_mut() = self.kept.of(id);
        }
    }

    fn initramfs_has(&self, driver: &str) -> Result<bool, String> {
        let release = self.root()?.text("/proc/sys/kernel/osrelease", SMALL);
        let release = release.map_err(|error| error.to_string())?;
        let mut tried = Vec::new();
        for (program, image) in [
            ("lsinitramfs", format!("/boot/initrd.img-{release}")),
            ("lsinitrd", format!("/boot/initramfs-{release}.img")),
        ] {
            match output_of(PathBuf::from(program), vec![image], LISTED) {
                Ok(list) => return Ok(carries(&list, driver)),
                Err(why) => tried.push(why),
            }
        }
        Err(tried.join("; "))
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

/// Whether a list of files has a module; names of modules have `_` where files may have `-`.
fn carries(list: &str, driver: &str) -> bool {
    let wanted = driver.replace('-', "_");
    list.lines().any(|line| {
        let name = line.trim_end().rsplit('/').next().unwrap_or_default();
        let module = name
            .split_once(".ko")
            .filter(|(_, rest)| rest.is_empty() || matches!(*rest, ".xz" | ".zst" | ".gz"));
        module.is_some_and(|(module, _)| module.replace('-', "_") == wanted)
    })
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

#[cfg(test)]
mod tests {
    use super::carries;

    #[test]
    fn a_module_is_found_in_a_list_of_files() {
        let list = "usr/lib/modules/6.12/kernel/drivers/uio/uio-pci-generic.ko.xz\n\
                    usr/lib/modules/6.12/updates/dkms/nvidia.ko\n\
                    usr/lib/modules/6.12/updates/dkms/nvidia-uvm.ko.zst\nusr/bin/vfio.kod\n";
        for (driver, expected) in [
            ("nvidia", true),
            ("uio_pci_generic", true),
            ("nvidia-uvm", true),
            ("nvidia-drm", false),
            ("vfio", false),
            ("", false),
        ] {
            assert_eq!(carries(list, driver), expected, "{driver}");
        }
    }
}
