//! What the lab's host side and its guest tell each other: the script that goes into the initial RAM
//! disk, the records that come back over the second serial port, one JSON document a line, and the line
//! that a probe program prints (`docs/probe.md`).

mod probe;
mod record;
mod script;

pub use probe::{Damage, PROBE_PROTOCOL, Probe, Verdict};
pub use record::{Crash, Device, Group, Inventory, Outcome, Record, Stillness, TypeWrite};
pub use script::{Accelerator, Binding, How, SCRIPT_PATH, Script, Step};
