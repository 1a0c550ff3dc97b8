//! `schema`: the JSON Schema of a document.

use peerway_core::document;

use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;

/// Runs the command.
pub fn run(name: Option<&str>, output: &mut Output) -> Result<Exit, CliError> {
    let Some(name) = name else {
        for name in document::NAMES {
            output.line(name);
        }
        return Ok(Exit::Fine);
    };
    let schema = document::schema(name).ok_or_else(|| CliError::NoSuchWord {
        what: "document",
        word: name.to_owned(),
        hint: format!("there are: {}", document::NAMES.join(", ")),
    })?;
    let text =
        serde_json::to_string_pretty(&schema).map_err(|source| CliError::Render { source })?;
    output.line(&text);
    Ok(Exit::Fine)
}
