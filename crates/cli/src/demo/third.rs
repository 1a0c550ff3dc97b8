//! Third act: the peer map planned, applied, verified, confirmed, and taken back on request.

use peerway_cli_read::commands::status::matrices;
use peerway_cli_read::output::Output;
use peerway_cli_read::text::wrap;
use peerway_core::judge::Verdict;
use peerway_read::root::SMALL;
use peerway_roads::RoadId;
use peerway_roads::op::ENVIRONMENT_FILE;
use peerway_write::recovery::undo_all;
use peerway_write::transaction::{Ending, in_force};

use super::play::{Stage, done, summary};
use super::{DemoError, heading, says};

pub(super) fn act(output: &mut Output) -> Result<(), DemoError> {
    output.push(&heading("Third: the first machine after an update (sim:kpro6-pve7)"));
    let mut stage = Stage::new("kpro6-pve7")?;
    output.push(&says(
        "With a 7.0 kernel and BAR1 peer access the peer map is open: each GPU's own translating \
         domain gets entries for its own peers' memory, and nothing else. Evidence so far: \
         emulated devices under real kernels; not measured on GPUs.",
    ));
    output.line("");
    let plan = stage.plan(RoadId::PeerMap)?;
    output.push(&summary(&plan));
    output.line("");
    output.push(&says("peerway apply:"));
    let ending =
        stage.act(|grant, host, settings| peerway_write::apply(grant, host, &plan, settings))?;
    let Ending::Waiting { .. } = ending else {
        return Err(stage.other_way(format!("{ending:?}")));
    };
    let (record, compared) = stage.last()?;
    output.push(&done(&plan, &record));
    output.push(&wrap(
        &format!(
            "verified: a checked copy over each of {} pairs, a quiet kernel log, and {compared} \
             values of the others as before",
            pairs(&plan)
        ),
        "  ",
        "    ",
    ));
    confirmed(&mut stage, output)?;
    taken_back(&mut stage, output)
}

/// Ordered pairs of the plan's devices.
fn pairs(plan: &peerway_roads::Plan) -> usize {
    let devices = plan.goal.devices.len();
    devices.saturating_mul(devices.saturating_sub(1))
}

fn confirmed(stage: &mut Stage, output: &mut Output) -> Result<(), DemoError> {
    output.push(&says(
        "peerway confirm, within ten minutes, or a timer takes it back; then peerway verify and \
         peerway status:",
    ));
    let ending =
        stage.act(|grant, host, settings| peerway_write::confirm(grant, host, settings))?;
    let Ending::Succeeded { id } = ending else {
        return Err(stage.other_way(format!("{ending:?}")));
    };
    let verified = stage.act(|grant, host, _| in_force(&grant, host))?;
    match verified {
        Some((_, problems)) if problems.is_empty() => {}
        other => return Err(stage.other_way(format!("{other:?}"))),
    }
    output.push(&wrap(&format!("{id}: in force, and nobody else was touched"), "  ", "    "));
    output.line("");
    let (snapshot, diagnosis) = stage.look();
    output.push(&matrices(&snapshot, &diagnosis));
    if diagnosis.pairs.iter().any(|pair| pair.verdict == Verdict::Broken) {
        return Err(stage.other_way("a pair is broken under the map".to_owned()));
    }
    Ok(())
}

fn taken_back(stage: &mut Stage, output: &mut Output) -> Result<(), DemoError> {
    output.push(&says("peerway undo --all, which stops the container first, as the plan has it:"));
    let endings = stage.act(|grant, host, settings| undo_all(grant, host, settings))?;
    let [Ending::TakenBack { id, .. }] = endings.as_slice() else {
        return Err(stage.other_way(format!("{endings:?}")));
    };
    let (_, diagnosis) = stage.look();
    let broken = diagnosis.pairs.iter().filter(|pair| pair.verdict == Verdict::Broken).count();
    let environment = stage.host.root().text(ENVIRONMENT_FILE, SMALL).ok();
    let left = stage.host.state().entries.len();
    if left > 0 || broken == 0 || environment != stage.environment {
        let what = format!(
            "{left} entries are left, {broken} pairs broken, the environment is {environment:?}"
        );
        return Err(stage.other_way(what));
    }
    let text = format!(
        "{id}: taken back: the map is empty, {broken} pairs are broken as before, and nothing of ours \
         is left"
    );
    output.push(&wrap(&text, "  ", "    "));
    Ok(())
}
