//! `demo`: the story for a newcomer, by the code that answers and acts on a real host.
//!
//! Everything happens in memory: the simulated hosts, their journal, what is remembered.

mod first;
mod play;
mod second;
mod third;

use peerway_cli_read::error::CliError;
use peerway_cli_read::output::{Output, complain};
use peerway_cli_read::text::{bold, wrap};
use peerway_cli_read::{Exit, Global};
use peerway_roads::PlanError;
use peerway_write::transaction::TransactionError;
use thiserror::Error;

/// Why the story stopped. None of it can happen on the hosts that come with the program, unless
/// the program is wrong.
#[derive(Debug, Error)]
enum DemoError {
    #[error(transparent)]
    Look(#[from] CliError),
    #[error("cannot build the simulated host {name:?}: {why}")]
    Host { name: &'static str, why: String },
    #[error("cannot make the plan: {0}")]
    Plan(#[from] PlanError),
    #[error("cannot carry the plan out: {0}")]
    Change(#[from] TransactionError),
    #[error("the story went another way on {host}: {what}")]
    OtherWay { host: &'static str, what: String },
}

/// Runs the command.
pub(crate) fn run(global: &Global) -> Exit {
    let mut output = Output::stdout();
    let told = tell(global, &mut output);
    let printed = output.finish();
    match (told, printed) {
        (Ok(()), Ok(())) => Exit::Fine,
        (Ok(()), Err(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Fine,
        (Ok(()), Err(error)) => {
            complain(&format!("peerway: cannot write the answer: {error}\n"));
            Exit::Internal
        }
        (Err(error), _) => {
            complain(&format!("peerway: {error}\n"));
            Exit::Internal
        }
    }
}

fn tell(global: &Global, output: &mut Output) -> Result<(), DemoError> {
    // The first look raises the walls, and they stand to the end.
    first::act(global, output)?;
    second::act(output)?;
    third::act(output)?;
    output.push(&heading("On a host of your own"));
    output.push(
        "  sudo peerway                    the same answer about your GPUs\n  \
         sudo peerway roads              what can be done there, and at what price\n  \
         peerway roads --host sim:kpro6  every gate of this host\n  \
         peerway explain sme-mmio        the page of a gate or a finding\n",
    );
    Ok(())
}

fn heading(text: &str) -> String {
    format!("\n{}\n\n", bold(&format!("== {text}")))
}

fn says(text: &str) -> String {
    wrap(text, "", "")
}
