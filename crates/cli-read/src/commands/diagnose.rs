//! `diagnose`: pairs, findings, assessment.

use std::collections::BTreeMap;

use peerway_core::diagnose::finding::Finding;
use peerway_core::document::diagnose::{Diagnose, Pair};

use super::exit_of;
use crate::args::{Format, Global};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host;
use crate::output::Output;
use crate::text::{self, wrap};

mod import;

/// Options of `diagnose`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct DiagnoseArgs {
    /// Files that people attach to bug reports, in any mix: kernel logs, lspci, NCCL logs, test
    /// output, tables, configurations. What they say is diagnosed instead of --host
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub import: Vec<std::path::PathBuf>,
}

/// Runs the command.
pub fn run(global: &Global, wanted: &DiagnoseArgs, output: &mut Output) -> Result<Exit, CliError> {
    if !wanted.import.is_empty() {
        return import::run(global, &wanted.import, output);
    }
    let looked = host::look(global)?;
    let diagnosis = looked.diagnose(global);
    let body = Diagnose::new(&diagnosis);
    match global.format {
        Format::Text => output.push(&page(&body)),
        Format::Json => output.document("diagnose", &looked, body)?,
        Format::Jsonl => {
            jsonl(&body.findings, output)?;
        }
    }
    Ok(exit_of(global, &diagnosis))
}

fn jsonl(findings: &[Finding], output: &mut Output) -> Result<(), CliError> {
    for finding in findings {
        let line = serde_json::to_string(finding).map_err(|source| CliError::Render { source })?;
        output.line(&line);
    }
    Ok(())
}

fn page(body: &Diagnose) -> String {
    let mut out = String::new();
    for assessment in &body.assessments {
        let word = text::word(assessment);
        out.push_str(&wrap(&format!("{word}: {}", assessment.about()), "", "  "));
    }
    out.push('\n');
    // Pairs that share verdict, confidence and codes are one line: on a large host hundreds are.
    let mut alike: BTreeMap<_, Vec<&Pair>> = BTreeMap::new();
    for pair in &body.pairs {
        let key = (pair.verdict, pair.confidence, pair.codes.clone());
        alike.entry(key).or_default().push(pair);
    }
    for ((verdict, confidence, codes), pairs) in &alike {
        let codes: Vec<&str> = codes.iter().map(|code| code.text()).collect();
        let word = text::painted(*verdict, text::verdict(*verdict));
        let count = pairs.len();
        let noun = if count == 1 { "pair" } else { "pairs" };
        let sure = text::confidence(*confidence);
        let head = format!("{word}, {count} {noun} ({sure}) {}", codes.join(" "));
        out.push_str(&wrap(&head, "", "  "));
        let names: Vec<String> =
            pairs.iter().map(|pair| format!("{}>{}", pair.from, pair.to)).collect();
        out.push_str(&wrap(&names.join(" "), "  ", "  "));
        if let Some(first) = pairs.first() {
            out.push_str(&wrap(&first.reason, "  such as: ", "           "));
        }
    }
    if !body.pairs.is_empty() {
        out.push('\n');
    }
    for finding in &body.findings {
        out.push_str(&text::finding(finding, true));
        out.push('\n');
    }
    out
}
