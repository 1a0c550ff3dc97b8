//! `plan ROAD`: the exact steps, their inverses, and what they rest on.

use std::path::Path;

use peerway_roads::{Plan, PlanError, Refusal, RoadId, document};

use super::roads::{constraints, guide_lines, look, state, with_request};
use crate::args::{Format, Global, RoadArgs};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::result_file::ResultFile;
use crate::text::{self, wrap};

/// Runs the command.
pub fn run(
    global: &Global,
    road: &str,
    wishes: &RoadArgs,
    file: Option<&Path>,
    output: &mut Output,
) -> Result<Exit, CliError> {
    let id = road.parse::<RoadId>().map_err(|error| CliError::Wishes { why: error.to_string() })?;
    // Opened before the host is: afterwards nothing may be opened for writing.
    let result = file.map(ResultFile::create).transpose()?;
    let (looked, knowledge) = look(global, wishes, result.as_ref().map(ResultFile::descriptor))?;
    let diagnosis = looked.diagnose(global);
    let constraints = constraints(&looked.snapshot, wishes)?;
    let made = with_request(&looked.snapshot, &diagnosis, &constraints, &knowledge, |request| {
        peerway_roads::plan(request, id)
    });
    match made {
        Ok(plan) => {
            if let Some(result) = &result {
                let text = serde_json::to_string_pretty(&plan)
                    .map_err(|source| CliError::Render { source })?;
                result.write(format!("{text}\n").as_bytes())?;
            }
            if global.format == Format::Text {
                output.push(&page(&plan));
                if let Some(result) = &result {
                    output.line(&format!("written to {}", result.path()));
                }
            } else {
                output.document("plan", &looked, document::Plan::from(plan))?;
            }
            Ok(Exit::Fine)
        }
        Err(PlanError::Refused(refusal)) => {
            if global.format == Format::Text {
                output.push(&refused(&refusal));
            } else {
                output.document("plan", &looked, document::Plan::from(*refusal))?;
            }
            Ok(Exit::Refused)
        }
        Err(PlanError::Constraint(error)) => Err(CliError::Wishes { why: error.to_string() }),
        Err(error @ (PlanError::Touches { .. } | PlanError::Digest(_))) => {
            Err(CliError::Plan { why: error.to_string() })
        }
    }
}

fn refused(refusal: &Refusal) -> String {
    let mut out = wrap(
        &format!(
            "{} is {}: {}",
            text::bold(refusal.road.word()),
            state(refusal.state),
            refusal.reason
        ),
        "",
        "  ",
    );
    for gate in &refusal.gates {
        out.push_str(&wrap(
            &format!("{} = {}: {}", gate.code, gate.passed, gate.read),
            "  ",
            "    ",
        ));
        if let Some(lifts) = &gate.lifts {
            out.push_str(&wrap(lifts, "    lifts: ", "           "));
        }
    }
    for guide in &refusal.guide {
        out.push_str(&wrap(&guide.title, "  ", "    "));
        out.push_str(&guide_lines(&guide.lines, "    "));
    }
    out
}

fn page(plan: &Plan) -> String {
    let mut out =
        wrap(&format!("{} for {}", text::bold(plan.road.word()), plan.goal), "plan ", "     ");
    out.push_str(&wrap(&plan.digest, "digest ", "       "));
    for protected in &plan.protects {
        let devices: Vec<String> = protected.devices.iter().map(ToString::to_string).collect();
        let text = format!("{}: {}", protected.tenant, devices.join(" "));
        out.push_str(&wrap(&text, "protects ", "         "));
    }
    for need in &plan.needs {
        out.push_str(&wrap(
            &format!("{} (checked by {})", need.text, need.checked_by),
            "first ",
            "      ",
        ));
    }
    for assumption in &plan.assumptions {
        let text = format!(
            "{} = {} (checked by {})",
            assumption.text, assumption.result, assumption.checked_by
        );
        out.push_str(&wrap(&text, "assumes ", "        "));
    }
    for step in &plan.steps {
        let phase = format!("{:?}", step.phase).to_lowercase();
        let path = step.path.as_deref().map(|path| format!(" {path}")).unwrap_or_default();
        let expect =
            step.expect.as_deref().map(|expect| format!(", expects {expect}")).unwrap_or_default();
        let back = match &step.irreversible {
            Some(why) => format!("; nothing takes it back: {why}"),
            None => String::new(),
        };
        let text = format!("{phase} {}{path}: {}{expect}{back}", step.op, step.set);
        out.push_str(&wrap(&text, &format!("{:>3}  ", step.number), "     "));
    }
    for note in &plan.notes {
        out.push_str(&wrap(note, "note ", "     "));
    }
    out
}
