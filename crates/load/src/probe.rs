//! A first look: which engine, which model, which fields it takes, where its metrics are.

use std::time::Duration;

use serde_json::Value;

use crate::exchange::Line;
use crate::fetch::fetch;
use crate::metrics::{self, Look};
use crate::prompt::{Asking, Extras, Writer};
use crate::reply::{Outcome, Reading, Reply};
use crate::report::{Finding, Weight};
use crate::run::{MetricsAt, RunError, Settings};
use crate::target::{Connector, Target};

/// How long a page of the server's may take.
const PAGE_LIMIT: Duration = Duration::from_secs(5);

/// What is known before the first level.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) asking: Asking,
    pub(crate) engine: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) metrics: Option<String>,
    pub(crate) findings: Vec<Finding>,
}

struct Pages<'a> {
    settings: &'a Settings,
    connector: &'a Connector,
    authority: String,
}

impl Pages<'_> {
    async fn json(&self, path: &str) -> Result<Value, String> {
        let (status, page) =
            fetch(self.connector, &self.authority, path, &self.settings.headers, PAGE_LIMIT)
                .await?;
        if status != 200 {
            return Err(format!("status {status} for {path}"));
        }
        serde_json::from_slice(&page).map_err(|_| format!("{path} is no JSON"))
    }

    async fn metrics(&self, path: &str) -> Result<Look, String> {
        let (status, page) =
            fetch(self.connector, &self.authority, path, &self.settings.headers, PAGE_LIMIT)
                .await?;
        if status != 200 {
            return Err(format!("status {status}"));
        }
        Ok(metrics::read(&String::from_utf8_lossy(&page)))
    }
}

/// Looks.
pub(crate) async fn look(
    settings: &Settings,
    target: &Target,
    connector: &Connector,
) -> Result<Known, RunError> {
    // Whatever keeps from connecting is said at once, and once.
    drop(connector.connect().await?);
    let pages = Pages { settings, connector, authority: target.authority() };
    let models = pages.json(&format!("{}/models", target.base)).await;
    let first = models.as_ref().ok().and_then(|page| page.get("data")?.get(0).cloned());
    let word = |name: &str| Some(first.as_ref()?.get(name)?.as_str()?.to_owned());
    let model = match (&settings.model, word("id")) {
        (Some(model), _) => model.clone(),
        (None, Some(model)) => model,
        (None, None) => {
            return Err(RunError::Model(
                models.err().unwrap_or_else(|| "it lists none".to_owned()),
            ));
        }
    };
    let (engine, version) = engine(&pages, word("owned_by").as_deref()).await;
    let mut asking = Asking {
        endpoint: settings.endpoint.or(target.endpoint).unwrap_or_default(),
        model,
        output_tokens: settings.output_tokens,
        seed: settings.seed,
        temperature: settings.temperature,
        extras: Extras::all(settings.ignore_eos),
    };
    let mut findings = Vec::new();
    extras(settings, target, connector, &mut asking, &mut findings).await;
    let metrics = metrics_at(&pages, &mut findings).await;
    Ok(Known { asking, engine, version, metrics, findings })
}

/// The engine by the name that it gives its models' owner, and its version by the page that only it
/// has.
async fn engine(pages: &Pages<'_>, owner: Option<&str>) -> (Option<String>, Option<String>) {
    let (engine, path, field) = match owner {
        Some("sglang") => ("SGLang", "/server_info", "version"),
        Some("vllm") => ("vLLM", "/version", "version"),
        Some("llamacpp") => ("llama.cpp", "/props", "build_info"),
        Some("text-generation-inference" | "huggingface") => ("TGI", "/info", "version"),
        Some("tensorrt_llm" | "tensorrt-llm") => ("TensorRT-LLM", "/version", "version"),
        Some(other) => return (Some(other.to_owned()), None),
        None => return (None, None),
    };
    let page = pages.json(path).await.ok();
    let version = page.and_then(|page| Some(page.get(field)?.as_str()?.to_owned()));
    (Some(engine.to_owned()), version)
}

/// Asks for a few tokens with every field that is wanted, and with fewer where the server refuses.
async fn extras(
    settings: &Settings,
    target: &Target,
    connector: &Connector,
    asking: &mut Asking,
    findings: &mut Vec<Finding>,
) {
    let wanted = asking.extras;
    let line = Line::new(connector.clone(), settings.limits, Reading::default());
    let (mut reply, mut request) = (Reply::default(), Vec::new());
    loop {
        let brief = Asking { output_tokens: settings.output_tokens.min(4), ..asking.clone() };
        let path = target.path(asking.endpoint);
        let authority = target.authority();
        let writer =
            Writer::new(&brief, settings.prompts.clone(), &path, &authority, &settings.headers);
        writer.write(u64::MAX, 0, &mut request);
        let done = line.exchange(&mut None, &request, &mut reply).await;
        let why = reply.story.error.clone().unwrap_or_default();
        let status = reply.head().map(|head| head.status);
        let refused = done.outcome == Outcome::HttpError && matches!(status, Some(400 | 422));
        let mut note = |weight, text| findings.push(Finding { weight, load: None, text });
        match (done.outcome, asking.extras.fewer().filter(|_| refused)) {
            (Outcome::Complete, _) => {}
            (_, Some(fewer)) => {
                asking.extras = fewer;
                continue;
            }
            // It may be another field; then none of ours was to blame.
            (_, None) if refused => asking.extras = wanted,
            _ => note(
                Weight::Info,
                format!("the first request, before any measuring, did not end well: {why}"),
            ),
        }
        if asking.extras != wanted {
            let mut left_out = Vec::new();
            for (name, was, is) in [
                ("continuous_usage_stats", wanted.count_along, asking.extras.count_along),
                ("ignore_eos", wanted.ignore_eos, asking.extras.ignore_eos),
                ("stream_options", wanted.usage, asking.extras.usage),
            ] {
                if was && !is {
                    left_out.push(name);
                }
            }
            note(Weight::Info, format!("the server refuses {}: left out", left_out.join(", ")));
        }
        return;
    }
}

async fn metrics_at(pages: &Pages<'_>, findings: &mut Vec<Finding>) -> Option<String> {
    let path = match &pages.settings.metrics {
        MetricsAt::Off => return None,
        MetricsAt::Auto => "/metrics",
        MetricsAt::Path(path) => path,
    };
    let why = match pages.metrics(path).await {
        Ok(look) if look != Look::default() => return Some(path.to_owned()),
        Ok(_) => "there is nothing on it that is known here".to_owned(),
        Err(why) => why,
    };
    let text = format!(
        "the server's metrics at {path} are not available ({why}): what really ran in it is unknown; SGLang has --enable-metrics, llama.cpp --metrics"
    );
    findings.push(Finding { weight: Weight::Info, load: None, text });
    None
}
