//! Servers that behave, and servers that do not: a clear result with what could be measured, nothing
//! counted twice, and an end in time.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peerway_load::exchange::Limits;
use peerway_load::prompt::Prompts;
use peerway_load::reply::Outcome;
use peerway_load::report::{Level, Weight};
use peerway_load::ticks::Arrivals;
use peerway_load::tokens::{Contradiction, Source};
use peerway_load::{Bench, Load, MetricsAt, RunError, Settings};
use peerway_load_mock::{Mock, Script};
use serde_json::Value;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn of_kind(&self, kind: &str) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|line| line["kind"] == kind).collect()
    }
}

/// Six requests of eight tokens, two at a time, against short deadlines.
fn settings(mock: &Mock) -> Settings {
    let mut settings = Settings::new(&mock.url());
    settings.loads = vec![Load::Concurrency(2)];
    settings.requests = Some(6);
    settings.duration = Duration::from_secs(20);
    settings.output_tokens = 8;
    settings.prompts = Prompts::Words(12);
    settings.limits = Limits {
        connect: Duration::from_secs(5),
        first: Duration::from_millis(300),
        idle: Duration::from_millis(300),
        total: Duration::from_secs(5),
        after_done: Duration::from_millis(300),
    };
    settings
}

fn drive(settings: Settings) -> (Result<Bench, RunError>, Lines) {
    let lines = Lines::default();
    let begun = Instant::now();
    let bench = peerway_load::run(settings, Some(Box::new(lines.clone())), &mut |_| ());
    assert!(begun.elapsed() < Duration::from_secs(60), "hung");
    (bench, lines)
}

struct Seen {
    bench: Bench,
    lines: Lines,
    mock: Mock,
}

impl Seen {
    fn level(&self) -> &Level {
        &self.bench.levels[0]
    }

    /// The worst that is about the server: other work on this machine may well make the client late.
    fn worst(&self) -> Option<Weight> {
        let of_server = self
            .bench
            .findings
            .iter()
            .filter(|finding| !finding.text.starts_with("the client was"));
        of_server.map(|finding| finding.weight).max()
    }

    fn texts(&self) -> String {
        self.bench
            .findings
            .iter()
            .map(|finding| finding.text.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Runs against a script. Checks what holds for every run; returns the rest.
#[track_caller]
fn check(script: &str, outcomes: &[(Outcome, u64)]) -> Seen {
    check_with(script, outcomes, |_| ())
}

#[track_caller]
fn check_with(script: &str, outcomes: &[(Outcome, u64)], change: fn(&mut Settings)) -> Seen {
    let mock = Mock::start(Script::parse(script).unwrap()).unwrap();
    let mut settings = settings(&mock);
    change(&mut settings);
    let (bench, lines) = drive(settings);
    let seen = Seen { bench: bench.unwrap(), lines, mock };
    let level = seen.level();
    let found: Vec<(Outcome, u64)> =
        level.requests.iter().map(|(one, count)| (*one, *count)).collect();
    assert_eq!(found, outcomes, "{}", seen.texts());
    // Nothing counted twice: one line a request, and the sums are those of the lines.
    let requests = seen.lines.of_kind("request");
    let measured: Vec<&Value> =
        requests.iter().filter(|line| line["phase"] == "measured").collect();
    assert_eq!(measured.len() as u64, level.requests_measured);
    assert_eq!(requests.len() as u64 - measured.len() as u64, level.warm_up_requests);
    let mut numbers: Vec<u64> =
        measured.iter().map(|line| line["number"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..level.requests_measured).collect::<Vec<_>>());
    let tokens: u64 = measured
        .iter()
        .filter(|line| !line["first_ns"].is_null())
        .map(|line| line["completion_tokens"].as_u64().unwrap())
        .sum();
    assert_eq!(tokens, level.output_tokens);
    for line in &requests {
        let at = |name: &str| line[name].as_u64();
        let order = [
            at("scheduled_ns"),
            at("sent_ns"),
            at("head_ns"),
            at("first_ns"),
            at("last_ns"),
            at("ended_ns"),
        ];
        let order: Vec<u64> = order.into_iter().flatten().collect();
        assert!(order.windows(2).all(|pair| pair[0] <= pair[1]), "{line}");
    }
    assert_eq!(seen.lines.of_kind("run").len(), 1);
    assert_eq!(seen.lines.of_kind("level").len(), 1);
    assert_eq!(seen.lines.of_kind("end").len(), 1);
    seen
}

const ALL: &[(Outcome, u64)] = &[(Outcome::Complete, 6)];

#[test]
fn every_dialect_is_measured() {
    for (dialect, engine, source) in [
        ("sglang", "SGLang", Source::ContinuousUsage),
        ("vllm", "vLLM", Source::ContinuousUsage),
        ("llama.cpp", "llama.cpp", Source::FinalUsage),
        ("tgi", "TGI", Source::FinalUsage),
        ("tensorrt-llm", "TensorRT-LLM", Source::ContinuousUsage),
    ] {
        let seen = check(&format!("dialect={dialect} pace=2 first=3 stamp"), ALL);
        assert_eq!(seen.bench.engine.as_deref(), Some(engine));
        let level = seen.level();
        assert_eq!(
            (level.output_tokens, level.token_sources.get(&source)),
            (48, Some(&6)),
            "{dialect}"
        );
        assert_eq!(level.finish_reasons.get("length"), Some(&6));
        assert!(level.contradictions.is_empty() && level.errors.is_empty());
        assert_eq!(level.first_token_seconds.unwrap().count, 6);
        // As many as there are tokens behind the first; fewer where a busy machine made several of
        // them come with the first read.
        let between = level.inter_token_seconds.unwrap();
        assert!((1..=6 * 7).contains(&between.count) && between.max >= 0.001);
        assert!(level.first_token_seconds.unwrap().min >= 0.002);
        assert!(level.client.loop_lag_seconds.is_some_and(|lag| lag.p99 < 0.2));
        // Each text follows from its prompt: the same number is the same text in a second run.
        let texts = |seen: &Seen| -> Vec<(Value, Value)> {
            let mut texts: Vec<_> = seen
                .lines
                .of_kind("request")
                .into_iter()
                .filter(|line| line["phase"] == "measured")
                .map(|line| (line["number"].clone(), line["output"].clone()))
                .collect();
            texts.sort_by_key(|(number, _)| number.as_u64());
            texts
        };
        let again = check(&format!("dialect={dialect} split=7"), ALL);
        assert_eq!(texts(&seen), texts(&again), "{dialect}");
        assert_ne!(texts(&seen)[0].1, texts(&seen)[1].1);
    }
}

#[test]
fn completions_are_driven_too() {
    let seen = check_with("", ALL, |settings| {
        settings.url += "/v1/completions";
        settings.loads = vec![Load::Rate(200.0)];
        settings.rate_warm_up = Duration::from_millis(20);
        settings.warm_up = 0;
    });
    assert!(seen.level().response_first_token_seconds.is_some());
    assert_eq!(seen.level().output_tokens, 48);
}

#[test]
fn several_tokens_a_chunk_are_weighted() {
    let seen = check("per-chunk=4 pace=20", ALL);
    let between = seen.level().inter_token_seconds.unwrap();
    assert_eq!((seen.level().output_tokens, seen.level().chunks), (48, 12));
    assert!(between.count <= 6 * 4, "the first four have none");
    assert!(between.min >= 0.002 && between.count.is_multiple_of(4), "{between:?}");
}

#[test]
fn bytes_may_come_one_by_one() {
    for split in ["split=1", "split=3 comments=2", "split=1 dialect=tensorrt-llm"] {
        let seen = check(split, ALL);
        assert_eq!(seen.level().output_tokens, 48);
        let outputs = seen.lines.of_kind("request");
        assert!(outputs.iter().all(|line| !line["output"].as_str().unwrap().contains('\u{fffd}')));
    }
}

#[test]
fn silence_has_an_end() {
    let seen =
        check("fault=silent skip=3 every=3", &[(Outcome::Complete, 4), (Outcome::NoFirstToken, 2)]);
    assert_eq!(seen.worst(), Some(Weight::Hung));
    assert_eq!(seen.level().first_token_seconds.unwrap().count, 4);
}

#[test]
fn a_stall_is_no_end_and_keeps_what_came() {
    let seen = check(
        "fault=stall at=3 skip=3 every=2 pace=2",
        &[(Outcome::Complete, 3), (Outcome::Stalled, 3)],
    );
    assert_eq!(seen.worst(), Some(Weight::Hung));
    assert_eq!(seen.level().output_tokens, 3 * 8 + 3 * 3);
    assert_eq!(seen.level().time_per_output_token_seconds.unwrap().count, 3);
}

#[test]
fn comments_are_no_tokens() {
    let seen = check("fault=keep-alives at=0", &[(Outcome::NoFirstToken, 6)]);
    assert!(seen.texts().contains("comments"), "{}", seen.texts());
    assert_eq!(seen.level().tokens_per_second.unwrap_or(0.0), 0.0);
}

#[test]
fn answers_without_end_are_ended() {
    let seen = check_with("fault=endless pace=5 skip=3", &[(Outcome::TooLong, 2)], |settings| {
        settings.limits.total = Duration::from_millis(600);
        settings.requests = Some(2);
    });
    assert!(seen.level().output_tokens > 8);
}

#[test]
fn cut_streams_are_truncated() {
    let seen =
        check("fault=cut at=5 skip=3 every=2", &[(Outcome::Complete, 3), (Outcome::Truncated, 3)]);
    assert_eq!(seen.level().output_tokens, 3 * 8 + 3 * 5);
    assert_eq!(seen.worst(), Some(Weight::Error));
    check("fault=half at=5", &[(Outcome::Truncated, 6)]);
    check("fault=no-done", &[(Outcome::Truncated, 6)]);
    check("fault=no-finish", &[(Outcome::Truncated, 6)]);
}

#[test]
fn errors_in_mid_stream_are_seen() {
    for fault in ["error", "raw-error"] {
        let seen = check(
            &format!("fault={fault} at=2 skip=3 every=2"),
            &[(Outcome::Complete, 3), (Outcome::ServerError, 3)],
        );
        assert!(seen.texts().contains("the mock ran out of memory"), "{}", seen.texts());
        assert_eq!(seen.level().output_tokens, 3 * 8 + 3 * 2);
    }
}

#[test]
fn what_cannot_be_read_is_malformed() {
    check("fault=garbage at=2", &[(Outcome::Malformed, 6)]);
    check("fault=bad-chunk at=2", &[(Outcome::Malformed, 6)]);
    let seen = check("fault=plain", &[(Outcome::NotAStream, 6)]);
    assert_eq!(seen.level().output_tokens, 0);
}

#[test]
fn lies_about_usage_are_called_so() {
    for (fault, contradiction) in [
        ("usage-low dialect=llama.cpp", Contradiction::UsageBelowChunks),
        ("usage-high dialect=llama.cpp", Contradiction::UsageAboveLimit),
        ("usage-high", Contradiction::UsageNotMonotonic),
    ] {
        let seen = check(&format!("fault={fault}"), ALL);
        assert_eq!(seen.level().contradictions.get(&contradiction), Some(&6), "{fault}");
        assert_eq!(seen.worst(), Some(Weight::WrongData));
        assert_eq!(
            (seen.level().output_tokens, seen.level().token_sources.get(&Source::Chunks)),
            (48, Some(&6))
        );
    }
    let seen = check("fault=no-usage", ALL);
    assert_eq!(seen.level().token_sources.get(&Source::Chunks), Some(&6));
    assert_eq!(seen.worst(), Some(Weight::Warning));
}

#[test]
fn refusals_are_counted_once_and_left_alone() {
    for status in [429, 503] {
        let seen = check_with(
            &format!("fault=status-{status} retry-after=1"),
            &[(Outcome::Refused, 2)],
            |settings| {
                settings.requests = None;
                settings.warm_up = 0;
                settings.duration = Duration::from_millis(700);
            },
        );
        assert!(seen.texts().contains(&format!("status {status}: the mock is told to refuse")));
        // The first look and one of each slot: nobody knocks again before the second is over.
        assert_eq!(seen.mock.seen().requests(), 3);
    }
    let seen = check(
        "fault=status-500 skip=3 every=6",
        &[(Outcome::Complete, 5), (Outcome::HttpError, 1)],
    );
    assert_eq!(seen.worst(), Some(Weight::Error));
}

#[test]
fn connections_that_close_are_opened_anew() {
    let seen = check("fault=close", ALL);
    let sent = seen.level().warm_up_requests + 6;
    assert_eq!(seen.mock.seen().requests(), 1 + sent, "a first look, and each of them once");
    assert_eq!(seen.level().output_tokens, 48);
    assert_eq!(seen.level().client.connections_opened, sent);
    let seen = check("fault=drop", &[(Outcome::NoConnection, 6)]);
    assert!(seen.texts().contains("closed without an answer"), "{}", seen.texts());
    assert_eq!(check("", ALL).level().client.connections_opened, 2, "kept where they can be");
}

#[test]
fn fields_that_are_refused_are_left_out() {
    let seen = check("fault=strict", ALL);
    assert!(!seen.bench.extras.ignore_eos && !seen.bench.extras.continuous_usage_stats);
    assert!(seen.bench.extras.include_usage);
    assert!(seen.texts().contains("continuous_usage_stats, ignore_eos"), "{}", seen.texts());
    assert_eq!(seen.level().token_sources.get(&Source::FinalUsage), Some(&6));
}

#[test]
fn a_certificate_that_nobody_signed() {
    let mock = Mock::start(Script::parse("tls").unwrap()).unwrap();
    let said = drive(settings(&mock)).0.unwrap_err().to_string();
    assert!(said.contains("cannot speak TLS") && said.contains("--insecure"), "{said}");
    let mut open = settings(&mock);
    open.trust.insecure = true;
    let bench = drive(open).0.unwrap();
    assert_eq!(bench.levels[0].requests.get(&Outcome::Complete), Some(&6));
}

#[test]
fn nobody_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let said = drive(Settings::new(&url)).0.unwrap_err().to_string();
    assert!(said.starts_with("cannot connect to 127.0.0.1:"), "{said}");
    let mut odd = Settings::new(&url);
    odd.loads = vec![Load::Rate(0.0)];
    assert!(drive(odd).0.unwrap_err().to_string().contains("must be above 0"));
    let mut odd = Settings::new(&url);
    odd.headers = vec![("a".to_owned(), "b\r\nc: d".to_owned())];
    assert!(matches!(drive(odd).0.unwrap_err(), RunError::Header(_)));
    let mut odd = Settings::new(&url);
    odd.loads = vec![Load::Concurrency(u32::MAX)];
    assert!(matches!(drive(odd).0.unwrap_err(), RunError::Descriptors { .. }));
}

#[test]
fn a_cap_of_the_server_is_seen_in_its_metrics() {
    let mock = Mock::start(Script::parse("capacity=2 pace=30 dialect=sglang").unwrap()).unwrap();
    let mut settings = settings(&mock);
    settings.loads = vec![Load::Concurrency(6), Load::Concurrency(12)];
    settings.requests = None;
    settings.duration = Duration::from_millis(2500);
    settings.limits.first = Duration::from_secs(20);
    let bench = drive(settings).0.unwrap();
    let server = bench.levels[0].server.as_ref().unwrap();
    assert_eq!((server.running_max, server.accept_length), (Some(2.0), Some(2.5)));
    assert_eq!(bench.levels.len(), 1, "more would only wait");
    let texts: Vec<&str> = bench.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert!(texts.iter().any(|text| text.contains("never ran more than 2 at a time")), "{texts:?}");
    assert_eq!(mock.seen().most_running(), 2);
}

#[test]
fn a_rate_beyond_the_server_is_not_hidden() {
    let mock = Mock::start(Script::parse("capacity=1 pace=10").unwrap()).unwrap();
    let mut settings = settings(&mock);
    settings.loads = vec![Load::Rate(60.0)];
    settings.rate_warm_up = Duration::from_millis(100);
    settings.requests = None;
    settings.most_in_flight = 2;
    settings.duration = Duration::from_secs(1);
    settings.limits.first = Duration::from_secs(20);
    settings.metrics = MetricsAt::Off;
    let (bench, lines) = drive(settings);
    let bench = bench.unwrap();
    let level = &bench.levels[0];
    assert!(level.requests_unsent > 10, "{}", level.requests_unsent);
    // Those that waited for a slot have waited from the moment at which they were due.
    let response = level.response_first_token_seconds.unwrap();
    assert!(response.max > level.first_token_seconds.unwrap().max + 0.2);
    assert_eq!(
        lines.of_kind("request").len() as u64,
        level.requests_measured + level.warm_up_requests
    );
}

#[test]
fn a_rate_that_is_kept_leaves_nothing_unsent() {
    let mock = Mock::start(Script::parse("pace=0").unwrap()).unwrap();
    let mut settings = settings(&mock);
    settings.loads = vec![Load::Rate(10.0)];
    settings.arrivals = Arrivals::Constant;
    settings.rate_warm_up = Duration::from_millis(150);
    settings.requests = None;
    settings.duration = Duration::from_millis(1040);
    settings.metrics = MetricsAt::Off;
    let bench = drive(settings).0.unwrap();
    let level = &bench.levels[0];
    // At 100 ms, and at 200 to 1100.
    assert_eq!(
        (level.warm_up_requests, level.requests_measured, level.requests_unsent),
        (1, 10, 0)
    );
    // From the end of the warm-up and not from the first arrival, and as long as asked.
    let seconds = level.window_seconds.unwrap();
    assert!((1.03..1.2).contains(&seconds), "{seconds}");
}
