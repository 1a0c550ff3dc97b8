//! The document of a run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::metrics::ServerTruth;
use crate::prompt::Extras;
use crate::reply::Outcome;
use crate::stats::Summary;
use crate::target::Endpoint;
use crate::ticks::Arrivals;
use crate::tokens::{Contradiction, Source};

/// How hard a server is driven.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// So many requests at any time: each end begins the next.
    Concurrency(u32),
    /// So many requests a second, whatever the server does.
    Rate(f64),
}

impl std::fmt::Display for Load {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Concurrency(concurrency) => write!(formatter, "{concurrency} at a time"),
            Self::Rate(rate) => write!(formatter, "{rate} a second"),
        }
    }
}

/// What the figures mean: they are computed in no other way.
pub const DEFINITIONS: [(&str, &str); 7] = [
    (
        "first_token_seconds",
        "from the request's last byte sent to the first chunk with a token: text, reasoning, a tool call, or a count that went up; not the chunk of the role",
    ),
    (
        "response_first_token_seconds",
        "the same from the moment at which the request was to be sent: waiting in the client included",
    ),
    (
        "inter_token_seconds",
        "between groups of tokens, weighted by tokens: three tokens after 30 ms are 10 ms three times; what comes with one read of the socket is one group; the first group counts to the first token",
    ),
    (
        "time_per_output_token_seconds",
        "one value a request: (last token - first token) / (tokens - tokens of the first group)",
    ),
    ("request_seconds", "from the request's last byte sent to its last token"),
    (
        "tokens_per_second",
        "tokens whose chunks came within the window / its length, requests of the warm-up and the drain included",
    ),
    (
        "window",
        "from the moment at which every slot has ended its warm-up (or the warm-up of a rate is over) until no further request begins",
    ),
];

/// A run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Bench {
    /// The server.
    pub url: String,
    /// The interface that was driven.
    pub endpoint: Endpoint,
    /// The model.
    pub model: String,
    /// The engine, where the server says so.
    pub engine: Option<String>,
    /// Its version, where the server says so.
    pub engine_version: Option<String>,
    /// Name of the run.
    pub run: String,
    /// Seed of prompts, arrivals and sampling.
    pub seed: u64,
    /// Temperature; 0 is greedy.
    pub temperature: f64,
    /// Most tokens of an answer.
    pub output_tokens: u64,
    /// How requests arrive at a rate.
    pub arrivals: Arrivals,
    /// Which fields beyond the plain interface were sent.
    pub extras: ExtrasSent,
    /// What each figure means.
    pub definitions: BTreeMap<String, String>,
    /// One level of load after the other.
    pub levels: Vec<Level>,
    /// What to know before these figures are used.
    pub findings: Vec<Finding>,
    /// Where the raw records are.
    pub record: Option<String>,
}

/// Which fields beyond the plain interface were sent.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ExtrasSent {
    /// `ignore_eos`.
    pub ignore_eos: bool,
    /// `stream_options.include_usage`.
    pub include_usage: bool,
    /// `stream_options.continuous_usage_stats`.
    pub continuous_usage_stats: bool,
}

impl From<Extras> for ExtrasSent {
    fn from(extras: Extras) -> Self {
        Self {
            ignore_eos: extras.ignore_eos,
            include_usage: extras.usage,
            continuous_usage_stats: extras.usage && extras.count_along,
        }
    }
}

/// A level of load.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Level {
    /// The load.
    pub load: Load,
    /// Seconds of the window; `null` where it never began.
    pub window_seconds: Option<f64>,
    /// Requests of the warm-up, however they ended.
    pub warm_up_requests: u64,
    /// Requests measured, by how they ended.
    pub requests: BTreeMap<Outcome, u64>,
    /// Requests measured.
    pub requests_measured: u64,
    /// Requests that were due and never sent, since the server was too slow for the rate.
    pub requests_unsent: u64,
    /// Examples of what went wrong, one a kind.
    pub errors: Vec<ErrorSeen>,
    /// Requests that were in flight, mean over the window.
    pub concurrency_mean: Option<f64>,
    /// Tokens that came within the window.
    pub window_tokens: u64,
    /// Tokens a second over the window.
    pub tokens_per_second: Option<f64>,
    /// Requests complete a second: ended within the window.
    pub requests_per_second: Option<f64>,
    /// Tokens of the answers of measured requests.
    pub output_tokens: u64,
    /// Tokens of their prompts, as the server counted them.
    pub prompt_tokens: Option<u64>,
    /// Of these, from a cache.
    pub cached_tokens: Option<u64>,
    /// Where the counts of tokens come from: answers by source.
    pub token_sources: BTreeMap<Source, u64>,
    /// Chunks with tokens of measured requests.
    pub chunks: u64,
    /// Answers by `finish_reason`; `none` where there was none.
    pub finish_reasons: BTreeMap<String, u64>,
    /// Answers whose counts cannot be, by how.
    pub contradictions: BTreeMap<Contradiction, u64>,
    /// From sending to the first token.
    pub first_token_seconds: Option<Summary>,
    /// From the moment at which a request was to be sent.
    pub response_first_token_seconds: Option<Summary>,
    /// Between tokens.
    pub inter_token_seconds: Option<Summary>,
    /// From token to token, one value a request.
    pub time_per_output_token_seconds: Option<Summary>,
    /// From sending to the last token.
    pub request_seconds: Option<Summary>,
    /// What the server said of itself.
    pub server: Option<ServerTruth>,
    /// The client's own part.
    pub client: ClientTruth,
}

/// An example of what went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ErrorSeen {
    /// How the requests ended.
    pub outcome: Outcome,
    /// In words, of the first of them.
    pub example: String,
}

/// The client's own part in what was measured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ClientTruth {
    /// From the moment at which a request was to be sent to the moment at which it was.
    pub send_lag_seconds: Option<Summary>,
    /// How long something that came had to wait for the client: a thread of its own knocks a hundred
    /// times a second.
    pub loop_lag_seconds: Option<Summary>,
    /// From the server's own time stamps to the moment of reading, where it writes any.
    pub stamp_lag_seconds: Option<Summary>,
    /// Processor time over the window, as a share of one processor.
    pub processor_share: Option<f64>,
    /// Processor time a token, in nanoseconds.
    pub processor_nanoseconds_per_token: Option<f64>,
    /// Connections that were opened.
    pub connections_opened: u64,
    /// Requests that went out once more, since the server had closed a kept connection.
    pub requests_resent: u64,
    /// Whether the client was late enough to spoil the figures, and how.
    pub lagged: Option<String>,
}

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Good to know.
    Info,
    /// The figures hold with a reservation.
    Warning,
    /// Something did not work.
    Error,
    /// Nothing could be decided.
    Undecided,
    /// The server's word is wrong.
    WrongData,
    /// Something hung.
    Hung,
}

/// What to know before the figures are used.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// How much it weighs.
    pub weight: Weight,
    /// The level that it is about.
    pub load: Option<Load>,
    /// What it is.
    pub text: String,
}
