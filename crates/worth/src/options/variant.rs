//! Options that the model can compute: the same step with one thing changed.

use super::{Available, Basis, Interaction, OptionRow, interaction, several};
use crate::allreduce::{Arm, Times};
use crate::config::{ModelConfig, Part};
use crate::engine::{EngineName, Kernels, Version};
use crate::estimate::{Context, EstimateError, rate};
use crate::interval::Interval;
use crate::layout::Layout;
use crate::precision::Precision;
use crate::step::{Scenario, Setup};

/// The workload with one thing changed.
struct Variant {
    model: ModelConfig,
    layout: Layout,
    times: Times,
    kv: Precision,
    state: Option<Precision>,
    message: f64,
    draft_steps: u32,
}

impl Variant {
    fn same(context: &Context<'_>) -> Self {
        Self {
            model: context.request.model.clone(),
            layout: context.request.layout,
            times: context.times.clone(),
            kv: context.request.kv,
            state: None,
            message: 2.0,
            draft_steps: 0,
        }
    }

    fn laid_out(context: &Context<'_>, layout: Layout) -> Self {
        let times = if layout.tp == context.request.layout.tp {
            context.times.clone()
        } else {
            context.times_of(layout.tp)
        };
        Self { layout, times, ..Self::same(context) }
    }

    fn seconds(&self, context: &Context<'_>, arm: Arm, scenario: &Scenario) -> f64 {
        let setup = Setup {
            model: &self.model,
            layout: self.layout,
            times: &self.times,
            kv: self.kv,
            state: self.state,
            message: self.message,
            ..context.setup()
        };
        setup.decode(&context.work(self.draft_steps), arm, scenario).total()
    }

    /// More tokens a second, per cent, of this with one way of summing over the workload as it is
    /// with another.
    fn gain(&self, context: &Context<'_>, to: Arm, from: Arm) -> Result<Interval, EstimateError> {
        let (setup, work) = (context.setup(), context.work(0));
        let accepted = context.accepted(self.draft_steps);
        let ratio = context.over("an option", |one| {
            let today = rate(&work, 1.0, &setup.decode(&work, from, one));
            work.sequences / self.seconds(context, to, one) / today
        })?;
        Ok(Interval::new(
            (ratio.low * accepted.low - 1.0) * 100.0,
            (ratio.mid * accepted.mid - 1.0) * 100.0,
            (ratio.high * accepted.high - 1.0) * 100.0,
        ))
    }

    /// Whether its weights leave room within the share of memory that the engine may fill.
    fn fits(&self, context: &Context<'_>) -> bool {
        self.layout.weight_bytes(&self.model, self.draft_steps > 0)
            < context.request.gpu.memory_bytes * context.request.memory_fraction
    }

    /// Whether sums that its gain rests on were assumed.
    fn sums_assumed(&self, arm: Arm) -> bool {
        self.layout.tp > 1 && self.times.arm_assumed(arm)
    }

    fn available(&self, context: &Context<'_>) -> Available {
        if self.fits(context) { Available::Yes } else { Available::No }
    }

    fn note(&self, context: &Context<'_>, note: &str) -> String {
        if self.fits(context) { note.to_owned() } else { NO_ROOM.to_owned() }
    }

    /// The row of an option that is not about peer access.
    fn row(
        &self,
        context: &Context<'_>,
        id: &'static str,
        title: String,
        note: &str,
    ) -> Result<OptionRow, EstimateError> {
        let gain = self.gain(context, Arm::Host, Arm::Host)?;
        let with = if several(context) {
            let arm = context.peer_arm();
            Some(self.gain(context, arm, arm)?)
        } else {
            None
        };
        Ok(OptionRow {
            id,
            title,
            available: self.available(context),
            gain_percent: Some(gain),
            gain_with_p2p_percent: with,
            basis: Basis::Estimated,
            interaction: with.map_or(Interaction::Unknown, |with| interaction(gain, with)),
            note: self.note(context, note),
            source: MODEL,
            sums_assumed: self.sums_assumed(Arm::Host)
                || several(context) && self.sums_assumed(context.peer_arm())
                || context.sums_assumed(Arm::Host),
        })
    }
}

const NO_ROOM: &str = "the weights do not fit so";

const MODEL: &str = "the model of docs/worth.md";

pub(super) fn rows(context: &Context<'_>) -> Result<Vec<OptionRow>, EstimateError> {
    let mut rows = Vec::new();
    if several(context) {
        rows.extend(peer(context)?);
    }
    rows.extend(speculation(context)?);
    rows.extend(weights(context)?);
    rows.extend(layouts(context)?);
    rows.extend(formats(context)?);
    Ok(rows)
}

fn peer_row(
    context: &Context<'_>,
    variant: &Variant,
    id: &'static str,
    title: &str,
    arm: Arm,
    note: &str,
) -> Result<OptionRow, EstimateError> {
    Ok(OptionRow {
        id,
        title: title.to_owned(),
        available: variant.available(context),
        gain_percent: Some(variant.gain(context, arm, Arm::Host)?),
        gain_with_p2p_percent: None,
        basis: Basis::Estimated,
        interaction: Interaction::IsP2p,
        note: variant.note(context, note),
        source: MODEL,
        sums_assumed: variant.sums_assumed(arm) || context.sums_assumed(Arm::Host),
    })
}

fn peer(context: &Context<'_>) -> Result<Vec<OptionRow>, EstimateError> {
    let same = Variant::same(context);
    let mut rows = vec![peer_row(
        context,
        &same,
        "p2p",
        "peer access, used by NCCL",
        Arm::Peer,
        "a road of `peerway roads`; results must be proved right first",
    )?];
    let kernels =
        context.request.engine.kernels(context.request.gpu.link, context.request.layout.tp);
    let (available, note) = match &kernels {
        Kernels::ByDefault => {
            (Available::Yes, "the engine uses them by itself once peer access is there".to_owned())
        }
        Kernels::OptIn(variable) => (
            Available::Yes,
            format!("{variable}; they spin without a limit if peer access is not perfect"),
        ),
        Kernels::No(why) => (Available::No, why.clone()),
        Kernels::Unknown(why) => (Available::Unknown, why.clone()),
    };
    if context.times.kernel.is_some() {
        let row = peer_row(
            context,
            &same,
            "p2p-kernels",
            "peer access and one-shot all-reduce kernels",
            Arm::PeerKernel,
            &note,
        )?;
        rows.push(worse(row, available, note));
    }
    Ok(rows)
}

/// What cannot be had for two reasons is said for the first: a row that does not fit stays so.
fn worse(row: OptionRow, available: Available, note: String) -> OptionRow {
    if row.available == Available::Yes { OptionRow { available, note, ..row } } else { row }
}

fn speculation(context: &Context<'_>) -> Result<Vec<OptionRow>, EstimateError> {
    let model = &context.request.model;
    if model.draft_layers == 0 {
        return Ok(vec![OptionRow {
            id: "mtp",
            title: "speculative decoding with the model's own layer (MTP, NEXTN)".to_owned(),
            available: Available::No,
            gain_percent: None,
            gain_with_p2p_percent: None,
            basis: Basis::None,
            interaction: Interaction::Unknown,
            note: "the configuration names no such layer; a separate draft model would do"
                .to_owned(),
            source: MODEL,
            sums_assumed: false,
        }]);
    }
    // The depth that is best in the middle, unless one was asked for.
    let mut best: Option<(Variant, f64)> = None;
    let depths = match context.request.draft_steps {
        0 => vec![1, 2, 3],
        asked => vec![asked],
    };
    for draft_steps in depths {
        let variant = Variant { draft_steps, ..Variant::same(context) };
        let gain = variant.gain(context, Arm::Host, Arm::Host)?.mid;
        if best.as_ref().is_none_or(|(_, most)| gain > *most) {
            best = Some((variant, gain));
        }
    }
    let Some((variant, _)) = best else { return Ok(Vec::new()) };
    let title = format!("speculative decoding (MTP, NEXTN), {} draft steps", variant.draft_steps);
    let assumed = !context.accepted_measured(variant.draft_steps);
    let note = if assumed {
        "accepted tokens are assumed: measure them on your own prompts; states of drafted tokens \
         take memory, and fewer requests may run than asked for"
    } else {
        "with the accepted tokens as measured; states of drafted tokens take memory, and fewer \
         requests may run than asked for"
    };
    let mut rows = vec![variant.row(context, "mtp", title, note)?];
    if several(context) {
        let arm = context.peer_arm();
        rows.push(peer_row(
            context,
            &variant,
            "mtp-and-p2p",
            "both: speculation and peer access",
            arm,
            "against today, not a sum of the two",
        )?);
    }
    Ok(rows)
}

fn weights(context: &Context<'_>) -> Result<Vec<OptionRow>, EstimateError> {
    let request = context.request;
    let heavy = if request.model.moe().is_some() { Part::Experts } else { Part::DenseFfn };
    let now = request.model.weights.bytes(heavy);
    let mut rows = Vec::new();
    let mut candidates = Vec::new();
    if request.gpu.compute_rate_fp8.is_some() {
        candidates.push((Precision::Fp8, "fp8-weights"));
    }
    candidates.push(if request.gpu.capability >= 100 {
        (Precision::Nvfp4, "nvfp4-weights")
    } else {
        (Precision::Int4, "int4-weights")
    });
    for (format, id) in candidates {
        if format.bytes() < now {
            let variant =
                Variant { model: with_weights(&request.model, format), ..Variant::same(context) };
            let title = format!("{} weights", format.word());
            let note = "accuracy has to be checked; kernels for this GPU may be untuned";
            rows.push(variant.row(context, id, title, note)?);
        }
    }
    Ok(rows)
}

fn with_weights(model: &ModelConfig, format: Precision) -> ModelConfig {
    ModelConfig { weights: model.weights.quantised(format), ..model.clone() }
}

fn layouts(context: &Context<'_>) -> Result<Vec<OptionRow>, EstimateError> {
    let request = context.request;
    let now = request.layout;
    let mut rows = Vec::new();
    if now.tp < 2 {
        return Ok(rows);
    }
    for (tp, id) in [(now.tp / 2, "replicas-2"), (1, "replicas-all")] {
        if tp < 1 || (tp == 1 && id == "replicas-2") || !now.tp.is_multiple_of(tp) {
            continue;
        }
        let layout = Layout { tp, replicas: now.replicas * (now.tp / tp), ..now };
        for format in [None, Some(Precision::Fp8), Some(Precision::Nvfp4)] {
            let model = match format {
                None => request.model.clone(),
                Some(Precision::Nvfp4) if request.gpu.capability < 100 => continue,
                Some(format) => with_weights(&request.model, format),
            };
            let variant = Variant { model, ..Variant::laid_out(context, layout) };
            if layout.check(&variant.model).is_err() || !variant.fits(context) {
                continue;
            }
            let suffix =
                format.map_or(String::new(), |format| format!(", {} weights", format.word()));
            let title = format!("{}{suffix}", layout.words());
            let note = if tp == 1 {
                "needs no peers at all; a router in front; each has the memory of one GPU for states \
                 and keys"
            } else {
                "peers only within a pair, which both engines' ordinary kernels take; a router in \
                 front"
            };
            rows.push(variant.row(context, id, title, note)?);
            // The first format that fits is the one that costs least accuracy.
            break;
        }
    }
    let pipeline = Layout { tp: 1, pp: now.tp * now.pp, ..now };
    if now.pp == 1 && pipeline.check(&request.model).is_ok() {
        let variant = Variant::laid_out(context, pipeline);
        let note = "hardly any messages, so peer access does not matter; slower for one request";
        rows.push(variant.row(context, "pipeline", pipeline.words(), note)?);
    }
    if request.model.moe().is_some() && !now.expert_parallel {
        let placed = Layout { expert_parallel: true, ..now };
        let variant = Variant::laid_out(context, placed);
        let note = "the same messages without an all-to-all backend, which needs NVLink or RDMA";
        rows.push(variant.row(
            context,
            "experts-placed",
            "experts placed, not cut".to_owned(),
            note,
        )?);
    }
    if !now.attention_dp {
        let spread = Layout { attention_dp: true, ..now };
        let variant = Variant::laid_out(context, spread);
        let note = "attention weights on every GPU; keys are no longer kept several times";
        rows.push(variant.row(
            context,
            "attention-dp",
            "attention data-parallel".to_owned(),
            note,
        )?);
    }
    Ok(rows)
}

fn formats(context: &Context<'_>) -> Result<Vec<OptionRow>, EstimateError> {
    let request = context.request;
    let mut rows = Vec::new();
    if request.kv.bytes() > 1.0 {
        let variant = Variant { kv: Precision::Fp8, ..Variant::same(context) };
        let note = "half the bytes of keys and values; some attention kernels refuse it";
        rows.push(variant.row(context, "fp8-kv", "FP8 keys and values".to_owned(), note)?);
    }
    if request.model.linear.is_some_and(|linear| linear.state == Precision::Float32) {
        let variant = Variant { state: Some(Precision::Bfloat16), ..Variant::same(context) };
        let note = "halves states in memory too, so more requests run; its effect on accuracy is not \
                    known";
        rows.push(variant.row(
            context,
            "bf16-state",
            "recurrent states in bfloat16".to_owned(),
            note,
        )?);
    }
    if several(context) && request.layout.tp > 1 {
        let since = Version(0, 5, 12);
        let engine = request.engine;
        let variant = Variant { message: 1.0, ..Variant::same(context) };
        let note = "half the bytes of every all-reduce; its effect on accuracy is not known";
        let row = variant.row(
            context,
            "int8-messages",
            "--enable-quant-communications: INT8 messages".to_owned(),
            note,
        )?;
        let (available, note) = match (engine.name, engine.version) {
            (EngineName::Vllm, _) => (Available::No, "an option of SGLang".to_owned()),
            (EngineName::Sglang, None) => (Available::Unknown, row.note.clone()),
            (EngineName::Sglang, Some(version)) if version < since => {
                (Available::No, format!("from {since} on, and this is {version}"))
            }
            (EngineName::Sglang, Some(_)) => (Available::Yes, row.note.clone()),
        };
        rows.push(worse(row, available, note));
    }
    Ok(rows)
}
