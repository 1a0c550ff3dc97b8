//! Second act: identity tried on one GPU, its failure seen, everything put back, remembered.

use peerway_cli_read::output::Output;
use peerway_cli_read::text::wrap;
use peerway_roads::{RoadId, State};
use peerway_write::transaction::Ending;

use super::play::{Stage, done, summary};
use super::{DemoError, first, heading, says};

pub(super) fn act(output: &mut Output) -> Result<(), DemoError> {
    output.push(&heading("Second: a host without SNP whose boards fail (sim:fsp)"));
    let mut stage = Stage::new("fsp")?;
    let before = stage.look().0;
    output.push(&says(
        "Here identity domains are open. The plan tries one GPU first, after a control arm that \
         unbinds and rebinds it without any change. That these boards fail is assumed here, from \
         reports:",
    ));
    output.line("");
    let plan = stage.plan(RoadId::IdentityGroups)?;
    output.push(&summary(&plan));
    output.line("");
    output.push(&says("Carried out, in memory, by the code that acts on a real host:"));
    output.line("");
    let ending =
        stage.act(|grant, host, settings| peerway_write::apply(grant, host, &plan, settings))?;
    let Ending::TakenBack { why, .. } = ending else {
        return Err(stage.other_way(format!("{ending:?}")));
    };
    let (record, compared) = stage.last()?;
    output.push(&done(&plan, &record));
    output.push(&wrap(&format!("because {why}"), "  ", "    "));
    let after = stage.look().0;
    let same = before.groups == after.groups && before.devices == after.devices;
    if !same {
        return Err(stage.other_way("the host is not as it was".to_owned()));
    }
    output.push(&wrap(
        &format!(
            "the host is as it was: every group and every device read again, and {compared} \
             values of the others compared"
        ),
        "  ",
        "    ",
    ));
    output.line("");
    let roads = stage.roads()?;
    let closed =
        roads.iter().any(|road| road.id == RoadId::IdentityGroups && road.state == State::Closed);
    if !closed {
        return Err(stage.other_way("the failure was not remembered".to_owned()));
    }
    output.push(&says("Exit code 5: changed and taken back. Remembered; the road is closed now:"));
    output.push(&first::reasons(&roads, RoadId::IdentityGroups));
    Ok(())
}
