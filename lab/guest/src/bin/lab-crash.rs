//! Ends the product in the middle of a change: `kill` ends its process, `cut` has the host cut the power.
//!
//! On a machine with one processor, this program runs before every other one as soon as the journal gets a
//! record, so that what it ends has done nothing since; how many records there were is part of the report.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use peerway_lab_guest::{Context as _, Result, init, sysfs};
use peerway_lab_protocol::{Crash, Inventory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, setpriority_process};

const PRODUCT: &str = "/lab/bin/peerway";
const STATE: &str = "/var/lib/peerway";
const JOURNAL: &str = "/var/lib/peerway/journal.jsonl";
const ENVIRONMENT: &str = "/run/peerway/p2p.env";
/// There while the module of the peer map is loaded.
const MODULE: &str = "/sys/module/peerway_map";
const PROBE: &str = "/lab/bin/lab-copy";
/// Longer than any apply under emulation.
const DEADLINE: Duration = Duration::from_mins(5);
/// How long somebody else's recovery is waited for.
const LOCKED: Duration = Duration::from_mins(1);
/// Priorities of this program and of the one that it ends.
const FIRST: i32 = -20;
const LAST: i32 = 19;
const USAGE: &str = "usage: lab-crash kill apply|confirm|rollback PLAN FIRST EVERY LAST
       lab-crash cut PLAN RECORD
       lab-crash cut confirm RECORD
       lab-crash cut now";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-crash: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    setpriority_process(None, FIRST)?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["kill", command @ ("apply" | "confirm" | "rollback"), plan, first, every, last] => {
            let (first, every, last) = (first.parse()?, every.parse()?, last.parse()?);
            kill_at_each(command, plan, first, every, last)
        }
        ["cut", "now"] => cut_now(),
        ["cut", "confirm", record] => cut("confirm", "", record.parse()?),
        ["cut", plan, record] => cut("apply", plan, record.parse()?),
        _ => Err(USAGE.into()),
    }
}

/// Runs a command again and again, each time killed some records later, and recovers; the last one is not
/// killed in time. Whatever it is then, it is taken back.
fn kill_at_each(command: &str, plan: &str, first: usize, every: usize, last: usize) -> Result<()> {
    let before = sysfs::inventory()?;
    let mut wanted = first;
    while wanted <= last {
        if command != "apply" {
            whole(plan)?;
        }
        let base = records();
        let mut watch = Watch::begin()?;
        let mut child = begin(command, plan)?;
        let killed = watch.until(&mut child, base + wanted)?;
        if killed {
            child.kill()?;
        }
        let status = child.wait()?;
        let seen = records().saturating_sub(base);
        let (code, said) = end(if killed { "recover" } else { "history" })?;
        let in_force = lifted();
        // What is confirmed, or waits for the word, stays until somebody takes it back.
        let is_back = killed && said.contains(": taken back");
        let undone = if is_back { None } else { end("undo --all")?.0 };
        let found = Crash {
            record: wanted,
            records: seen,
            killed,
            ended: status.code(),
            recovered: code,
            said,
            in_force,
            undone,
            differences: differences(&before)?,
        };
        println!("{}", serde_json::to_string(&found)?);
        if !killed {
            return Ok(());
        }
        wanted += every;
    }
    Ok(())
}

/// An apply that nobody ends.
fn whole(plan: &str) -> Result<()> {
    let status = begin("apply", plan)?.wait()?;
    if status.success() {
        return Ok(());
    }
    let (_, said) = end("history")?;
    Err(format!("the apply before it: {status}: {said}").into())
}

/// Applies or confirms, and says over the port when a record is there; nothing else runs from then on.
fn cut(command: &str, plan: &str, record: usize) -> Result<()> {
    let base = records();
    let mut watch = Watch::begin()?;
    let mut child = begin(command, plan)?;
    if !watch.until(&mut child, base + record)? {
        return Err(format!("the change was over before record {record}").into());
    }
    cut_now()
}

/// Says over the port that the power is to be cut; it is before this ends.
fn cut_now() -> Result<()> {
    init::announce("cut the power")?;
    loop {
        std::hint::spin_loop();
    }
}

/// Starts a command of the product.
fn begin(command: &str, plan: &str) -> Result<Child> {
    let words = ["--accelerator", "/lab/accelerators.toml", command];
    let applies = [plan, "--unproved", "--probe", PROBE];
    let child = Command::new(PRODUCT)
        .args(words)
        .args(applies.iter().filter(|_| command == "apply"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .context(|| format!("cannot start {PRODUCT}"))?;
    let number = Pid::from_raw(i32::try_from(child.id())?);
    setpriority_process(number, LAST)?;
    Ok(child)
}

/// Exit status and all that a command says; the timer of a killed apply may be at it already.
fn end(command: &str) -> Result<(Option<i32>, String)> {
    let end = Instant::now() + LOCKED;
    loop {
        let output = Command::new(PRODUCT).args(command.split(' ')).output()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        if !text.contains("holds the lock") || Instant::now() > end {
            return Ok((output.status.code(), text));
        }
    }
}

/// Whether the environment lets jobs use what was changed.
fn lifted() -> bool {
    fs::read_to_string(ENVIRONMENT).is_ok_and(|text| !text.contains("NCCL_P2P_DISABLE=1"))
}

/// What is not as it was: drivers, groups, types, overrides, the environment and our module.
fn differences(before: &Inventory) -> Result<Vec<String>> {
    let now = sysfs::inventory()?;
    let mut found = Vec::new();
    if now.groups != before.groups {
        found.push("groups".to_owned());
    }
    for (one, other) in before.devices.iter().zip(&now.devices) {
        if one != other {
            found.push(format!("{}: {:?} and now {:?}", one.address, one.driver, other.driver));
        }
    }
    for gone in [ENVIRONMENT, MODULE] {
        if Path::new(gone).exists() {
            found.push(format!("{gone} is there"));
        }
    }
    Ok(found)
}

/// Whole records in the journal.
fn records() -> usize {
    let mut bytes = Vec::new();
    let read = fs::File::open(JOURNAL).and_then(|mut file| file.read_to_end(&mut bytes));
    if read.is_err() {
        return 0;
    }
    bytes.split(|byte| *byte == b'\n').count().saturating_sub(1)
}

/// Wakes at every change in the journal's directory.
struct Watch {
    events: rustix::fd::OwnedFd,
}

impl Watch {
    fn begin() -> Result<Self> {
        fs::create_dir_all(STATE)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(STATE, mode)?;
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let events = inotify::init(flags)?;
        inotify::add_watch(&events, STATE, inotify::WatchFlags::MODIFY)?;
        Ok(Self { events })
    }

    /// Whether so many records came before the child ended.
    fn until(&mut self, child: &mut Child, records_wanted: usize) -> Result<bool> {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            if records() >= records_wanted {
                return Ok(true);
            }
            if child.try_wait()?.is_some() {
                return Ok(records() >= records_wanted);
            }
            let mut ready = [PollFd::new(&self.events, PollFlags::IN)];
            let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            poll(&mut ready, Some(&wait))?;
            let mut buffer = [0; 4096];
            // Read so that the next event wakes; what it says is in the journal.
            while rustix::io::read(&self.events, &mut buffer).is_ok() {}
        }
        Err("the change is not over in time".into())
    }
}
