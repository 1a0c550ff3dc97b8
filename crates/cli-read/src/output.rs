//! The only printer: answers on standard output, everything else on standard error.

use std::io::Write as _;

use peerway_core::document::{Document, Head};
use serde::Serialize;

use crate::error::CliError;
use crate::host::Looked;

/// What begins a colour.
const ESCAPE: u8 = 0x1b;

/// Collects an answer and prints it in one go.
#[derive(Debug, Default)]
pub struct Output {
    text: String,
}

impl Output {
    /// For standard output.
    pub fn stdout() -> Self {
        Self::default()
    }

    /// Adds text.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds a line.
    pub fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// What was collected, with its colours.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds a document as JSON.
    pub fn document<T: Serialize>(
        &mut self,
        name: &str,
        looked: &Looked,
        body: T,
    ) -> Result<(), CliError> {
        self.headed(head(name, looked), body)
    }

    /// Adds a document with a head of its own as JSON.
    pub fn headed<T: Serialize>(&mut self, head: Head, body: T) -> Result<(), CliError> {
        let document = Document { head, body };
        let text = serde_json::to_string_pretty(&document)
            .map_err(|source| CliError::Render { source })?;
        if self.text.is_empty() {
            // Megabytes after a storm: taken as they are.
            self.text = text;
            self.text.push('\n');
        } else {
            self.line(&text);
        }
        Ok(())
    }

    /// Prints what was collected so far, for answers that come line by line.
    pub fn emit(&mut self) -> std::io::Result<()> {
        let text = std::mem::take(&mut self.text);
        Self { text }.finish()
    }

    /// Prints what was collected; colours only where standard output takes them.
    pub fn finish(self) -> std::io::Result<()> {
        let text = self.text.as_bytes();
        // Taking colours out goes byte by byte, and a document has none.
        if !text.contains(&ESCAPE) {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(text)?;
            return stdout.flush();
        }
        let mut stdout = anstream::stdout().lock();
        stdout.write_all(text)?;
        stdout.flush()
    }
}

/// Head of a document.
pub fn head(name: &str, looked: &Looked) -> Head {
    Head {
        schema: format!("peerway/{name}/1"),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: looked.snapshot.origin.host.clone(),
        generated_at: looked.when.to_string(),
    }
}

/// Prints to standard error; where even that fails there is nobody left to tell.
pub fn complain(text: &str) {
    if anstream::stderr().lock().write_all(text.as_bytes()).is_err() {
        // Nothing can be said any more.
    }
}
