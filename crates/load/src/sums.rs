//! What a level adds up to: fixed memory, however many requests.

use std::collections::BTreeMap;

use crate::clock::now;
use crate::exchange::Exchanged;
use crate::record::Phase;
use crate::reply::{Outcome, Story};
use crate::report::ErrorSeen;
use crate::stats::Times;
use crate::tokens::{Contradiction, Counted, Source};

/// Most different reasons of an end that are told apart.
const MOST_REASONS: usize = 16;

/// The window of a level, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

impl Window {
    pub(crate) const NEVER: Self = Self { begin: u64::MAX, end: u64::MAX };

    pub(crate) fn begun(&self) -> bool {
        self.begin != u64::MAX
    }
}

/// A request that is to be, or is, on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) phase: Phase,
    pub(crate) number: u64,
    pub(crate) scheduled: u64,
}

/// The sums.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) warm_up: u64,
    pub(crate) requests: BTreeMap<Outcome, u64>,
    pub(crate) measured: u64,
    pub(crate) errors: Vec<ErrorSeen>,
    pub(crate) window_tokens: u64,
    pub(crate) complete_within: u64,
    /// Nanoseconds in flight within the window, all requests together.
    pub(crate) in_flight: u64,
    pub(crate) output_tokens: u64,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) cached_tokens: Option<u64>,
    pub(crate) sources: BTreeMap<Source, u64>,
    pub(crate) chunks: u64,
    /// Chunks of every answer, the warm-up's too.
    pub(crate) all_tokens: u64,
    pub(crate) finish: BTreeMap<String, u64>,
    pub(crate) contradictions: BTreeMap<Contradiction, u64>,
    pub(crate) first: Times,
    pub(crate) response_first: Times,
    pub(crate) inter: Times,
    pub(crate) per_token: Times,
    pub(crate) whole: Times,
    pub(crate) send_lag: Times,
    pub(crate) opened: u64,
    pub(crate) resent: u64,
}

impl Sums {
    /// Adds a request that is over.
    pub(crate) fn add(
        &mut self,
        job: Job,
        done: &Exchanged,
        story: &Story,
        counted: &Counted,
        window: Window,
    ) {
        self.opened += u64::from(done.connected);
        self.resent += u64::from(done.resent);
        self.all_tokens += counted.tokens;
        let ended_by = window.end.min(now());
        self.window_tokens += story.tokens.within(counted, window.begin, window.end);
        let from = done.sent.unwrap_or(done.ended).max(window.begin);
        self.in_flight += done.ended.min(ended_by).saturating_sub(from);
        let within = (window.begin..window.end).contains(&done.ended);
        if done.outcome == Outcome::Complete && within {
            self.complete_within += 1;
        }
        if job.phase == Phase::WarmUp {
            self.warm_up += 1;
            return;
        }
        self.measured += 1;
        *self.requests.entry(done.outcome).or_default() += 1;
        if done.outcome != Outcome::Complete
            && !self.errors.iter().any(|error| error.outcome == done.outcome)
        {
            let example = story.error.clone().unwrap_or_default();
            self.errors.push(ErrorSeen { outcome: done.outcome, example });
        }
        if let Some(sent) = done.sent {
            self.send_lag.add(sent.saturating_sub(job.scheduled), 1);
        }
        self.tokens(job, done, story, counted);
    }

    /// Tokens and times of a measured request; of one that broke off too, as far as it came.
    fn tokens(&mut self, job: Job, done: &Exchanged, story: &Story, counted: &Counted) {
        let (Some(sent), Some(first)) = (done.sent, counted.first) else { return };
        self.output_tokens += counted.tokens;
        self.chunks += counted.chunks;
        *self.sources.entry(counted.source).or_default() += 1;
        if let Some(usage) = counted.usage {
            let add = |sum: &mut Option<u64>, count: Option<u64>| {
                if let Some(count) = count {
                    *sum = Some(sum.unwrap_or(0).saturating_add(count));
                }
            };
            add(&mut self.prompt_tokens, usage.prompt);
            add(&mut self.cached_tokens, usage.cached);
        }
        for contradiction in &counted.contradictions {
            *self.contradictions.entry(*contradiction).or_default() += 1;
        }
        let reason = story.finish.as_deref().unwrap_or("none");
        let known = self.finish.contains_key(reason) || self.finish.len() < MOST_REASONS;
        *self.finish.entry(if known { reason } else { "other" }.to_owned()).or_default() += 1;
        self.first.add(first.saturating_sub(sent), 1);
        self.response_first.add(first.saturating_sub(job.scheduled), 1);
        story.tokens.gaps(counted, |gap, tokens| self.inter.add(gap, tokens));
        if done.outcome != Outcome::Complete {
            return;
        }
        if let Some(last) = counted.last {
            self.whole.add(last.saturating_sub(sent), 1);
        }
        if let Some(seconds) = counted.time_per_token()
            && let Ok(span) = std::time::Duration::try_from_secs_f64(seconds)
        {
            self.per_token.add(crate::clock::nanoseconds(span), 1);
        }
    }
}
