//! The child's way out: one JSON object a line.

use std::io::Write;

use serde::Serialize;

use crate::protocol::Event;
use crate::result::{Engine, Operation};
use crate::status::GpuError;

/// Writes events.
pub(crate) struct Reporter<'w> {
    out: &'w mut dyn Write,
}

impl<'w> Reporter<'w> {
    pub(crate) fn new(out: &'w mut dyn Write) -> Self {
        Self { out }
    }

    /// Sends an event at once: what is not sent before a step may never be.
    pub(crate) fn emit(&mut self, event: &Event) -> Result<(), GpuError> {
        send(self.out, event)
    }

    /// Announces a step.
    pub(crate) fn step(
        &mut self,
        cell: Option<(Engine, Operation)>,
        text: String,
    ) -> Result<(), GpuError> {
        self.emit(&Event::Step { cell, text })
    }
}

/// Writes one JSON object and a line end.
pub(crate) fn send(out: &mut dyn Write, value: &impl Serialize) -> Result<(), GpuError> {
    let mut line =
        serde_json::to_string(value).map_err(|error| GpuError::Request(error.to_string()))?;
    line.push('\n');
    out.write_all(line.as_bytes()).map_err(GpuError::Pipe)?;
    out.flush().map_err(GpuError::Pipe)
}
