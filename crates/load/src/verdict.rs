//! What the figures are worth: findings, each about one level or about the run.

use crate::clock::nanoseconds;
use crate::reply::Outcome;
use crate::report::{Bench, ClientTruth, Finding, Level, Load, Weight};
use crate::stats::float;
use crate::tokens::{Contradiction, Source};

/// Whether the client was late enough to spoil what it measured, and how.
///
/// A lag of a millisecond is under the noise of any network; beyond it, a twentieth of what is
/// measured is allowed.
pub(crate) fn lagged(client: &ClientTruth, inter_token: Option<u64>, load: Load) -> Option<String> {
    let allowed = 1e-3_f64.max(0.05 * inter_token.map_or(0.0, |gap| float(gap) / 1e9));
    if let Some(lag) = client.loop_lag_seconds.filter(|lag| lag.p99 > allowed) {
        return Some(format!(
            "what came waited {:.1} ms for the client at the 99th percentile",
            lag.p99 * 1e3
        ));
    }
    // At a rate a request has its moment; in a closed loop the moment is the slot's own.
    if let (Load::Rate(_), Some(lag)) = (load, client.send_lag_seconds)
        && lag.p99 > 5e-3
    {
        return Some(format!(
            "requests were sent {:.1} ms late at the 99th percentile",
            lag.p99 * 1e3
        ));
    }
    client.processor_share.filter(|share| *share > 0.8).map(|share| {
        format!("the client's one thread was busy for {:.0} % of the time", share * 100.0)
    })
}

/// Whether so many running are fewer than so many slots would give: one less, or two per cent less
/// of many.
fn capped_at(slots: f64, running: f64) -> bool {
    running > 0.0 && running <= slots - 1.0 && running < slots * 0.98
}

/// Whether a level was capped by the server: fewer ran there than were sent.
pub(crate) fn capped(level: &Level) -> Option<f64> {
    let Load::Concurrency(slots) = level.load else { return None };
    let server = level.server.as_ref().filter(|server| server.looks >= 2)?;
    let slots = f64::from(slots);
    server.running_max.filter(|running| capped_at(slots, *running))
}

/// Findings about a level.
pub(crate) fn findings(level: &Level, ignore_eos: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |weight, text: String| {
        found.push(Finding { weight, load: Some(level.load), text });
    };
    for (outcome, count) in &level.requests {
        if *outcome == Outcome::Complete {
            continue;
        }
        let example = level.errors.iter().find(|error| error.outcome == *outcome);
        let example = example.map(|error| format!(": {}", error.example)).unwrap_or_default();
        let weight = if outcome.hung() { Weight::Hung } else { Weight::Error };
        let of = level.requests_measured;
        add(weight, format!("{count} of {of} requests {}{example}", ended(*outcome)));
    }
    for (contradiction, count) in &level.contradictions {
        let text = format!("{count} answers {}", contradicts(*contradiction));
        add(Weight::WrongData, text);
    }
    if let Some(lagged) = &level.client.lagged {
        add(Weight::Undecided, format!("the client was too slow for this: {lagged}"));
    }
    if level.requests_unsent > 0 {
        add(
            Weight::Warning,
            format!(
                "{} requests were due and never sent: the server is slower than this rate, and waiting times grow with the length of the run",
                level.requests_unsent
            ),
        );
    }
    if let Some(running) = capped(level) {
        add(
            Weight::Warning,
            format!("capped by the server: it never ran more than {running} at a time"),
        );
    }
    let chunks = level.token_sources.get(&Source::Chunks).copied().unwrap_or(0);
    if chunks > 0 {
        add(
            Weight::Warning,
            format!(
                "{chunks} answers came without a count that can be: one token a chunk is assumed for them"
            ),
        );
    }
    let stopped = level.finish_reasons.get("stop").copied().unwrap_or(0);
    if ignore_eos && stopped > 0 {
        add(
            Weight::Warning,
            format!(
                "{stopped} answers ended before the length that was asked for: compare only runs of equal lengths"
            ),
        );
    }
    if let (Some(cached), Some(prompt)) = (level.cached_tokens, level.prompt_tokens)
        && float(cached) > 0.1 * float(prompt)
    {
        add(Weight::Warning, format!("{cached} of {prompt} tokens of prompts came from a cache"));
    }
    server(level, &mut add);
    found
}

fn server(level: &Level, add: &mut impl FnMut(Weight, String)) {
    let Some(server) = &level.server else { return };
    if let Some(corrupted) = server.corrupted.filter(|count| *count > 0.0) {
        add(
            Weight::WrongData,
            format!("the server counted {corrupted} answers with numbers that are none"),
        );
    }
    if let Some(preempted) = server.preempted.filter(|count| *count > 0.0) {
        add(
            Weight::Warning,
            format!(
                "{preempted} requests had to give way within the server: its cache is too small for this load"
            ),
        );
    }
    if let (Some(theirs), Some(ours)) = (server.tokens_per_second, level.tokens_per_second)
        && server.looks >= 5
        && (theirs - ours).abs() > 0.1 * ours.max(theirs)
    {
        add(
            Weight::Warning,
            format!(
                "the server counted {theirs:.0} tokens a second, {ours:.0} came here: somebody else uses it, or its counter lags"
            ),
        );
    }
    if server.looks == 0 && server.failed_looks > 0 {
        let why = server.failure.as_deref().unwrap_or("unknown");
        add(Weight::Info, format!("the server's metrics could not be read: {why}"));
    }
}

/// Findings about the run as a whole.
pub(crate) fn of_run(bench: &Bench) -> Vec<Finding> {
    let complete = |level: &Level| level.requests.get(&Outcome::Complete).copied().unwrap_or(0);
    let mut found = Vec::new();
    if bench.levels.iter().all(|level| complete(level) == 0) {
        let text = "no request was completed: nothing can be said about this server".to_owned();
        found.push(Finding { weight: Weight::Undecided, load: None, text });
    }
    found
}

fn ended(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Complete => "were completed",
        Outcome::Truncated => "were cut off",
        Outcome::ServerError => "met an error within the stream",
        Outcome::Refused => "were refused",
        Outcome::HttpError => "got an HTTP error",
        Outcome::NotAStream => "got no stream",
        Outcome::Malformed => "got an answer that cannot be read",
        Outcome::NoConnection => "got no connection or no answer",
        Outcome::NoFirstToken => "waited for a first token in vain",
        Outcome::Stalled => "stalled",
        Outcome::TooLong => "took longer than allowed",
    }
}

fn contradicts(contradiction: Contradiction) -> &'static str {
    match contradiction {
        Contradiction::UsageBelowChunks => "count fewer tokens than chunks with text came",
        Contradiction::UsageAboveLimit => "count more tokens than were allowed",
        Contradiction::UsageNotMonotonic => "count otherwise at the end than along the way",
        Contradiction::UsageSum => "count prompt and answer to another sum than they are",
        Contradiction::LengthNotReached => "claim to have ended for length before it",
    }
}

/// The time that a level may take at most, its warm-up and its drain included.
pub fn longest(settings: &crate::run::Settings) -> std::time::Duration {
    let warm = settings.limits.total + settings.limits.connect;
    let warm_ups = u32::try_from(settings.warm_up + 1).unwrap_or(u32::MAX);
    let level = warm.saturating_mul(warm_ups) + settings.duration + settings.rate_warm_up;
    std::time::Duration::from_nanos(nanoseconds(level))
}
