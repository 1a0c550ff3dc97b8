//! Commands and environment for an engine's version: with peer access off, and with it restored.
//!
//! Spellings and refusals are tables by version ([`spelling`], [`rules`]), from the engines' released
//! source. Nothing that rests on peer access is rendered without a measurement that proved it: the
//! one-shot kernels wait for a peer's flag without a limit, and sums over damaged links are wrong in
//! silence.

pub mod line;
pub mod proof;
pub mod rules;
pub mod spelling;

mod common;
mod sglang;
mod vllm;

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

pub use line::Line;
pub use proof::Proof;
pub use rules::{Outcome, Refusal};

use crate::config::ModelConfig;
use crate::engine::{Engine, EngineName, Version};
use crate::hardware::Gpu;
use crate::layout::{Layout, LayoutError};

/// What is to be launched.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The engine, with its version.
    pub engine: Engine,
    /// The model's configuration.
    pub model: ModelConfig,
    /// What to write as the model's path.
    pub path: String,
    /// The GPU type.
    pub gpu: Gpu,
    /// The layout.
    pub layout: Layout,
    /// Requests that are to run at the same time.
    pub concurrency: u32,
    /// Draft steps; 0 without speculation.
    pub draft_steps: u32,
    /// The sum over experts in a kernel (SGLang).
    pub fused_sum: bool,
    /// One-shot kernels over peer access, where the version has them.
    pub kernels: bool,
    /// Share of a GPU's memory that the engine may fill.
    pub memory_fraction: f64,
    /// What proves peer access; absent for the safe mode.
    pub proof: Option<Proof>,
    /// The operator's own line, to be held against what the version refuses.
    pub own: Line,
}

/// Why nothing is rendered.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchError {
    /// The version was not given.
    #[error(
        "which version of {engine}? Options are spelled by version: ask the server (GET \
         /server_info of SGLang, /version of vLLM) and give --engine {name}@VERSION"
    )]
    NoVersion {
        /// The engine.
        engine: &'static str,
        /// Its name on the command line.
        name: &'static str,
    },
    /// Older than anything that is known.
    #[error(
        "{engine} {version} is older than {oldest}, the oldest version whose options are known"
    )]
    TooOld {
        /// The engine.
        engine: &'static str,
        /// Its version.
        version: Version,
        /// Oldest known.
        oldest: Version,
    },
    /// The layout does not fit the model.
    #[error("the layout does not fit the model: {0}")]
    Layout(#[from] LayoutError),
    /// A number out of range.
    #[error("cannot render a launch: {what} is {value}; expected {range}")]
    Range {
        /// Which.
        what: &'static str,
        /// Its value.
        value: String,
        /// What is accepted.
        range: &'static str,
    },
    /// Speculation without a layer for it.
    #[error(
        "the model's configuration names no layer that drafts (MTP, NEXTN), so it cannot speculate with itself"
    )]
    NoDraft,
}

impl Wanted {
    /// Requests that one replica is to run: the line is for one.
    pub fn of_a_replica(&self) -> u32 {
        self.concurrency.div_ceil(self.layout.replicas.max(1))
    }

    fn check(&self) -> Result<(), LaunchError> {
        let ranges = [
            ("the concurrency", f64::from(self.concurrency), 1.0, 65_536.0, "1 to 65536"),
            ("the number of draft steps", f64::from(self.draft_steps), 0.0, 16.0, "0 to 16"),
            ("the share of memory", self.memory_fraction, 0.05, 1.0, "0.05 to 1"),
        ];
        for (what, value, least, most, range) in ranges {
            if !(least..=most).contains(&value) {
                return Err(LaunchError::Range { what, value: value.to_string(), range });
            }
        }
        Ok(())
    }
}

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    let plain = |one: char| one.is_ascii_alphanumeric() || "/._-+:@%,=".contains(one);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// With peer access off, or restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every way to use peer access is switched off.
    Safe,
    /// Peer access was proved and is used.
    Restored,
}

/// One option, and how it is taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Piece {
    /// As it stands in the environment or on the command line.
    pub text: String,
    /// What it is for.
    pub why: String,
    /// What takes it back.
    pub back: String,
}

/// Something that was asked for and is not rendered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Left {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// The rendered launch.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Launch {
    /// Engine and version.
    pub engine: String,
    /// Version whose options were read and are used.
    pub read_as: String,
    /// With peer access off, or restored.
    pub mode: Mode,
    /// Environment.
    pub environment: Vec<Piece>,
    /// Variables that must not be set.
    pub unset: Vec<String>,
    /// Program and its first arguments.
    pub program: String,
    /// Arguments.
    pub arguments: Vec<Piece>,
    /// What was asked for and is not rendered.
    pub left: Vec<Left>,
    /// What the version refuses or changes of this line and of the operator's own.
    pub refusals: Vec<Refusal>,
    /// What to do before.
    pub before: Vec<String>,
    /// What to look at afterwards.
    pub after: Vec<String>,
    /// What to know.
    pub notes: Vec<String>,
}

impl Launch {
    fn new(engine: Engine, read_as: Version, mode: Mode, program: String) -> Self {
        Self {
            engine: engine.to_string(),
            read_as: read_as.to_string(),
            mode,
            environment: Vec::new(),
            unset: Vec::new(),
            program,
            arguments: Vec::new(),
            left: Vec::new(),
            refusals: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn variable(&mut self, text: &str, why: &str) {
        self.environment.push(Piece {
            text: text.to_owned(),
            why: why.to_owned(),
            back: "leave it out of the line".to_owned(),
        });
    }

    fn argument(&mut self, text: impl Into<String>, why: impl Into<String>, back: &str) {
        self.arguments.push(Piece { text: text.into(), why: why.into(), back: back.to_owned() });
    }

    fn leave(&mut self, what: &str, why: impl Into<String>) {
        self.left.push(Left { what: what.to_owned(), why: why.into() });
    }

    /// The whole as one line of a shell.
    pub fn shell(&self) -> String {
        self.environment
            .iter()
            .map(|piece| piece.text.as_str())
            .chain(std::iter::once(self.program.as_str()))
            .chain(self.arguments.iter().map(|piece| piece.text.as_str()))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Renders a launch.
///
/// # Errors
/// A version that is missing or not known, or a model that cannot do what was asked.
pub fn render(wanted: &Wanted) -> Result<Launch, LaunchError> {
    wanted.check()?;
    wanted.layout.check(&wanted.model)?;
    if wanted.draft_steps > 0 && wanted.model.draft_layers == 0 {
        return Err(LaunchError::NoDraft);
    }
    let (engine, name, oldest) = match wanted.engine.name {
        EngineName::Sglang => ("SGLang", "sglang", spelling::SGLANG_READ[0]),
        EngineName::Vllm => ("vLLM", "vllm", spelling::VLLM_READ[0]),
    };
    let version = wanted.engine.version.ok_or(LaunchError::NoVersion { engine, name })?;
    if version < oldest {
        return Err(LaunchError::TooOld { engine, version, oldest });
    }
    let mut launch = match wanted.engine.name {
        EngineName::Sglang => sglang::render(wanted, version),
        EngineName::Vllm => vllm::render(wanted, version),
    };
    let read_as = spelling::read_as(wanted.engine.name, version);
    if read_as != version {
        launch.notes.push(format!(
            "the options of {engine} {version} were not read; those of {read_as} are used. Its \
             --help decides"
        ));
    }
    common::notes(wanted, &mut launch);
    let rendered = Line::parse(&launch.shell());
    let mut refusals = rules::check(wanted, version, &rendered);
    refusals.extend(rules::check(wanted, version, &wanted.own));
    refusals.dedup();
    launch.refusals = refusals;
    Ok(launch)
}

fn mode(wanted: &Wanted) -> Mode {
    if wanted.proof.is_some() { Mode::Restored } else { Mode::Safe }
}
