//! First act: the answer, the roads, why the obvious one is closed, and what to do meanwhile.

use peerway_cli_read::args::Format;
use peerway_cli_read::commands::{roads, status};
use peerway_cli_read::output::Output;
use peerway_cli_read::text::{bold, wrap};
use peerway_cli_read::{Global, host};
use peerway_roads::{Constraints, Knowledge, Road, RoadId, State};

use super::{DemoError, heading, says};

pub(super) fn act(global: &Global, output: &mut Output) -> Result<(), DemoError> {
    output.push(&heading("First: the machine as it was found (sim:kpro6)"));
    output.push(&says(
        "Eight GPUs under a fully translating AMD IOMMU. Four serve a model in a container; four \
         belong to another tenant's confidential virtual machine, which must not be disturbed. \
         Copies between GPUs arrive corrupted, and no tool of the driver says so. One look:",
    ));
    output.line("");
    let mut one = global.clone();
    "sim:kpro6".clone_into(&mut one.host);
    one.format = Format::Text;
    let looked = host::look(&one)?;
    let diagnosis = looked.diagnose(&one);
    output.push(&status::screen(&looked, &diagnosis));
    let (constraints, knowledge) = (Constraints::default(), Knowledge::builtin());
    let judged = roads::with_request(
        &looked.snapshot,
        &diagnosis,
        &constraints,
        &knowledge,
        peerway_roads::roads,
    )
    .map_err(|error| DemoError::OtherWay { host: "sim:kpro6", what: error.to_string() })?
    .roads;
    output.push(&heading("What can be done here"));
    for road in &judged {
        output.push(&one_line(road));
    }
    output.line("");
    for (id, why) in [
        (RoadId::IdentityGroups, "What was asked for first is closed:"),
        (RoadId::PeerMap, "The road with translation on waits:"),
    ] {
        output.push(&says(why));
        output.push(&reasons(&judged, id));
    }
    output.push(&says(
        "Meanwhile: peer access stays off, completely (peerway roads shows every switch), and the \
         next best thing is speculative decoding.",
    ));
    Ok(())
}

fn one_line(road: &Road) -> String {
    let first = road.reasons().first().map(|gate| format!(" by {}", gate.code));
    let text = format!(
        "{} {}{}: {}",
        bold(road.id.word()),
        roads::state(road.state),
        if road.state == State::Open { String::new() } else { first.unwrap_or_default() },
        road.title
    );
    wrap(&text, "  ", "      ")
}

/// Why a road is not open.
pub(super) fn reasons(judged: &[Road], id: RoadId) -> String {
    let mut out = String::new();
    for gate in judged.iter().filter(|road| road.id == id).flat_map(Road::reasons) {
        out.push_str(&wrap(&format!("{}: {}", gate.code, gate.read), "  ", "    "));
        if let Some(lifts) = &gate.lifts {
            out.push_str(&wrap(lifts, "    lifts: ", "           "));
        }
    }
    out
}
