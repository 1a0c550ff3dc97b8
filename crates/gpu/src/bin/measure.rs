//! The measurement as a program of its own, for hosts where only this has to be run.

use std::process::ExitCode;
use std::io::Write;

use peerway_gpu::{Launch, Settings, measure};

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("child") => peerway_gpu::child_main(),
        Some(lib) => {
            let mut settings = Settings::new(Launch { program: std::env::current_exe().unwrap(), arguments: vec!["child".into()], environment: vec![], unset: vec![] });
            settings.cuda = Some(lib.into());
            settings.largest = Some((2 << 20) + 16);
            settings.spare_bytes = 64<<20;
            settings.modes = vec![peerway_gpu::Mode::Peer];
            let start = std::time::Instant::now();
            let m = measure(&settings, &mut |p| { writeln!(std::io::stderr(), "{:?} {p:?}", start.elapsed()).unwrap(); });
            writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&m).unwrap()).unwrap();
            ExitCode::SUCCESS
        }
        _ => ExitCode::from(2),
    }
}
