//! PCI functions through sysfs.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use crate::mapping::Mapping;
use crate::{Context as _, Result};

/// Command register in configuration space (PCI Local Bus Specification 3.0, 6.2.2).
const COMMAND: u64 = 4;
/// Its bit 1: answer to memory accesses.
const MEMORY_SPACE: u16 = 1 << 1;
/// Its bit 2: may make requests.
const BUS_MASTER: u16 = 1 << 2;
/// Flag of a memory resource in the `resource` file (`include/linux/ioport.h`, `IORESOURCE_MEM`).
const RESOURCE_MEMORY: u64 = 0x200;

/// A PCI function, by its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    address: String,
}

/// A memory BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    /// Index.
    pub index: u8,
    /// First address as the processor sees it, which on a PC is the bus address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
}

impl Function {
    /// The function of an address, if there is one.
    ///
    /// # Errors
    /// Where no such function exists.
    pub fn at(address: &str) -> Result<Self> {
        let function = Self { address: address.to_owned() };
        if address.contains('/') || !function.path("").is_dir() {
            return Err(format!("no PCI function {address}").into());
        }
        Ok(function)
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The path of one of its files in sysfs.
    pub fn path(&self, file: &str) -> PathBuf {
        PathBuf::from("/sys/bus/pci/devices").join(&self.address).join(file)
    }

    /// The text of one of its files, without the final newline.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn read(&self, file: &str) -> Result<String> {
        let path = self.path(file);
        let text =
            fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
        Ok(text.trim_end().to_owned())
    }

    /// The last part of where one of its links points; `None` without the link.
    pub fn link(&self, file: &str) -> Option<String> {
        let target = fs::read_link(self.path(file)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// Its IOMMU group.
    pub fn group(&self) -> Option<u32> {
        self.link("iommu_group")?.parse().ok()
    }

    /// All its memory BARs of some size.
    ///
    /// # Errors
    /// Where `resource` cannot be read.
    pub fn bars(&self) -> Result<Vec<Bar>> {
        let text = self.read("resource")?;
        Ok((0u8..6).zip(text.lines()).filter_map(|(index, line)| bar(index, line)).collect())
    }

    /// One memory BAR.
    ///
    /// # Errors
    /// Where it has no such BAR.
    pub fn bar(&self, index: u8) -> Result<Bar> {
        let bars = self.bars()?;
        let found = bars.into_iter().find(|bar| bar.index == index);
        found.ok_or_else(|| format!("{} has no memory BAR {index}", self.address).into())
    }

    /// Maps the beginning of a BAR, at most `most` bytes.
    ///
    /// # Errors
    /// What the kernel said: it refuses a BAR that a driver claimed (`CONFIG_IO_STRICT_DEVMEM`).
    pub fn map(&self, index: u8, most: usize) -> Result<Mapping> {
        let bar = self.bar(index)?;
        let path = self.path(&format!("resource{index}"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .context(|| format!("cannot open {}", path.display()))?;
        let length = usize::try_from(bar.size).unwrap_or(usize::MAX).min(most);
        Mapping::of(&file, 0, length).context(|| path.display().to_string())
    }

    /// Lets the function answer and, with `requests`, make requests, until the value is dropped.
    ///
    /// # Errors
    /// Where configuration space cannot be read or written.
    pub fn enable(&self, requests: bool) -> Result<Enabled> {
        let path = self.path("config");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .context(|| format!("cannot open {}", path.display()))?;
        let mut bytes = [0; 2];
        file.read_exact_at(&mut bytes, COMMAND)
            .context(|| format!("cannot read {}", path.display()))?;
        let before = u16::from_le_bytes(bytes);
        let wanted = before | MEMORY_SPACE | if requests { BUS_MASTER } else { 0 };
        let enabled = Enabled { file, before, now: wanted };
        if wanted != before {
            enabled.write(wanted).context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(enabled)
    }
}

/// A function whose command register was changed; dropping it puts the old value back.
#[derive(Debug)]
pub struct Enabled {
    file: File,
    before: u16,
    now: u16,
}

impl Enabled {
    fn write(&self, value: u16) -> std::io::Result<()> {
        self.file.write_all_at(&value.to_le_bytes(), COMMAND)
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        if self.now != self.before
            && let Err(error) = self.write(self.before)
        {
            eprintln!("cannot put the command register back to {:#06x}: {error}", self.before);
        }
    }
}

/// Every PCI function, in order of address.
///
/// # Errors
/// Where sysfs cannot be listed.
pub fn functions() -> Result<Vec<Function>> {
    let directory = "/sys/bus/pci/devices";
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).context(|| format!("cannot list {directory}"))? {
        let name = entry?.file_name();
        found.push(Function { address: name.to_string_lossy().into_owned() });
    }
    found.sort();
    Ok(found)
}

/// Reads a line of `resource`: first and last address and flags, in hexadecimal.
fn bar(index: u8, line: &str) -> Option<Bar> {
    let mut numbers = line
        .split_whitespace()
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    let (start, end, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let used = flags & RESOURCE_MEMORY != 0 && end > start;
    used.then(|| Bar { index, start, size: end - start + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_resource_is_a_memory_bar_or_nothing() {
        let line = "0x00000000fd000000 0x00000000fd0fffff 0x0000000000040200";
        assert_eq!(bar(0, line), Some(Bar { index: 0, start: 0xfd00_0000, size: 0x10_0000 }));
        assert_eq!(bar(1, "0x0000000000000000 0x0000000000000000 0x0000000000000000"), None);
        assert_eq!(bar(2, "0x000000000000c000 0x000000000000c01f 0x0000000000040101"), None);
    }
}
