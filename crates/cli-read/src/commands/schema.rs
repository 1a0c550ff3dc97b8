//! `schema`: the JSON Schema of a document.

use peerway_core::document;

use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;

/// Runs the command.
pub fn run(name: Option<&str>, output: &mut Output) -> Result<Exit, CliError> {
    let Some(name) = name else {
        for name in names() {
            output.line(name);
        }
        return Ok(Exit::Fine);
    };
    let known = document::schema(name)
        .or_else(|| peerway_roads::document::schema(name))
        .or_else(|| peerway_faults::document::schema(name))
        .or_else(|| peerway_worth::document::schema(name));
    let schema = known.ok_or_else(|| CliError::NoSuchWord {
        what: "document",
        word: name.to_owned(),
        hint: format!("there are: {}", names().join(", ")),
    })?;
    let text =
        serde_json::to_string_pretty(&schema).map_err(|source| CliError::Render { source })?;
    output.line(&text);
    Ok(Exit::Fine)
}

/// Names of all documents.
fn names() -> Vec<&'static str> {
    document::NAMES
        .iter()
        .chain(peerway_roads::document::NAMES)
        .chain(peerway_faults::document::NAMES)
        .chain(peerway_worth::document::NAMES)
        .copied()
        .collect()
}
