//! What the server says about itself: gauges and counters in Prometheus' text format, under the
//! names of each engine. Values of several ranks or models are added up; shares are averaged.

use schemars::JsonSchema;
use serde::Serialize;

use crate::stats::float;

/// One look at a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// Requests that run.
    pub running: Option<f64>,
    /// Requests that wait.
    pub waiting: Option<f64>,
    /// Share of the cache for keys and values in use, 0 to 1.
    pub cache: Option<f64>,
    /// Tokens a verification, where the engine says it outright.
    pub accept_length: Option<f64>,
    /// Tokens given out, ever.
    pub generated: Option<f64>,
    /// Drafts verified, ever.
    pub drafts: Option<f64>,
    /// Draft tokens accepted, ever.
    pub accepted: Option<f64>,
    /// Requests that had to give way, ever.
    pub preempted: Option<f64>,
    /// Answers with numbers that are none, ever.
    pub corrupted: Option<f64>,
}

/// How values of one name become one value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    Sum,
    Mean,
}

/// Reads one page.
pub fn read(page: &str) -> Look {
    let mut look = Look::default();
    let mut counts = [0_u64; 2];
    for line in page.lines() {
        let Some((name, value)) = sample(line) else { continue };
        let (place, join) = match name {
            "sglang:num_running_reqs"
            | "vllm:num_requests_running"
            | "llamacpp:requests_processing"
            | "tgi_batch_current_size"
            | "trtllm_num_requests_running" => (&mut look.running, Join::Sum),
            "sglang:num_queue_reqs"
            | "vllm:num_requests_waiting"
            | "llamacpp:requests_deferred"
            | "tgi_queue_size"
            | "trtllm_num_requests_waiting" => (&mut look.waiting, Join::Sum),
            "sglang:token_usage"
            | "vllm:kv_cache_usage_perc"
            | "vllm:gpu_cache_usage_perc"
            | "llamacpp:kv_cache_usage_ratio"
            | "trtllm_kv_cache_utilization" => (&mut look.cache, Join::Mean),
            "sglang:spec_accept_length" => (&mut look.accept_length, Join::Mean),
            "sglang:generation_tokens_total"
            | "vllm:generation_tokens_total"
            | "llamacpp:tokens_predicted_total" => (&mut look.generated, Join::Sum),
            "vllm:spec_decode_num_drafts_total" | "vllm:spec_decode_num_drafts" => {
                (&mut look.drafts, Join::Sum)
            }
            "vllm:spec_decode_num_accepted_tokens_total"
            | "vllm:spec_decode_num_accepted_tokens" => (&mut look.accepted, Join::Sum),
            "sglang:num_retracted_reqs_total"
            | "sglang:num_retracted_reqs"
            | "vllm:num_preemptions_total" => (&mut look.preempted, Join::Sum),
            "vllm:corrupted_requests" | "vllm:corrupted_requests_total" => {
                (&mut look.corrupted, Join::Sum)
            }
            _ => continue,
        };
        let count = match (join, name) {
            (Join::Sum, _) => {
                *place = Some(place.unwrap_or(0.0) + value);
                continue;
            }
            (Join::Mean, "sglang:spec_accept_length") => counts.first_mut(),
            (Join::Mean, _) => counts.last_mut(),
        };
        if let Some(count) = count {
            let before = place.unwrap_or(0.0) * float(*count);
            *count += 1;
            *place = Some((before + value) / float(*count));
        }
    }
    look
}

/// `name{labels} value [time]`.
fn sample(line: &str) -> Option<(&str, f64)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(|character: char| character == '{' || character.is_ascii_whitespace())?;
    let (name, rest) = line.split_at(end);
    let rest = match rest.strip_prefix('{') {
        Some(labels) => labels.get(closing(labels)? + 1..)?,
        None => rest,
    };
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some((name, value))
}

/// Where the labels end; a label's value may hold a brace.
fn closing(labels: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in labels.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// What the server said of itself over a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ServerTruth {
    /// Looks taken within the window.
    pub looks: u64,
    /// Requests running, mean of the looks.
    pub running_mean: Option<f64>,
    /// Requests running, most of any look.
    pub running_max: Option<f64>,
    /// Requests waiting, mean of the looks.
    pub waiting_mean: Option<f64>,
    /// Share of the cache in use, most of any look, 0 to 1.
    pub cache_use_max: Option<f64>,
    /// Tokens a verification: said outright, or 1 + accepted ÷ drafts over the window.
    pub accept_length: Option<f64>,
    /// Tokens that the server counted a second, by its own counter over the window.
    pub tokens_per_second: Option<f64>,
    /// Requests that had to give way within the window.
    pub preempted: Option<f64>,
    /// Answers with numbers that are none within the window.
    pub corrupted: Option<f64>,
    /// Looks that failed, and why the last one did.
    pub failed_looks: u64,
    /// Why.
    pub failure: Option<String>,
}

/// Collects looks.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    truth: ServerTruth,
    running: (f64, u64),
    waiting: (f64, u64),
    accept: (f64, u64),
    first: Option<(u64, Look)>,
    last: Option<(u64, Look)>,
}

impl Watch {
    /// Adds a look taken at `at`, in nanoseconds.
    pub fn add(&mut self, at: u64, look: Look) {
        self.truth.looks += 1;
        let sums = [
            (&mut self.running, look.running),
            (&mut self.waiting, look.waiting),
            (&mut self.accept, look.accept_length),
        ];
        for ((sum, count), value) in sums {
            if let Some(value) = value {
                *sum += value;
                *count += 1;
            }
        }
        let most = |place: &mut Option<f64>, value: Option<f64>| {
            if let Some(value) = value {
                *place = Some(place.map_or(value, |most| most.max(value)));
            }
        };
        most(&mut self.truth.running_max, look.running);
        most(&mut self.truth.cache_use_max, look.cache);
        self.first.get_or_insert((at, look));
        self.last = Some((at, look));
    }

    /// Adds a look that failed.
    pub fn fail(&mut self, why: String) {
        self.truth.failed_looks += 1;
        self.truth.failure = Some(why);
    }

    /// What came of it; nothing where no look was ever tried.
    pub fn truth(mut self) -> Option<ServerTruth> {
        if self.truth.looks == 0 && self.truth.failed_looks == 0 {
            return None;
        }
        let mean = |(sum, count): (f64, u64)| (count > 0).then(|| sum / float(count));
        self.truth.running_mean = mean(self.running);
        self.truth.waiting_mean = mean(self.waiting);
        self.truth.accept_length = mean(self.accept);
        if let (Some((begun, first)), Some((ended, last))) = (self.first, self.last)
            && ended > begun
        {
            // A counter that went down was set anew: nothing can be told then.
            let grown = |of: fn(&Look) -> Option<f64>| {
                Some(of(&last)? - of(&first)?).filter(|grown| *grown >= 0.0)
            };
            let window = float(ended - begun) / 1e9;
            self.truth.tokens_per_second = grown(|look| look.generated).map(|grown| grown / window);
            self.truth.preempted = grown(|look| look.preempted);
            self.truth.corrupted = grown(|look| look.corrupted);
            let drafts = grown(|look| look.drafts).filter(|drafts| *drafts > 0.0);
            if let (Some(drafts), Some(accepted)) = (drafts, grown(|look| look.accepted)) {
                self.truth.accept_length = Some(1.0 + accepted / drafts);
            }
        }
        Some(self.truth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_each_engine() {
        let page = "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n\
            vllm:num_requests_running{engine=\"0\",model_name=\"a}b\\\"\"} 3.0\n\
            vllm:num_requests_running{engine=\"1\"} 2.0 1700000000\n\
            vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.25\n\
            vllm:generation_tokens_total 1.5e3\nvllm:num_preemptions_total NaN\nother 7\n";
        let look = read(page);
        assert_eq!((look.running, look.cache), (Some(5.0), Some(0.375)));
        assert_eq!((look.generated, look.preempted), (Some(1500.0), None));
        let look = read("sglang:num_running_reqs{tp=\"0\"} 4\nsglang:spec_accept_length 2.5\n");
        assert_eq!((look.running, look.accept_length), (Some(4.0), Some(2.5)));
        assert_eq!(read("llamacpp:requests_processing 1\n").running, Some(1.0));
        assert_eq!(read("tgi_batch_current_size 9\ntgi_queue_size 2\n").waiting, Some(2.0));
        assert_eq!(read("<html>busy</html>"), Look::default());
    }

    #[test]
    fn a_window_of_looks() {
        let mut watch = Watch::default();
        assert_eq!(watch.clone().truth(), None);
        let look = |running, generated, drafts, accepted| Look {
            running: Some(running),
            generated: Some(generated),
            drafts: Some(drafts),
            accepted: Some(accepted),
            ..Look::default()
        };
        watch.add(1_000_000_000, look(2.0, 100.0, 10.0, 10.0));
        watch.add(3_000_000_000, look(4.0, 300.0, 20.0, 25.0));
        watch.fail("busy".to_owned());
        let truth = watch.clone().truth().unwrap();
        assert_eq!((truth.running_mean, truth.running_max), (Some(3.0), Some(4.0)));
        assert_eq!((truth.tokens_per_second, truth.accept_length), (Some(100.0), Some(2.5)));
        assert_eq!((truth.looks, truth.failed_looks), (2, 1));
        watch.add(4_000_000_000, look(0.0, 5.0, 0.0, 0.0));
        assert_eq!(watch.truth().unwrap().tokens_per_second, None, "the server was started anew");
    }
}
