//! The measurement as a program of its own, for hosts where only this has to be run.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("child") => peerway_gpu::child_main(),
        _ => ExitCode::from(2),
    }
}
