//! One answer, from its first byte to its last: bytes in, an account out. No socket and no clock.

use schemars::JsonSchema;
use serde::Serialize;

use crate::chunk::{Chunk, words};
use crate::http1::{self, Body, Head, NotHttp};
use crate::sse::{Event, Splitter};
use crate::stats::Times;
use crate::tokens::Tokens;

/// Most of an error's body that is kept.
const KEPT_OF_ERRORS: usize = 4 << 10;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With a reason, a count or none, and the end marker.
    Complete,
    /// The stream ended without its end marker, or without a reason.
    Truncated,
    /// An error within the stream.
    ServerError,
    /// Status 429 or 503: come back later.
    Refused,
    /// Another status than 200.
    HttpError,
    /// Status 200, and no stream of events.
    NotAStream,
    /// What came is no HTTP or no JSON.
    Malformed,
    /// No connection, or one that closed before anything was answered.
    NoConnection,
    /// No token came in time.
    NoFirstToken,
    /// Tokens came, and then none for too long.
    Stalled,
    /// The answer took longer than a request may.
    TooLong,
}

impl Outcome {
    /// Whether a deadline ended it.
    pub fn hung(self) -> bool {
        matches!(self, Self::NoFirstToken | Self::Stalled | Self::TooLong)
    }
}

/// How answers are read.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Whether the text is kept.
    pub keep_text: bool,
    /// Name of a field with the server's own time stamp, in nanoseconds of the monotonic clock.
    pub stamp: Option<String>,
}

/// Whether an answer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// More is to come.
    More,
    /// All has come.
    Ended,
}

/// One answer. Memory is kept from answer to answer.
#[derive(Debug, Default)]
pub struct Reply {
    unparsed_head: Vec<u8>,
    head: Option<Head>,
    splitter: Splitter,
    behind: bool,
    /// What the events said.
    pub story: Story,
}

/// What the events of an answer said.
#[derive(Debug, Default)]
pub struct Story {
    /// Tokens.
    pub tokens: Tokens,
    /// Text, reasoning and tool calls in the order in which they came, where it is kept.
    pub text: String,
    /// Why it ended.
    pub finish: Option<String>,
    /// When the head came.
    pub head_at: Option<u64>,
    /// When the first event came, tokens or not.
    pub first_event_at: Option<u64>,
    /// When the end marker came.
    pub done_at: Option<u64>,
    /// When something last moved: a token, or the head.
    pub moved_at: Option<u64>,
    /// Comments, which are signs of life.
    pub comments: u64,
    /// What went wrong, in the server's words or ours.
    pub error: Option<String>,
    malformed: bool,
    error_body: Vec<u8>,
}

impl Story {
    fn reset(&mut self) {
        let mut tokens = std::mem::take(&mut self.tokens);
        tokens.reset();
        let (mut text, mut error_body) =
            (std::mem::take(&mut self.text), std::mem::take(&mut self.error_body));
        text.clear();
        error_body.clear();
        *self = Self { tokens, text, error_body, ..Self::default() };
    }

    fn event(&mut self, event: Event<'_>, now: u64, reading: &Reading, lag: &mut Times) {
        match event {
            Event::Comment => self.comments += 1,
            Event::Stray(line) => {
                if let Ok(chunk) = Chunk::read(line, None)
                    && let Some(error) = chunk.error
                {
                    self.error.get_or_insert_with(|| words(error));
                }
            }
            Event::Data(data) => self.data(data, now, reading, lag),
        }
    }

    fn data(&mut self, data: &[u8], now: u64, reading: &Reading, lag: &mut Times) {
        self.first_event_at.get_or_insert(now);
        if data.trim_ascii() == b"[DONE]" {
            self.done_at.get_or_insert(now);
            return;
        }
        let stamp = reading.stamp.as_deref().map(str::as_bytes);
        let Ok(chunk) = Chunk::read(data, stamp) else {
            self.malformed = true;
            self.error.get_or_insert_with(|| "an event of the stream is no JSON".to_owned());
            return;
        };
        if let Some(error) = chunk.error {
            self.error.get_or_insert_with(|| words(error));
        }
        if let Some(stamp) = chunk.stamp {
            lag.add(now.saturating_sub(stamp), 1);
        }
        if self.tokens.take(&chunk, now) {
            self.moved_at = Some(now);
        }
        if let Some(finish) = chunk.finish {
            self.finish = Some(finish.text().into_owned());
        }
        if reading.keep_text {
            for text in [chunk.reasoning, chunk.content].into_iter().flatten() {
                self.text.push_str(&text.text());
            }
            if let Some(tools) = chunk.tools {
                self.text.push_str(&String::from_utf8_lossy(tools));
            }
        }
    }
}

impl Reply {
    /// Forgets everything, and keeps its memory.
    pub fn reset(&mut self) {
        self.unparsed_head.clear();
        self.head = None;
        self.splitter.reset();
        self.behind = false;
        self.story.reset();
    }

    /// Takes bytes that came at `now`.
    #[inline]
    pub fn accept(&mut self, bytes: &[u8], now: u64, reading: &Reading, lag: &mut Times) -> Then {
        match self.try_accept(bytes, now, reading, lag) {
            Ok(then) => then,
            Err(why) => {
                self.story.malformed = true;
                self.story.error.get_or_insert(why);
                self.behind = true;
                Then::Ended
            }
        }
    }

    fn try_accept(
        &mut self,
        bytes: &[u8],
        now: u64,
        reading: &Reading,
        lag: &mut Times,
    ) -> Result<Then, String> {
        if self.head.is_some() {
            return self.body(bytes, now, reading, lag);
        }
        self.unparsed_head.extend_from_slice(bytes);
        let mut unparsed = std::mem::take(&mut self.unparsed_head);
        let mut at = 0;
        let then = loop {
            let rest = unparsed.get(at..).unwrap_or_default();
            let Some((head, length)) = http1::head(rest).map_err(|error| error.to_string())? else {
                break Then::More;
            };
            at += length;
            if (100..200).contains(&head.status) {
                continue;
            }
            self.story.head_at = Some(now);
            self.story.moved_at = Some(now);
            self.head = Some(head);
            let rest = unparsed.get(at..).unwrap_or_default();
            break self.body(rest, now, reading, lag)?;
        };
        if self.head.is_some() {
            unparsed.clear();
        } else {
            unparsed.drain(..at);
        }
        self.unparsed_head = unparsed;
        Ok(then)
    }

    #[inline]
    fn body(
        &mut self,
        mut rest: &[u8],
        now: u64,
        reading: &Reading,
        lag: &mut Times,
    ) -> Result<Then, String> {
        let Self { head: Some(head), splitter, story, .. } = self else { return Ok(Then::More) };
        let said = |error: NotHttp| error.to_string();
        while let Some(piece) = head.body.next(&mut rest).map_err(said)? {
            if head.status == 200 {
                splitter
                    .feed(piece, &mut |event| story.event(event, now, reading, lag))
                    .map_err(|error| error.to_string())?;
            } else {
                let room = KEPT_OF_ERRORS.saturating_sub(story.error_body.len());
                story.error_body.extend(piece.iter().take(room));
            }
        }
        if !head.body.ended() {
            return Ok(Then::More);
        }
        self.behind = !rest.is_empty();
        self.finish(now, reading, lag);
        Ok(Then::Ended)
    }

    /// The connection has closed. Returns whether that is the proper end.
    pub fn closed(&mut self, now: u64, reading: &Reading, lag: &mut Times) -> bool {
        let proper = self.head.as_ref().is_some_and(|head| head.body.may_close());
        self.finish(now, reading, lag);
        proper
    }

    fn finish(&mut self, now: u64, reading: &Reading, lag: &mut Times) {
        let Self { splitter, story, .. } = self;
        splitter.finish(&mut |event| story.event(event, now, reading, lag));
    }

    /// Whether nothing at all has come.
    pub fn untouched(&self) -> bool {
        self.head.is_none() && self.unparsed_head.is_empty()
    }

    /// Whether the connection can carry a further request.
    pub fn reusable(&self) -> bool {
        !self.behind
            && self.head.as_ref().is_some_and(|head| {
                head.keep_alive && head.body.ended() && head.body != Body::Close
            })
    }

    /// The status and the other facts of the head, once it has come.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// How it ended, where no deadline and no connection decided.
    pub fn outcome(&mut self) -> Outcome {
        let Some(head) = &self.head else {
            return if self.story.malformed { Outcome::Malformed } else { Outcome::NoConnection };
        };
        if head.status != 200 {
            let (status, body) = (head.status, words(&self.story.error_body));
            let colon = if body.is_empty() { "" } else { ": " };
            self.story.error = Some(format!("status {status}{colon}{body}"));
            return if matches!(status, 429 | 503) { Outcome::Refused } else { Outcome::HttpError };
        }
        if self.story.malformed {
            return Outcome::Malformed;
        }
        if self.story.error.is_some() {
            return Outcome::ServerError;
        }
        if self.story.first_event_at.is_none() && !head.event_stream && head.body.may_close() {
            self.story.error = Some("the answer is no stream of events".to_owned());
            return Outcome::NotAStream;
        }
        let missing = match (self.story.done_at, &self.story.finish) {
            (Some(_), Some(_)) => return Outcome::Complete,
            (None, Some(_)) => "no end marker",
            (Some(_), None) => "no reason of the end",
            (None, None) => "neither an end marker nor a reason of the end",
        };
        self.story.error = Some(missing.to_owned());
        Outcome::Truncated
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
