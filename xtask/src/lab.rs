//! The lab: a real kernel with a real IOMMU driver in an emulated machine, on which claims about kernels
//! are settled.

mod apt;
pub mod kernel;
pub mod paths;
mod process;
mod tools;

use anyhow::Result;
use clap::{Parser, Subcommand};

use kernel::{SERIES, Series};

/// Machines with a real kernel and IOMMU driver.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask lab")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch kernels from Debian's archive into target/lab, and install missing tools when root
    Fetch {
        /// Series: 5.10, 6.1, 6.12 or 7.x; all of them if not given
        #[arg(long, value_parser = Series::named)]
        kernel: Vec<Series>,
        /// Look for a newer kernel although one is here
        #[arg(long)]
        refresh: bool,
    },
}

/// Runs one command of the lab.
///
/// # Errors
/// Whatever the command could not do, with the command that helps where one does.
pub fn main(arguments: impl Iterator<Item = String>) -> Result<()> {
    let words = std::iter::once("cargo xtask lab".to_owned()).chain(arguments);
    match Arguments::try_parse_from(words) {
        Ok(arguments) => run(arguments.command),
        Err(error) if !error.use_stderr() => {
            error.print()?;
            Ok(())
        }
        Err(error) => Err(anyhow::anyhow!("{error}")),
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Fetch { kernel, refresh } => {
            tools::ensure()?;
            let series = if kernel.is_empty() { SERIES.to_vec() } else { kernel };
            kernel::fetch_all(&series, refresh)
        }
    }
}
