//! One command a file.

pub mod capture;
pub mod completions;
pub mod diagnose;
pub mod explain;
pub mod faults;
pub mod path;
pub mod plan;
pub mod roads;
pub mod scan;
pub mod schema;
pub mod status;
pub mod worth;

use peerway_core::diagnose::Diagnosis;
use peerway_core::diagnose::finding::Severity;

use crate::args::{FailOn, Global, ReadCommand};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;

/// Runs a command and collects its answer.
pub fn run(
    global: &Global,
    command: ReadCommand,
    cli: clap::Command,
    output: &mut Output,
) -> Result<Exit, CliError> {
    match command {
        ReadCommand::Status => status::run(global, output),
        ReadCommand::Scan => scan::run(global, output),
        ReadCommand::Path { from, to } => path::run(global, &from, &to, output),
        ReadCommand::Diagnose(wanted) => diagnose::run(global, &wanted, output),
        ReadCommand::Faults(wanted) => faults::run(global, &wanted, output),
        ReadCommand::Roads(wishes) => roads::run(global, &wishes, output),
        ReadCommand::Plan { road, output: file, last, probe, wishes } => {
            let lasting = last.then_some(probe.as_deref());
            plan::run(
                global,
                &road,
                &wishes,
                plan::Wanted { file: file.as_deref(), lasting },
                output,
            )
        }
        ReadCommand::Capture { output: file } => capture::run(global, file.as_deref(), output),
        ReadCommand::Explain { code } => explain::run(code.as_deref(), output),
        ReadCommand::Schema { name } => schema::run(name.as_deref(), output),
        ReadCommand::Completions { shell } => completions::completions(shell, cli, output),
        ReadCommand::Man => completions::man(cli, output),
    }
}

/// The exit code of a diagnosis: findings at or above `--fail-on`, else undecided where a pair
/// is unknown for want of a look.
pub fn exit_of(global: &Global, diagnosis: &Diagnosis) -> Exit {
    let limit = match global.fail_on {
        FailOn::Error => Some(Severity::Error),
        FailOn::Warning => Some(Severity::Warning),
        FailOn::Info => Some(Severity::Info),
        FailOn::Never => None,
    };
    let failing = limit
        .is_some_and(|limit| diagnosis.findings.iter().any(|finding| finding.severity <= limit));
    if failing {
        Exit::Findings
    } else if diagnosis.assessment() == peerway_core::diagnose::assessment::Assessment::CouldNotLook
    {
        Exit::Undecided
    } else {
        Exit::Fine
    }
}
