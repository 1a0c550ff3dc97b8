//! `explain`: the page of a finding.

use peerway_core::code;
use peerway_core::diagnose::{self, RULES};

use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::text::{bold, wrap};

/// Runs the command.
pub fn run(word: Option<&str>, output: &mut Output) -> Result<Exit, CliError> {
    let Some(word) = word else {
        for rule in RULES {
            output.push(&wrap(rule.title, &format!("{}  ", rule.code), "        "));
        }
        for page in peerway_roads::pages::pages() {
            output.push(&wrap(page.title, &format!("{}  ", page.code), "        "));
        }
        return Ok(Exit::Fine);
    };
    if let Some(page) = peerway_roads::explain(word) {
        output.line(&bold(&format!("{}  {}", page.code, page.title)));
        output.line("");
        output.line(page.text.trim_end());
        output.push(&wrap(page.sources, "\nSources: ", ""));
        return Ok(Exit::Fine);
    }
    let rule = code::parse(word).and_then(diagnose::rule).ok_or_else(|| CliError::NoSuchWord {
        what: "finding or gate",
        word: word.to_owned(),
        hint: "peerway explain lists them".to_owned(),
    })?;
    output.line(&bold(&format!("{}  {}", rule.code, rule.title)));
    output.line("");
    output.line(rule.page.trim_end());
    Ok(Exit::Fine)
}
