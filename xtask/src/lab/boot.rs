//! Booting a machine with a script, and collecting what it reports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use peerway_lab_protocol::{Outcome, Record, Step};

use super::kernel::Kernel;
use super::machine::Machine;
use super::paths;

mod initial;
mod tally;

pub(super) use initial::leading;

pub use tally::Tally;

/// How often the emulator is looked at.
const POLL: Duration = Duration::from_millis(20);
/// Lines of the console that an error shows.
const SHOWN: usize = 25;

/// A machine about to be booted.
#[derive(Debug)]
pub struct Boot<'a> {
    kernel: &'a Kernel,
    machine: &'a Machine,
    steps: Vec<Step>,
    programs: Vec<(String, PathBuf)>,
    files: Vec<(String, Vec<u8>)>,
    arguments: Vec<String>,
    kernel_arguments: Vec<String>,
    storage: bool,
    leads: bool,
    cut: Option<String>,
    limit: Duration,
}

/// What a machine reported.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// `uname -r` in the guest.
    pub release: String,
    /// The kernel's command line.
    pub command_line: String,
    /// The steps that were carried out, in order.
    pub outcomes: Vec<Outcome>,
    /// All that the kernel logged.
    pub kernel_log: Vec<String>,
    /// From the emulator's start to its end.
    pub seconds: f64,
}

impl<'a> Boot<'a> {
    /// A machine with a kernel; a boot takes well under the limit set here.
    pub fn new(kernel: &'a Kernel, machine: &'a Machine) -> Self {
        Self {
            kernel,
            machine,
            steps: Vec::new(),
            programs: Vec::new(),
            files: Vec::new(),
            arguments: Vec::new(),
            kernel_arguments: Vec::new(),
            storage: false,
            leads: false,
            cut: None,
            limit: Duration::from_mins(2),
        }
    }

    /// The emulator is killed after this long.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Adds steps.
    #[must_use]
    pub fn steps(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.steps.extend(steps);
        self
    }

    /// Adds a program of this host, with its shared libraries, at a place in the guest.
    #[must_use]
    pub fn program(mut self, place: &str, source: &Path) -> Self {
        self.programs.push((place.to_owned(), source.to_path_buf()));
        self
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, place: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((place.to_owned(), content.into()));
        self
    }

    /// Adds arguments of the emulator, after those of the machine.
    #[must_use]
    pub fn arguments<'w>(mut self, words: impl IntoIterator<Item = &'w str>) -> Self {
        self.arguments.extend(words.into_iter().map(str::to_owned));
        self
    }

    /// Adds a disk, a file of this host: `/dev/vda`, with the modules that it needs. What the guest wrote
    /// stays in the file, whatever becomes of the guest.
    #[must_use]
    pub fn disk(mut self, file: &Path) -> Self {
        self.storage = true;
        let drive = format!("file={},if=none,id=disk,format=raw", file.display());
        self.arguments(["-drive", &drive, "-device", "virtio-blk-pci,drive=disk,bus=pcie.0"])
    }

    /// Boots the system on a disk, whose units carry the script out, instead of the lab's own.
    #[must_use]
    pub fn system(mut self, file: &Path) -> Self {
        self.leads = true;
        self.disk(file)
    }

    /// Adds a word to the kernel's command line.
    #[must_use]
    pub fn kernel_argument(mut self, word: &str) -> Self {
        self.kernel_arguments.push(word.to_owned());
        self
    }

    /// The power is cut when this text comes over the guest's port: the emulator is killed, and what the
    /// guest reported until then is the report.
    #[must_use]
    pub fn cut_at(mut self, text: &str) -> Self {
        self.cut = Some(text.to_owned());
        self
    }

    /// Boots, waits for the end, and reads the records.
    ///
    /// # Errors
    /// Where anything is missing (with the command that brings it), the guest could not do what it was
    /// told, or it did not end in time; with the end of its console.
    pub fn run(mut self) -> Result<Report> {
        let patience = self.kernel.patience();
        self.limit *= patience;
        for step in &mut self.steps {
            step.deadline_ms *= u64::from(patience);
        }
        self.kernel.platform.emulator.ensure()?;
        let disk = self.initial_disk()?;
        let place = paths::cache().join("run");
        fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
        // One machine at a time: two would share this build machine's processors and miss deadlines.
        let lock = fs::File::create(place.join("lock"))?;
        lock.lock().context("cannot wait for the other machine of the lab to end")?;
        let files = RunFiles::at(&place);
        fs::write(&files.disk, disk)?;
        let report = self.once(&files);
        if report.is_ok() || !files.died_early() {
            return report;
        }
        tally::repeated();
        eprintln!("lab: the guest died of a double fault before its first step; once more");
        fs::copy(&files.console, place.join("console-died.log"))?;
        self.once(&files)
    }

    fn once(&self, files: &RunFiles) -> Result<Report> {
        tally::booted();
        for old in [&files.console, &files.records, &files.emulator] {
            fs::write(old, "")?;
        }
        let began = Instant::now();
        let ended = self.emulate(files)?;
        let seconds = began.elapsed().as_secs_f64();
        let records = fs::read(&files.records)?;
        let records = String::from_utf8_lossy(&records);
        let report = match (&self.cut, ended) {
            (Some(text), Ended::Cut) => read_until(text, &records, seconds),
            _ => read_records(&records, seconds),
        };
        match (ended, report) {
            (Ended::Itself, _) if self.cut.is_some() => {
                bail!("the guest ended before its power was cut; {}", files.tail())
            }
            (Ended::Cut, report) => report,
            (Ended::Itself, Ok(report)) => Ok(report),
            (Ended::Itself, Err(error)) => Err(error.context(files.tail())),
            (Ended::AtTheLimit, report) => {
                let missing = report.err().map_or_else(String::new, |error| format!(" ({error})"));
                bail!("the guest still ran after {:?}{missing}; {}", self.limit, files.tail())
            }
        }
    }

    fn emulate(&self, files: &RunFiles) -> Result<Ended> {
        let mut words =
            vec!["console=ttyS0".to_owned(), "panic=-1".to_owned(), "loglevel=4".to_owned()];
        // On a busy build machine the emulated timer can miss the few ticks in which the kernel tests it, and
        // the kernel then panics (`timer_irq_works` in arch/x86/kernel/apic/io_apic.c).
        words.push("no_timer_check".to_owned());
        // Room for every line of a fault storm.
        words.push("log_buf_len=4M".to_owned());
        let platform = self.kernel.platform;
        // One that watches itself is so slow here that it takes itself for stalled.
        if self.kernel.built.is_some() {
            words.push("rcupdate.rcu_cpu_stall_suppress=1".to_owned());
        }
        words.extend(self.machine.kernel_arguments(platform.iommu));
        words.extend(self.kernel_arguments.iter().cloned());
        let emulator = fs::File::create(&files.emulator)?;
        let mut child = platform
            .emulator
            .command()
            .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
            .args(self.machine.arguments(platform.iommu))
            .args(&self.arguments)
            .arg("-kernel")
            .arg(self.kernel.image()?)
            .arg("-initrd")
            .arg(&files.disk)
            .args(["-append", &words.join(" ")])
            .args(["-serial", &format!("file:{}", files.console.display())])
            .args(["-serial", &format!("file:{}", files.records.display())])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(emulator)
            .spawn()
            .context("cannot start the emulator")?;
        self.wait(&mut child, files)
    }

    fn wait(&self, child: &mut Child, files: &RunFiles) -> Result<Ended> {
        let end = Instant::now() + self.limit;
        let mut ended = Ended::AtTheLimit;
        while Instant::now() < end {
            // A refusal of its arguments shows in what the emulator wrote, which the error carries.
            if child.try_wait()?.is_some() {
                return Ok(Ended::Itself);
            }
            if let Some(text) = &self.cut
                && String::from_utf8_lossy(&fs::read(&files.records)?).contains(text)
            {
                ended = Ended::Cut;
                break;
            }
            std::thread::sleep(POLL);
        }
        child.kill()?;
        child.wait()?;
        Ok(ended)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Itself,
    AtTheLimit,
    Cut,
}

/// Files of the last run, kept to be looked at.
struct RunFiles {
    disk: PathBuf,
    console: PathBuf,
    records: PathBuf,
    emulator: PathBuf,
}

impl RunFiles {
    fn at(place: &Path) -> Self {
        Self {
            disk: place.join("initramfs.cpio"),
            console: place.join("console.log"),
            records: place.join("records.jsonl"),
            emulator: place.join("qemu.log"),
        }
    }

    fn died_early(&self) -> bool {
        let read = |file| fs::read(file).unwrap_or_default();
        let (console, records) = (read(&self.console), read(&self.records));
        tally::died_early(&String::from_utf8_lossy(&console), &String::from_utf8_lossy(&records))
    }

    /// The last lines of the console, and of what the emulator wrote.
    fn tail(&self) -> String {
        let mut text = String::new();
        for file in [&self.console, &self.emulator] {
            let content = fs::read(file).unwrap_or_default();
            let content = String::from_utf8_lossy(&content);
            let lines: Vec<&str> = content.lines().collect();
            let from = lines.len().saturating_sub(SHOWN);
            text.push_str(&format!("{} ends with:\n", file.display()));
            for line in lines.get(from..).unwrap_or_default() {
                text.push_str("  ");
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }
}

/// What was reported before the power was cut at a text, whose line is the last.
fn read_until(cut: &str, records: &str, seconds: f64) -> Result<Report> {
    let mut whole: Vec<&str> = records.lines().take_while(|line| !line.contains(cut)).collect();
    whole.push(r#"{"record":"done"}"#);
    read_records(&whole.join("\n"), seconds)
}

fn read_records(text: &str, seconds: f64) -> Result<Report> {
    let mut report = Report {
        release: String::new(),
        command_line: String::new(),
        outcomes: Vec::new(),
        kernel_log: Vec::new(),
        seconds,
    };
    for line in text.lines() {
        let record = serde_json::from_str(line)
            .with_context(|| format!("the guest's record {line:?} cannot be read"))?;
        match record {
            Record::Ready { release, command_line } => {
                report.release = release;
                report.command_line = command_line;
            }
            Record::Step(outcome) => report.outcomes.push(outcome),
            Record::KernelLog { lines } => report.kernel_log = lines,
            Record::Failed { reason } => bail!("the guest failed: {reason}"),
            Record::Done => return Ok(report),
        }
    }
    bail!("the guest ended after {} steps without saying that it was done", report.outcomes.len())
}

impl Report {
    /// The outcome of a step.
    ///
    /// # Errors
    /// Where there was no such step.
    pub fn outcome(&self, name: &str) -> Result<&Outcome> {
        let found = self.outcomes.iter().find(|outcome| outcome.name == name);
        found.with_context(|| format!("no step {name:?} in the report"))
    }

    /// Standard output of a step that must have ended well.
    ///
    /// # Errors
    /// Where it did not, with what it said.
    pub fn stdout(&self, name: &str) -> Result<&str> {
        let outcome = self.outcome(name)?;
        if outcome.timed_out {
            bail!("step {name:?} was still running at its deadline: {}", outcome.stderr.trim());
        }
        if outcome.status != Some(0) {
            let status = outcome.status;
            bail!("step {name:?} ended with {status:?}: {}", outcome.stderr.trim());
        }
        Ok(&outcome.stdout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &str = r#"{"record":"ready","release":"6.1","command_line":"quiet"}"#;

    fn check(lines: &[&str], expected: std::result::Result<usize, &str>) {
        let found = read_records(&lines.join("\n"), 1.0);
        match (found, expected) {
            (Ok(report), Ok(steps)) => assert_eq!(report.outcomes.len(), steps),
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn a_guest_that_does_not_say_done_has_failed() {
        check(&[READY, r#"{"record":"done"}"#], Ok(0));
        check(&[READY], Err("without saying that it was done"));
        check(&[READY, r#"{"record":"failed","reason":"no disk"}"#], Err("no disk"));
        check(&["{\"record\":\"rea"], Err("cannot be read"));
    }
}
