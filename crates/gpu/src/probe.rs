//! The probe protocol: one ordered pair, one line of JSON. Programs for other accelerators speak it
//! too.

use std::time::{Duration, Instant};

use peerway_core::address::PciAddress;

use crate::measure::{Progress, Settings, measure};
use crate::plan::Depth;
use crate::result::{Engine, Mode, PairResult, ProbeAnswer, Verdict};
use crate::status::GpuError;

/// What a probe is asked, as `--from A --to B [--bytes N] [--deadline-ms N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeQuestion {
    /// The requester.
    pub from: PciAddress,
    /// The target.
    pub to: PciAddress,
    /// The largest range.
    pub bytes: u64,
    /// For everything.
    pub deadline: Duration,
}

impl ProbeQuestion {
    /// Reads the arguments behind `probe`.
    pub fn parse(arguments: &[String]) -> Result<Self, GpuError> {
        let wrong = |text: String| GpuError::Request(text);
        let (mut from, mut to) = (None, None);
        let mut bytes = 4 << 20;
        let mut deadline = Duration::from_mins(1);
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let value =
                rest.next().ok_or_else(|| wrong(format!("{name} needs a value behind it")))?;
            let number =
                || value.parse::<u64>().map_err(|error| wrong(format!("{name} {value}: {error}")));
            let address =
                || value.parse::<PciAddress>().map_err(|error| wrong(format!("{name}: {error}")));
            match name.as_str() {
                "--from" => from = Some(address()?),
                "--to" => to = Some(address()?),
                "--bytes" => bytes = number()?,
                "--deadline-ms" => deadline = Duration::from_millis(number()?),
                _ => return Err(wrong(format!("{name} is no argument of a probe"))),
            }
        }
        let missing = |name: &str| wrong(format!("a probe needs {name}"));
        Ok(Self {
            from: from.ok_or_else(|| missing("--from"))?,
            to: to.ok_or_else(|| missing("--to"))?,
            bytes,
            deadline,
        })
    }
}

/// Probes a pair with peer access and both engines. `settings` say how children are started.
pub fn probe(
    question: ProbeQuestion,
    settings: &Settings,
    observer: &mut dyn FnMut(&Progress),
) -> ProbeAnswer {
    let end = Instant::now().checked_add(question.deadline);
    let settings = Settings {
        gpus: vec![question.from, question.to],
        only: Some((question.from, question.to)),
        modes: vec![Mode::Peer],
        depth: Depth::Full,
        sample: Some(false),
        largest: Some(question.bytes),
        together: false,
        speed: false,
        all_reduce_sizes: Vec::new(),
        child_limit: question.deadline,
        // One time for all: a child that takes longer leaves less for the next one.
        deadline: settings.deadline.or(end),
        step_limit: settings.step_limit.min(question.deadline / 4),
        ..settings.clone()
    };
    let measured = measure(&settings, observer);
    let worst = measured.pairs.iter().max_by_key(|row| row.verdict);
    let Some(worst) = worst else {
        let why = measured.preconditions.iter().map(|unmet| unmet.message.clone());
        let why: Vec<String> = why.collect();
        return answer(question, None, Some(why.join("; ")), 0);
    };
    let bytes = measured.pairs.iter().flat_map(|row| &row.operations).map(|part| part.bytes).sum();
    let said = || match worst.verdict {
        Verdict::Intact => format!("all of {bytes} bytes were right, by every engine"),
        other => format!("{other:?} by {:?}", worst.engine).to_lowercase(),
    };
    answer(question, Some(worst), Some(worst.detail.clone().unwrap_or_else(said)), bytes)
}

fn answer(
    question: ProbeQuestion,
    row: Option<&PairResult>,
    detail: Option<String>,
    bytes: u64,
) -> ProbeAnswer {
    let damaged =
        row.into_iter().flat_map(|row| &row.operations).find_map(|part| part.damage.clone());
    ProbeAnswer {
        protocol: 1,
        from: question.from,
        to: question.to,
        engine: match row.map(|row| row.engine) {
            Some(Engine::Copy) => "copy",
            Some(Engine::Sm) => "sm",
            None => "none",
        }
        .to_owned(),
        mode: "peer".to_owned(),
        verdict: row.map_or(Verdict::NotRun, |row| row.verdict),
        damage: row.and_then(|row| row.damage),
        bytes,
        first_bad_offset: damaged.map(|report| report.first_bad_offset),
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<ProbeQuestion, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        ProbeQuestion::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_are_read() {
        let question =
            check("--from 21:00.0 --to 0000:41:00.0 --bytes 65536 --deadline-ms 1500").unwrap();
        assert_eq!(question.from.bus(), 0x21);
        assert_eq!((question.bytes, question.deadline), (65_536, Duration::from_millis(1500)));
        assert_eq!(
            check("--from 21:00.0"),
            Err("cannot run the request: a probe needs --to".to_owned())
        );
        assert_eq!(
            check("--from 21:00.0 --to"),
            Err("cannot run the request: --to needs a value behind it".to_owned())
        );
        assert_eq!(
            check("--size 4"),
            Err("cannot run the request: --size is no argument of a probe".to_owned())
        );
    }
}
