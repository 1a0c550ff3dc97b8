//! Arguments of the reading commands, and nothing else.

use std::path::PathBuf;

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
    Diagnose,
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
