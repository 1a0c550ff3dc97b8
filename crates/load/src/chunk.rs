//! What one event of a stream says, in any of the dialects.
//!
//! The shapes are OpenAI's `chat.completion.chunk` and `text_completion`, with what SGLang, vLLM,
//! llama.cpp's server, TGI and TensorRT-LLM add or leave out: `choices` may be empty, names may be
//! `null` or missing, a chunk may carry several tokens or none, an error comes with status 200.

use crate::json::{Cursor, NotJson, Raw};

/// Counts that the server reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: Option<u64>,
    /// Tokens given out so far, or in all.
    pub completion: Option<u64>,
    /// The server's sum of both.
    pub total: Option<u64>,
    /// Tokens of the prompt that came from a cache.
    pub cached: Option<u64>,
}

/// One event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Choices in it. 0 in chunks of usage alone.
    pub choices: usize,
    /// `content` of chat, `text` of completions.
    pub content: Option<Raw<'a>>,
    /// `reasoning_content` or `reasoning`.
    pub reasoning: Option<Raw<'a>>,
    /// `tool_calls`, as they stand, where there are any.
    pub tools: Option<&'a [u8]>,
    /// Why the answer ended.
    pub finish: Option<Raw<'a>>,
    /// Usage, where there is one.
    pub usage: Option<Usage>,
    /// An error, as it stands.
    pub error: Option<&'a [u8]>,
    /// The server's own time stamp, in nanoseconds, under the name that the caller asked for.
    pub stamp: Option<u64>,
}

impl<'a> Chunk<'a> {
    /// Reads one. `stamp` names a field with a time stamp, for servers that write one.
    ///
    /// # Errors
    /// Data that is no JSON object.
    pub fn read(data: &'a [u8], stamp: Option<&[u8]>) -> Result<Self, NotJson> {
        let mut chunk = Self::default();
        let mut text = Cursor::new(data);
        text.object(|key, value| match key {
            b"choices" if value.peek() == Some(b'[') => value.array(|number, choice| {
                chunk.choices = number + 1;
                if number == 0 { chunk.choice(choice) } else { choice.skip() }
            }),
            b"usage" if value.peek() == Some(b'{') => {
                chunk.usage = Some(usage(value)?);
                Ok(())
            }
            b"error" => {
                let error = value.value()?;
                if error != b"null" && error != b"false" {
                    chunk.error = Some(error);
                }
                Ok(())
            }
            // A whole object as an error: `{"object":"error","message":…}`.
            b"object" => {
                if value.string_or_skip()?.is_some_and(|word| word.text() == "error") {
                    chunk.error = Some(data);
                }
                Ok(())
            }
            other if stamp == Some(other) => {
                chunk.stamp = value.whole()?;
                Ok(())
            }
            _ => value.skip(),
        })?;
        text.end()?;
        Ok(chunk)
    }

    fn choice(&mut self, choice: &mut Cursor<'a>) -> Result<(), NotJson> {
        choice.object(|key, value| {
            match key {
                b"delta" if value.peek() == Some(b'{') => return self.delta(value),
                b"text" => self.content = value.string_or_skip()?,
                b"finish_reason" => {
                    self.finish = value.string_or_skip()?.filter(|word| !word.is_empty());
                }
                _ => return value.skip(),
            }
            Ok(())
        })
    }

    fn delta(&mut self, delta: &mut Cursor<'a>) -> Result<(), NotJson> {
        delta.object(|key, value| {
            match key {
                b"content" => self.content = value.string_or_skip()?,
                // Some versions write both names, one of them null or both the same.
                b"reasoning_content" | b"reasoning" => {
                    let text = value.string_or_skip()?;
                    self.reasoning = text.filter(|text| !text.is_empty()).or(self.reasoning);
                }
                b"tool_calls" => {
                    let calls = value.value()?;
                    let empty = matches!(calls, [b'[', inner @ .., b']']
                        if inner.iter().all(u8::is_ascii_whitespace));
                    self.tools = (calls.first() == Some(&b'[') && !empty).then_some(calls);
                }
                _ => return value.skip(),
            }
            Ok(())
        })
    }

    /// Whether anything was given out: a token that shows.
    pub fn shows(&self) -> bool {
        self.content.is_some_and(|text| !text.is_empty())
            || self.reasoning.is_some_and(|text| !text.is_empty())
            || self.tools.is_some()
    }
}

fn usage(value: &mut Cursor<'_>) -> Result<Usage, NotJson> {
    let mut usage = Usage::default();
    value.object(|key, value| {
        match key {
            b"prompt_tokens" => usage.prompt = value.whole()?,
            b"completion_tokens" => usage.completion = value.whole()?,
            b"total_tokens" => usage.total = value.whole()?,
            b"prompt_tokens_details" if value.peek() == Some(b'{') => {
                return value.object(|key, value| {
                    if key == b"cached_tokens" {
                        usage.cached = value.whole()?;
                        return Ok(());
                    }
                    value.skip()
                });
            }
            _ => return value.skip(),
        }
        Ok(())
    })?;
    Ok(usage)
}

/// The words of an error: its `message` where it has one, else the whole, at most 200 characters.
pub fn words(error: &[u8]) -> String {
    let mut message = None;
    let mut cursor = Cursor::new(error);
    let walked = match cursor.peek() {
        Some(b'{') => cursor.object(|key, value| match key {
            b"message" | b"error" | b"detail" => {
                message = match value.peek() {
                    Some(b'{') => Some(words(value.value()?)),
                    _ => value.string_or_skip()?.map(|text| text.text().into_owned()),
                }
                .or_else(|| message.take());
                Ok(())
            }
            _ => value.skip(),
        }),
        Some(b'"') => cursor.string().map(|text| message = Some(text.text().into_owned())),
        _ => Err(NotJson),
    };
    let whole = || String::from_utf8_lossy(error).into_owned();
    let text = if walked.is_ok() { message.unwrap_or_else(whole) } else { whole() };
    let text: String = text
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(200)
        .collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[expect(clippy::needless_pass_by_value, reason = "how expect! gives them")]
    #[track_caller]
    fn check(data: &str, expected: Expect) {
        let said = match Chunk::read(data.as_bytes(), Some(b"stamp_ns")) {
            Err(error) => error.to_string(),
            Ok(chunk) => {
                let text = |raw: Option<Raw<'_>>| raw.map(|raw| raw.text().into_owned());
                let bytes =
                    |raw: Option<&[u8]>| raw.map(|raw| String::from_utf8_lossy(raw).into_owned());
                let mut said = format!("choices {} shows {}", chunk.choices, chunk.shows());
                for (name, value) in [
                    ("content", text(chunk.content)),
                    ("reasoning", text(chunk.reasoning)),
                    ("tools", bytes(chunk.tools)),
                    ("finish", text(chunk.finish)),
                    ("error", chunk.error.map(words)),
                    ("stamp", chunk.stamp.map(|stamp| stamp.to_string())),
                ] {
                    if let Some(value) = value {
                        said += &format!(" {name} {value:?}");
                    }
                }
                if let Some(usage) = chunk.usage {
                    said += &format!(
                        " usage {:?} {:?} {:?} {:?}",
                        usage.prompt, usage.completion, usage.total, usage.cached
                    );
                }
                said
            }
        };
        expected.assert_eq(&said);
    }

    #[test]
    fn first_chunks() {
        check(
            r#"{"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}"#,
            expect![[r#"choices 1 shows false content """#]],
        );
        check(
            r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"object":"chat.completion.chunk"}"#,
            expect!["choices 1 shows false"],
        );
    }

    #[test]
    fn tokens() {
        check(
            r#"{"object":"chat.completion.chunk","choices":[{"delta":{"role":"assistant","content":" caf\u00e9"},"index":0}],"stamp_ns":123}"#,
            expect![[r#"choices 1 shows true content " café" stamp "123""#]],
        );
        check(
            r#"{"choices":[{"delta":{"reasoning":"hm","reasoning_content":null}}],"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6,"prompt_tokens_details":{"cached_tokens":3}}}"#,
            expect![[
                r#"choices 1 shows true reasoning "hm" usage Some(4) Some(2) Some(6) Some(3)"#
            ]],
        );
        check(
            r#"{"object":"text_completion","choices":[{"text":"x","index":0,"finish_reason":"length","stop_reason":null},{"index":1,"text":"y"}]} "#,
            expect![[r#"choices 2 shows true content "x" finish "length""#]],
        );
        check(
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}"#,
            expect![[
                r#"choices 1 shows true tools "[{\"index\":0,\"function\":{\"arguments\":\"{\"}}]""#
            ]],
        );
        check(
            r#"{"choices":[{"delta":{"tool_calls":[ ],"content":""}}]}"#,
            expect![[r#"choices 1 shows false content """#]],
        );
    }

    #[test]
    fn usage_and_timings() {
        check(
            r#"{"choices":[],"usage":{"completion_tokens":16,"prompt_tokens":9},"timings":{"prompt_n":9,"predicted_per_second":41.5}}"#,
            expect!["choices 0 shows false usage Some(9) Some(16) None None"],
        );
        check(
            r#"{"choices":[],"usage":{"completion_tokens":-1,"prompt_tokens":1.5,"total_tokens":"7"}}"#,
            expect!["choices 0 shows false usage None None None None"],
        );
    }

    #[test]
    fn errors() {
        check(
            r#"{"error":{"message":"out of memory\n","type":"InternalServerError","code":500}}"#,
            expect![[r#"choices 0 shows false error "out of memory""#]],
        );
        check(
            r#"{"error":"busy","error_type":"overloaded"}"#,
            expect![[r#"choices 0 shows false error "busy""#]],
        );
        check(
            r#"{"object":"error","message":"no such model","code":404}"#,
            expect![[r#"choices 0 shows false error "no such model""#]],
        );
        check(r#"{"error":null,"choices":[]}"#, expect!["choices 0 shows false"]);
        check("[]", expect!["not a JSON text"]);
        check(r#"{"choices":[{"delta":{"content":"a"#, expect!["not a JSON text"]);
        check(r#"{"choices":[]} trailing"#, expect!["not a JSON text"]);
        assert_eq!(words(b"plain words"), "plain words");
        assert_eq!(words(br#"{"detail":[{"loc":[1]}]}"#), r#"{"detail":[{"loc":[1]}]}"#);
    }
}
