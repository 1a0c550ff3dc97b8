//! `demo`: the story for a newcomer, by the code that answers on a real host.

use peerway_roads::{Constraints, Knowledge, Plan, Road, RoadId, State};

use super::roads::{state, with_request};
use super::status;
use crate::args::{Format, Global};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{self, Looked};
use crate::output::Output;
use crate::text::{self, wrap};

/// Runs the command.
pub fn run(global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    first_act(global, output)?;
    second_act(global, output)?;
    third_act(global, output)?;
    output.push(&heading("On a host of your own"));
    output.push(
        "  sudo peerway                    the same answer about your GPUs\n  \
         sudo peerway roads              what can be done there, and at what price\n  \
         peerway roads --host sim:kpro6  every gate of this host\n  \
         peerway explain sme-mmio        the page of a gate or a finding\n",
    );
    Ok(Exit::Fine)
}

fn heading(text: &str) -> String {
    format!("\n{}\n\n", text::bold(&format!("== {text}")))
}

fn says(text: &str) -> String {
    wrap(text, "", "")
}

fn look(global: &Global, name: &str) -> Result<Looked, CliError> {
    let mut one = global.clone();
    one.host = format!("sim:{name}");
    one.format = Format::Text;
    host::look(&one)
}

fn judged(global: &Global, looked: &Looked) -> Result<Vec<Road>, CliError> {
    let diagnosis = looked.diagnose(global);
    let (constraints, knowledge) = (Constraints::default(), Knowledge::builtin());
    with_request(&looked.snapshot, &diagnosis, &constraints, &knowledge, peerway_roads::roads)
        .map(|roads| roads.roads)
        .map_err(|error| CliError::Wishes { why: error.to_string() })
}

/// The answer, the roads, why the obvious one is closed, and what to do meanwhile.
fn first_act(global: &Global, output: &mut Output) -> Result<(), CliError> {
    output.push(&heading("First: the machine as it was found (sim:kpro6)"));
    output.push(&says(
        "Eight GPUs under a fully translating AMD IOMMU. Four serve a model in a container; four \
         belong to another tenant's confidential virtual machine, which must not be disturbed. \
         Copies between GPUs arrive corrupted, and no tool of the driver says so. One look:",
    ));
    output.line("");
    let looked = look(global, "kpro6")?;
    let diagnosis = looked.diagnose(global);
    output.push(&status::screen(&looked, &diagnosis));
    let roads = judged(global, &looked)?;
    output.push(&heading("What can be done here"));
    for road in &roads {
        output.push(&one_line(road));
    }
    output.line("");
    for (id, why) in [
        (RoadId::IdentityGroups, "What was asked for first is closed:"),
        (RoadId::PeerMap, "The road with translation on waits:"),
    ] {
        let Some(road) = roads.iter().find(|road| road.id == id) else { continue };
        output.push(&says(why));
        for gate in road.reasons() {
            let text = format!("{}: {}", gate.code, gate.read);
            output.push(&wrap(&text, "  ", "    "));
            if let Some(lifts) = &gate.lifts {
                output.push(&wrap(lifts, "    lifts: ", "           "));
            }
        }
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
        text::bold(road.id.word()),
        state(road.state),
        if road.state == State::Open { String::new() } else { first.unwrap_or_default() },
        road.title
    );
    wrap(&text, "  ", "      ")
}

/// Identity on a host that allows it: planned here, walked once transactions are part of it.
fn second_act(global: &Global, output: &mut Output) -> Result<(), CliError> {
    output.push(&heading("Second: a host without SNP whose boards fail (sim:fsp)"));
    let looked = look(global, "fsp")?;
    output.push(&says(
        "Here identity domains are open. The plan tries one GPU first, after a control arm that \
         unbinds and rebinds it without any change:",
    ));
    show_plan(global, &looked, RoadId::IdentityGroups, output);
    output.push(&says(
        "To come: the plan carried out, the failure of the board's security processor seen at \
         once on that one GPU, everything put back, and the road remembered as closed.",
    ));
    Ok(())
}

/// The peer map on the kernel that opens it: planned here, walked once it is part of it.
fn third_act(global: &Global, output: &mut Output) -> Result<(), CliError> {
    output.push(&heading("Third: the first machine after an update (sim:kpro6-pve7)"));
    let looked = look(global, "kpro6-pve7")?;
    output.push(&says(
        "With a 7.0 kernel and BAR1 peer access the peer map is open: each GPU's own translating \
         domain gets entries for its own peers' memory, and nothing else. Evidence so far: \
         emulated devices under real kernels; not measured on GPUs.",
    ));
    show_plan(global, &looked, RoadId::PeerMap, output);
    output.push(&says(
        "To come: the map set, verified by copies, the other tenant proved untouched, and taken \
         back on request.",
    ));
    Ok(())
}

fn show_plan(global: &Global, looked: &Looked, id: RoadId, output: &mut Output) {
    let diagnosis = looked.diagnose(global);
    let mut constraints = Constraints::default();
    constraints.accepted.unbind_hazard = true;
    let knowledge = Knowledge::builtin();
    let made = with_request(&looked.snapshot, &diagnosis, &constraints, &knowledge, |request| {
        peerway_roads::plan(request, id)
    });
    match made {
        Ok(plan) => output.push(&summary(&plan)),
        Err(error) => output.push(&wrap(&error.to_string(), "  ", "  ")),
    }
}

/// The plan in a few lines; `peerway plan` shows every step.
fn summary(plan: &Plan) -> String {
    let mut out = String::from("\n");
    let mut last = None;
    for step in &plan.steps {
        let phase = format!("{:?}", step.phase).to_lowercase();
        if last.as_ref() != Some(&phase) {
            let steps = plan.steps.iter().filter(|one| one.phase == step.phase).count();
            let text = format!("{phase}: {steps} steps, such as {}: {}", step.op, step.set);
            out.push_str(&wrap(&text, "  ", "    "));
        }
        last = Some(phase);
    }
    let protects: Vec<&str> = plan.protects.iter().map(|one| one.tenant.0.as_str()).collect();
    out.push_str(&wrap(&format!("untouched: {}", protects.join(" ")), "  ", "    "));
    out.push('\n');
    out
}
