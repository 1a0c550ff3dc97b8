//! What a guest is told to do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where the script lies in the guest.
pub const SCRIPT_PATH: &str = "/lab/script.json";

/// All that the guest's first process does, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Kernel modules to load, as paths in the guest, dependencies first.
    pub modules: Vec<String>,
    /// Drivers to bind once the modules are in.
    pub bindings: Vec<Binding>,
    /// Which engine has which memory; the copier reads it.
    pub accelerators: Vec<Accelerator>,
    /// The commands, one after the other.
    pub steps: Vec<Step>,
}

/// A driver for a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// PCI address of the device.
    pub address: String,
    /// Name of the driver.
    pub driver: String,
}

/// A DMA engine and the memory that belongs to it: the lab's stand-in for one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    /// PCI address of the engine, the device's name everywhere.
    pub engine: String,
    /// PCI address of the function whose BAR is the memory.
    pub memory: String,
    /// Index of that BAR.
    pub bar: u8,
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Name by which its outcome is found.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Environment added to the guest's own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Milliseconds after which the command is killed.
    pub deadline_ms: u64,
    /// What is waited for.
    pub how: How,
}

/// What the guest waits for when it runs a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The end of the command.
    Run,
    /// Its first line of output; the command stays alive until a [`How::Stop`] of the same name.
    Start,
    /// Nothing: ends a started command by closing its standard input, and reports all it printed.
    Stop,
}
