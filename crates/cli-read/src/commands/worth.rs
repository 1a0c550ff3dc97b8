//! `worth`: what peer access and the other options are worth to a workload. Reads nothing of the
//! host: only the files that its options name, behind the walls.

pub mod compare;
pub mod estimate;
pub mod launch;

use std::path::Path;

use clap::Subcommand;
use jiff::Timestamp;
use peerway_core::document::Head;
use serde::Serialize;

use crate::args::Global;
use crate::error::CliError;
use crate::exit::Exit;
use crate::guard::{self, Children, Reads};
use crate::host::read_option_file;
use crate::output::Output;

/// The reading part of `worth`.
#[derive(Clone, Debug, Subcommand)]
pub enum WorthCommand {
    /// Tokens per second with and without P2P, term by term, and what every option would bring
    Estimate(Box<estimate::EstimateArgs>),
    /// Runs before and after: what changed beyond chance, with outputs that are the same
    Compare(compare::CompareArgs),
    /// Command and environment for the engine's version, with P2P off or as proved
    Launch(Box<launch::LaunchArgs>),
}

/// Runs a command and prints its answer.
pub fn run(global: &Global, command: &WorthCommand) -> Exit {
    crate::answer(|output| match command {
        WorthCommand::Estimate(wanted) => estimate::run(global, wanted, output),
        WorthCommand::Compare(wanted) => compare::run(global, wanted, output),
        WorthCommand::Launch(wanted) => launch::run(global, wanted, output),
    })
}

/// Raises the walls: nothing but these files can be read from here on.
fn walls(files: &[&Path]) -> Result<(), CliError> {
    let files: Vec<_> = files.iter().map(|path| path.to_path_buf()).collect();
    guard::raise(Reads::Nothing, &files, None, &Children::default()).map(|_| ())
}

/// A file that an option names, as text.
fn text_of(what: &'static str, path: &Path, limit: usize) -> Result<String, CliError> {
    let error = |why| CliError::OptionFile { what, path: path.display().to_string(), why };
    let bytes = read_option_file(path, limit).map_err(error)?;
    String::from_utf8(bytes).map_err(|_| error("it is not text".to_owned()))
}

/// Prints a document that is not about a host.
fn document<T: Serialize>(output: &mut Output, name: &str, body: T) -> Result<(), CliError> {
    let head = Head {
        schema: format!("peerway/{name}/1"),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: "none".to_owned(),
        generated_at: Timestamp::now().to_string(),
    };
    output.headed(head, body)
}
