//! Steps of a script in one line each.

use std::collections::BTreeMap;

use peerway_lab_protocol::{How, Step};

/// Enough for any command of a scenario under emulation.
const DEADLINE_MS: u64 = 30_000;

/// A command that is run to its end.
pub fn run(name: &str, argv: &[&str]) -> Step {
    step(name, argv, How::Run)
}

/// A command that stays alive until [`stop`]; its first line of output says that it is ready.
pub fn start(name: &str, argv: &[&str]) -> Step {
    step(name, argv, How::Start)
}

/// Ends a started command.
pub fn stop(name: &str) -> Step {
    step(name, &[], How::Stop)
}

fn step(name: &str, argv: &[&str], how: How) -> Step {
    Step {
        name: name.to_owned(),
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        env: BTreeMap::new(),
        deadline_ms: DEADLINE_MS,
        how,
    }
}
