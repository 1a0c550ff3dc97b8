//! The probe protocol (`docs/probe.md`) spoken by this program for NVIDIA's GPUs:
//! `peerway probe --from A --to B [--bytes N] [--deadline-ms N] [--in WHERE] [--cuda PATH]
//! [--allow-in-use]`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use peerway_cli_read::Exit;
use peerway_gpu::{Launch, ProbeQuestion, Settings, probe};

use super::look::{LIMIT, Look};
use super::view::Wanted;
use super::{CHILD, internal, print, undecided, usage, view};

/// The word that programs of this protocol are called with.
pub(super) const PROBE: &str = "probe";

/// Answers one question with one line.
pub(super) fn run(words: &[OsString]) -> Exit {
    let start = Instant::now();
    let Parsed { question, within, cuda, allow_in_use } = match parse(words) {
        Ok(parsed) => parsed,
        Err(why) => return usage(&why),
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return internal(&format!("cannot find this program's own file: {error}")),
    };
    let mut settings = Settings::new(Launch {
        program,
        arguments: vec![CHILD.to_owned()],
        environment: Vec::new(),
        unset: Vec::new(),
        clean: false,
    });
    settings.cuda = cuda;
    // Others' GPUs are not disturbed here either.
    settings.allow_in_use = allow_in_use;
    settings.deadline = start.checked_add(question.deadline);
    if !allow_in_use {
        let look = Look::take(&settings.launch.program, None, question.deadline.min(LIMIT));
        settings.in_use = look.in_use();
        settings.in_use_unknown = look.unknown();
    }
    match within.map(|wanted| view(&wanted)).transpose() {
        Ok(view) => settings.view = view,
        Err(why) => return undecided(&why),
    }
    match serde_json::to_string(&probe(question, &settings, &mut |_| {})) {
        // Whatever the verdict is, it was reached.
        Ok(line) => print(&line, Exit::Fine),
        Err(error) => internal(&format!("cannot render the answer: {error}")),
    }
}

/// What was asked, and how.
struct Parsed {
    question: ProbeQuestion,
    within: Option<Wanted>,
    cuda: Option<PathBuf>,
    allow_in_use: bool,
}

fn parse(words: &[OsString]) -> Result<Parsed, String> {
    let (mut plain, mut within, mut cuda) = (Vec::new(), None, None);
    let mut allow_in_use = false;
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let value = || format!("{} needs a value behind it", word.display());
        match word.to_str() {
            Some("--allow-in-use") => allow_in_use = true,
            Some("--cuda") => cuda = Some(rest.next().ok_or_else(value)?.into()),
            Some("--in") => {
                let text = rest.next().and_then(|text| text.to_str()).ok_or_else(value)?;
                within = Some(text.parse().map_err(|error| format!("--in {text}: {error}"))?);
            }
            Some(word) => plain.push(word.to_owned()),
            None => return Err(format!("{} is no argument of a probe", word.display())),
        }
    }
    let question = ProbeQuestion::parse(&plain).map_err(|error| error.to_string())?;
    Ok(Parsed { question, within, cuda, allow_in_use })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_protocol_and_of_this_program() {
        let parse = |text: &str| {
            let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            parse(&words)
        };
        let pair = "--from 0000:21:00.0 --to 0000:41:00.0";
        let parsed = parse(&format!("{pair} --in lxc:101 --cuda /x.so --bytes 64")).unwrap();
        let Parsed { question, within, cuda, allow_in_use } = parsed;
        assert!(!allow_in_use && parse(&format!("{pair} --allow-in-use")).unwrap().allow_in_use);
        assert_eq!(question.bytes, 64);
        assert_eq!(within, Some(Wanted::Lxc("101".to_owned())));
        assert_eq!(cuda, Some(PathBuf::from("/x.so")));
        for wrong in ["--in", "--in 101", "--size 4", "--cuda"] {
            assert!(parse(&format!("{pair} {wrong}")).is_err(), "{wrong}");
        }
        assert!(parse("--from 0000:21:00.0").is_err());
    }
}
