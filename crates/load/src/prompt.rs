//! Prompts and the bodies of requests: the same seed gives the same bytes, on every host and in every
//! version.

use serde_json::json;

use crate::target::Endpoint;

/// Common short words, most of them one token in any vocabulary. Text that reads like text keeps
/// acceptance and routing of experts nearer to real use than random tokens do.
const WORDS: &str = "the of and to in is that it was for on are with as his they be at one have this from or had by but \
some what there we can out other were all your when up use word how said an each she which do their time if will way about \
many then them would write like so these her long make thing see him two has look more day could go come did my sound no \
most number who over know water than call first people may down side been now find any new work part take get place made \
live where after back little only round man year came show every good me give our under name very through just form much \
great think say help low line before turn cause same mean differ move right boy old too does tell sentence set three want \
air well also play small end put home read hand port large spell add even land here must big high such follow act why ask \
men change went light kind off need house picture try us again animal point mother world near build self earth father";

/// A small generator of numbers (splitmix64): one state, one multiplication chain, the same for ever.
#[derive(Clone, Copy, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next one above 0 and up to 1.
    pub fn draw_share(&mut self) -> f64 {
        crate::stats::float((self.draw() >> 11) + 1) / crate::stats::float(1 << 53)
    }
}

/// Where prompts come from.
#[derive(Clone, Debug)]
pub enum Prompts {
    /// Made of common words: about so many tokens each, every one beginning otherwise, so that no
    /// cache of prefixes helps.
    Words(u64),
    /// Given; used in turn.
    Given(Vec<String>),
}

impl Prompts {
    /// Where they come from, and words of each or how many there are.
    pub fn kind(&self) -> (&'static str, u64) {
        match self {
            Self::Words(words) => ("words", *words),
            Self::Given(given) => ("given", u64::try_from(given.len()).unwrap_or(u64::MAX)),
        }
    }
}

/// What every request asks.
#[derive(Clone, Debug)]
pub struct Asking {
    /// Interface.
    pub endpoint: Endpoint,
    /// Model.
    pub model: String,
    /// Most tokens of an answer.
    pub output_tokens: u64,
    /// Seed of prompts and of sampling.
    pub seed: u64,
    /// Temperature; 0 is greedy.
    pub temperature: f64,
    /// Fields beyond OpenAI's interface that this server takes.
    pub extras: Extras,
}

/// Fields that not every server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extras {
    /// `ignore_eos`: answers of the full length.
    pub ignore_eos: bool,
    /// `stream_options.continuous_usage_stats`: counts along with the chunks.
    pub count_along: bool,
    /// `stream_options.include_usage`: a count at the end.
    pub usage: bool,
}

impl Extras {
    /// All of them.
    pub fn all(ignore_eos: bool) -> Self {
        Self { ignore_eos, count_along: true, usage: true }
    }

    /// The next smaller set, for servers that refuse this one.
    #[must_use]
    pub fn fewer(self) -> Option<Self> {
        Some(match self {
            Self { count_along: true, .. } => Self { count_along: false, ..self },
            Self { ignore_eos: true, .. } => Self { ignore_eos: false, ..self },
            Self { usage: true, .. } => Self { usage: false, ..self },
            Self { .. } => return None,
        })
    }
}

/// Writes requests: the parts that stay are made once.
#[derive(Clone, Debug)]
pub struct Writer {
    prompts: Prompts,
    words: Vec<&'static str>,
    seed: u64,
    head: Vec<u8>,
    before: Vec<u8>,
    behind: Vec<u8>,
}

impl Writer {
    /// For requests to `path` at `authority` with these further header lines.
    pub fn new(
        asking: &Asking,
        prompts: Prompts,
        path: &str,
        authority: &str,
        headers: &[(String, String)],
    ) -> Self {
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nhost: {authority}\r\nuser-agent: peerway/{}\r\ncontent-type: application/json\r\naccept: text/event-stream\r\n",
            env!("CARGO_PKG_VERSION")
        );
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        // Stands for the prompt, and can stand nowhere else.
        let mark = "\u{1}";
        let mut body = match asking.endpoint {
            Endpoint::Chat => json!({"messages": [{"role": "user", "content": mark}]}),
            Endpoint::Completions => json!({"prompt": mark}),
        };
        if let Some(fields) = body.as_object_mut() {
            let mut add = |name: &str, value| fields.insert(name.to_owned(), value);
            add("model", json!(asking.model));
            add("max_tokens", json!(asking.output_tokens));
            add("temperature", json!(asking.temperature));
            add("seed", json!(asking.seed));
            add("stream", json!(true));
            if asking.extras.ignore_eos {
                add("ignore_eos", json!(true));
            }
            let along = json!({"include_usage": true, "continuous_usage_stats": true});
            match (asking.extras.usage, asking.extras.count_along) {
                (true, true) => add("stream_options", along),
                (true, false) => add("stream_options", json!({"include_usage": true})),
                (false, _) => None,
            };
        }
        let body = body.to_string();
        let (before, behind) = body.split_once("\\u0001").unwrap_or((&body, ""));
        Self {
            prompts,
            words: WORDS.split_ascii_whitespace().collect(),
            seed: asking.seed,
            head: head.into_bytes(),
            before: before.as_bytes().to_vec(),
            behind: behind.as_bytes().to_vec(),
        }
    }

    /// Writes request `number` of series `series` into `out`.
    pub fn write(&self, series: u64, number: u64, out: &mut Vec<u8>) {
        let mut prompt = Vec::new();
        self.prompt(series, number, &mut prompt);
        out.clear();
        out.extend_from_slice(&self.head);
        let length = self.before.len() + prompt.len() + self.behind.len();
        out.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
        out.extend_from_slice(&self.before);
        out.extend_from_slice(&prompt);
        out.extend_from_slice(&self.behind);
    }

    /// The prompt as it stands within quotes.
    fn prompt(&self, series: u64, number: u64, out: &mut Vec<u8>) {
        match &self.prompts {
            Prompts::Words(count) => {
                let mixed = Numbers::new(self.seed ^ series.rotate_left(32)).draw() ^ number;
                let mut numbers = Numbers::new(mixed);
                let size = u64::try_from(self.words.len()).unwrap_or(1).max(1);
                for word in 0..*count {
                    if word > 0 {
                        out.push(b' ');
                    }
                    let at = usize::try_from(numbers.draw() % size).unwrap_or(0);
                    out.extend_from_slice(self.words.get(at).unwrap_or(&"a").as_bytes());
                }
            }
            Prompts::Given(prompts) => {
                let count = u64::try_from(prompts.len()).unwrap_or(1).max(1);
                let at = usize::try_from(number % count).unwrap_or(0);
                let quoted = json!(prompts.get(at)).to_string();
                // Only the quotes around it: a prompt may itself end in one.
                let bare = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                out.extend_from_slice(bare.unwrap_or(&quoted).as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn asking(endpoint: Endpoint, extras: Extras) -> Asking {
        Asking {
            endpoint,
            model: "m\"1".to_owned(),
            output_tokens: 7,
            seed: 42,
            temperature: 0.0,
            extras,
        }
    }

    fn body(writer: &Writer, series: u64, number: u64) -> Value {
        let mut out = Vec::new();
        writer.write(series, number, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/completions HTTP/1.1\r\nhost: box:1\r\n"));
        assert!(head.contains("\r\nauthorization: Bearer x"));
        assert!(head.ends_with(&format!("content-length: {}", body.len())));
        serde_json::from_str(body).unwrap()
    }

    fn writer(endpoint: Endpoint, prompts: Prompts) -> Writer {
        let headers = [("authorization".to_owned(), "Bearer x".to_owned())];
        let asking = asking(endpoint, Extras::all(true));
        Writer::new(&asking, prompts, "/v1/completions", "box:1", &headers)
    }

    #[test]
    fn bodies() {
        let writer = writer(Endpoint::Completions, Prompts::Words(20));
        let first = body(&writer, 0, 0);
        assert_eq!(first["model"], "m\"1");
        assert_eq!(first["stream_options"]["continuous_usage_stats"], true);
        assert_eq!(first["prompt"].as_str().unwrap().split(' ').count(), 20);
        assert_eq!(first, body(&writer, 0, 0), "the same again");
        assert_ne!(first["prompt"], body(&writer, 0, 1)["prompt"]);
        assert_ne!(first["prompt"], body(&writer, 1, 0)["prompt"]);
    }

    #[test]
    fn given_prompts_are_used_in_turn() {
        let prompts = vec!["say \"hello\"".to_owned(), "東京".to_owned()];
        let writer = writer(Endpoint::Chat, Prompts::Given(prompts));
        let said = |number| body(&writer, 0, number)["messages"][0]["content"].clone();
        assert_eq!(said(0), "say \"hello\"");
        assert_eq!(said(1), "東京");
        assert_eq!(said(2), said(0));
    }

    #[test]
    fn fewer_and_fewer_extras() {
        let mut steps = vec![Extras::all(true)];
        while let Some(fewer) = steps.last().and_then(|last| last.fewer()) {
            steps.push(fewer);
        }
        assert_eq!(steps.len(), 4);
    }

    #[test]
    fn numbers_are_the_published_ones() {
        // splitmix64 of seed 1234567, as published with the generator.
        let mut numbers = Numbers::new(1_234_567);
        assert_eq!(numbers.draw(), 6_457_827_717_110_365_317);
        assert_eq!(numbers.draw(), 3_203_168_211_198_807_973);
        assert!((0..1000).all(|_| (0.0..=1.0).contains(&numbers.draw_share())));
    }
}
