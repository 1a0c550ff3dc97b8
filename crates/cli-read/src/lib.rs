//! Every reading command: arguments in, text out.
//!
//! This crate reaches the host through `peerway-read` alone and cannot name the crate that writes.
#![forbid(unsafe_code)]

pub mod args;
pub mod commands;
pub mod declared;
pub mod error;
pub mod exit;
pub mod guard;
pub mod host;
pub mod logs;
pub mod output;
pub mod redact;
pub mod remembered;
pub mod result_file;
pub mod spelling;
pub mod text;

pub use args::{Global, ReadCommand};
pub use exit::Exit;

use error::CliError;
use output::Output;

/// Runs one reading command.
pub fn run(global: &Global, command: ReadCommand, cli: clap::Command) -> Exit {
    answer(|output| commands::run(global, command, cli, output))
}

/// Collects an answer, prints it, and gives its exit code.
fn answer(ask: impl FnOnce(&mut Output) -> Result<Exit, CliError>) -> Exit {
    let mut output = Output::stdout();
    match ask(&mut output) {
        Ok(exit) => match output.finish() {
            Ok(()) => exit,
            // The reader of a pipe went away: nothing is wrong with the answer.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => exit,
            Err(error) => fail(&CliError::Output { source: error }),
        },
        Err(error) => fail(&error),
    }
}

/// Prints an error with its causes and its hint, and gives its exit code.
pub fn fail(error: &CliError) -> Exit {
    output::complain(&error::render(error));
    error.exit()
}
