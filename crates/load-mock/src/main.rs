//! The mock as a program: `peerway-load-mock PORT [WORD]…` serves until its standard input ends.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use peerway_load_mock::{Mock, Script};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().and_then(|port| port.parse().ok());
    let words: Vec<String> = arguments.collect();
    let started = match (port, Script::parse(&words.join(" "))) {
        (None, _) => Err("usage: peerway-load-mock PORT [WORD]…".to_owned()),
        (_, Err(error)) => Err(error.to_string()),
        (Some(port), Ok(script)) => {
            Mock::start_on(script, port).map_err(|error| format!("cannot serve: {error}"))
        }
    };
    let said = match started {
        Ok(mock) => {
            let said = writeln!(std::io::stdout(), "{}", mock.url());
            let mut rest = Vec::new();
            said.and_then(|()| std::io::stdin().read_to_end(&mut rest)).map(|_| ())
        }
        Err(why) => return complain(&why),
    };
    match said {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string()),
    }
}

fn complain(why: &str) -> ExitCode {
    // Where even that cannot be said there is nobody to say it to.
    drop(writeln!(std::io::stderr(), "peerway-load-mock: {why}"));
    ExitCode::FAILURE
}
