//! `worth launch`: commands and environment for the engine's version.

use std::path::{Path, PathBuf};

use clap::Args;
use peerway_worth::known;
use peerway_worth::launch::{Launch, Line, Mode, Outcome, Piece, Proof, Wanted, render};

use super::estimate::Workload;
use super::{document, text_of, walls};
use crate::args::{Format, Global};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::text::{add, bold, wrap};

/// Measurements of `test` on many GPUs.
const MOST_MEASUREMENT: usize = 64 << 20;

/// Arguments of `worth launch`.
#[derive(Args, Clone, Debug)]
pub struct LaunchArgs {
    /// The workload
    #[command(flatten)]
    pub workload: Workload,
    /// What to write as the model's path (default: MODEL)
    #[arg(long, value_name = "PATH", default_value = "MODEL")]
    pub model_path: String,
    /// With --enable-fused-moe-sum-all-reduce, where the version has it
    #[arg(long)]
    pub fused_moe_sum: bool,
    /// With one-shot all-reduce kernels, where the version has them and the proof covers them
    #[arg(long, requires = "proof")]
    pub kernels: bool,
    /// With peer access restored: the JSON of a `peerway test` in which every pair was right.
    /// Without it, every way to use peer access is switched off
    #[arg(long, value_name = "FILE")]
    pub proof: Option<PathBuf>,
    /// Your own launch line, held against what the version refuses
    #[arg(last = true, value_name = "LINE")]
    pub own: Vec<String>,
}

/// Runs the command.
pub fn run(global: &Global, wanted: &LaunchArgs, output: &mut Output) -> Result<Exit, CliError> {
    let files: Vec<&Path> =
        wanted.workload.files().into_iter().chain(wanted.proof.as_deref()).collect();
    walls(&files)?;
    let request = wanted.workload.request(None)?.ok_or_else(|| CliError::Wishes {
        why: format!(
            "no model was named: give --model with a config.json, or known:NAME ({})",
            known::names()
        ),
    })?;
    let proof = wanted
        .proof
        .as_deref()
        .map(|path| {
            let text = text_of("the measurement", path, MOST_MEASUREMENT)?;
            Proof::from_test(&text, &request.layout).map_err(|error| CliError::NotProved {
                path: path.display().to_string(),
                why: error.to_string(),
            })
        })
        .transpose()?;
    let launch = render(&Wanted {
        engine: request.engine,
        model: request.model,
        path: wanted.model_path.clone(),
        gpu: request.gpu,
        layout: request.layout,
        concurrency: request.concurrency,
        draft_steps: request.draft_steps,
        fused_sum: wanted.fused_moe_sum,
        kernels: wanted.kernels,
        memory_fraction: request.memory_fraction,
        proof,
        own: Line::of_words(&wanted.own),
    })
    .map_err(|error| CliError::Wishes { why: error.to_string() })?;
    let refused =
        launch.refusals.iter().any(|one| matches!(one.outcome, Outcome::Refused | Outcome::Unsafe));
    if global.format == Format::Text {
        output.push(&page(&launch));
    } else {
        document(output, "worth-launch", launch)?;
    }
    Ok(if refused { Exit::Refused } else { Exit::Fine })
}

fn page(launch: &Launch) -> String {
    let mode = match launch.mode {
        Mode::Safe => "peer access off",
        Mode::Restored => "peer access restored, as measured",
    };
    let mut out = format!("{}, {mode}\n", bold(&launch.engine));
    for note in &launch.notes {
        out.push_str(&wrap(note, "note: ", "      "));
    }
    for refusal in &launch.refusals {
        let head = match refusal.outcome {
            Outcome::Refused => "refused: ",
            Outcome::Changed => "changed: ",
            Outcome::Unsafe => "unsafe: ",
        };
        let text = format!("{}: {} ({})", refusal.what, refusal.why, refusal.source);
        out.push_str(&wrap(&text, head, "         "));
    }
    for left in &launch.left {
        out.push_str(&wrap(&format!("{}: {}", left.what, left.why), "left out: ", "          "));
    }
    for step in &launch.before {
        out.push_str(&wrap(step, "before: ", "        "));
    }
    out.push('\n');
    // Lines to be copied stand as they are.
    for name in &launch.unset {
        add(&mut out, &format!("unset {name}\n"));
    }
    for piece in &launch.environment {
        add(&mut out, &format!("{} \\\n", piece.text));
    }
    out.push_str(&launch.program);
    for piece in &launch.arguments {
        add(&mut out, &format!(" \\\n  {}", piece.text));
    }
    add(&mut out, &format!("\n\n{}\n", bold("what each is for, and how it is taken back")));
    for piece in launch.environment.iter().chain(&launch.arguments) {
        out.push_str(&piece_lines(piece));
    }
    for step in &launch.after {
        out.push_str(&wrap(step, "after: ", "       "));
    }
    out
}

fn piece_lines(piece: &Piece) -> String {
    format!(
        "  {}\n{}{}",
        piece.text,
        wrap(&piece.why, "      ", "      "),
        wrap(&piece.back, "      back: ", "            ")
    )
}
