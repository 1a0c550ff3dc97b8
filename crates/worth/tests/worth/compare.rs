//! Runs against runs: noise, gains, and gains that are none.

use peerway_worth::compare::design::{Analysis, Cell, propose, runs_for};
use peerway_worth::compare::factorial::analyse;
use peerway_worth::compare::{GateState, Run, Verdict, compare};
use proptest::prelude::*;
use serde_json::json;

/// What a run is made of: 40 requests at 8 at a time.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) began: String,
    pub(crate) rate: f64,
    pub(crate) text: fn(u64, f64) -> String,
    /// Tokens that came with the first one; none as in records of before.
    pub(crate) in_first: Option<u64>,
    pub(crate) prompt_tokens: u64,
    pub(crate) finish: &'static str,
    pub(crate) prompts: Option<&'static str>,
    pub(crate) lagged: Option<&'static str>,
    pub(crate) model: &'static str,
}

pub(crate) fn made(name: &str, rate: f64) -> Made {
    Made {
        name: name.to_owned(),
        began: format!("{name} {rate}"),
        rate,
        text: |number, _| format!("{number} {TEXT}"),
        in_first: Some(1),
        prompt_tokens: 256,
        finish: "length",
        prompts: Some("words"),
        lagged: None,
        model: "m",
    }
}

impl Made {
    pub(crate) fn run(&self) -> Run {
        let Self { name, rate, .. } = self;
        let mut head = json!({"kind": "run", "form": 1, "run": name, "model": self.model, "seed": 7,
            "temperature": 0.0, "output_tokens": 64, "ignore_eos": true, "engine": "sglang",
            "engine_version": "1", "began": self.began});
        if let Some(prompts) = self.prompts {
            head["prompts"] = json!(prompts);
            head["prompt_size"] = json!(256);
            head["bodies_hash"] = json!("1");
        }
        let mut lines = vec![head];
        for number in 0..40_u64 {
            let mut line = json!({"kind": "request", "run": name, "level": 0,
                "load": {"concurrency": 8}, "phase": "measured", "number": number,
                "sent_ns": 1_000, "first_ns": 2_000_000, "last_ns": 640_000_000,
                "outcome": "complete", "finish": self.finish, "completion_tokens": 64,
                "prompt_tokens": self.prompt_tokens, "output": (self.text)(number, *rate)});
            if let Some(tokens) = self.in_first {
                line["first_group_tokens"] = json!(tokens);
            }
            lines.push(line);
        }
        lines.push(json!({"kind": "level", "run": name, "level": 0, "load": {"concurrency": 8},
            "window_seconds": 10.0, "client_lagged": self.lagged,
            "findings": ["capped by the server"],
            "window_tokens": format!("{:.0}", rate * 10.0).parse::<u64>().unwrap()}));
        lines.push(json!({"kind": "end", "run": name}));
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        Run::parse(&text.join("\n")).unwrap().remove(0)
    }
}

const TEXT: &str = "a sentence that is long enough to be compared";
const DAMAGED: &str = "!!!!!!!!!!!!!!!!!!!!";
const OTHER: &str = "other words";

/// Runs of a side at these rates.
fn runs(side: &str, rates: &[f64], text: &str) -> Vec<Run> {
    let text: fn(u64, f64) -> String = match text {
        DAMAGED => |number, _| format!("{number} {DAMAGED}"),
        OTHER => |number, _| format!("{number} {OTHER}"),
        _ => |number, _| format!("{number} {TEXT}"),
    };
    let made = rates.iter().enumerate().map(|(at, rate)| made(&format!("{side}{at}"), *rate));
    made.map(|one| Made { text, ..one }.run()).collect()
}

#[track_caller]
fn check(a: &[f64], b: &[f64], text: &str, verdict: Verdict, gate: GateState) {
    let found = compare(&runs("a", a, TEXT), &runs("b", b, text));
    assert_eq!(found.gate.state, gate, "{:?}", found.gate);
    let rate = found.rows.first().unwrap();
    assert_eq!(rate.verdict, verdict, "{rate:?}");
}

#[test]
fn verdicts() {
    use GateState::{Failed, Passed};
    let before = [1000.0, 1010.0, 990.0];
    check(&before, &[1300.0, 1310.0, 1290.0], TEXT, Verdict::Better, Passed);
    check(&before, &[700.0, 710.0, 690.0], TEXT, Verdict::Worse, Passed);
    check(&before, &[1005.0, 1015.0, 985.0], TEXT, Verdict::NotShown, Passed);
    check(&before, &[1000.0, 1400.0, 1200.0], TEXT, Verdict::NotShown, Passed);
    check(&before, &[1300.0], TEXT, Verdict::TooFewRuns, Passed);
    check(&before, &[2000.0, 2010.0, 1990.0], DAMAGED, Verdict::OutputsInDoubt, Failed);
    check(&before, &[2000.0, 2010.0, 1990.0], OTHER, Verdict::OutputsInDoubt, Failed);
}

#[test]
fn work_that_differs_is_not_compared() {
    let a = runs("a", &[1000.0, 1001.0], TEXT);
    let mut b = runs("b", &[1000.0, 1001.0], TEXT);
    b[0].seed = 8;
    let found = compare(&a, &b);
    assert_eq!(found.incomparable, ["seed of run \"b0\" is not that of \"a0\""]);
    assert!(found.rows.is_empty());
    assert!(!compare(&a, &[]).incomparable.is_empty());
    let hot = |side: &str| {
        let mut hot = runs(side, &[1000.0, 1001.0], TEXT);
        hot.iter_mut().for_each(|run| run.temperature = 0.7);
        hot
    };
    assert_eq!(compare(&hot("a"), &hot("b")).gate.state, GateState::Unknown);
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    assert_eq!(Run::parse(text).unwrap_err().to_string(), expected);
}

#[test]
fn damaged_records() {
    refused("", "there is no run in it; peerway worth bench --record writes such files");
    refused(
        "{\"kind\":\"request\"}",
        "line 1 belongs to no run: a line of kind run has to come first",
    );
    refused("{\n{}", "line 1 is no JSON: EOF while parsing an object at line 1 column 1");
    refused("{\"kind\":\"run\"}", "line 1: missing field `run`");
    // A last line that was cut: a run that was broken off.
    let whole = json!({"kind": "run", "run": "x", "model": "m", "seed": 1, "temperature": 0.0,
        "output_tokens": 1})
    .to_string();
    let cut = Run::parse(&format!("{whole}\n{{\"kind\":\"req")).unwrap();
    assert!(!cut[0].ended);
}

#[test]
fn a_design() {
    let design = propose(5.0, Some(2.0), true, true, 1, 1).unwrap();
    assert_eq!(design.cells.len(), 6);
    assert_eq!(design.order.len(), 6 * usize::try_from(design.runs_per_cell).unwrap());
    // Off, on, on, off: switches are half as many as rounds would need.
    let switches = design.order.iter().filter(|run| run.switch).count();
    assert!(switches <= usize::try_from(design.runs_per_cell).unwrap() + 1);
    for run in &design.order {
        assert!(Cell::parse(&run.name).is_some(), "{}", run.name);
        assert!(run.name.ends_with(&format!("/b{}", run.block)), "{}", run.name);
    }
    assert_eq!(propose(5.0, Some(2.0), true, true, 1, 1).unwrap(), design);
    assert!(propose(0.0, None, true, true, 1, 1).is_err());
    let analysis = |tests, interactions| Analysis { cells: 6, tests, interactions };
    assert!(runs_for(2.0, 2.0, analysis(24, true)) > runs_for(10.0, 2.0, analysis(24, true)));
    // More intervals that hold together, and differences of differences, take more runs.
    assert!(runs_for(5.0, 2.0, analysis(24, false)) > runs_for(5.0, 2.0, analysis(1, false)));
    assert!(runs_for(5.0, 2.0, analysis(24, true)) > runs_for(5.0, 2.0, analysis(24, false)));
}

/// Draws of a normal distribution, the same ones every time.
struct Normal(u64);

impl Normal {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (f64::from(u32::try_from(self.0 >> 32).unwrap()) + 0.5) / 4_294_967_296.0
    }

    fn draw(&mut self) -> f64 {
        (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }
}

#[test]
fn a_design_shows_what_it_promises() {
    let (effect, noise) = (5.0, 2.0);
    let design = propose(effect, Some(noise), true, false, 1, 1).unwrap();
    let mut draws = Normal(7);
    let mut shown = 0;
    for round in 0..60 {
        let runs: Vec<Run> = design
            .order
            .iter()
            .map(|planned| {
                let up = if planned.name.contains("path=p2p") { 1.0 + effect / 100.0 } else { 1.0 };
                let rate = 1000.0 * up * (noise / 100.0 * draws.draw()).exp();
                let began = format!("{round}");
                Made { began, ..made(&planned.name, rate) }.run()
            })
            .collect();
        let found = analyse(&runs);
        let one = found.effects.iter().find(|one| one.what == "host to p2p, mtp off").unwrap();
        shown += u32::from(one.shown);
    }
    assert!(shown >= 44, "{shown} of 60");
}

#[test]
fn effects_and_their_interaction() {
    let mut all = Vec::new();
    for (cell, rate) in [
        ("path=host,mtp=off", 1000.0),
        ("path=host,mtp=on", 1500.0),
        ("path=p2p,mtp=off", 1100.0),
        ("path=p2p,mtp=on", 2200.0),
    ] {
        for (number, noise) in [0.995, 1.0, 1.005].iter().enumerate() {
            all.push(made(&format!("{cell}#{number}"), rate * noise).run());
        }
    }
    all.push(made("something else", 1.0).run());
    let found = analyse(&all);
    assert_eq!(found.unnamed, ["something else"]);
    let effect = |what: &str| {
        let one = found.effects.iter().find(|effect| effect.what == what).unwrap();
        (one.change_percent.unwrap().mid.round(), one.shown)
    };
    assert_eq!(effect("host to p2p, mtp off"), (10.0, true));
    assert_eq!(effect("host to p2p, mtp on"), (47.0, true));
    // 2200 / 1500 over 1100 / 1000.
    assert_eq!(effect("host to p2p, with mtp against without"), (33.0, true));
    assert_eq!(effect("mtp off to on, host"), (50.0, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sides_that_are_the_same_are_no_gain(rates in prop::collection::vec(500.0_f64..1500.0, 2..6)) {
        let found = compare(&runs("a", &rates, TEXT), &runs("b", &rates, TEXT));
        prop_assert_eq!(&found.incomparable, &Vec::<String>::new());
        for row in &found.rows {
            prop_assert_eq!(row.verdict, Verdict::NotShown);
        }
    }

    #[test]
    fn any_text_is_runs_or_an_error(text in "(\\{\"kind\":\"(run|request|level|end)\"[a-z0-9:,\"{}]{0,40}\n?){0,5}") {
        if let Ok(runs) = Run::parse(&text) {
            prop_assert!(!runs.is_empty());
        }
    }
}
