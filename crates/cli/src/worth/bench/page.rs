//! The answer for people.

use peerway_cli_read::text::{add, bold, wrap};
use peerway_load::reply::Outcome;
use peerway_load::report::{Level, Weight};
use peerway_load::stats::Summary;
use peerway_load::target::Endpoint;
use peerway_load::tokens::Source;
use peerway_load::{Bench, Load};

/// The whole page.
pub(super) fn page(bench: &Bench) -> String {
    let mut out = wrap(&bold(&headline(bench)), "", "");
    let interface = match bench.endpoint {
        Endpoint::Chat => "chat",
        Endpoint::Completions => "completions",
    };
    let engine = match (&bench.engine, &bench.engine_version) {
        (Some(engine), Some(version)) => format!("{engine} {version}"),
        (Some(engine), None) => format!("{engine}, version unknown"),
        (None, _) => "engine unknown".to_owned(),
    };
    out.push_str(&wrap(
        &format!(
            "{}: {engine}, model {}, {interface}, {} tokens an answer, seed {}",
            bench.url, bench.model, bench.output_tokens, bench.seed
        ),
        "",
        "  ",
    ));
    out.push('\n');
    out.push_str(&rates(bench));
    out.push('\n');
    out.push_str(&times(bench));
    out.push('\n');
    out.push_str(&server(bench));
    out.push_str(&client(bench));
    out.push_str(&findings(bench));
    if let Some(record) = &bench.record {
        out.push_str(&wrap(&format!("run {} in {record}", bench.run), "records: ", "         "));
    }
    out.push_str(&wrap(&sources(bench), "tokens: ", "        "));
    out
}

fn headline(bench: &Bench) -> String {
    let best = bench
        .levels
        .iter()
        .filter_map(|level| Some((level.tokens_per_second?, level)))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    match best {
        Some((rate, level)) if rate > 0.0 => {
            format!("Up to {} tokens a second, at {}.", number(rate), level.load)
        }
        _ => "Nothing could be measured.".to_owned(),
    }
}

fn load(load: Load) -> String {
    match load {
        Load::Concurrency(slots) => slots.to_string(),
        Load::Rate(rate) => format!("{rate}/s"),
    }
}

fn rates(bench: &Bench) -> String {
    let mut out = format!(
        "{:>8} {:>9} {:>7} {:>11} {:>11} {:>9} {:>9} {:>8}\n",
        "load", "requests", "failed", "tokens/s", "tokens/s", "req./s", "in", "seconds"
    );
    add(
        &mut out,
        &format!(
            "{:>8} {:>9} {:>7} {:>11} {:>11} {:>9} {:>9} {:>8}\n",
            "", "", "", "in all", "per stream", "", "flight", ""
        ),
    );
    for level in &bench.levels {
        let complete = level.requests.get(&Outcome::Complete).copied().unwrap_or(0);
        let failed = level.requests_measured - complete;
        let stream = level.time_per_output_token_seconds.map(|time| 1.0 / time.p50.max(1e-9));
        add(
            &mut out,
            &format!(
                "{:>8} {:>9} {:>7} {:>11} {:>11} {:>9} {:>9} {:>8}\n",
                load(level.load),
                level.requests_measured,
                failed,
                maybe(level.tokens_per_second),
                maybe(stream),
                maybe(level.requests_per_second),
                maybe(level.concurrency_mean),
                maybe(level.window_seconds),
            ),
        );
    }
    out
}

fn times(bench: &Bench) -> String {
    let mut out = format!(
        "{:>8}   {:<26}{:<26}{}\n{:>8}",
        "ms", "to the first token", "between tokens", "whole request", "load"
    );
    add(
        &mut out,
        &format!(
            "   {:>7} {:>7} {:>7}   {:>7} {:>7} {:>7}   {:>8} {:>8}\n",
            "p50", "p90", "p99", "p50", "p90", "p99", "p50", "p99"
        ),
    );
    for level in &bench.levels {
        // At a rate, waiting in the client counts: the moment at which a request was due is given.
        let first = match level.load {
            Load::Concurrency(_) => level.first_token_seconds,
            Load::Rate(_) => level.response_first_token_seconds,
        };
        let time = |summary: Option<Summary>, of: fn(&Summary) -> f64| {
            summary.map_or("-".to_owned(), |summary| number(of(&summary) * 1e3))
        };
        let (between, whole) = (level.inter_token_seconds, level.request_seconds);
        add(
            &mut out,
            &format!(
                "{:>8}   {:>7} {:>7} {:>7}   {:>7} {:>7} {:>7}   {:>8} {:>8}\n",
                load(level.load),
                time(first, |of| of.p50),
                time(first, |of| of.p90),
                time(first, |of| of.p99),
                time(between, |of| of.p50),
                time(between, |of| of.p90),
                time(between, |of| of.p99),
                time(whole, |of| of.p50),
                time(whole, |of| of.p99),
            ),
        );
    }
    out
}

fn server(bench: &Bench) -> String {
    let mut out = String::new();
    for level in &bench.levels {
        let Some(server) = &level.server else { continue };
        let mut said = Vec::new();
        for (name, value) in [
            ("running at most", server.running_max),
            ("waiting", server.waiting_mean),
            ("cache in use %", server.cache_use_max.map(|share| share * 100.0)),
            ("acceptance length", server.accept_length),
            ("tokens/s", server.tokens_per_second),
        ] {
            if let Some(value) = value {
                said.push(format!("{name} {}", number(value)));
            }
        }
        if !said.is_empty() {
            let text = format!("at {}: {}", load(level.load), said.join(", "));
            out.push_str(&wrap(&text, "server says: ", "             "));
        }
    }
    out
}

fn client(bench: &Bench) -> String {
    let mut out = String::new();
    for level in &bench.levels {
        let client = &level.client;
        let lag = |name: &str, lag: Option<Summary>| {
            lag.map(|lag| format!("{name} {} ms", number(lag.p99 * 1e3)))
        };
        let said: Vec<String> = [
            lag("late in reading", client.loop_lag_seconds),
            lag("late in sending", client.send_lag_seconds),
            lag("behind the server's stamps", client.stamp_lag_seconds),
            client.processor_share.map(|share| format!("processor {} %", number(share * 100.0))),
        ]
        .into_iter()
        .flatten()
        .collect();
        let text = format!("at {}: {} (99th percentiles)", load(level.load), said.join(", "));
        out.push_str(&wrap(&text, "client: ", "        "));
    }
    out
}

fn findings(bench: &Bench) -> String {
    let mut out = String::new();
    for finding in &bench.findings {
        let word = match finding.weight {
            Weight::Info => "note: ",
            Weight::Warning => "warning: ",
            Weight::Error => "error: ",
            Weight::Undecided => "undecided: ",
            Weight::WrongData => "wrong: ",
            Weight::Hung => "hung: ",
        };
        let place = finding.load.map_or(String::new(), |of| format!("at {}: ", load(of)));
        out.push_str(&wrap(&format!("{place}{}", finding.text), word, &" ".repeat(word.len())));
    }
    out
}

/// How tokens were counted, over all levels.
fn sources(bench: &Bench) -> String {
    let mut all = std::collections::BTreeMap::new();
    for (source, count) in bench.levels.iter().flat_map(|level: &Level| &level.token_sources) {
        *all.entry(*source).or_insert(0_u64) += count;
    }
    let said: Vec<String> = all
        .into_iter()
        .map(|(source, count)| {
            let how = match source {
                Source::ContinuousUsage => "counted by the server along the way",
                Source::FinalUsage => "counted by the server at the end, spread over the chunks",
                Source::Chunks => "one a chunk: the server's count is missing or cannot be",
            };
            format!("{count} answers {how}")
        })
        .collect();
    if said.is_empty() { "none".to_owned() } else { said.join("; ") }
}

fn maybe(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), number)
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".to_owned(),
        _ if value < 0.1 => format!("{value:.3}"),
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let said = [0.0, 0.0123, 1.0, 12.34, 123.4, 123_456.7].map(number);
        assert_eq!(said, ["0", "0.012", "1.00", "12.3", "123", "123457"]);
    }
}
