//! The load generator without a command line around it, to be profiled:
//! `drive URL CONCURRENCY TOKENS SECONDS [REQUESTS [RECORDS]]`.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "a program of its own")]

use std::io::Write as _;
use std::time::Duration;

use peerway_load::prompt::Prompts;
use peerway_load::{Load, MetricsAt, Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, slots, tokens, seconds, rest @ ..] = words.as_slice() else {
        return Err("usage: drive URL CONCURRENCY TOKENS SECONDS [REQUESTS [RECORDS]]".into());
    };
    let mut settings = Settings::new(url);
    settings.loads = vec![Load::Concurrency(slots.parse()?)];
    settings.duration = Duration::from_secs(seconds.parse()?);
    settings.output_tokens = tokens.parse()?;
    settings.prompts = Prompts::Words(9);
    settings.metrics = MetricsAt::Off;
    settings.stamp = Some("stamp_ns".to_owned());
    settings.requests = rest.first().map(|most| most.parse()).transpose()?;
    let record = rest.get(1).map(std::fs::File::create_new).transpose()?;
    let record = record.map(|file| -> Box<dyn std::io::Write + Send> { Box::new(file) });
    let bench = peerway_load::run(settings, record, &mut |_| ())?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&bench)?)?;
    Ok(())
}
