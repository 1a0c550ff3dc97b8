//! The lab: a real kernel with a real IOMMU driver in an emulated machine, on which claims about kernels
//! are settled.

mod apt;
pub mod boot;
mod guest;
mod initramfs;
pub mod kernel;
pub mod machine;
pub mod paths;
mod process;
pub mod script;
mod tools;

use anyhow::Result;
use clap::{Parser, Subcommand};

use boot::Boot;
use kernel::{SERIES, Series};
use machine::Machine;

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
    /// List the machines
    Machines,
    /// Boot a machine, run one command in its shell, and print what came of it
    Shell {
        /// Name of the machine
        machine: String,
        /// Series of the kernel
        #[arg(long, value_parser = Series::named, default_value = "6.12")]
        kernel: Series,
        /// The command
        command: String,
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
        Command::Machines => machines(),
        Command::Shell { machine, kernel, command } => shell(&machine, kernel, &command),
    }
}

fn machines() -> Result<()> {
    for name in machine::names()? {
        println!("{name:12} {}", Machine::named(&name)?.summary);
    }
    Ok(())
}

fn shell(machine: &str, series: Series, command: &str) -> Result<()> {
    let machine = Machine::named(machine)?;
    let kernel = series.fetched()?;
    let report =
        Boot::new(&kernel, &machine).steps([script::run("shell", &["sh", "-c", command])]).run()?;
    let outcome = report.outcome("shell")?;
    print!("{}", outcome.stdout);
    eprint!("{}", outcome.stderr);
    for line in &outcome.kernel {
        eprintln!("kernel: {line}");
    }
    eprintln!("lab: {} ended after {:.1} s", report.release, report.seconds);
    if outcome.status == Some(0) {
        Ok(())
    } else {
        anyhow::bail!("the command ended with {:?}", outcome.status)
    }
}
