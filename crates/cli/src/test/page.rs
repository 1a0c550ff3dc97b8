//! The answer for people.

use std::fmt::Display;

use peerway_cli_read::Exit;
use peerway_cli_read::text::{bold, bytes, word, wrap};
use peerway_core::address::PciAddress;
use peerway_gpu::{AllReduceResult, Arm, Evidence, Mode, PairResult, Verdict};

use super::Test;

/// The whole page.
pub(super) fn page(test: &Test, exit: Exit) -> String {
    let mut out = wrap(&bold(answer(exit, between_gpus(test), serious(test))), "", "");
    for note in &test.notes {
        out.push_str(&wrap(note, "note: ", "      "));
    }
    for unmet in &test.preconditions {
        out.push_str(&wrap(&unmet.message, "to do: ", "       "));
    }
    if !test.gpus.is_empty() {
        out.push('\n');
    }
    for (index, gpu) in test.gpus.iter().enumerate() {
        let memory = gpu.memory_bytes.map_or("memory unknown".to_owned(), bytes);
        out.push_str(&wrap(
            &format!("{}  {}, {memory}", gpu.address, gpu.name),
            &format!("{index:>3}  "),
            "     ",
        ));
    }
    for (title, rows) in [
        ("Pairs, peer to peer", &test.pairs),
        ("The same through host memory (control arm)", &test.control),
        ("Within one GPU", &test.loopback),
    ] {
        out.push_str(&pairs(test, title, rows));
    }
    out.push_str(&together(test));
    out.push_str(&host(test));
    out.push_str(&all_reduce(test));
    if let Some(comparison) = &test.comparison {
        out.push_str(&heading(&format!("Since {}", comparison.baseline)));
        for text in comparison.describe() {
            out.push_str(&wrap(&text, "", "    "));
        }
    }
    for one in &test.evidence {
        for text in one.evidence.describe() {
            out.push_str(&wrap(&format!("{}: {text}", one.work), "", "    "));
        }
    }
    for child in &test.children {
        let at = child.step.as_ref().map_or(String::new(), |step| format!(" at {step}"));
        let text = format!("{}{at}: process {}: {}", child.work, child.pid, child.end);
        out.push_str(&wrap(&text, "child: ", "       "));
    }
    out
}

/// Whether what failed is a transfer between GPUs with P2P: not the control arm, a transfer with
/// the host or within a GPU, or the driver's start.
fn between_gpus(test: &Test) -> bool {
    let pairs = test.pairs.iter().any(|row| row.verdict >= Verdict::Broken || row.above_line_rate);
    let together = test.together.iter().any(|row| row.verdict >= Verdict::Broken);
    let sums = |row: &AllReduceResult| {
        row.arm == Arm::P2p && row.gpus.len() > 1 && row.verdict >= Verdict::Broken
    };
    pairs || together || test.all_reduce.iter().any(sums)
}

/// Whether the host recorded something meanwhile that a sound transfer does not cause.
fn serious(test: &Test) -> bool {
    let pairs = test.pairs.iter().map(|row| &row.evidence);
    pairs.chain(test.evidence.iter().map(|one| &one.evidence)).any(Evidence::is_serious)
}

fn answer(exit: Exit, between_gpus: bool, serious: bool) -> &'static str {
    match exit {
        Exit::Findings if !serious => {
            "No data was wrong, and something is worse than in the baseline: see below what."
        }
        Exit::WrongData if !between_gpus => {
            "DATA WAS WRONG, but not by peer access: see below where. Whatever goes through host \
             memory or stays within that GPU is not to be trusted either."
        }
        Exit::Hung if !between_gpus => {
            "THE DRIVER OR A GPU DID NOT COME TO ITS END, not by peer access: see below where. \
             Whether peer access works is unknown."
        }
        Exit::Fine => {
            "No data was wrong; what each mode did stands above (staged ones go through host memory)."
        }
        Exit::WrongData => {
            "DATA WAS WRONG: do not use peer access on this host before the cause is gone \
             (peerway status names it where it can)."
        }
        Exit::Findings => {
            "Data arrived, but the host recorded errors meanwhile: see below which, and of whom."
        }
        Exit::Hung => "A TRANSFER HUNG OR BROKE DOWN: do not use peer access on this host.",
        _ => "Not everything could be measured; what was not is no better than unknown.",
    }
}

/// Index of a GPU in the list above the tables, or its address where it is not there.
fn name(test: &Test, gpu: PciAddress) -> String {
    match test.gpus.iter().position(|seen| seen.address == gpu) {
        Some(index) => index.to_string(),
        None => gpu.to_string(),
    }
}

fn pairs(test: &Test, title: &str, rows: &[PairResult]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut out = heading(title);
    out.push_str(&line([
        &"pair",
        &"mode",
        &"engine",
        &"verdict",
        &"damage",
        &"write GB/s",
        &"read GB/s",
        &"latency",
    ]));
    let mut details = String::new();
    for row in rows {
        let pair = format!("{} > {}", name(test, row.from), name(test, row.to));
        let damage = row.damage.map_or("-".to_owned(), |damage| damage.to_string());
        out.push_str(&line([
            &pair,
            &word(row.mode),
            &word(row.engine),
            &word(row.verdict),
            &damage,
            &rate(row.bandwidth_bytes_per_second),
            &rate(row.read_bytes_per_second),
            &time(row.latency_seconds),
        ]));
        let head = format!("{pair} {} {}: ", word(row.mode), word(row.engine));
        for text in remarks(row) {
            details.push_str(&wrap(&text, &head, "    "));
        }
    }
    out + &details + &sampled(test, rows)
}

/// Of how much memory samples were taken, where ranges were right.
fn sampled(test: &Test, rows: &[PairResult]) -> String {
    // The control arm takes none.
    let right =
        rows.iter().filter(|row| row.verdict == Verdict::Intact && row.mode != Mode::Staged);
    let parts =
        right.flat_map(|row| row.operations.iter().map(move |part| (row.to, part.sampled_bytes)));
    let Some((gpu, least)) = parts.min_by_key(|(_, bytes)| *bytes) else { return String::new() };
    let all = test.gpus.iter().find(|seen| seen.address == gpu).and_then(|seen| seen.memory_bytes);
    let all = all.map_or("unknown size".to_owned(), bytes);
    let text = match least {
        0 => "no samples over the memory in at least one row: what lies beyond is not known"
            .to_owned(),
        some => format!("samples over at least {} of {all} of a GPU's memory", bytes(some)),
    };
    wrap(&text, "", "    ")
}

/// What a row has to say beyond its columns.
fn remarks(row: &PairResult) -> Vec<String> {
    let mut texts = Vec::new();
    for operation in &row.operations {
        if let Some(report) = &operation.damage {
            texts.push(format!(
                "{} {}: {} at byte {} in {}, {} units of 16 bytes; found {}, expected {}",
                word(operation.operation),
                word(operation.verdict),
                report.damage,
                report.first_bad_offset,
                report.step,
                report.bad_units,
                report.found,
                report.expected
            ));
        } else if let Some(detail) = &operation.detail {
            texts.push(format!("{}: {detail}", word(operation.operation)));
        }
    }
    if row.above_line_rate {
        texts.push(format!(
            "faster than the link can be ({} GB/s): writes that vanish look fast",
            rate(row.line_rate_bytes_per_second)
        ));
    }
    texts.extend(row.detail.clone());
    texts.extend(row.evidence.describe());
    texts
}

fn together(test: &Test) -> String {
    if test.together.is_empty() {
        return String::new();
    }
    let mut out = heading("Several at once");
    for row in &test.together {
        let hub = row.hub.map_or(String::new(), |hub| format!(" at {}", name(test, hub)));
        let mut text = format!(
            "{}{hub}, {}: {}, {} GB/s in all",
            word(row.pattern),
            word(row.engine),
            word(row.verdict),
            rate(row.bandwidth_bytes_per_second)
        );
        for hit in &row.damaged {
            let (from, to) = (name(test, hit.from), name(test, hit.to));
            text = format!("{text}; {from} > {to} {}", hit.report.damage);
        }
        if let Some(detail) = &row.detail {
            text = format!("{text}; {detail}");
        }
        out.push_str(&wrap(&text, "", "    "));
    }
    out
}

fn host(test: &Test) -> String {
    if test.host_rates.is_empty() {
        return String::new();
    }
    let mut out = heading("With host memory, and within the GPU");
    out.push_str("GPU           upload GB/s  download GB/s  local copy GB/s\n");
    for row in &test.host_rates {
        let line = format!(
            "{:<12}  {:>11}  {:>13}  {:>15}\n",
            name(test, row.gpu),
            rate(Some(row.upload_bytes_per_second)),
            rate(Some(row.download_bytes_per_second)),
            rate(Some(row.local_copy_bytes_per_second)),
        );
        out.push_str(&line);
    }
    for row in &test.host_rates {
        if let Some(report) = &row.damage {
            let text = format!(
                "{}: WRONG {}: {} at byte {}",
                name(test, row.gpu),
                report.step,
                report.damage,
                report.first_bad_offset
            );
            out.push_str(&wrap(&text, "", "    "));
        }
    }
    out
}

fn all_reduce(test: &Test) -> String {
    if test.all_reduce.is_empty() {
        return String::new();
    }
    let mut out = heading("All-reduce (NCCL)");
    out.push_str("     size  arm         verdict      time  bus GB/s  transports\n");
    let mut said = Vec::new();
    for row in &test.all_reduce {
        out.push_str(
            format!(
                "{:>9}  {:<10}  {:<7}  {:>8}  {:>8}  {}",
                bytes(row.bytes),
                arm(row),
                word(row.verdict),
                time(row.seconds),
                rate(row.bus_bytes_per_second),
                row.transports.join(" ")
            )
            .trim_end(),
        );
        out.push('\n');
        if let Some(detail) = &row.detail {
            // Each arm says the same for all of its sizes.
            let text = format!("{}: {detail}", arm(row));
            if !said.contains(&text) {
                said.push(text);
            }
        }
    }
    said.extend(wrong(&test.all_reduce));
    for text in said {
        out.push_str(&wrap(&text, "", "    "));
    }
    out
}

/// With or without P2P, and in how many processes if in several.
fn arm(row: &AllReduceResult) -> String {
    match row.processes {
        1 => word(row.arm),
        several => format!("{} x{several}", word(row.arm)),
    }
}

fn wrong(rows: &[AllReduceResult]) -> impl Iterator<Item = String> {
    rows.iter().filter(|row| row.wrong_elements > 0).map(|row| {
        format!("{} {}: {} elements were wrong", arm(row), bytes(row.bytes), row.wrong_elements)
    })
}

fn heading(title: &str) -> String {
    format!("\n{}\n", bold(title))
}

/// A line of the table of pairs: 78 columns where GPUs go by their indices.
fn line(cells: [&dyn Display; 8]) -> String {
    let [pair, mode, engine, verdict, damage, write, read, latency] =
        cells.map(ToString::to_string);
    format!(
        "{pair:<7}  {mode:<6}  {engine:<6}  {verdict:<7}  {damage:<9}  {write:>10}  {read:>9}  \
         {latency:>8}\n"
    )
}

/// Decimal gigabytes per second.
fn rate(bytes_per_second: Option<f64>) -> String {
    match bytes_per_second {
        Some(rate) if rate < 1e9 => format!("{:.3}", rate / 1e9),
        Some(rate) => format!("{:.1}", rate / 1e9),
        None => "-".to_owned(),
    }
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        Some(seconds) if seconds < 1e-3 => format!("{:.2} us", seconds * 1e6),
        Some(seconds) => format!("{:.2} ms", seconds * 1e3),
        None => "-".to_owned(),
    }
}
