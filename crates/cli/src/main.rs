//! The `peerway` binary: arguments in, text out.

mod change;
mod demo;
mod place;
mod say;
mod test;
mod worth;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use peerway_cli_read::{Exit, Global, ReadCommand};

/// Whether the GPUs of this host can reach each other directly, what stands between them, and what
/// can be done about it.
#[derive(Debug, Parser)]
#[command(name = "peerway", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Read(ReadCommand),
    #[command(flatten)]
    Change(change::ChangeCommand),
    /// The story for a newcomer, on the simulated hosts
    Demo,
    /// Measure on the GPUs: is data right, how fast is it, does all-reduce gain
    Test(test::TestArgs),
    /// What peer access and the other options are worth to a model and an engine
    Worth(worth::WorthArgs),
}

fn main() -> ExitCode {
    // Children of this program are this program: they look where its own walls forbid looking.
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(code) = peerway_holders::dispatch(&arguments) {
        return ExitCode::from(u8::try_from(code).unwrap_or(Exit::Internal.code()));
    }
    if let Some(code) = test::dispatch(&arguments) {
        return code;
    }
    let cli = Cli::parse();
    let command = match cli.command {
        Some(Command::Read(ReadCommand::Schema { name })) => {
            return schema(&cli.global, name).into();
        }
        Some(Command::Demo) => return demo::run(&cli.global).into(),
        Some(Command::Test(arguments)) => return test::run(&cli.global, &arguments).into(),
        Some(Command::Read(command)) => command,
        Some(Command::Worth(arguments)) => return worth::run(&cli.global, &arguments).into(),
        Some(Command::Change(command)) => {
            if let Some(code) = change::dispatch(&command) {
                return code;
            }
            return change::run(&cli.global, &command).into();
        }
        None => ReadCommand::Status,
    };
    peerway_cli_read::run(&cli.global, command, Cli::command()).into()
}

/// A document of a command that only the binary has, with what prints its schema.
type OwnDocument = (&'static str, fn() -> Exit);

const OWN_DOCUMENTS: [OwnDocument; 2] = [("test", test::schema), ("worth-bench", worth::schema)];

fn schema(global: &Global, name: Option<String>) -> Exit {
    let own = OWN_DOCUMENTS.iter().find(|(own, _)| name.as_deref() == Some(*own));
    if let Some((_, print)) = own {
        return print();
    }
    let all = name.is_none();
    let exit = peerway_cli_read::run(global, ReadCommand::Schema { name }, Cli::command());
    if all && exit == Exit::Fine {
        let names: Vec<&str> = OWN_DOCUMENTS.iter().map(|(name, _)| *name).collect();
        return say::print(&names.join("\n"), exit);
    }
    exit
}
