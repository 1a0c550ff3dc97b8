//! `roads`: every road on this host, ranked, each open or closed with its gates.

mod foreseen;
mod worth;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use peerway_core::diagnose::Diagnosis;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::tenant::TenantId;
use peerway_roads::constraint::{Accepted, Lifted, Stop};
use peerway_roads::{
    Constraints, Gain, Knowledge, Request, Road, RoadId, Roads, Service, State, document,
};

use crate::args::{Format, Global, Hazard, Keep, RoadArgs, RoadsArgs};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{self, read_option_file};
use crate::output::Output;
use crate::spelling;
use crate::text::{self, wrap};

/// Knowledge files are short.
const MOST_KNOWLEDGE: usize = 1 << 20;

/// Runs the command.
pub fn run(global: &Global, wanted: &RoadsArgs, output: &mut Output) -> Result<Exit, CliError> {
    let files: Vec<_> = wanted.workload.files().into_iter().map(Path::to_path_buf).collect();
    let (mut looked, knowledge) = look_and(global, &wanted.wishes, &files, None)?;
    if wanted.warn {
        return foreseen::warn(global, wanted, &looked, &knowledge);
    }
    looked.snapshot = foreseen::of(&looked.snapshot, wanted);
    let diagnosis = looked.diagnose(global);
    let constraints = constraints(&looked.snapshot, &wanted.wishes)?;
    let judge = |gains: &BTreeMap<RoadId, Gain>| {
        with_gains(&looked.snapshot, &diagnosis, &constraints, &knowledge, gains, |request| {
            peerway_roads::roads(request)
        })
        .map_err(|error| CliError::Wishes { why: error.to_string() })
    };
    let mut roads = judge(&BTreeMap::new())?;
    // What GPUs there are says what the workload would run on.
    let seen = worth::gpus(&looked.snapshot, roads.goal.as_ref());
    let workload = match wanted.workload.request(seen)? {
        None => None,
        Some(request) => {
            let estimate = peerway_worth::estimate(&request)
                .map_err(|error| CliError::Wishes { why: error.to_string() })?;
            roads = judge(&worth::gains(&estimate))?;
            Some(worth::workload(&estimate, &roads, constraints.asked))
        }
    };
    if global.format == Format::Text {
        output.push(&page(&roads));
        if let Some(workload) = &workload {
            output.push(&worth::page(workload));
        }
    } else {
        let document = document::Roads { workload, ..document::Roads::from(roads) };
        output.document("roads", &looked, document)?;
    }
    Ok(Exit::Fine)
}

/// Looks at the host; files with further knowledge are read behind the walls.
pub(super) fn look(
    global: &Global,
    wishes: &RoadArgs,
    result: Option<rustix::fd::BorrowedFd<'_>>,
) -> Result<(host::Looked, Knowledge), CliError> {
    look_and(global, wishes, &[], result)
}

/// As [`look`], with further files that will be read.
fn look_and(
    global: &Global,
    wishes: &RoadArgs,
    files: &[PathBuf],
    result: Option<rustix::fd::BorrowedFd<'_>>,
) -> Result<(host::Looked, Knowledge), CliError> {
    let looked = host::look_with(global, &[wishes.knowledge.as_slice(), files].concat(), result)?;
    let mut knowledge = Knowledge::builtin();
    knowledge.remember(&looked.remembered);
    for file in &wishes.knowledge {
        let error = |why| CliError::OptionFile {
            what: "the knowledge file",
            path: file.display().to_string(),
            why,
        };
        let bytes = read_option_file(file, MOST_KNOWLEDGE).map_err(error)?;
        let text = String::from_utf8(bytes).map_err(|_| error("it is not text".to_owned()))?;
        knowledge.merge_file(&text).map_err(|why| error(why.to_string()))?;
    }
    Ok((looked, knowledge))
}

/// Hands a request over everything that was read.
pub fn with_request<T>(
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
    constraints: &Constraints,
    knowledge: &Knowledge,
    ask: impl FnOnce(&Request<'_>) -> T,
) -> T {
    with_gains(snapshot, diagnosis, constraints, knowledge, &BTreeMap::new(), ask)
}

/// As [`with_request`], with gains of a workload.
fn with_gains<T>(
    snapshot: &Snapshot,
    diagnosis: &Diagnosis,
    constraints: &Constraints,
    knowledge: &Knowledge,
    gains: &BTreeMap<RoadId, Gain>,
    ask: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let faults: Vec<peerway_roads::SeenFault> = snapshot
        .faults
        .known()
        .iter()
        .flat_map(|facts| &facts.requesters)
        .flat_map(|one| {
            one.hits.iter().filter_map(|hit| {
                Some(peerway_roads::SeenFault {
                    requester: one.address?,
                    target: hit.device,
                    bar: hit.bar,
                    count: hit.count,
                })
            })
        })
        .collect();
    ask(&Request {
        snapshot,
        pairs: &diagnosis.pairs,
        constraints,
        knowledge,
        gains,
        in_force: &BTreeMap::new(),
        faults: &faults,
    })
}

/// Wishes and limits from the arguments.
pub(super) fn constraints(snapshot: &Snapshot, wishes: &RoadArgs) -> Result<Constraints, CliError> {
    let road = |word: &String| {
        word.parse::<RoadId>().map_err(|error| CliError::Wishes { why: error.to_string() })
    };
    let devices = wishes
        .device
        .iter()
        .map(|word| spelling::device(snapshot, word).map(|device| device.address))
        .collect::<Result<_, _>>()?;
    Ok(Constraints {
        tenant: wishes.goal.clone().map(TenantId),
        devices,
        asked: wishes.prefer.as_ref().map(road).transpose()?,
        protect: wishes.protect.iter().cloned().map(TenantId).collect(),
        no_reboot: wishes.no_reboot,
        keep_snp: wishes.keep.contains(&Keep::Snp),
        exclude: wishes.exclude.iter().map(road).collect::<Result<_, _>>()?,
        lifted: Lifted { reboot: wishes.allow_reboot, snp: wishes.give_up.contains(&Keep::Snp) },
        accepted: Accepted {
            unbind_hazard: wishes.accept.contains(&Hazard::UnbindHazard),
            module_signed: wishes.module_signed,
        },
        stop: stop(&wishes.stop)?,
    })
}

fn stop(words: &[String]) -> Result<Stop, CliError> {
    match words {
        [] => Ok(Stop::Tenant),
        [only] if only == "operator" => Ok(Stop::Operator),
        several => several
            .iter()
            .map(|word| word.parse::<Service>())
            .collect::<Result<_, _>>()
            .map(Stop::Named)
            .map_err(|error| CliError::Wishes { why: error.to_string() }),
    }
}

fn page(roads: &Roads) -> String {
    let mut out = String::new();
    for held in &roads.constraints {
        let text = format!("{}: {} ({})", held.name, held.value, held.reason);
        out.push_str(&wrap(&text, "holds: ", "       "));
    }
    match &roads.goal {
        Some(goal) => out.push_str(&wrap(&goal.to_string(), "goal:  ", "       ")),
        None => out.push_str("goal:  none: no two devices of one tenant\n"),
    }
    for road in &roads.roads {
        out.push('\n');
        out.push_str(&road_block(road));
    }
    out
}

/// A state as a word, coloured.
pub fn state(state: State) -> String {
    use peerway_core::judge::Verdict;
    match state {
        State::Open => text::painted(Verdict::Works, "open"),
        State::Closed => text::painted(Verdict::Broken, "closed"),
        State::Unknown => text::painted(Verdict::Unknown, "unknown"),
    }
}

fn road_block(road: &Road) -> String {
    let head = format!("{:>2}  ", road.rank);
    let actor = match road.actor {
        peerway_roads::road::Actor::Peerway => "",
        peerway_roads::road::Actor::Operator => ", by the operator",
    };
    let in_force = match road.in_force {
        peerway_roads::gate::Passed::Yes => ", in force",
        peerway_roads::gate::Passed::No => "",
        peerway_roads::gate::Passed::Unknown => ", in force: unknown",
    };
    let id = text::bold(road.id.word());
    let mut out = wrap(
        &format!("{id} {}{actor}{in_force}: {}", state(road.state), road.title),
        &head,
        "    ",
    );
    for gate in road.reasons() {
        out.push_str(&wrap(&format!("{}: {}", gate.code, gate.read), "    ", "      "));
        if let Some(lifts) = &gate.lifts {
            out.push_str(&wrap(lifts, "      lifts: ", "             "));
        }
    }
    let shown = road
        .gates
        .iter()
        .filter(|gate| !gate.closes && gate.passed != peerway_roads::gate::Passed::Yes);
    for gate in shown {
        let text =
            format!("{} = {} (shown, does not close): {}", gate.code, gate.passed, gate.read);
        out.push_str(&wrap(&text, "    ", "      "));
    }
    let mut facts = vec![format!("gain: {}", road.gain.text)];
    facts.push(format!("evidence: {}", text::word(road.evidence_level)));
    if road.reboot {
        facts.push("needs a reboot".to_owned());
    }
    if !road.disturbs.is_empty() {
        let who: Vec<&str> = road.disturbs.iter().map(|tenant| tenant.0.as_str()).collect();
        facts.push(format!("disturbs {}", who.join(" ")));
    }
    out.push_str(&wrap(&facts.join("; "), "    ", "      "));
    if road.state == State::Open {
        for note in &road.notes {
            out.push_str(&wrap(note, "    note: ", "          "));
        }
        for guide in &road.guide {
            out.push_str(&wrap(&guide.title, "    ", "      "));
            out.push_str(&guide_lines(&guide.lines, "      "));
        }
    }
    out
}

/// Remarks are wrapped; lines to be copied stand as they are.
pub(super) fn guide_lines(lines: &[String], indent: &str) -> String {
    lines
        .iter()
        .map(|line| match line.strip_prefix("# ") {
            Some(remark) => wrap(remark, &format!("{indent}# "), &format!("{indent}# ")),
            None => format!("{indent}{line}\n"),
        })
        .collect()
}
