//! `worth estimate`: the terms of a step, with and without peer access.

mod page;

pub(crate) use page::percent;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use peerway_worth::allreduce::Times;
use peerway_worth::assumption::Assumptions;
use peerway_worth::engine::Engine;
use peerway_worth::estimate::Measured;
use peerway_worth::hardware::{self, Gpu};
use peerway_worth::precision::Precision;
use peerway_worth::{Layout, ModelConfig, Request, known};

use super::{document, text_of, walls};
use crate::args::{Format, Global};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;

/// Configurations are a few kilobytes; some list every module that is not quantised.
const MOST_CONFIG: usize = 4 << 20;

/// Measurements of `test` on many GPUs.
const MOST_MEASUREMENT: usize = 64 << 20;

/// The workload: the same options wherever something is estimated.
#[derive(Args, Clone, Debug)]
pub struct Workload {
    /// The model: its config.json, the directory that holds it, or known:NAME
    #[arg(long, value_name = "CONFIG")]
    pub model: Option<String>,
    /// The engine and its version: sglang@0.5.23, vllm@0.33.0
    #[arg(long, value_name = "ENGINE", value_parser = parse_engine, default_value = "sglang")]
    pub engine: Engine,
    /// The GPU type, such as rtx-pro-6000 or h200; a wrong one lists them
    #[arg(long, value_name = "TYPE", value_parser = parse_gpu)]
    pub gpu: Option<Gpu>,
    /// GPUs that every layer is cut over (tensor parallel)
    #[arg(long, value_name = "N")]
    pub tp: Option<u32>,
    /// Pipeline stages
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub pp: u32,
    /// Replicas beside each other
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub replicas: u32,
    /// Experts are placed on the GPUs and not cut
    #[arg(long)]
    pub expert_parallel: bool,
    /// Attention is data-parallel over the GPUs
    #[arg(long)]
    pub attention_dp: bool,
    /// Requests that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub concurrency: u32,
    /// Tokens of a prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 1024)]
    pub prompt_tokens: u32,
    /// Tokens of an answer
    #[arg(long, value_name = "TOKENS", default_value_t = 1024)]
    pub output_tokens: u32,
    /// All-reduce times: the JSON of `peerway test`; assumed without
    #[arg(long, value_name = "FILE")]
    pub all_reduce: Option<PathBuf>,
    /// A rate measured with P2P off and without speculation: 1=108 (tokens a second, all requests)
    #[arg(long, value_name = "CONCURRENCY=RATE", value_parser = parse_measured)]
    pub measured: Vec<Measured>,
    /// Draft steps of speculation (default: the best of 1 to 3)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub draft_steps: u32,
    /// Tokens that a verification gives on your prompts with --draft-steps, as the engine's metrics
    /// say
    #[arg(long, value_name = "TOKENS")]
    pub accept_length: Option<f64>,
    /// How keys and values are kept
    #[arg(long, value_enum, default_value_t = KvFormat::Bf16)]
    pub kv: KvFormat,
    /// Share of each GPU's memory that the engine may fill
    #[arg(long, value_name = "SHARE", default_value_t = 0.85)]
    pub memory_fraction: f64,
}

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KvFormat {
    /// 16 bits.
    Bf16,
    /// 8 bits.
    Fp8,
}

fn parse_engine(word: &str) -> Result<Engine, String> {
    word.parse().map_err(|error: peerway_worth::engine::EngineError| error.to_string())
}

fn parse_gpu(word: &str) -> Result<Gpu, String> {
    hardware::find(word).ok_or_else(|| format!("known types: {}", hardware::names()))
}

fn parse_measured(word: &str) -> Result<Measured, String> {
    let parsed = word.split_once('=').and_then(|(concurrency, rate)| {
        Some(Measured { concurrency: concurrency.parse().ok()?, rate: rate.parse().ok()? })
    });
    parsed.ok_or_else(|| "give CONCURRENCY=RATE, such as 1=108".to_owned())
}

impl Workload {
    /// Files that the options name.
    pub fn files(&self) -> Vec<&Path> {
        let model = self.model.as_deref().filter(|word| !word.starts_with("known:")).map(Path::new);
        model.into_iter().chain(self.all_reduce.as_deref()).collect()
    }

    /// The request, once the walls are up; absent where no model was named. What the options leave
    /// open is taken from the host that was looked at: its GPUs and their number.
    ///
    /// # Errors
    /// A file that cannot be read or used, or no word about the GPUs.
    pub fn request(&self, seen: Option<(Gpu, u32)>) -> Result<Option<Request>, CliError> {
        let Some(model) = &self.model else { return Ok(None) };
        let model = load_model(model)?;
        let gpu = self.gpu.or(seen.map(|(gpu, _)| gpu)).ok_or_else(|| CliError::Wishes {
            why: format!("no GPU type was named: give --gpu ({})", hardware::names()),
        })?;
        let tp = self.tp.or(seen.map(|(_, count)| count)).unwrap_or(1);
        let layout = Layout {
            tp,
            pp: self.pp,
            replicas: self.replicas,
            expert_parallel: self.expert_parallel,
            attention_dp: self.attention_dp,
        };
        let (times, other_times) = match self.all_reduce.as_deref() {
            Some(path) => {
                let (times, others) = sums(path, gpu, tp)?;
                (Some(times), others)
            }
            None => (None, Vec::new()),
        };
        Ok(Some(Request {
            model,
            engine: self.engine,
            gpu,
            layout,
            concurrency: self.concurrency,
            prompt: self.prompt_tokens,
            output: self.output_tokens,
            times,
            other_times,
            draft_steps: self.draft_steps,
            accepted: self.accept_length,
            kv: match self.kv {
                KvFormat::Bf16 => Precision::Bfloat16,
                KvFormat::Fp8 => Precision::Fp8,
            },
            memory_fraction: self.memory_fraction,
            measured: self.measured.clone(),
            assumptions: Assumptions::default(),
        }))
    }
}

/// Measured sums of one number of GPUs, and of the others in the file.
fn sums(path: &Path, gpu: Gpu, tp: u32) -> Result<(Times, Vec<Times>), CliError> {
    let text = text_of("the measurement", path, MOST_MEASUREMENT)?;
    let times = Times::from_test(&text, gpu.link, tp).map_err(|error| CliError::OptionFile {
        what: "the measurement",
        path: path.display().to_string(),
        why: error.to_string(),
    })?;
    Ok((times, Times::others_from_test(&text, gpu.link, tp)))
}

/// A model by its file, its directory or its name.
fn load_model(word: &str) -> Result<ModelConfig, CliError> {
    let error = |why: String| CliError::OptionFile {
        what: "the model's configuration",
        path: word.to_owned(),
        why,
    };
    if let Some(name) = word.strip_prefix("known:") {
        let model = known::model(name).ok_or_else(|| CliError::NoSuchWord {
            what: "known model",
            word: name.to_owned(),
            hint: format!("there are: {}", known::names()),
        })?;
        return model.map_err(|why| error(why.to_string()));
    }
    let path = Path::new(word);
    let text = match text_of("the model's configuration", path, MOST_CONFIG) {
        Ok(text) => text,
        // A directory, as checkpoints are kept; where that fails too, the first error tells more.
        Err(first) => text_of("the model's configuration", &path.join("config.json"), MOST_CONFIG)
            .map_err(|_| first)?,
    };
    ModelConfig::parse(&text).map_err(|why| error(why.to_string()))
}

/// Arguments of `worth estimate`.
#[derive(Args, Clone, Debug)]
pub struct EstimateArgs {
    /// The workload
    #[command(flatten)]
    pub workload: Workload,
}

/// Runs the command.
pub fn run(global: &Global, wanted: &EstimateArgs, output: &mut Output) -> Result<Exit, CliError> {
    walls(&wanted.workload.files())?;
    let request = wanted.workload.request(None)?.ok_or_else(|| CliError::Wishes {
        why: format!(
            "no model was named: give --model with a config.json, or known:NAME ({})",
            known::names()
        ),
    })?;
    let estimate = peerway_worth::estimate(&request)
        .map_err(|error| CliError::Wishes { why: error.to_string() })?;
    if global.format == Format::Text {
        output.push(&page::page(&estimate));
    } else {
        document(output, "worth-estimate", estimate)?;
    }
    Ok(Exit::Fine)
}
