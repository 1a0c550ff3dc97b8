//! How a server behaves: words of a line, so that a test shows it at a glance.

use std::time::Duration;

/// Whose streaming dialect is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// SGLang: role chunk with null fields, usage in a chunk of its own, counts along if asked.
    Sglang,
    /// vLLM: unset fields left out, counts along if asked.
    #[default]
    Vllm,
    /// llama.cpp's server: an empty last delta, timings beside usage, counts only at the end.
    LlamaCpp,
    /// TGI: the role on every chunk, one token a chunk.
    Tgi,
    /// TensorRT-LLM: a space before the blank line, a role chunk of its own, counts along if asked.
    TensorRtLlm,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// After some tokens nothing more comes.
    Stall,
    /// The request is read, and no byte is answered.
    Silent,
    /// After some tokens only comments come.
    KeepAlives,
    /// After some tokens the connection closes.
    Cut,
    /// The connection closes within an event, and within a character.
    Half,
    /// After some tokens an error event comes, with status 200.
    Error,
    /// The same as a line that is no event.
    RawError,
    /// The final count is a tenth of what was sent.
    UsageLow,
    /// The final count is ten times what was sent.
    UsageHigh,
    /// No count is sent though it was asked for.
    NoUsage,
    /// The end marker is missing.
    NoDone,
    /// The reason of the end is missing.
    NoFinish,
    /// An event that is no JSON.
    Garbage,
    /// A chunk of the body without a size.
    BadChunk,
    /// This status, with `Retry-After`.
    Status(u16),
    /// Status 200 and a JSON document instead of a stream.
    Plain,
    /// The connection closes after every answer, without a word before.
    Close,
    /// The connection closes before anything is answered.
    Drop,
    /// Tokens without end.
    Endless,
    /// Status 400 for fields that OpenAI's interface does not have.
    Strict,
    /// Answers that are one character over and over.
    Corrupt,
}

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct Script {
    /// Whose dialect.
    pub dialect: Dialect,
    /// Tokens of an answer; as many as asked for where it is not set.
    pub tokens: Option<u64>,
    /// From the request to the first token.
    pub first: Duration,
    /// From chunk to chunk.
    pub pace: Duration,
    /// Whether all streams get their tokens at the same moments, as from one batch.
    pub step: bool,
    /// Tokens in a chunk.
    pub per_chunk: u64,
    /// Whether `stamp_ns`, nanoseconds of the monotonic clock, stands in each chunk.
    pub stamp: bool,
    /// What goes wrong.
    pub fault: Option<Fault>,
    /// After how many tokens.
    pub at: u64,
    /// With every how manieth request.
    pub every: u64,
    /// First requests that all goes well with.
    pub skip: u64,
    /// Bytes that are written at a time; 0 for a whole event.
    pub split: usize,
    /// A comment before every how manieth chunk; 0 for none.
    pub comments: u64,
    /// Requests that run at one time; more wait.
    pub capacity: Option<usize>,
    /// `Retry-After`, in seconds.
    pub retry_after: u64,
    /// https, with a certificate that nobody signed.
    pub tls: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            dialect: Dialect::default(),
            tokens: None,
            first: Duration::ZERO,
            pace: Duration::ZERO,
            step: false,
            per_chunk: 1,
            stamp: false,
            fault: None,
            at: 0,
            every: 1,
            skip: 0,
            split: 0,
            comments: 0,
            capacity: None,
            retry_after: 1,
            tls: false,
        }
    }
}

/// A word that no script has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no word of a script: {0:?}")]
pub struct BadScript(String);

impl Script {
    /// Reads words like `dialect=sglang pace=20 fault=cut at=3`. Times are in milliseconds, or in
    /// microseconds with `us` behind.
    ///
    /// # Errors
    /// A word that no script has.
    pub fn parse(words: &str) -> Result<Self, BadScript> {
        let mut script = Self::default();
        for word in words.split_whitespace() {
            script.word(word).ok_or_else(|| BadScript(word.to_owned()))?;
        }
        Ok(script)
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let number = || value.parse::<u64>().ok();
        match name {
            "dialect" => {
                self.dialect = match value {
                    "sglang" => Dialect::Sglang,
                    "vllm" => Dialect::Vllm,
                    "llama.cpp" => Dialect::LlamaCpp,
                    "tgi" => Dialect::Tgi,
                    "tensorrt-llm" => Dialect::TensorRtLlm,
                    _ => return None,
                }
            }
            "tokens" => self.tokens = Some(number()?),
            "first" => self.first = time(value)?,
            "pace" => self.pace = time(value)?,
            "per-chunk" => self.per_chunk = number().filter(|tokens| *tokens > 0)?,
            "step" => self.step = true,
            "stamp" => self.stamp = true,
            "fault" => self.fault = Some(fault(value)?),
            "at" => self.at = number()?,
            "every" => self.every = number().filter(|every| *every > 0)?,
            "skip" => self.skip = number()?,
            "split" => self.split = value.parse().ok()?,
            "comments" => self.comments = number()?,
            "capacity" => self.capacity = Some(value.parse().ok()?),
            "retry-after" => self.retry_after = number()?,
            "tls" => self.tls = true,
            _ => return None,
        }
        Some(())
    }

    /// What goes wrong with the request of this number, counted from 1.
    pub(crate) fn fault_of(&self, number: u64) -> Option<Fault> {
        let counts = number > self.skip && (number - self.skip).is_multiple_of(self.every);
        self.fault.filter(|_| counts)
    }
}

fn time(value: &str) -> Option<Duration> {
    match value.strip_suffix("us") {
        Some(microseconds) => microseconds.parse().ok().map(Duration::from_micros),
        None => value.parse().ok().map(Duration::from_millis),
    }
}

fn fault(word: &str) -> Option<Fault> {
    Some(match word {
        "stall" => Fault::Stall,
        "silent" => Fault::Silent,
        "keep-alives" => Fault::KeepAlives,
        "cut" => Fault::Cut,
        "half" => Fault::Half,
        "error" => Fault::Error,
        "raw-error" => Fault::RawError,
        "usage-low" => Fault::UsageLow,
        "usage-high" => Fault::UsageHigh,
        "no-usage" => Fault::NoUsage,
        "no-done" => Fault::NoDone,
        "no-finish" => Fault::NoFinish,
        "garbage" => Fault::Garbage,
        "bad-chunk" => Fault::BadChunk,
        "plain" => Fault::Plain,
        "close" => Fault::Close,
        "drop" => Fault::Drop,
        "endless" => Fault::Endless,
        "strict" => Fault::Strict,
        "corrupt" => Fault::Corrupt,
        other => Fault::Status(other.strip_prefix("status-")?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let script =
            Script::parse("dialect=tgi pace=20 first=500us fault=status-503 at=3 every=2 skip=1")
                .unwrap();
        assert_eq!((script.dialect, script.fault), (Dialect::Tgi, Some(Fault::Status(503))));
        assert_eq!(
            (script.pace, script.first),
            (Duration::from_millis(20), Duration::from_micros(500))
        );
        let faulty: Vec<u64> = (1..8).filter(|number| script.fault_of(*number).is_some()).collect();
        assert_eq!(faulty, [3, 5, 7]);
        for word in ["fault=x", "pace=x", "every=0", "what", "dialect=openai"] {
            assert_eq!(Script::parse(word).unwrap_err(), BadScript(word.to_owned()));
        }
    }
}
