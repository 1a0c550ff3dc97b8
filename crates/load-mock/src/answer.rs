//! The chunks of an answer, in each dialect.

use std::io::Write as _;

use crate::request::Asked;
use crate::script::{Dialect, Fault, Script};

/// Words of answers. Some take several bytes a character, some need escapes.
const WORDS: [&str; 12] = [
    " the",
    " gate",
    " café",
    " 東京",
    " lamp",
    "\\n",
    " river",
    " 😀",
    " \\\"so\\\"",
    " été",
    " stone",
    "\\u00fcber",
];

/// Writes the chunks of one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'s> {
    pub(crate) script: &'s Script,
    pub(crate) asked: Asked,
    pub(crate) fault: Option<Fault>,
    /// Tokens of the prompt that are claimed.
    pub(crate) prompt: u64,
    pub(crate) number: u64,
}

impl Answer<'_> {
    /// The word of a token.
    fn word(&self, token: u64) -> &'static str {
        if self.fault == Some(Fault::Corrupt) {
            return "!";
        }
        let mixed = (self.asked.prompt ^ token.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .wrapping_mul(0xff51_afd7_ed55_8ccd);
        let at = usize::try_from((mixed >> 33) % 12).unwrap_or(0);
        WORDS.get(at).copied().unwrap_or(" ")
    }

    fn begin(&self, out: &mut Vec<u8>) {
        let (id, object) = if self.asked.chat {
            ("chatcmpl", "chat.completion.chunk")
        } else {
            ("cmpl", "text_completion")
        };
        let id = format!("{id}-{:08x}", self.number);
        let id = if self.script.dialect == Dialect::Tgi { "" } else { &id };
        put(
            out,
            format_args!(
                "data: {{\"id\":\"{id}\",\"object\":\"{object}\",\"created\":1700000000,\"model\":\"mock\",\"choices\":["
            ),
        );
    }

    /// The rest of an event: its count, its stamp, its end.
    fn end(&self, out: &mut Vec<u8>, count: Option<u64>) {
        let prompt = self.prompt;
        if let Some(count) = count {
            put(
                out,
                format_args!(
                    ",\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{},\"completion_tokens\":{count}}}",
                    prompt + count
                ),
            );
        } else if self.script.dialect == Dialect::Sglang {
            out.extend_from_slice(b",\"usage\":null");
        }
        if self.script.stamp {
            put(out, format_args!(",\"stamp_ns\":{}", now()));
        }
        out.extend_from_slice(match self.script.dialect {
            Dialect::TensorRtLlm => b"} \n\n",
            _ => b"}\n\n",
        });
    }

    fn along(&self) -> bool {
        self.asked.count_along
            && self.fault != Some(Fault::NoUsage)
            && matches!(self.script.dialect, Dialect::Vllm | Dialect::Sglang | Dialect::TensorRtLlm)
    }

    /// The chunk before the first token, where the dialect has one.
    pub(crate) fn role(&self, out: &mut Vec<u8>) {
        if !self.asked.chat || self.script.dialect == Dialect::Tgi {
            return;
        }
        self.begin(out);
        out.extend_from_slice(match self.script.dialect {
            Dialect::Sglang => br#"{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}]"#.as_slice(),
            Dialect::LlamaCpp => br#"{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}]"#,
            _ => br#"{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]"#,
        });
        self.end(out, self.along().then_some(0));
    }

    /// A chunk with the tokens `from..until`; `last` where the answer ends with it.
    pub(crate) fn tokens(&self, out: &mut Vec<u8>, from: u64, until: u64, last: bool) {
        self.begin(out);
        let role = if self.script.dialect == Dialect::Tgi { r#""role":"assistant","# } else { "" };
        if self.asked.chat {
            put(out, format_args!("{{\"index\":0,\"delta\":{{{role}\"content\":\""));
        } else {
            out.extend_from_slice(b"{\"index\":0,\"text\":\"");
        }
        for token in from..until {
            out.extend_from_slice(self.word(token).as_bytes());
        }
        out.extend_from_slice(if self.asked.chat { b"\"}" } else { b"\"" });
        let reason = if last && self.finishes_with_last() { "\"length\"" } else { "null" };
        match self.script.dialect {
            Dialect::Sglang => put(
                out,
                format_args!(
                    ",\"logprobs\":null,\"finish_reason\":{reason},\"matched_stop\":null}}]"
                ),
            ),
            Dialect::LlamaCpp | Dialect::Tgi => {
                put(out, format_args!(",\"finish_reason\":{reason}}}]"));
            }
            Dialect::Vllm => {
                put(out, format_args!(",\"logprobs\":null,\"finish_reason\":{reason}}}]"));
            }
            Dialect::TensorRtLlm => put(
                out,
                format_args!(",\"finish_reason\":{reason},\"avg_decoded_tokens_per_iter\":1.0}}]"),
            ),
        }
        self.end(out, self.along().then_some(until));
    }

    /// Whether the reason of the end stands on the last chunk with tokens, or on one of its own.
    fn finishes_with_last(&self) -> bool {
        self.fault != Some(Fault::NoFinish)
            && matches!(self.script.dialect, Dialect::Vllm | Dialect::Tgi | Dialect::TensorRtLlm)
    }

    /// What follows the last token: the reason, the count, the end marker.
    pub(crate) fn close(&self, out: &mut Vec<u8>, sent: u64) {
        if !self.finishes_with_last() && self.fault != Some(Fault::NoFinish) {
            self.begin(out);
            out.extend_from_slice(match (self.asked.chat, self.script.dialect) {
                (true, Dialect::Sglang) => br#"{"index":0,"delta":{"content":null,"reasoning_content":null},"finish_reason":"length","matched_stop":null}]"#.as_slice(),
                (true, _) => br#"{"finish_reason":"length","index":0,"delta":{}}]"#,
                (false, _) => br#"{"index":0,"text":"","finish_reason":"length"}]"#,
            });
            self.end(out, self.along().then_some(sent));
        }
        if self.asked.usage && self.fault != Some(Fault::NoUsage) {
            let count = match self.fault {
                Some(Fault::UsageLow) => sent / 10,
                Some(Fault::UsageHigh) => sent * 10,
                _ => sent,
            };
            self.begin(out);
            out.extend_from_slice(b"]");
            if self.script.dialect == Dialect::LlamaCpp {
                put(
                    out,
                    format_args!(
                        ",\"timings\":{{\"prompt_n\":{},\"predicted_n\":{sent},\"predicted_ms\":1.5}}",
                        self.prompt
                    ),
                );
            }
            self.end(out, Some(count));
        }
        if self.fault != Some(Fault::NoDone) {
            out.extend_from_slice(b"data: [DONE]\n\n");
        }
    }
}

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn put(out: &mut Vec<u8>, words: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    drop(out.write_fmt(words));
}
