//! `faults`: the kernel log alone: parse, attribute, summarise.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use peerway_core::diagnose::finding::{Finding, Severity};
use peerway_core::diagnose::{Context, RULES};
use peerway_core::judge::Pair;
use peerway_core::observed::Observed;
use peerway_core::snapshot::Snapshot;
use peerway_faults::collect::{Collected, Collector, Filter, Since};
use peerway_faults::document::{Faults, LineEvent};
use peerway_faults::material::{Material, Source, SourceKind};
use peerway_faults::{AddressMap, Log, facts, partial};
use peerway_klog::{Event, Notice, Scanner, Sink};
use peerway_read::root::{KMSG, Root};
use peerway_read::tree::Node;

use crate::args::{FailOn, Format, Global};
use crate::error::CliError;
use crate::exit::Exit;
use crate::guard::{self, Children, Reads};
use crate::host::{self, Looked};
use crate::logs::follow::Follower;
use crate::logs::mark::{self, Point};
use crate::logs::{Input, input, scan};
use crate::output::Output;

mod page;

/// How long a followed log may be quiet before events that wait for further lines are shown.
const QUIET: Duration = Duration::from_millis(500);
/// Text that is printed at once, where lines come by the million.
const FLUSH: usize = 64 << 10;

/// Options of `faults`.
#[derive(Args, Clone, Debug, Default)]
pub struct FaultsArgs {
    /// Kernel logs in any form, also .gz, .xz and .zst; - is standard input. Without one, the log
    /// of --host is read
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Only what was logged since: a mark, a date and time, seconds since boot, or a span (15m)
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// Only one boot of the log, by its number in the answer, from 0
    #[arg(long, value_name = "N")]
    pub boot: Option<u32>,
    /// Goes on reading the live log: one line for each new fact
    #[arg(long, conflicts_with = "files")]
    pub follow: bool,
    /// Prints a mark for --since, and stores nothing
    #[arg(long, conflicts_with_all = ["files", "follow", "since", "boot"])]
    pub mark: bool,
    /// The files are this host's: addresses are looked up among its devices
    #[arg(long, requires = "files")]
    pub this_host: bool,
}

/// Runs the command.
pub fn run(global: &Global, wanted: &FaultsArgs, output: &mut Output) -> Result<Exit, CliError> {
    let inputs = input::open_all(&wanted.files)?;
    let since = wanted.since.as_deref().map(mark::parse).transpose()?;
    if inputs.is_empty() {
        return of_host(global, wanted, since.as_ref(), output);
    }
    let filter = Filter { since: of_file(since.as_ref())?, boot: wanted.boot };
    if wanted.this_host || global.host != "live" {
        let looked = host::look(global)?;
        let map = AddressMap::new(&looked.snapshot, &std::collections::BTreeSet::new());
        let pairs = looked.diagnose(global).pairs;
        let scene = Scene { looked: &looked, map: &map, pairs: &pairs };
        return scene.files(global, inputs, filter, output);
    }
    let looked = nothing_of_a_host(&inputs)?;
    let map = AddressMap::default();
    let scene = Scene { looked: &looked, map: &map, pairs: &[] };
    scene.files(global, inputs, filter, output)
}

/// Raises the walls where no host is looked at: the files are open already.
pub(super) fn nothing_of_a_host(inputs: &[Input]) -> Result<Looked, CliError> {
    let missing = guard::raise(Reads::Nothing, &[], None, &Children::default())?;
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    let mut snapshot = Snapshot::default();
    snapshot.origin.host = names.join(", ");
    Ok(Looked {
        snapshot,
        when: jiff::Timestamp::now(),
        missing_walls: missing,
        remembered: Observed::Absent,
        recording: peerway_read::root::Recording::default(),
    })
}

/// What `--since` can mean for a file.
fn of_file(since: Option<&Point>) -> Result<Option<Since>, CliError> {
    match since {
        None => Ok(None),
        Some(Point::Clock(since)) => Ok(Some(*since)),
        Some(Point::Mark { .. } | Point::Ago(_)) => Err(CliError::NoSuchWord {
            what: "point of that kind",
            word: "in a file".to_owned(),
            hint: "a mark and a span belong to the log of a host; for a file give a date and \
                   time, or seconds since boot"
                .to_owned(),
        }),
    }
}

/// The log of a host.
fn of_host(
    global: &Global,
    wanted: &FaultsArgs,
    since: Option<&Point>,
    output: &mut Output,
) -> Result<Exit, CliError> {
    let live = global.host == "live";
    if wanted.follow && !live {
        return Err(CliError::NoSuchWord {
            what: "log that grows",
            word: global.host.clone(),
            hint: "only the log of this machine can be followed".to_owned(),
        });
    }
    let looked = host::look_recording(global, None)?;
    let log = match looked.recording.nodes().get(KMSG) {
        Some(Node::File(bytes)) => Observed::Known(bytes.as_slice()),
        _ => looked.snapshot.faults.as_ref().and_then(|_| Observed::Absent),
    };
    if wanted.mark {
        return Ok(mark_of(&looked, &log, output));
    }
    let map = AddressMap::new(&looked.snapshot, &std::collections::BTreeSet::new());
    let pairs = looked.diagnose(global).pairs;
    let scene = Scene { looked: &looked, map: &map, pairs: &pairs };
    let (from, since) = point(&looked, since, live)?;
    if wanted.follow {
        return scene.follow(global, from, output);
    }
    let bytes = match &log {
        Observed::Known(bytes) => *bytes,
        Observed::Absent => return Ok(undecided("there is none")),
        Observed::Unreadable(why) => return Ok(undecided(why)),
    };
    let bytes = from.map_or(bytes, |sequence| mark::after(bytes, sequence));
    let filter = Filter { since, boot: wanted.boot };
    scene.bytes(global, bytes, filter, output)
}

/// What `--since` means on a host: a record, or a point on its clock.
fn point(
    looked: &Looked,
    since: Option<&Point>,
    live: bool,
) -> Result<(Option<u64>, Option<Since>), CliError> {
    let refuse = |word: &str, hint: &str| CliError::NoSuchWord {
        what: "point in this log",
        word: word.to_owned(),
        hint: hint.to_owned(),
    };
    match since {
        None => Ok((None, None)),
        Some(Point::Mark { boot_id, sequence }) => {
            let same = looked.snapshot.origin.boot_id.known() == Some(boot_id);
            // Another boot: all of its log came after the mark.
            Ok((same.then_some(*sequence), None))
        }
        Some(Point::Clock(Since::Monotonic(us))) => Ok((None, Some(Since::Monotonic(*us)))),
        Some(Point::Ago(_)) if !live => {
            Err(refuse("a span", "a recorded log has no now; give seconds since boot, or a mark"))
        }
        Some(Point::Ago(us)) => Ok((None, Some(Since::Monotonic(uptime_us().saturating_sub(*us))))),
        Some(Point::Clock(Since::Wall(wall))) => {
            let text = wall.to_string();
            let then: Option<jiff::Timestamp> = text.parse().ok();
            let Some(then) = then.filter(|_| live) else {
                return Err(refuse(
                    &text,
                    "this log has the boot's clock: give the zone (2026-11-30T08:48Z) on the live \
                     host, or seconds since boot",
                ));
            };
            let age = looked.when.as_microsecond().saturating_sub(then.as_microsecond());
            let age = u64::try_from(age).unwrap_or(0);
            Ok((None, Some(Since::Monotonic(uptime_us().saturating_sub(age)))))
        }
    }
}

/// The clock that the kernel stamps its messages with.
fn uptime_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000) + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000
}

fn mark_of(looked: &Looked, log: &Observed<&[u8]>, output: &mut Output) -> Exit {
    let boot = looked.snapshot.origin.boot_id.known();
    let (Some(boot), Observed::Known(bytes)) = (boot, log) else {
        return undecided("its boot and its newest record make the mark");
    };
    output.line(&mark::mark(boot, mark::last_sequence(bytes).unwrap_or(0)));
    Exit::Fine
}

/// No log is no quiet log: said where it disturbs no document.
fn undecided(why: &str) -> Exit {
    crate::output::complain(&page::no_log(why));
    Exit::Undecided
}

/// What a log is held against.
struct Scene<'a> {
    looked: &'a Looked,
    map: &'a AddressMap,
    pairs: &'a [Pair],
}

impl Scene<'_> {
    /// A log in memory.
    fn bytes(
        &self,
        global: &Global,
        bytes: &[u8],
        filter: Filter,
        output: &mut Output,
    ) -> Result<Exit, CliError> {
        let mut scanner = Scanner::new();
        if global.format == Format::Jsonl {
            let mut lines = JsonLines { map: self.map, output, error: None };
            scanner.feed(bytes, &mut lines);
            scanner.finish(&mut lines);
            return lines.end();
        }
        let mut collector = Collector::new(self.map.regions(), filter);
        scanner.feed(bytes, &mut collector);
        scanner.finish(&mut collector);
        let collected = collector.finish(scanner.lines());
        self.answer(global, KMSG, collected, &[], output)
    }

    /// Files, one after the other.
    fn files(
        &self,
        global: &Global,
        inputs: Vec<Input>,
        filter: Filter,
        output: &mut Output,
    ) -> Result<Exit, CliError> {
        let mut incomplete = Vec::new();
        if global.format == Format::Jsonl {
            let mut lines = JsonLines { map: self.map, output, error: None };
            for input in inputs {
                let read = scan::read_each(input, 0, &mut lines);
                incomplete.extend(read.incomplete.map(|why| (read.name, why)));
            }
            let exit = lines.end()?;
            complain(&incomplete);
            return Ok(if incomplete.is_empty() { exit } else { Exit::Undecided });
        }
        let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
        let wanted = scan::Wanted { regions: self.map.regions(), filter, head: 0 };
        let (mut lines, mut boots) = (0, 0);
        let mut all: Option<Collector> = None;
        for input in inputs {
            let (read, collector) = scan::read(input, &wanted, boots);
            match &mut all {
                Some(all) => all.append(&collector, lines, boots),
                None => all = Some(collector),
            }
            lines += read.lines;
            boots += read.boots;
            incomplete.extend(read.incomplete.map(|why| (read.name, why)));
        }
        let Some(all) = all else { return Ok(Exit::Fine) };
        self.answer(global, &names.join(", "), all.finish(lines), &incomplete, output)
    }

    fn answer(
        &self,
        global: &Global,
        source: &str,
        collected: Collected,
        incomplete: &[(String, String)],
        output: &mut Output,
    ) -> Result<Exit, CliError> {
        let (snapshot, collected) = self.snapshot(source, collected);
        let findings = findings(&snapshot, self.pairs);
        let exit = exit_of(global, &findings).and(if incomplete.is_empty() {
            Exit::Fine
        } else {
            Exit::Undecided
        });
        let Some(facts) = snapshot.faults.known() else { return Ok(exit) };
        let document = Faults::new(&collected.report, facts, &snapshot, findings);
        if global.format == Format::Text {
            output.push(&page::page(&document, &collected.hints));
        } else {
            output.document("faults", self.looked, document)?;
        }
        complain(incomplete);
        Ok(exit)
    }

    /// The host's snapshot with this log's facts in it; without a host, one of what the log says.
    fn snapshot(&self, source: &str, collected: Collected) -> (Snapshot, Collected) {
        if self.looked.snapshot.devices.is_empty() {
            let kind = SourceKind::KernelLog;
            let material = Material {
                sources: vec![Source { name: source.to_owned(), kind }],
                log: Some(collected),
                ..Material::default()
            };
            let snapshot = partial::snapshot(source, &material);
            return (
                snapshot,
                material
                    .log
                    .unwrap_or_else(|| Collector::new(Vec::new(), Filter::default()).finish(0)),
            );
        }
        let mut snapshot = self.looked.snapshot.clone();
        let log =
            Log { source, lines: collected.lines, report: &collected.report, by_regions: true };
        snapshot.faults = Observed::Known(facts(log, &snapshot, self.map));
        (snapshot, collected)
    }

    /// The live log as it grows, until the process is ended.
    fn follow(
        &self,
        global: &Global,
        from: Option<u64>,
        output: &mut Output,
    ) -> Result<Exit, CliError> {
        let open = |source| CliError::OpenHost { host: KMSG.to_owned(), source };
        let root = Root::open(std::path::Path::new("/")).map_err(open)?;
        let mut log = root.follow_kernel_log(from.is_none()).map_err(open)?;
        let mut scanner = Scanner::new();
        let mut follower = Follower::new(self.map, global.format != Format::Text);
        let mut records = Vec::new();
        let mut from = from;
        loop {
            records.clear();
            let some = log.read(&mut records, QUIET).map_err(open)?;
            let new = from.map_or(records.as_slice(), |sequence| mark::after(&records, sequence));
            if !new.is_empty() {
                from = None;
                scanner.feed(new, &mut follower);
            }
            if !some {
                scanner.flush(&mut follower);
            }
            for line in follower.lines() {
                output.line(&line);
            }
            match output.emit() {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                    return Ok(Exit::Fine);
                }
                Err(source) => return Err(CliError::Output { source }),
            }
        }
    }
}

/// Files that could not be read to their end.
pub(super) fn complain(incomplete: &[(String, String)]) {
    for (name, why) in incomplete {
        let text = format!("peerway: {name:?} was read in part: {why}\n");
        crate::output::complain(&text);
    }
}

/// What the rules about the kernel log find.
pub(super) fn findings(snapshot: &Snapshot, pairs: &[Pair]) -> Vec<Finding> {
    let context = Context { snapshot, pairs };
    let mut found: Vec<Finding> = RULES
        .iter()
        .filter(|rule| rule.code.text().starts_with("PW06"))
        .flat_map(|rule| (rule.check)(&context))
        .collect();
    found.sort_by(|a, b| (a.severity, a.code, &a.subjects).cmp(&(b.severity, b.code, &b.subjects)));
    found
}

/// The exit code of findings.
pub(super) fn exit_of(global: &Global, findings: &[Finding]) -> Exit {
    let limit = match global.fail_on {
        FailOn::Error => Severity::Error,
        FailOn::Warning => Severity::Warning,
        FailOn::Info => Severity::Info,
        FailOn::Never => return Exit::Fine,
    };
    if findings.iter().any(|finding| finding.severity <= limit) {
        Exit::Findings
    } else {
        Exit::Fine
    }
}

/// One event a line, as it is found.
struct JsonLines<'a> {
    map: &'a AddressMap,
    output: &'a mut Output,
    error: Option<std::io::Error>,
}

impl JsonLines<'_> {
    fn end(self) -> Result<Exit, CliError> {
        match self.error {
            None => Ok(Exit::Fine),
            // The reader of a pipe has seen enough.
            Some(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Exit::Fine),
            Some(source) => Err(CliError::Output { source }),
        }
    }
}

impl Sink for JsonLines<'_> {
    fn event(&mut self, event: &Event<'_>) {
        if self.error.is_some() {
            return;
        }
        match serde_json::to_string(&LineEvent::new(event, self.map)) {
            Ok(line) => self.output.line(&line),
            Err(error) => self.error = Some(error.into()),
        }
        if self.output.text().len() >= FLUSH {
            self.error = self.output.emit().err();
        }
    }

    fn notice(&mut self, _: &Notice<'_>) {}
}
