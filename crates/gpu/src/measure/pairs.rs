//! One ordered pair in one mode: as many children as it takes.

use std::collections::BTreeMap;

use peerway_core::address::PciAddress;

use super::Ongoing;
use crate::evidence::Evidence;
use crate::plan::Depth;
use crate::protocol::{Event, PairWork, Work};
use crate::result::{Engine, Mode, Operation, OperationResult, PairResult, Verdict};

type Cells = BTreeMap<(Engine, Operation), OperationResult>;

impl Ongoing<'_> {
    /// One row for each engine.
    pub(super) fn pair(
        &mut self,
        (from, to): (PciAddress, PciAddress),
        mode: Mode,
        small_ways: &[Operation],
    ) -> Vec<PairResult> {
        let engines = match mode {
            // The host stages copies; there is nothing for a kernel to do.
            Mode::Staged => vec![Engine::Copy],
            Mode::Peer | Mode::Vmm | Mode::Ipc => self.settings.engines.clone(),
        };
        let mut left: Vec<_> = engines
            .iter()
            .flat_map(|engine| [Operation::Write, Operation::Read].map(|way| (*engine, way)))
            .collect();
        let mut cells = Cells::new();
        let mut small_only = false;
        let mut evidence = Evidence::default();
        while !left.is_empty() {
            let mut work = self.pair_work((from, to), mode, left.clone(), small_only);
            small_ways.clone_into(&mut work.small_ways);
            let done = self.run(Work::Pair(work), &[from, to]);
            let verdict = done.verdict();
            evidence.add(done.evidence);
            let mut refused = None;
            for event in done.events {
                match event {
                    Event::Cell { engine, result } => {
                        cells.insert((engine, result.operation), result);
                    }
                    Event::Refused(why) => refused = Some(why),
                    _ => {}
                }
            }
            left.retain(|cell| !cells.contains_key(cell));
            if let Some(why) = refused {
                close(&mut cells, &left, Verdict::Refused, &why);
                break;
            }
            let Some(why) = done.failure else {
                close(&mut cells, &left, Verdict::NotRun, "the child left it out");
                break;
            };
            if done.cell.is_none() {
                // Not at a transfer: nothing will be better in another child.
                close(&mut cells, &left, verdict, &why);
                break;
            }
            // The cell that it was at is decided, here or by the child; the others get a fresh
            // child, for small transfers only.
            if let Some(cell) = done.cell.filter(|cell| left.contains(cell)) {
                close(&mut cells, &[cell], verdict, &why);
                left.retain(|other| *other != cell);
            }
            small_only = true;
        }
        let rows = engines.iter().map(|engine| row((from, to), mode, *engine, &cells));
        rows.map(|row| PairResult { evidence: evidence.clone(), ..row }).collect()
    }

    /// GPUs of the test beside a pair's, of those that can be opened.
    fn witnesses(&self, from: PciAddress, to: PciAddress) -> Vec<PciAddress> {
        let other = |gpu: &&PciAddress| **gpu != from && **gpu != to && !self.stuck.contains(*gpu);
        self.usable.iter().filter(other).copied().collect()
    }

    fn pair_work(
        &self,
        (from, to): (PciAddress, PciAddress),
        mode: Mode,
        cells: Vec<(Engine, Operation)>,
        small_only: bool,
    ) -> PairWork {
        PairWork {
            from,
            to,
            mode,
            cells,
            small_only,
            small_ways: Vec::new(),
            witnesses: self.witnesses(from, to),
            // The control arm only has to show that the GPUs themselves are sound.
            depth: if mode == Mode::Staged { Depth::Quick } else { self.settings.depth },
            samples: mode != Mode::Staged
                && self.settings.sample.unwrap_or_else(|| self.settings.depth.samples()),
            largest: self.settings.largest(),
            spare_bytes: self.settings.spare_bytes,
            step_limit_ms: u64::try_from(self.settings.step_limit.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// The directions in which one of the rows failed.
pub(super) fn failed_ways(rows: &[PairResult]) -> Vec<Operation> {
    let failed = |way: &Operation| {
        let mut parts = rows.iter().flat_map(|row| &row.operations);
        parts.any(|part| part.operation == *way && part.verdict >= Verdict::Broken)
    };
    [Operation::Write, Operation::Read].into_iter().filter(failed).collect()
}

/// The same verdict for several cells.
fn close(cells: &mut Cells, left: &[(Engine, Operation)], verdict: Verdict, why: &str) {
    for (engine, operation) in left {
        cells.insert(
            (*engine, *operation),
            OperationResult {
                operation: *operation,
                verdict,
                damage: None,
                steps: 0,
                bytes: 0,
                sampled_bytes: 0,
                detail: Some(why.to_owned()),
            },
        );
    }
}

/// Sums the operations of an engine up.
fn row(
    (from, to): (PciAddress, PciAddress),
    mode: Mode,
    engine: Engine,
    cells: &Cells,
) -> PairResult {
    let operations: Vec<OperationResult> = cells
        .iter()
        .filter(|((of, _), _)| *of == engine)
        .map(|(_, result)| result.clone())
        .collect();
    let verdict = operations.iter().map(|result| result.verdict).max();
    let verdict = verdict.unwrap_or(Verdict::NotRun);
    let worst = operations.iter().filter(|result| result.verdict == verdict);
    let damage = worst.clone().find_map(|result| result.damage.as_ref());
    PairResult {
        from,
        to,
        mode,
        engine,
        verdict,
        damage: damage.map(|report| report.damage),
        bandwidth_bytes_per_second: None,
        read_bytes_per_second: None,
        both_ways_bytes_per_second: None,
        latency_seconds: None,
        load_seconds: None,
        line_rate_bytes_per_second: None,
        above_line_rate: false,
        detail: worst.clone().find_map(|result| result.detail.clone()),
        evidence: Evidence::default(),
        operations,
    }
}
