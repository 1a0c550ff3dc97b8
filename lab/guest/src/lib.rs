//! What the programs of a lab guest share: PCI devices through sysfs, device memory, the DMA engine that
//! stands in for a GPU's copy engine, the judged copy, VFIO containers, and the first process.

pub mod copy;
pub mod engine;
pub mod init;
pub mod kmsg;
pub mod mapping;
pub mod pattern;
pub mod pci;
pub mod sysfs;
pub mod vfio;

/// What a lab program fails with: one sentence that names the act and the thing.
pub type Failure = Box<dyn std::error::Error>;

/// Result of a lab program.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Adds the act and the thing to an error.
pub trait Context<T> {
    /// `act: error`.
    fn context(self, act: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: std::fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, act: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| format!("{}: {error}", act()).into())
    }
}
