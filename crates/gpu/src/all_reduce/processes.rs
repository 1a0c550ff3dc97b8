//! All-reduce between processes, one for each GPU, as inference engines run it. The process that
//! leads opens no GPU: it starts the others, has them do one size after the other, and sums up.

use std::io::{BufRead, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Bench, Rank, blank, finish_row};
use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::nccl::{Nccl, UniqueId};
use crate::precondition::{Precondition, Unmet};
use crate::protocol::{AllReduceWork, Event, RankWork, Request, Work};
use crate::report::{Reporter, send};
use crate::result::Verdict;
use crate::sibling::{Answers, Sibling, next};
use crate::speed::capped;
use crate::status::GpuError;

/// What the leader asks of a rank.
#[derive(Serialize, Deserialize)]
enum Ask {
    /// A name for the communicator; of the first rank only.
    Name,
    Join(UniqueId),
    /// To check a size.
    Size {
        bytes: u64,
        /// Values of this and the following checked runs.
        seed: u64,
    },
    /// To time a size that was right on all ranks: all take the same turns, so that none waits for
    /// one that has gone on.
    Time {
        bytes: u64,
        iterations: u32,
    },
}

/// What a rank answers.
#[derive(Serialize, Deserialize)]
enum Reply {
    Name(UniqueId),
    /// With NCCL's version.
    Joined(i32),
    Measured {
        wrong: u64,
        seconds: f64,
    },
    /// There is no NCCL.
    Missing(String),
    Failed {
        hung: bool,
        text: String,
    },
}

/// All ranks, and what they say, in whatever order.
struct Ranks {
    siblings: Vec<Sibling>,
    said: Receiver<(usize, Result<Reply, GpuError>)>,
}

impl Ranks {
    fn start(request: &Request, work: &AllReduceWork) -> Result<Self, GpuError> {
        let (tell, said) = channel();
        let mut siblings = Vec::new();
        let size = u16::try_from(work.gpus.len()).unwrap_or(u16::MAX);
        for (number, gpu) in (0_u16..).zip(&work.gpus) {
            let rank = RankWork {
                gpu: *gpu,
                number,
                size,
                largest: work.sizes.iter().copied().max().unwrap_or(0),
                iterations: work.iterations,
                step_limit_ms: work.step_limit_ms,
            };
            let (sibling, mut answers) = Sibling::start(request, Work::Rank(rank))?;
            siblings.push(sibling);
            let tell = tell.clone();
            std::thread::spawn(move || {
                loop {
                    let (answer, last) = heard(&mut answers);
                    if tell.send((usize::from(number), answer)).is_err() || last {
                        return;
                    }
                }
            });
        }
        Ok(Self { siblings, said })
    }

    fn tell(&mut self, ask: &Ask) -> Result<(), GpuError> {
        self.siblings.iter_mut().try_for_each(|sibling| sibling.tell(ask))
    }

    /// The next answer of any rank; the first one that failed decides, the others may wait for it.
    fn hear(&mut self) -> Result<Reply, GpuError> {
        let gone = || GpuError::Partner("all ranks are gone".to_owned());
        let (number, answer) = self.said.recv().map_err(|_| gone())?;
        match answer {
            Ok(Reply::Failed { hung: true, text }) => Err(GpuError::Hung {
                what: format!("rank {number}: {text}"),
                limit: Duration::ZERO,
            }),
            Ok(Reply::Failed { text, .. }) => {
                Err(GpuError::Partner(format!("rank {number}: {text}")))
            }
            Err(GpuError::Partner(_)) => {
                let end = self.siblings.get_mut(number).map_or_else(gone, Sibling::end);
                Err(GpuError::Partner(format!("rank {number}: {end}")))
            }
            answer => answer,
        }
    }
}

/// One answer, and whether it is the last.
fn heard(from: &mut Answers) -> (Result<Reply, GpuError>, bool) {
    match next(from) {
        Ok(Some(reply)) => (Ok(reply), false),
        Ok(None) => (Err(GpuError::Partner("it is gone".to_owned())), true),
        Err(error) => (Err(error), true),
    }
}

/// Leads the ranks through all sizes.
pub(crate) fn lead(
    request: &Request,
    work: &AllReduceWork,
    out: &mut Reporter<'_>,
) -> Result<(), GpuError> {
    out.step(None, "start a process for each rank".to_owned())?;
    let mut ranks = Ranks::start(request, work)?;
    let outcome = run(&mut ranks, work, out);
    if outcome.is_err() {
        // Ranks that wait for each other do not end; the parent ends the group when this process
        // has.
        std::mem::take(&mut ranks.siblings).into_iter().for_each(Sibling::abandon);
    }
    // All are told before one is waited for: a rank that leaves its communicator waits for the
    // others to leave it too (`ncclCommDestroy`; seen on two H200).
    ranks.siblings.iter_mut().for_each(Sibling::close);
    outcome
}

fn run(ranks: &mut Ranks, work: &AllReduceWork, out: &mut Reporter<'_>) -> Result<(), GpuError> {
    if let Some(first) = ranks.siblings.first_mut() {
        first.tell(&Ask::Name)?;
    }
    let name = match ranks.hear()? {
        Reply::Name(name) => name,
        Reply::Missing(why) => {
            return out.emit(&Event::Unmet(Precondition::host(Unmet::NoNccl, why)));
        }
        _ => return Err(misplaced()),
    };
    out.step(None, "start the communicator between processes".to_owned())?;
    ranks.tell(&Ask::Join(name))?;
    let mut version = None;
    for _ in 0..work.gpus.len() {
        match ranks.hear()? {
            Reply::Joined(number) => version = Some(number),
            Reply::Missing(why) => {
                return out.emit(&Event::Unmet(Precondition::host(Unmet::NoNccl, why)));
            }
            _ => return Err(misplaced()),
        }
    }
    let mut seed = 0;
    for bytes in &work.sizes {
        out.step(None, format!("all-reduce of {bytes} bytes between processes ({:?})", work.arm))?;
        let mut row = blank(work, *bytes, version);
        let outcome = size(ranks, work, *bytes, seed, &mut row);
        seed += super::CHECKED;
        if let Err(error) = &outcome {
            row.verdict = error.verdict();
            row.detail = Some(error.to_string());
        }
        let stop = row.verdict == Verdict::Damaged;
        out.emit(&Event::AllReduce(row))?;
        outcome?;
        if stop {
            break;
        }
    }
    Ok(())
}

/// One size on all ranks: wrong elements add up, the slowest rank's time counts.
fn size(
    ranks: &mut Ranks,
    work: &AllReduceWork,
    bytes: u64,
    seed: u64,
    row: &mut crate::result::AllReduceResult,
) -> Result<(), GpuError> {
    ranks.tell(&Ask::Size { bytes, seed })?;
    let (wrong, one) = all_measured(ranks, work)?;
    row.wrong_elements = wrong;
    if wrong > 0 {
        finish_row(row, None);
        return Ok(());
    }
    let one = Duration::try_from_secs_f64(one).unwrap_or(Duration::MAX);
    let limit = Duration::from_millis(work.step_limit_ms);
    let iterations = capped(work.iterations, limit, one);
    ranks.tell(&Ask::Time { bytes, iterations })?;
    let (_, slowest) = all_measured(ranks, work)?;
    finish_row(row, Some(slowest));
    Ok(())
}

/// Wrong elements of all ranks, and the slowest one's seconds.
fn all_measured(ranks: &mut Ranks, work: &AllReduceWork) -> Result<(u64, f64), GpuError> {
    let (mut all, mut slowest) = (0, 0.0_f64);
    for _ in 0..work.gpus.len() {
        match ranks.hear()? {
            Reply::Measured { wrong, seconds } => {
                all += wrong;
                slowest = slowest.max(seconds);
            }
            _ => return Err(misplaced()),
        }
    }
    Ok((all, slowest))
}

fn misplaced() -> GpuError {
    GpuError::Partner("an answer that does not fit".to_owned())
}

/// A rank: does what it is asked until its input closes.
pub(crate) fn serve(
    driver: &Rc<Driver>,
    library: Option<&Path>,
    work: &RankWork,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), GpuError> {
    let failed = |error: &GpuError| Reply::Failed {
        hung: matches!(error, GpuError::Hung { .. }),
        text: error.to_string(),
    };
    let (nccl, gpu) = match (Nccl::open(library), Gpu::open(driver, work.gpu, work.number)) {
        (Ok(nccl), Ok(gpu)) => (nccl, gpu),
        (Err(error), _) => return send(out, &Reply::Missing(super::missing(&error))),
        (_, Err(error)) => return send(out, &failed(&error)),
    };
    let outcome = answer_all(driver, &nccl, &gpu, work, input, out);
    if let Err(error) = &outcome {
        send(out, &failed(error))?;
    }
    outcome
}

/// This rank's part of the measurement.
fn bench<'a>(
    driver: &'a Driver,
    work: &RankWork,
    ranks: &'a [Rank<'a>],
    communicator: &'a crate::nccl::Ranks<'a>,
) -> Bench<'a> {
    Bench {
        driver,
        limit: Duration::from_millis(work.step_limit_ms),
        iterations: work.iterations,
        ranks,
        size: u64::from(work.size),
        communicator,
    }
}

fn answer_all(
    driver: &Rc<Driver>,
    nccl: &Nccl,
    gpu: &Gpu,
    work: &RankWork,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), GpuError> {
    let rank = Rank {
        gpu,
        number: u64::from(work.number),
        send: gpu.alloc(work.largest)?,
        receive: gpu.alloc(work.largest)?,
    };
    let local = [rank];
    let mut communicator = None;
    while let Some(ask) = next(input)? {
        // NCCL takes the GPU whose context is current.
        gpu.enter()?;
        let reply = match ask {
            Ask::Name => Reply::Name(nccl.unique_id()?),
            Ask::Join(name) => {
                communicator = Some(nccl.join(&name, work.size, work.number)?);
                Reply::Joined(nccl.version()?)
            }
            Ask::Size { bytes, seed } => {
                let communicator = communicator.as_ref().ok_or_else(misplaced)?;
                let (wrong, last) = bench(driver, work, &local, communicator).check(bytes, seed)?;
                Reply::Measured { wrong, seconds: last.as_secs_f64() }
            }
            Ask::Time { bytes, iterations } => {
                let communicator = communicator.as_ref().ok_or_else(misplaced)?;
                let bench = bench(driver, work, &local, communicator);
                Reply::Measured { wrong: 0, seconds: bench.time(bytes, iterations)? }
            }
        };
        send(out, &reply)?;
    }
    communicator.map_or(Ok(()), crate::nccl::Ranks::end)
}
