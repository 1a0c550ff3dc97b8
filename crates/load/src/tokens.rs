//! When tokens came, and how many.
//!
//! A chunk is no token: with speculation it carries several, and some carry none. What arrives with
//! one read of the socket came at one moment and is one *group*. Groups are weighted by the counts
//! that the server sends along; where it sends none, by its final count spread over the chunks; where
//! it counts nothing, by one token a chunk. Which of these it was is part of the result.

use schemars::JsonSchema;
use serde::Serialize;

use crate::chunk::{Chunk, Usage};
use crate::stats::float;

/// Where a count of tokens comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The server counted along with the chunks.
    ContinuousUsage,
    /// The server's final count, spread over the chunks.
    FinalUsage,
    /// The server counted nothing, or nothing that can be: one token a chunk.
    Chunks,
}

/// How the server's count contradicts what it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Contradiction {
    /// Fewer tokens are counted than chunks with text came.
    UsageBelowChunks,
    /// More tokens are counted than were allowed.
    UsageAboveLimit,
    /// The count went down, or the final one is another than the last one.
    UsageNotMonotonic,
    /// Prompt and completion do not add up to the total.
    UsageSum,
    /// Ended for length before the length was reached.
    LengthNotReached,
}

/// What came with one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    /// When, in nanoseconds of the monotonic clock.
    at: u64,
    /// Chunks with tokens.
    chunks: u32,
    /// Tokens that the server counted for them.
    tokens: u32,
}

/// Tokens of one answer as they come. Memory is kept from answer to answer.
#[derive(Debug, Default)]
pub struct Tokens {
    groups: Vec<Group>,
    /// Chunks with tokens.
    chunks: u64,
    /// Of these, with text.
    shown: u64,
    /// Of these, without a count of the server's.
    uncounted: u64,
    usage: Option<Usage>,
    /// Last count that came with tokens.
    counted: u64,
    not_monotonic: bool,
}

/// Tokens of one answer, complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// Tokens given out.
    pub tokens: u64,
    /// Where the number comes from.
    pub source: Source,
    /// Chunks with tokens.
    pub chunks: u64,
    /// What the server counted at the end.
    pub usage: Option<Usage>,
    /// When the first came, in nanoseconds of the monotonic clock.
    pub first: Option<u64>,
    /// When the last came.
    pub last: Option<u64>,
    /// Tokens in the first group.
    pub in_first: u64,
    /// What the server's counts contradict.
    pub contradictions: Vec<Contradiction>,
}

impl Counted {
    /// Seconds from token to token over the whole answer: (last − first) ÷ (tokens − those that came
    /// first).
    pub fn time_per_token(&self) -> Option<f64> {
        let span = self.last?.checked_sub(self.first?)?;
        let behind = self.tokens.checked_sub(self.in_first).filter(|behind| *behind > 0)?;
        Some(float(span) / 1e9 / float(behind))
    }
}

impl Tokens {
    /// Forgets everything, and keeps its memory.
    pub fn reset(&mut self) {
        let mut groups = std::mem::take(&mut self.groups);
        groups.clear();
        *self = Self { groups, ..Self::default() };
    }

    /// Takes a chunk that came at `at`. Returns whether it held tokens.
    #[inline]
    pub fn take(&mut self, chunk: &Chunk<'_>, at: u64) -> bool {
        let count = chunk.usage.and_then(|usage| usage.completion);
        if let Some(usage) = chunk.usage {
            let before = self.usage.and_then(|usage| usage.completion).unwrap_or(0);
            self.not_monotonic |= count.is_some_and(|count| count < before);
            self.usage = Some(usage);
        }
        let advanced = count.map(|count| count.saturating_sub(self.counted));
        // Tokens may show nothing (special ones, parts of a character), and are seen by the count
        // alone; that holds only where the server counts along.
        let unseen = chunk.choices > 0 && self.uncounted == 0 && advanced.is_some_and(|by| by > 0);
        let shows = chunk.shows();
        if !shows && !unseen {
            return false;
        }
        self.chunks += 1;
        self.shown += u64::from(shows);
        let tokens = if let (Some(count), Some(by)) = (count, advanced) {
            self.counted = count.max(self.counted);
            u32::try_from(by).unwrap_or(u32::MAX)
        } else {
            self.uncounted += 1;
            0
        };
        match self.groups.last_mut() {
            Some(group) if group.at == at => {
                group.chunks += 1;
                group.tokens = group.tokens.saturating_add(tokens);
            }
            _ => self.groups.push(Group { at, chunks: 1, tokens }),
        }
        true
    }

    /// When the first token came.
    pub fn first(&self) -> Option<u64> {
        self.groups.first().map(|group| group.at)
    }

    /// Counts an answer of at most `limit` tokens that ended with the reason `finish`.
    pub fn count(&self, limit: u64, finish: Option<&str>) -> Counted {
        let mut contradictions = Vec::new();
        let reported = self.usage.and_then(|usage| usage.completion);
        if let Some(reported) = reported {
            // One token may show as two chunks where a tool or reasoning begins.
            if self.shown > reported + reported / 10 + 2 {
                contradictions.push(Contradiction::UsageBelowChunks);
            }
            if reported > limit {
                contradictions.push(Contradiction::UsageAboveLimit);
            }
            if finish == Some("length") && reported < limit {
                contradictions.push(Contradiction::LengthNotReached);
            }
        }
        let along = self.uncounted == 0 && self.chunks > 0;
        if self.not_monotonic || (along && reported.is_some_and(|count| count != self.counted)) {
            contradictions.push(Contradiction::UsageNotMonotonic);
        }
        let sum = self.usage.is_some_and(|usage| match (usage.prompt, usage.completion) {
            (Some(prompt), Some(completion)) => {
                usage.total.is_some_and(|total| prompt.checked_add(completion) != Some(total))
            }
            _ => false,
        });
        if sum {
            contradictions.push(Contradiction::UsageSum);
        }
        // A count that cannot be is not counted with.
        let lies = contradictions.iter().any(|one| *one != Contradiction::UsageSum);
        let (tokens, source) = match reported {
            Some(_) if along && !lies => (self.counted, Source::ContinuousUsage),
            Some(reported) if !lies && reported >= u64::from(self.chunks > 0) => {
                (reported, Source::FinalUsage)
            }
            _ => (self.chunks, Source::Chunks),
        };
        let mut counted = Counted {
            tokens,
            source,
            chunks: self.chunks,
            usage: self.usage,
            first: self.first(),
            last: self.groups.last().map(|group| group.at),
            in_first: 0,
            contradictions,
        };
        let mut in_first = None;
        self.weighted(&counted, |_, weight| in_first = in_first.or(Some(weight)));
        counted.in_first = in_first.unwrap_or(0);
        counted
    }

    /// Hands on the moment and the number of tokens of each group; the numbers add up to the tokens.
    fn weighted(&self, counted: &Counted, mut sink: impl FnMut(u64, u64)) {
        let (mut chunks, mut before) = (0, 0);
        for group in &self.groups {
            let tokens = match counted.source {
                Source::ContinuousUsage => u64::from(group.tokens),
                Source::FinalUsage | Source::Chunks => {
                    chunks += u64::from(group.chunks);
                    // Spread without a remainder: what the groups so far have, rounded.
                    let share = u128::from(chunks) * u128::from(counted.tokens);
                    let until = share / u128::from(counted.chunks.max(1));
                    let until = u64::try_from(until).unwrap_or(u64::MAX);
                    until - std::mem::replace(&mut before, until)
                }
            };
            sink(group.at, tokens);
        }
    }

    /// Hands on the times between tokens, in nanoseconds, each with the number of tokens that it
    /// holds for: a group that brings three tokens after 30 ms holds 10 ms three times. The first
    /// group has none: it is the time to the first token.
    pub fn gaps(&self, counted: &Counted, mut sink: impl FnMut(u64, u64)) {
        let mut before = None;
        let mut waited_since = None;
        self.weighted(counted, |at, tokens| {
            // A group without tokens of its own (rounded away) lengthens the next one's time.
            let since = waited_since.unwrap_or(before.unwrap_or(at));
            if before.is_some() && tokens > 0 {
                sink(at.saturating_sub(since) / tokens, tokens);
            }
            waited_since = (before.is_some() && tokens == 0).then_some(since);
            before = Some(at);
        });
    }

    /// Tokens that came from `begin` on and before `end`.
    pub fn within(&self, counted: &Counted, begin: u64, end: u64) -> u64 {
        let mut within = 0;
        self.weighted(counted, |at, tokens| {
            if (begin..end).contains(&at) {
                within += tokens;
            }
        });
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `AT:TEXT:USAGE` words: a chunk each; `-` leaves out.
    fn tokens(script: &str) -> Tokens {
        let mut tokens = Tokens::default();
        for word in script.split_whitespace() {
            let parts: Vec<&str> = word.split(':').collect();
            let choices = if parts[1] == "-" {
                String::new()
            } else {
                format!(r#"{{"text":"{}"}}"#, parts[1])
            };
            let usage = match parts[2] {
                "-" => "null".to_owned(),
                count => format!(r#"{{"completion_tokens":{count}}}"#),
            };
            let text = format!(r#"{{"choices":[{choices}],"usage":{usage}}}"#);
            let chunk = Chunk::read(text.as_bytes(), None).unwrap();
            tokens.take(&chunk, parts[0].parse().unwrap());
        }
        tokens
    }

    #[track_caller]
    fn check(
        script: &str,
        total: u64,
        source: Source,
        gaps: &[(u64, u64)],
        lies: &[Contradiction],
    ) {
        let tokens = tokens(script);
        let counted = tokens.count(100, Some("stop"));
        assert_eq!((counted.tokens, counted.source), (total, source));
        let mut seen = Vec::new();
        tokens.gaps(&counted, |gap, count| seen.push((gap, count)));
        assert_eq!(seen, gaps);
        assert_eq!(counted.contradictions, lies);
        assert_eq!(tokens.within(&counted, 0, u64::MAX), total, "nothing is counted twice");
        let behind: u64 = gaps.iter().map(|(_, count)| count).sum();
        assert_eq!(counted.in_first + behind, total);
    }

    #[test]
    fn counted_along() {
        let source = Source::ContinuousUsage;
        check("10:a:1 20:b:2 40:c:3 40:-:3", 3, source, &[(10, 1), (20, 1)], &[]);
        // Three tokens in one chunk; two chunks with one read; a token that shows nothing.
        check("10:a:1 40:bcd:4", 4, source, &[(10, 3)], &[]);
        check("10:a:1 30:b:2 30:c:3", 3, source, &[(10, 2)], &[]);
        check("10::1 20:b:2", 2, source, &[(10, 1)], &[]);
        // The chunk of the role counts nothing.
        check("5::0 10:a:1 20:b:2 20::2", 2, source, &[(10, 1)], &[]);
    }

    #[test]
    fn counted_at_the_end() {
        let source = Source::FinalUsage;
        check("10:a:- 20:b:- 30:c:- 31:-:3", 3, source, &[(10, 1), (10, 1)], &[]);
        // Six tokens in three chunks.
        check("10:a:- 20:b:- 30:c:- 31:-:6", 6, source, &[(5, 2), (5, 2)], &[]);
        // The count comes with the last chunk that shows something.
        check("10:a:- 20:b:- 30:c:3", 3, source, &[(10, 1), (10, 1)], &[]);
        // One token fewer than chunks: no contradiction, and the time of the odd chunk is not lost.
        check("10:a:- 20:b:- 30:c:- 31:-:2", 2, source, &[(10, 1), (10, 1)], &[]);
    }

    #[test]
    fn not_counted() {
        check("10:a:- 20:b:-", 2, Source::Chunks, &[(10, 1)], &[]);
        check("", 0, Source::Chunks, &[], &[]);
    }

    #[test]
    fn counts_that_cannot_be() {
        let source = Source::Chunks;
        let below = Contradiction::UsageBelowChunks;
        let gaps = [(1, 1), (1, 1), (1, 1)];
        check("1:a:- 2:b:- 3:c:- 4:d:- 5:-:1", 4, source, &gaps, &[below]);
        check("1:a:- 2:b:- 3:-:4000", 2, source, &[(1, 1)], &[Contradiction::UsageAboveLimit]);
        check("1:a:2 2:b:1 3:-:2", 2, source, &[(1, 1)], &[Contradiction::UsageNotMonotonic]);
        check("1:a:1 2:b:2 3:-:9", 2, source, &[(1, 1)], &[Contradiction::UsageNotMonotonic]);
        let length = tokens("1:a:- 2:-:1").count(5, Some("length"));
        assert_eq!(length.contradictions, [Contradiction::LengthNotReached]);
    }

    #[test]
    fn the_window_cuts() {
        let tokens = tokens("10:a:1 20:b:2 30:c:5");
        let counted = tokens.count(100, None);
        assert_eq!(tokens.within(&counted, 20, 30), 1);
        assert_eq!(tokens.within(&counted, 20, 31), 4);
        assert_eq!(counted.time_per_token(), Some(20e-9 / 4.0));
    }
}
