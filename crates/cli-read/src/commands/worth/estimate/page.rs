//! The estimate for people.

use peerway_worth::Interval;
use peerway_worth::allreduce::Arm;
use peerway_worth::estimate::{DecodeRow, Estimate, PrefillRow, SpeculationRow};
use peerway_worth::options::{Available, Basis, Interaction, OptionRow};
use peerway_worth::state::StateCap;

use crate::text::{self, WIDTH, add, bold, wrap};

/// Everything on one page.
pub(super) fn page(estimate: &Estimate) -> String {
    let mut out = head(estimate);
    out.push_str(&decode(&estimate.decode));
    out.push_str(&prefill(&estimate.prefill));
    out.push_str(&value(estimate));
    out.push_str(&speculation(&estimate.speculation));
    if let Some(cap) = &estimate.state_cap {
        out.push_str(&states(cap));
    }
    out.push_str(&options(&estimate.options));
    out.push_str(&assumptions(estimate));
    out
}

/// A number with as many digits as it deserves.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// `mid (low to high)`.
pub(super) fn interval(value: Interval) -> String {
    if value.is_exact() {
        number(value.mid)
    } else {
        format!("{} ({} to {})", number(value.mid), number(value.low), number(value.high))
    }
}

/// A gain: `+22 % (+14 to +60)`.
pub(crate) fn percent(value: Interval) -> String {
    if value.is_exact() {
        format!("{:+.0} %", value.mid)
    } else {
        format!("{:+.0} % ({:+.0} to {:+.0})", value.mid, value.low, value.high)
    }
}

fn millis(seconds: Interval) -> String {
    interval(seconds.map(|one| one * 1e3))
}

fn head(estimate: &Estimate) -> String {
    let sizes = &estimate.sizes;
    let first = format!(
        "{}, {}, {} on {}",
        bold(&sizes.model_type),
        estimate.engine,
        estimate.layout,
        estimate.gpu
    );
    let mut out = wrap(&first, "", "  ");
    let work = format!(
        "{} at once, prompts of {} tokens, answers of {}; {:.1} B parameters, {:.1} B active, {}",
        estimate.concurrency,
        estimate.prompt_tokens,
        estimate.output_tokens,
        sizes.parameters / 1e9,
        sizes.active_parameters / 1e9,
        sizes.formats
    );
    out.push_str(&wrap(&work, "", "  "));
    let mut memory = format!(
        "each GPU: {:.1} GB of weights, {:.0} bytes of keys and values a token",
        sizes.weight_bytes_per_gpu / 1e9,
        sizes.kv_bytes_per_token_per_gpu
    );
    if sizes.state_bytes_per_sequence_per_gpu > 0.0 {
        add(
            &mut memory,
            &format!(
                ", {:.1} MB of state a sequence",
                sizes.state_bytes_per_sequence_per_gpu / 1e6
            ),
        );
    }
    if sizes.all_reduces_per_step > 0 {
        add(
            &mut memory,
            &format!(
                "; {} all-reduces a step of {:.1} KiB",
                sizes.all_reduces_per_step,
                sizes.all_reduce_bytes / 1024.0
            ),
        );
    }
    out.push_str(&wrap(&memory, "", "  "));
    if estimate.all_reduce_assumed {
        out.push_str("all-reduce times: assumed where said, not measured on this host\n");
    }
    for note in &estimate.notes {
        out.push_str(&wrap(note, "note: ", "      "));
    }
    if let Some(calibration) = &estimate.calibration {
        if let Some(fixed) = calibration.fixed_per_layer_us {
            let text = format!(
                "the measured rate leaves {} µs a layer for kernels and launches; {} of {} \
                 combinations of assumptions explain it",
                interval(fixed),
                calibration.kept,
                calibration.of
            );
            out.push_str(&wrap(&text, "fitted: ", "        "));
        }
        for note in &calibration.notes {
            out.push_str(&wrap(note, "measured: ", "          "));
        }
    }
    out
}

fn decode(rows: &[DecodeRow]) -> String {
    let mut out = format!("\n{}\n", bold("decode"));
    for row in rows {
        let text = format!(
            "{} tokens/s; step {} ms; messages {:.0} % of it; bound by {}{}",
            interval(row.tokens_per_second),
            millis(row.step_seconds),
            row.message_share.mid * 100.0,
            row.bound.words(),
            sums(row.sums_assumed)
        );
        out.push_str(&wrap(&text, &format!("  {:<22}", row.arm.title()), &" ".repeat(24)));
    }
    out.push_str(&terms(rows.iter().map(|row| (column(row.arm), row.terms.as_slice()))));
    out
}

/// Said of each row whose all-reduce times were not measured.
fn sums(assumed: bool) -> &'static str {
    if assumed { "; sums assumed" } else { "" }
}

/// Heading of a column.
fn column(arm: Arm) -> &'static str {
    match arm {
        Arm::Host => "P2P off",
        Arm::Peer => "NCCL over P2P",
        Arm::PeerKernel => "one-shot",
    }
}

/// Terms in milliseconds, a column for each way of summing.
fn terms<'a>(
    columns: impl Iterator<Item = (&'a str, &'a [peerway_worth::estimate::TermIntervals])>,
) -> String {
    let columns: Vec<_> = columns.collect();
    let mut names: Vec<&str> = Vec::new();
    for (_, terms) in &columns {
        for term in *terms {
            if !names.contains(&term.term) {
                names.push(term.term);
            }
        }
    }
    let mut out = format!("  {:<14}", "ms");
    for (title, _) in &columns {
        add(&mut out, &format!("{title:>21}"));
    }
    out.push('\n');
    for name in names {
        let mut line = format!("  {:<14}", name.replace('_', " "));
        for (_, terms) in &columns {
            let cell = terms.iter().find(|term| term.term == name).map_or("-".to_owned(), |term| {
                let ms = term.seconds.map(|one| one * 1e3);
                // A column holds so many digits and no more.
                let digits = if ms.high >= 100.0 { 0 } else { 2 };
                if ms.is_exact() {
                    format!("{:.digits$}", ms.mid)
                } else {
                    format!("{:.digits$} ({:.digits$}-{:.digits$})", ms.mid, ms.low, ms.high)
                }
            });
            add(&mut line, &format!("{cell:>21}"));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn prefill(rows: &[PrefillRow]) -> String {
    let mut out = format!("\n{}\n", bold("prefill"));
    for row in rows {
        let text = format!(
            "a prompt alone takes {} s; bound by {}{}",
            interval(row.prompt_seconds),
            row.bound.words(),
            sums(row.sums_assumed)
        );
        out.push_str(&wrap(&text, &format!("  {:<22}", row.arm.title()), &" ".repeat(24)));
    }
    out
}

fn value(estimate: &Estimate) -> String {
    if estimate.p2p.is_empty() {
        return "\npeer access is worth nothing here: one GPU holds each replica\n".to_owned();
    }
    let mut out = format!("\n{}\n", bold("what peer access is worth, against none"));
    for row in &estimate.p2p {
        let text = format!(
            "decode {}; prefill time {}; whole requests {}{}",
            percent(row.decode_percent),
            percent(row.prefill_time_percent.map(|one| -one)),
            percent(row.requests_percent),
            sums(row.sums_assumed)
        );
        out.push_str(&wrap(&text, &format!("  {:<22}", row.arm.title()), &" ".repeat(24)));
    }
    out
}

fn speculation(rows: &[SpeculationRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{}\n", bold("speculation, gain over the same without it"));
    for row in rows {
        let assumed = if row.accepted_assumed { ", assumed" } else { "" };
        let text = format!(
            "{} tokens accepted{assumed}; pays from {} on",
            interval(row.accepted),
            number(row.break_even.mid)
        );
        let plural = if row.draft_steps == 1 { "" } else { "s" };
        out.push_str(&wrap(&text, &format!("  {} draft step{plural}: ", row.draft_steps), "    "));
        for arm in &row.arms {
            add(
                &mut out,
                &format!(
                    "    {:<22}{}; {} tokens/s\n",
                    arm.arm.title(),
                    percent(arm.gain_percent),
                    interval(arm.tokens_per_second)
                ),
            );
        }
    }
    out
}

fn states(cap: &StateCap) -> String {
    let mut out = format!("\n{}\n", bold("requests that can run beside their states"));
    for row in &cap.rows {
        let drafted = if row.draft_tokens > 0 {
            format!("{} drafted tokens", row.draft_tokens)
        } else {
            "no speculation".to_owned()
        };
        add(
            &mut out,
            &format!(
                "  {:<9} full-memory-ratio {:<4} {drafted:<18} {:>5} of {}\n",
                row.format.word(),
                row.ratio,
                row.running,
                row.asked
            ),
        );
    }
    for note in &cap.notes {
        out.push_str(&wrap(note, "  ", "  "));
    }
    out
}

fn options(rows: &[OptionRow]) -> String {
    let mut out =
        format!("\n{}\n", bold("options, gain in tokens per second of decode over today"));
    let mut rank = 0;
    for row in rows {
        let place = if row.available == Available::No {
            " -".to_owned()
        } else {
            rank += 1;
            format!("{rank:>2}")
        };
        let gain = match (row.available, row.gain_percent) {
            (Available::No, _) => "cannot be had".to_owned(),
            (Available::Yes, Some(gain)) => percent(gain),
            (Available::Unknown, Some(gain)) => format!("{}, if it can be had", percent(gain)),
            (_, None) => "gain unknown".to_owned(),
        };
        let basis = if row.basis == Basis::Reported { " (reported)" } else { "" };
        let text = format!("{}: {}{basis}", row.title, bold(&gain));
        out.push_str(&wrap(&text, &format!("{place}  "), "    "));
        let with = match (row.interaction, row.gain_with_p2p_percent) {
            (Interaction::Substitutes, Some(with)) => {
                format!("with P2P {}: both save the same time. ", percent(with))
            }
            (Interaction::Complements, Some(with)) => {
                format!("with P2P {}: worth more there. ", percent(with))
            }
            _ => String::new(),
        };
        let with = if row.available == Available::No { String::new() } else { with };
        out.push_str(&wrap(&format!("{with}{}", row.note), "      ", "      "));
    }
    out
}

fn assumptions(estimate: &Estimate) -> String {
    let mut out = format!("\n{}\n", bold("assumptions, low and high of which span the intervals"));
    for one in &estimate.assumptions {
        let assumed = if one.assumed { "" } else { "measured; " };
        let text = format!("{} {} ({assumed}{})", interval(one.value), one.unit, one.source);
        out.push_str(&wrap(&text, &format!("  {}: ", one.name), "    "));
    }
    debug_assert!(out.lines().all(|line| text::columns(line) <= WIDTH || !line.contains(' ')));
    out
}
