//! Time and page-table memory for memories of 64 MiB up to the largest that the emulator gives twice.

use anyhow::{Context as _, Result};
use peerway_lab_protocol::Step;

use super::{Facts, Proof, judge_probe, lines, shell};
use crate::lab::boot::Report;
use crate::lab::script;

/// Sizes in MiB. The emulated processor addresses 1 TiB, which does not hold two of 512 GiB.
const SIZES: [u64; 8] = [64, 256, 1024, 4096, 16_384, 65_536, 131_072, 262_144];
/// As far into a memory as a process of the guest maps it, in MiB.
const REACH: u64 = 2048;
/// Bytes that a copy reaches into.
const COPY: u64 = 4096;
/// Pages that hold the tables of all IOMMU domains, by the kernel's own count, which each processor keeps
/// its part of until it is told to add it up; nothing before 6.10.
const TABLES: &str =
    "echo 1 >/proc/sys/vm/stat_refresh; sed -n 's/^nr_iommu_pages //p' /proc/vmstat";

pub(super) fn prove(proof: &Proof<'_>, facts: &mut Facts) -> Result<()> {
    let mut rows = Vec::new();
    for size in SIZES {
        eprintln!("lab: a map of {}", shown(size));
        let report = proof.boot_sized(&format!("{size}M"), steps(size), facts)?;
        rows.push(row(facts, &report, size)?);
    }
    facts.say(
        "Machine `sizes`: a memory mapped whole, once, for one requester. Times are of an emulated \
         processor and grow with the pages that are looked at, one by one, before a map, in a verify and \
         before an unmap; the tables are those of all IOMMU domains that the kernel counts \
         (`nr_iommu_pages`, pages of 4 KiB).",
    );
    let head =
        ["memory", "map", "verify", "unmap", "tables before, under, after", "copy at its end"];
    facts.table(&head, &rows);
    Ok(())
}

fn steps(size: u64) -> Vec<Step> {
    let bytes = size << 20;
    let functions = format!("MEMORY={bytes}");
    let offset = ((size.min(REACH) << 20) - 2 * COPY).to_string();
    let probe = ["lab-copy", "probe", "--from", "0000:11:00.0", "--to", "0000:12:00.0"];
    let more = ["--offset", &offset];
    vec![
        shell("nothing", ":"),
        shell("tables before", TABLES),
        shell("map", &format!("{functions}; entry map 11 12")),
        shell("tables under", TABLES),
        shell("verify", "say verify"),
        script::run(PROBE, &[&probe[..], &more].concat()),
        shell("unmap", &format!("{functions}; entry unmap 11 12")),
        shell("tables after", TABLES),
    ]
}

const PROBE: &str = "11 to 12";

fn row(facts: &mut Facts, report: &Report, size: u64) -> Result<Vec<String>> {
    let name = shown(size);
    let map = report.stdout("map")?.trim();
    facts.expect(&format!("{name}: map"), &map.starts_with("done mapped 0 "), &true);
    for (step, begin) in [("verify", "done verified 0 "), ("unmap", "done unmapped 0 ")] {
        let begins = report.stdout(step)?.starts_with(begin);
        facts.expect(&format!("{name}: {step}"), &begins, &true);
    }
    let copy = judge_probe(facts, report, PROBE, true, Some(false))?;
    let tables = ["tables before", "tables under", "tables after"].map(|step| pages(report, step));
    let [before, under, after] = tables;
    let (before, under, after) = (before?, under?, after?);
    let text = match (before, under, after) {
        (Some(before), Some(under), Some(after)) => format!("{before}, {under}, {after}"),
        _ => "not counted by this kernel".to_owned(),
    };
    let seconds = |step: &str| seconds(report, step);
    let verdict = copy.get(1).cloned().unwrap_or_default();
    Ok(vec![name, seconds("map")?, seconds("verify")?, seconds("unmap")?, text, verdict])
}

fn pages(report: &Report, step: &str) -> Result<Option<u64>> {
    let lines = lines(report, step)?;
    lines.first().map(|text| text.parse().context("a count of pages")).transpose()
}

/// How long a step took beyond one that does nothing.
fn seconds(report: &Report, step: &str) -> Result<String> {
    let of = |step: &str| report.outcome(step).map(|outcome| outcome.milliseconds);
    let taken = of(step)?.saturating_sub(of("nothing")?);
    Ok(format!("{:.2} s", f64::from(u32::try_from(taken)?) / 1000.0))
}

fn shown(size: u64) -> String {
    if size < 1024 { format!("{size} MiB") } else { format!("{} GiB", size / 1024) }
}
