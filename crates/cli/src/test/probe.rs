//! The probe protocol (`docs/probe.md`) spoken by this program for NVIDIA's GPUs:
//! `peerway probe --from A --to B [--bytes N] [--deadline-ms N] [--in WHERE] [--cuda PATH]`.

use std::ffi::OsString;
use std::path::PathBuf;

use peerway_cli_read::Exit;
use peerway_gpu::{Launch, ProbeQuestion, Settings, probe};

use super::view::Wanted;
use super::{CHILD, internal, print, undecided, usage, view};

/// The word that programs of this protocol are called with.
pub(super) const PROBE: &str = "probe";

/// Answers one question with one line.
pub(super) fn run(words: &[OsString]) -> Exit {
    let (question, within, cuda) = match parse(words) {
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

type Parsed = (ProbeQuestion, Option<Wanted>, Option<PathBuf>);

fn parse(words: &[OsString]) -> Result<Parsed, String> {
    let (mut plain, mut within, mut cuda) = (Vec::new(), None, None);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let value = || format!("{} needs a value behind it", word.display());
        match word.to_str() {
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
    Ok((question, within, cuda))
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
        let (question, within, cuda) =
            parse(&format!("{pair} --in lxc:101 --cuda /x.so --bytes 64")).unwrap();
        assert_eq!(question.bytes, 64);
        assert_eq!(within, Some(Wanted::Lxc("101".to_owned())));
        assert_eq!(cuda, Some(PathBuf::from("/x.so")));
        for wrong in ["--in", "--in 101", "--size 4", "--cuda"] {
            assert!(parse(&format!("{pair} {wrong}")).is_err(), "{wrong}");
        }
        assert!(parse("--from 0000:21:00.0").is_err());
    }
}
