//! Raw records: JSON lines, one a request, written while the run goes on.
//!
//! The first line has `"kind":"run"` ([`RunLine`]), each request one of `"kind":"request"`
//! ([`RequestLine`]), each level ends with one of `"kind":"level"` ([`LevelLine`]), and the last has
//! `"kind":"end"`. Moments are nanoseconds since the run began. A reader takes lines of other kinds,
//! and fields that it does not know, as if they were not there; a file without its last line is of a
//! run that was broken off.

use std::io::Write;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use schemars::JsonSchema;
use serde::Serialize;

use crate::reply::Outcome;
use crate::report::Load;
use crate::tokens::{Contradiction, Source};

/// First line: what was to be done.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunLine<'a> {
    /// `run`.
    pub kind: &'static str,
    /// Number of this form.
    pub form: u32,
    /// Name of the run.
    pub run: &'a str,
    /// When it began, RFC 3339, UTC.
    pub began: &'a str,
    /// Version of the program.
    pub tool_version: &'a str,
    /// The server.
    pub url: &'a str,
    /// Its model.
    pub model: &'a str,
    /// Its engine, where it said so.
    pub engine: Option<&'a str>,
    /// Its version, where it said so.
    pub engine_version: Option<&'a str>,
    /// Seed of prompts, arrivals and sampling.
    pub seed: u64,
    /// Temperature; 0 is greedy.
    pub temperature: f64,
    /// Most tokens of an answer.
    pub output_tokens: u64,
    /// Whether answers were asked to be of the full length.
    pub ignore_eos: bool,
    /// Where prompts come from: `words` or `given`.
    pub prompts: &'static str,
    /// Words of each prompt, or how many were given.
    pub prompt_size: u64,
    /// Hash of the first bodies, without the model's name: equal work has equal ones.
    pub bodies_hash: String,
}

/// Which part of a level a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the window: counts for nothing.
    WarmUp,
    /// Within.
    Measured,
}

/// A request.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RequestLine<'a> {
    /// `request`.
    pub kind: &'static str,
    /// Name of the run.
    pub run: &'a str,
    /// Number of the level, from 0.
    pub level: usize,
    /// Its load.
    pub load: Load,
    /// Part of the level.
    pub phase: Phase,
    /// Number within level and phase: the same number is the same prompt in every run with this seed.
    pub number: u64,
    /// When it was to be sent.
    pub scheduled_ns: u64,
    /// When it was sent, whole.
    pub sent_ns: Option<u64>,
    /// When the head of the answer came.
    pub head_ns: Option<u64>,
    /// When the first event came.
    pub first_event_ns: Option<u64>,
    /// When the first token came.
    pub first_ns: Option<u64>,
    /// When the last token came.
    pub last_ns: Option<u64>,
    /// When it was over.
    pub ended_ns: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, where not well.
    pub error: Option<&'a str>,
    /// `finish_reason`.
    pub finish: Option<&'a str>,
    /// Tokens of the answer.
    pub completion_tokens: u64,
    /// Of these, in the first group: they did not come one after the other.
    pub first_group_tokens: u64,
    /// Where that number comes from.
    pub tokens_source: Source,
    /// Chunks with tokens.
    pub chunks: u64,
    /// What the server counted for the answer.
    pub usage_completion_tokens: Option<u64>,
    /// What the server counted for the prompt.
    pub prompt_tokens: Option<u64>,
    /// Of these, from a cache.
    pub cached_tokens: Option<u64>,
    /// What the server's counts contradict.
    pub contradictions: &'a [Contradiction],
    /// Comments on the stream.
    pub comments: u64,
    /// Whether a connection was opened for it.
    pub connected: bool,
    /// Whether it was sent once more on a fresh connection.
    pub resent: bool,
    /// FNV-1a, 64 bits, of the text: equal texts have equal ones.
    pub output_hash: String,
    /// The text: reasoning, content and tool calls in the order in which they came.
    pub output: &'a str,
}

/// End of a level.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LevelLine<'a> {
    /// `level`.
    pub kind: &'static str,
    /// Name of the run.
    pub run: &'a str,
    /// Number of the level, from 0.
    pub level: usize,
    /// Its load.
    pub load: Load,
    /// Seconds of the window.
    pub window_seconds: Option<f64>,
    /// Tokens that came within it.
    pub window_tokens: u64,
    /// Whether the client was late enough to spoil the figures, and how.
    pub client_lagged: Option<&'a str>,
    /// What to know before these figures are used, the grave part of it.
    pub findings: Vec<String>,
    /// Times between tokens: longest of each bucket in nanoseconds, and count. Buckets of several
    /// runs are merged by adding the counts of equal times.
    pub inter_token_buckets: Vec<(u64, u64)>,
    /// Times from sending to the first token, likewise.
    pub first_token_buckets: Vec<(u64, u64)>,
}

/// Hash of a text (FNV-1a, 64 bits).
pub fn hash(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Writes lines in a thread of its own, so that a disk does not hold up the clock.
#[derive(Debug)]
pub struct Recorder {
    lines: Option<SyncSender<String>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    lost: std::cell::Cell<bool>,
}

impl Recorder {
    /// Writes to `out`.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn new(mut out: Box<dyn Write + Send>) -> std::io::Result<Self> {
        let (sender, lines) = sync_channel::<String>(4096);
        let thread = std::thread::Builder::new().name("records".to_owned()).spawn(move || {
            let mut block = String::new();
            while let Ok(line) = lines.recv() {
                block.push_str(&line);
                // What has come meanwhile goes with it; nothing waits for a later line.
                while block.len() < 1 << 20
                    && let Ok(line) = lines.try_recv()
                {
                    block.push_str(&line);
                }
                out.write_all(block.as_bytes())?;
                block.clear();
            }
            out.flush()
        })?;
        Ok(Self { lines: Some(sender), thread: Some(thread), lost: false.into() })
    }

    /// Writes a line.
    pub fn write(&self, line: &impl Serialize) {
        let sent = match (serde_json::to_string(line), &self.lines) {
            (Ok(mut text), Some(lines)) => {
                text.push('\n');
                lines.send(text).is_ok()
            }
            _ => false,
        };
        if !sent {
            self.lost.set(true);
        }
    }

    /// Writes the last line and waits until all is written.
    ///
    /// # Errors
    /// What could not be written.
    pub fn finish(mut self, run: &str) -> std::io::Result<()> {
        self.write(&serde_json::json!({"kind": "end", "run": run}));
        drop(self.lines.take());
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| std::io::Error::other("the writer has failed"))??;
        }
        if self.lost.get() { Err(std::io::Error::other("lines were lost")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let mut all = self.0.lock().unwrap();
            if self.1 > 0 && all.len() + bytes.len() > self.1 {
                return Err(std::io::Error::other("full"));
            }
            all.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_come_out_in_order() {
        let out = Shared::default();
        let recorder = Recorder::new(Box::new(out.clone())).unwrap();
        for number in 0..100 {
            recorder.write(&serde_json::json!({"number": number}));
        }
        recorder.finish("r").unwrap();
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 101);
        assert!(text.starts_with("{\"number\":0}\n{\"number\":1}\n"));
        assert!(text.ends_with("{\"kind\":\"end\",\"run\":\"r\"}\n"));
    }

    #[test]
    fn a_full_disk_is_said() {
        let recorder = Recorder::new(Box::new(Shared(Arc::default(), 50))).unwrap();
        for number in 0..100 {
            recorder.write(&serde_json::json!({"number": number}));
        }
        assert!(recorder.finish("r").is_err());
    }

    #[test]
    fn hashes_are_the_published_ones() {
        assert_eq!(hash(""), "cbf29ce484222325");
        assert_eq!(hash("a"), "af63dc4c8601ec8c");
    }
}
