//! What a guest does whose first process is systemd, by units of its own: binds drivers, and carries the
//! steps out.

use std::process::ExitCode;

use peerway_lab_guest::init::system;

const USAGE: &str = "usage: lab-systemd drivers|steps
  drivers   say what is there before any driver is bound, then bind those of the machine
  steps     carry the steps of the script out and report";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["drivers"] => system::drivers(),
        ["steps"] => system::steps(),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-systemd: {error}");
            ExitCode::FAILURE
        }
    }
}
