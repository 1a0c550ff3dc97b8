//! `worth`: what peer access is worth. The parts that only read live with the reading commands.

mod bench;

use clap::{Args, Subcommand};
use peerway_cli_read::commands::worth::{self, WorthCommand};
use peerway_cli_read::{Exit, Global};

/// Arguments of `worth`.
#[derive(Args, Clone, Debug)]
pub(crate) struct WorthArgs {
    #[command(subcommand)]
    command: Worth,
}

#[derive(Clone, Debug, Subcommand)]
enum Worth {
    #[command(flatten)]
    Read(WorthCommand),
    /// Drive an inference server over a sweep of loads, and say what it and this client did
    Bench(Box<bench::BenchArgs>),
}

/// Runs one of its commands.
pub(crate) fn run(global: &Global, arguments: &WorthArgs) -> Exit {
    match &arguments.command {
        Worth::Read(command) => worth::run(global, command),
        Worth::Bench(arguments) => bench::run(global, arguments),
    }
}

/// The JSON Schema of `worth-bench`, which the reading commands do not know.
pub(crate) fn schema() -> Exit {
    bench::schema()
}
