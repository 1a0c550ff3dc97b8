//! Writes the benchmark's kernel log to standard output: `klog-generate BYTES [SEED]`. What the
//! log holds goes to standard error, as JSON.

use std::io::Write;
use std::process::ExitCode;

use peerway_klog::generate::{Generator, Recipe};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (Some(Ok(size)), seed) = (arguments.next(), arguments.next()) else {
        return ExitCode::from(2);
    };
    let seed = seed.and_then(Result::ok).unwrap_or(1);
    let mut generator = Generator::new(Recipe::benchmark(seed)).without_addresses();
    let mut out = std::io::stdout().lock();
    let mut buffer = Vec::with_capacity(1 << 20);
    let mut written = 0;
    while written < size {
        buffer.clear();
        while buffer.len() < 1 << 19 {
            generator.record(&mut buffer);
        }
        if out.write_all(&buffer).is_err() {
            return ExitCode::FAILURE;
        }
        written += u64::try_from(buffer.len()).unwrap_or(0);
    }
    let truth = generator.truth();
    let text = format!(
        "{{\"bytes\":{written},\"lines\":{},\"events\":{},\"suppressed\":{},\"requesters\":{}}}\n",
        truth.lines,
        truth.events,
        truth.suppressed,
        truth.by_requester.len()
    );
    let told = std::io::stderr().write_all(text.as_bytes());
    if told.is_ok() && out.flush().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
