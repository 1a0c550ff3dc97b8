//! The lab: a real kernel with a real IOMMU driver in an emulated machine, on which claims about kernels
//! are settled.

mod apt;
pub mod boot;
pub mod change;
mod dkms;
pub mod facts;
mod guest;
mod initramfs;
pub mod kernel;
pub mod kmod;
pub mod machine;
pub mod paths;
pub mod platform;
mod process;
pub mod product;
pub mod road;
mod sanitizers;
pub mod scenario;
pub mod script;
mod system;
mod tools;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

use boot::Boot;
use kernel::{Kernel, SERIES, Series};
use machine::Machine;
use platform::{Emulator, Iommu, Platform};
use scenario::Scenario;

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
    /// Run a scenario and print what it found; a difference from what is expected is a failure
    Run {
        /// Name of the scenario
        #[arg(value_parser = scenario::named)]
        scenario: &'static Scenario,
        /// Series of the kernel
        #[arg(long, value_parser = Series::named, default_value = "6.12")]
        kernel: Series,
        #[command(flatten)]
        on: On,
    },
    /// Run all scenarios and write docs/lab/facts-SERIES.md
    Facts {
        /// Series of the kernel; all of them if not given
        #[arg(long, value_parser = Series::named)]
        kernel: Vec<Series>,
        #[command(flatten)]
        on: On,
    },
    /// Build the peer-map module, prove it on a kernel, and write docs/lab/peer-map-SERIES.md
    Kmod {
        /// Series of the kernel: 6.1, 6.12 or 7.x
        #[arg(long, value_parser = Series::named, default_value = "6.12")]
        kernel: Series,
        #[command(flatten)]
        on: On,
        /// Measure memories of many sizes instead, into docs/lab/peer-map-sizes-SERIES.md
        #[arg(long)]
        sizes: bool,
    },
    /// Build a kernel that watches its memory, locks and objects from Debian's source package, prove the
    /// peer map on it, and write docs/lab/peer-map-sanitizers-SERIES.md
    Sanitizers {
        /// Series of the kernel
        #[arg(long, value_parser = Series::named, default_value = "6.12")]
        kernel: Series,
    },
    /// Build, install and remove the peer map's DKMS package in a Debian system, and write
    /// docs/lab/dkms-SERIES.md
    Dkms {
        /// Series of the kernel
        #[arg(long, value_parser = Series::named, default_value = "6.12")]
        kernel: Series,
    },
    /// Boot a machine many times without any step, and count the guests that die
    Boots {
        /// Name of the machine
        #[arg(default_value = "replica")]
        machine: String,
        /// How often
        #[arg(long, default_value_t = 20)]
        count: u32,
        /// Series of the kernel
        #[arg(long, value_parser = Series::named, default_value = "6.12")]
        kernel: Series,
        #[command(flatten)]
        on: On,
    },
    /// Hold the product's verdicts against copies, and write docs/lab/product-SERIES.md
    Product {
        /// Series of the kernel
        #[arg(long, value_parser = Series::named, default_value = "6.12")]
        kernel: Series,
        #[command(flatten)]
        on: On,
    },
    /// Apply the product's plans to a kernel, end it in the middle, and write docs/lab/change-SERIES.md
    Change {
        /// Series of the kernel
        #[arg(long, value_parser = Series::named, default_value = "6.12")]
        kernel: Series,
        /// One part, printed and not written: story, refusals, trouble, timer, fence, power, agreement, kill;
        /// groups-of-two on kernels before 6.4
        #[arg(long)]
        only: Option<String>,
    },
    /// Apply the peer map to a kernel by the product, lose it, take it back, and write
    /// docs/lab/peer-map-road-SERIES.md
    Road {
        /// Series of the kernel
        #[arg(long, value_parser = Series::named, default_value = "6.12")]
        kernel: Series,
        #[command(flatten)]
        on: On,
        /// One part, printed and not written: gates, story, lost
        #[arg(long)]
        only: Option<String>,
    },
    /// Boot a machine, run one command in its shell, and print what came of it
    Shell {
        /// Name of the machine
        machine: String,
        /// Series of the kernel
        #[arg(long, value_parser = Series::named, default_value = "6.12")]
        kernel: Series,
        #[command(flatten)]
        on: On,
        /// Program of this host to put into the guest's search path, with its shared libraries
        #[arg(long)]
        program: Vec<PathBuf>,
        /// The command
        command: String,
    },
}

/// What the kernel is booted on.
#[derive(Debug, Clone, Copy, clap::Args)]
struct On {
    /// Whose IOMMU the machine has; AMD's takes QEMU 11.1, which is fetched
    #[arg(long, value_enum, default_value_t)]
    iommu: Iommu,
    /// Which emulator plays it
    #[arg(long, value_enum, default_value_t)]
    emulator: Emulator,
}

impl On {
    fn kernel(self, series: Series) -> Result<Kernel> {
        Ok(series.fetched()?.on(Platform::with(self.iommu, self.emulator)))
    }
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
            kernel::fetch_all(&or_all(kernel), refresh)
        }
        Command::Run { scenario, kernel, on } => run_one(scenario, &on.kernel(kernel)?),
        Command::Facts { kernel, on } => {
            or_all(kernel).into_iter().try_for_each(|series| facts::write(&on.kernel(series)?))
        }
        Command::Machines => machines(),
        Command::Change { kernel, only } => change::write(kernel, only.as_deref()),
        Command::Road { kernel, on, only } => road::write(&on.kernel(kernel)?, only.as_deref()),
        Command::Product { kernel, on } => product::write(&on.kernel(kernel)?),
        Command::Kmod { kernel, on, sizes: false } => kmod::write(&on.kernel(kernel)?),
        Command::Kmod { kernel, on, sizes: true } => kmod::write_sizes(&on.kernel(kernel)?),
        Command::Sanitizers { kernel } => sanitizers::write(kernel),
        Command::Dkms { kernel } => dkms::write(&kernel.fetched()?),
        Command::Boots { machine, count, kernel, on } => {
            boots(&Machine::named(&machine)?, count, &on.kernel(kernel)?)
        }
        Command::Shell { machine, kernel, on, program, command } => {
            shell(&machine, &on.kernel(kernel)?, &program, &command)
        }
    }
}

fn or_all(series: Vec<Series>) -> Vec<Series> {
    if series.is_empty() { SERIES.to_vec() } else { series }
}

fn run_one(scenario: &Scenario, kernel: &Kernel) -> Result<()> {
    let facts = facts::run(scenario, kernel)?;
    print!("{}", facts.text());
    if facts.differences().is_empty() {
        return Ok(());
    }
    anyhow::bail!("not what is expected:\n  {}", facts.differences().join("\n  "))
}

fn boots(machine: &Machine, count: u32, kernel: &Kernel) -> Result<()> {
    let mut seconds = 0.0;
    for _ in 0..count {
        seconds += Boot::new(kernel, machine).run()?.seconds;
    }
    let each = seconds / f64::from(count.max(1));
    println!("{}: {each:.1} s each", kernel.platform.emulator.version()?);
    println!("{}", boot::Tally::now());
    Ok(())
}

fn machines() -> Result<()> {
    for name in machine::names()? {
        println!("{name:12} {}", Machine::named(&name)?.summary);
    }
    Ok(())
}

fn shell(machine: &str, kernel: &Kernel, programs: &[PathBuf], command: &str) -> Result<()> {
    let machine = Machine::named(machine)?;
    let mut boot = Boot::new(kernel, &machine);
    for program in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        boot = boot.program(&format!("/lab/bin/{name}"), program);
    }
    let report = boot.steps([script::run("shell", &["sh", "-c", command])]).run()?;
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
