//! Arguments of the reading commands, and nothing else.

use std::path::PathBuf;

use crate::commands::diagnose::DiagnoseArgs;
use crate::commands::faults::FaultsArgs;
use crate::commands::worth::estimate::Workload;
use clap::{Args, Subcommand, ValueEnum};

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// What to look at: live, a directory that stands for /, a .host file, or sim:NAME
    #[arg(long, global = true, default_value = "live", value_name = "HOST")]
    pub host: String,
    /// How to print
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Further devices as requesters: nic, nvme
    #[arg(long = "with", global = true, value_enum, value_delimiter = ',', value_name = "KIND")]
    pub kinds: Vec<Kind>,
    /// Pairs across tenants too: there, no peer access is isolation
    #[arg(long, global = true)]
    pub all: bool,
    /// Declares further accelerators (TOML); taken as your word
    #[arg(long, global = true, value_name = "FILE")]
    pub accelerator: Vec<PathBuf>,
    /// Read the configuration space of sleeping devices too, which wakes them
    #[arg(long, global = true)]
    pub wake: bool,
    /// Exit with 1 from findings of this severity on
    #[arg(long, global = true, value_enum, default_value_t = FailOn::Error)]
    pub fail_on: FailOn,
}

/// Wishes and limits of `roads` and `plan`.
#[derive(Args, Clone, Debug, Default)]
pub struct RoadArgs {
    /// Whose pairs are to work (default: the tenant with broken pairs)
    #[arg(long, value_name = "TENANT")]
    pub goal: Option<String>,
    /// Which devices, by address (default: all of the goal's)
    #[arg(long, value_delimiter = ',', value_name = "ADDRESS")]
    pub device: Vec<String>,
    /// The road that was asked for: it comes first
    #[arg(long, value_name = "ROAD")]
    pub prefer: Option<String>,
    /// A tenant that must not be touched (all others but the goal are protected anyhow)
    #[arg(long, value_delimiter = ',', value_name = "TENANT")]
    pub protect: Vec<String>,
    /// No reboot, whoever runs here
    #[arg(long)]
    pub no_reboot: bool,
    /// What must stay: snp
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub keep: Vec<Keep>,
    /// A road that is not to be walked
    #[arg(long, value_delimiter = ',', value_name = "ROAD")]
    pub exclude: Vec<String>,
    /// Allow a reboot although other tenants run
    #[arg(long, conflicts_with = "no_reboot")]
    pub allow_reboot: bool,
    /// What may go although a confidential tenant exists: snp
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT", conflicts_with = "keep")]
    pub give_up: Vec<Keep>,
    /// A hazard that is accepted: unbind-hazard (a lost race while unbinding may cost a reboot of
    /// the host)
    #[arg(long, value_enum, value_delimiter = ',', value_name = "HAZARD")]
    pub accept: Vec<Hazard>,
    /// The peer-map module is signed with a key that this host trusts
    #[arg(long)]
    pub module_signed: bool,
    /// What is stopped first, by name (unit:NAME, pct:ID, lxc:NAME, docker:NAME, qm:ID, …), or
    /// operator: you do it yourself
    #[arg(long, value_delimiter = ',', value_name = "SERVICE")]
    pub stop: Vec<String>,
    /// Further knowledge for the gates (TOML), beside what is built in
    #[arg(long, value_name = "FILE")]
    pub knowledge: Vec<PathBuf>,
}

/// Arguments of `roads`.
#[derive(Args, Clone, Debug)]
pub struct RoadsArgs {
    /// Wishes and limits
    #[command(flatten)]
    pub wishes: RoadArgs,
    /// As they would be on another kernel, as far as its release tells
    #[arg(long, value_name = "RELEASE")]
    pub if_kernel: Option<String>,
    /// As they would be with another driver, as far as its version tells
    #[arg(long, value_name = "VERSION")]
    pub if_driver: Option<String>,
    /// Say only which roads in force would be closed
    #[arg(long)]
    pub warn: bool,
    /// The workload whose gain is estimated
    #[command(
        flatten,
        next_help_heading = "The workload, for the gain of each road (GPU type and --tp default to the goal's)"
    )]
    pub workload: Workload,
}

/// A hazard that can be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hazard {
    /// A lost race while unbinding.
    UnbindHazard,
}

/// What must stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// SEV-SNP.
    Snp,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON document.
    Json,
    /// JSON, one record a line.
    Jsonl,
}

/// Kinds of devices beyond GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Network controllers.
    Nic,
    /// NVMe controllers.
    Nvme,
}

/// From which severity on the exit code is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Errors.
    Error,
    /// Warnings and errors.
    Warning,
    /// Any finding.
    Info,
    /// Never.
    Never,
}

/// The reading commands.
#[derive(Clone, Debug, Subcommand)]
pub enum ReadCommand {
    /// The answer on one screen (the default)
    Status,
    /// Inventory: devices, groups, drivers, tenants, kernel, IOMMU
    Scan,
    /// The route of a pair hop by hop, both directions
    Path {
        /// Requester: address, GPU UUID, or index
        from: String,
        /// Target
        to: String,
    },
    /// Pairs, findings, assessment: the machine-readable main product
    Diagnose(DiagnoseArgs),
    /// The kernel log alone: parse, attribute to devices, summarise
    Faults(FaultsArgs),
    /// Every road to peer access on this host, ranked, each open or closed with its gates
    Roads(Box<RoadsArgs>),
    /// The exact steps of a road, their inverses, and what they rest on
    Plan {
        /// Road: peer-map, identity-groups, acs-direct, live-without
        road: String,
        /// File to write the plan to; without it, the plan is only shown
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Make it last: units, rules and hooks as steps of the plan, put in place after your word
        /// and removed by undo --all
        #[arg(long)]
        last: bool,
        /// Program that proves at every boot that data arrives; without one, peer access stays off
        /// until you prove it (verify --probe)
        #[arg(long, value_name = "PROGRAM", requires = "last")]
        probe: Option<PathBuf>,
        /// Wishes and limits
        #[command(flatten)]
        wishes: Box<RoadArgs>,
    },
    /// The host as one redacted .host file
    Capture {
        /// File to write; standard output without it
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// The page of a finding, a gate or an assessment
    Explain {
        /// Code such as PW0201, or a word; without one, the list
        code: Option<String>,
    },
    /// The JSON Schema of a document
    Schema {
        /// Document; without one, the list
        name: Option<String>,
    },
    /// Shell completions
    Completions {
        /// Shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// The manual page, in roff
    Man,
}
