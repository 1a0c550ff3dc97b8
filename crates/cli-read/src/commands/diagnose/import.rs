//! `diagnose --import`: what files say, instead of a host.

use std::path::PathBuf;

use peerway_core::diagnose::assessment::Assessment;
use peerway_faults::collect::{Collector, Filter};
use peerway_faults::document::Import;
use peerway_faults::material::{MOST_TEXT, Material, SourceKind};

use crate::args::{Format, Global};
use crate::commands::faults::{exit_of, nothing_of_a_host};
use crate::error::CliError;
use crate::exit::Exit;
use crate::logs::{input, scan};
use crate::output::Output;
use crate::text::{self, wrap};

/// Runs the command.
pub(super) fn run(
    global: &Global,
    files: &[PathBuf],
    output: &mut Output,
) -> Result<Exit, CliError> {
    let inputs = input::open_all(files)?;
    let looked = nothing_of_a_host(&inputs)?;
    let mut material = Material::default();
    let mut all = Collector::new(Vec::new(), Filter::default());
    let (mut lines, mut boots) = (0, 0);
    let mut incomplete = Vec::new();
    let wanted = scan::Wanted { head: MOST_TEXT, ..scan::Wanted::default() };
    for input in inputs {
        let (read, one) = scan::read(input, &wanted, boots);
        let collected = one.clone().finish(read.lines);
        if material.add(&read.name, &read.head, &collected) == SourceKind::KernelLog {
            all.append(&one, lines, boots);
            lines += read.lines;
            boots += read.boots;
        }
        incomplete.extend(read.incomplete.map(|why| (read.name, why)));
    }
    material.log = material.has(SourceKind::KernelLog).then(|| all.finish(lines));
    let import = peerway_faults::import(&log_name(&material), &material);
    let exit = exit_of(global, &import.diagnose.findings);
    let undecided =
        import.diagnose.assessment == Assessment::CouldNotLook || !incomplete.is_empty();
    let exit = exit.and(if undecided { Exit::Undecided } else { Exit::Fine });
    match global.format {
        Format::Text => output.push(&page(&import)),
        Format::Json => output.document("diagnose", &looked, import)?,
        Format::Jsonl => super::jsonl(&import.diagnose.findings, output)?,
    }
    crate::commands::faults::complain(&incomplete);
    Ok(exit)
}

/// What lines of the logs are numbered in: one file, or several one after the other.
fn log_name(material: &Material) -> String {
    let logs: Vec<&str> = material
        .sources
        .iter()
        .filter(|source| source.kind == SourceKind::KernelLog)
        .map(|source| source.name.as_str())
        .collect();
    match logs.as_slice() {
        [] => "the files".to_owned(),
        [only] => (*only).to_owned(),
        several => format!("{} kernel logs", several.len()),
    }
}

fn page(import: &Import) -> String {
    let mut out = String::new();
    for source in &import.sources {
        let kind = word(&source.kind).replace('_', " ");
        let kind = if source.kind == SourceKind::Unknown { "not understood" } else { &kind };
        out.push_str(&wrap(&format!("{}: {kind}", source.name), "", "  "));
    }
    out.push('\n');
    for one in &import.explanations {
        let text = format!("{}: {}", word(&one.assessment), one.assessment.about());
        out.push_str(&wrap(&text, "", "  "));
        out.push_str(&wrap(&one.why, "  ", "  "));
    }
    let related = match import.gpu_p2p_related {
        Some(true) => "This concerns peer access between GPUs.",
        Some(false) => "This is not about peer access between GPUs.",
        None => "Whether this concerns peer access between GPUs, these files do not say.",
    };
    out.push('\n');
    out.push_str(&wrap(related, "", "  "));
    for pair in &import.diagnose.pairs {
        let text = format!(
            "{} > {}: {} ({})",
            pair.from,
            pair.to,
            text::verdict(pair.verdict),
            text::confidence(pair.confidence)
        );
        out.push_str(&wrap(&text, "  ", "    "));
    }
    out.push('\n');
    for finding in &import.diagnose.findings {
        out.push_str(&text::finding(finding, true));
        out.push('\n');
    }
    out
}

/// The word of a closed list.
fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
