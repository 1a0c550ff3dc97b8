//! `plan ROAD`: the exact steps, their inverses, and what they rest on.

use std::path::Path;

use peerway_roads::{Lasting, Plan, PlanError, Refusal, RoadId, document};

use super::roads::{constraints, guide_lines, look, state, with_request};
use crate::args::{Format, Global, RoadArgs};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::read_option_file;
use crate::output::Output;
use crate::result_file::ResultFile;
use crate::text::{self, wrap};

/// Declarations of accelerators are short.
const MOST_DECLARATIONS: usize = 1 << 20;
/// Where the program of a simulated or recorded host is taken to be.
const USUAL: &str = "/usr/bin/peerway";

/// What is to come of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// File that it is written to.
    pub file: Option<&'a Path>,
    /// Whether it is to last, and by what it is proved at every boot.
    pub lasting: Option<Option<&'a Path>>,
}

/// Runs the command.
pub fn run(
    global: &Global,
    road: &str,
    wishes: &RoadArgs,
    wanted: Wanted<'_>,
    output: &mut Output,
) -> Result<Exit, CliError> {
    let id = road.parse::<RoadId>().map_err(|error| CliError::Wishes { why: error.to_string() })?;
    // Opened before the host is: afterwards nothing may be opened for writing.
    let result = wanted.file.map(ResultFile::create).transpose()?;
    let lasting = wanted.lasting.map(|probe| lasting(global, probe)).transpose()?;
    let (looked, knowledge) = look(global, wishes, result.as_ref().map(ResultFile::descriptor))?;
    let diagnosis = looked.diagnose(global);
    let constraints = constraints(&looked.snapshot, wishes)?;
    let made = with_request(&looked.snapshot, &diagnosis, &constraints, &knowledge, |request| {
        peerway_roads::plan(request, id)
    });
    let made = match &lasting {
        Some(lasting) => made.and_then(|plan| {
            peerway_roads::lasting::extend(plan, lasting).map_err(PlanError::Digest)
        }),
        None => made,
    };
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

/// What the files of a plan that lasts name; read before the walls go up.
fn lasting(global: &Global, probe: Option<&Path>) -> Result<Lasting, CliError> {
    let error = |why: String| CliError::Wishes { why };
    let absolute = |path: &Path| -> Result<String, CliError> {
        let path = std::path::absolute(path).map_err(|why| error(why.to_string()))?;
        let text = path.to_str().filter(|text| text.bytes().all(PLAIN));
        text.map(str::to_owned).ok_or_else(|| {
            error(format!("{} has characters that a unit cannot name plainly", path.display()))
        })
    };
    let program = match global.host.as_str() {
        "live" => {
            let program = std::env::current_exe().map_err(|why| error(why.to_string()))?;
            absolute(&program)?
        }
        _ => USUAL.to_owned(),
    };
    let declared = |file: &std::path::PathBuf| {
        let bytes = read_option_file(file, MOST_DECLARATIONS);
        bytes
            .and_then(|bytes| String::from_utf8(bytes).map_err(|why| why.to_string()))
            .map_err(|why| error(format!("{}: {why}", file.display())))
    };
    Ok(Lasting {
        program,
        probe: probe.map(absolute).transpose()?,
        accelerators: global.accelerator.iter().map(declared).collect::<Result<_, _>>()?,
    })
}

/// Characters that mean only themselves in a unit, a rule and a shell.
const PLAIN: fn(u8) -> bool =
    |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-' | b'+');

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
