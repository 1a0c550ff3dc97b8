//! Memory regions of PCI functions as files of sysfs, told by inode: a container may have one under
//! any name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::list::DeviceNumber;
use crate::pattern::region;
use crate::procfs::{Behind, Directory};

/// Where the functions are listed.
const FUNCTIONS: &str = "/sys/bus/pci/devices";

/// The regions of all functions. They are looked for when a file of sysfs is met whose name says
/// nothing, which on most hosts is never.
#[derive(Debug)]
pub(crate) struct Regions {
    functions: PathBuf,
    file_system: DeviceNumber,
    by_inode: Option<Result<BTreeMap<u64, String>, Errno>>,
}

impl Regions {
    /// Of this host; `None` where it has no such file system.
    pub(crate) fn of_host() -> Option<Self> {
        Self::below(Path::new(FUNCTIONS))
    }

    fn below(functions: &Path) -> Option<Self> {
        let behind = Directory::open(functions).ok()?.behind(c".").ok()?;
        let functions = functions.to_owned();
        Some(Self { functions, file_system: behind.file_system, by_inode: None })
    }

    /// Numbers of sysfs.
    pub(crate) fn file_system(&self) -> DeviceNumber {
        self.file_system
    }

    /// The function whose region a file is.
    pub(crate) fn function(&mut self, file_system: DeviceNumber, inode: u64) -> Option<String> {
        if file_system != self.file_system {
            return None;
        }
        let all = self.by_inode.get_or_insert_with(|| regions(&self.functions));
        all.as_ref().ok()?.get(&inode).cloned()
    }
}

fn regions(functions: &Path) -> Result<BTreeMap<u64, String>, Errno> {
    let mut names = Vec::new();
    Directory::open(functions)?.each(|name| names.push(name.to_string_lossy().into_owned()))?;
    let mut by_inode = BTreeMap::new();
    for function in names.iter().filter(|name| !name.starts_with('.')) {
        let Ok(directory) = Directory::open(&functions.join(function)) else { continue };
        directory.each(|name| {
            let text = format!("/{function}/{}", name.to_string_lossy());
            if region(text.as_bytes()).is_some()
                && let Ok(Behind { inode, .. }) = directory.behind(name)
            {
                by_inode.insert(inode, function.clone());
            }
        })?;
    }
    Ok(by_inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes its own tree")]
    fn a_region_is_told_by_its_inode() {
        let place = tempfile::tempdir().unwrap();
        let mut inodes = Vec::new();
        for (function, file) in [
            ("0000:01:00.0", "resource0"),
            ("0000:01:00.0", "resource2_wc"),
            ("0000:01:00.0", "resource"),
            ("0000:02:00.1", "resource0"),
        ] {
            let directory = place.path().join(function);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join(file), "").unwrap();
            let directory = Directory::open(&directory).unwrap();
            let name = std::ffi::CString::new(file).unwrap();
            inodes.push(directory.behind(&name).unwrap());
        }
        let mut regions = Regions::below(place.path()).unwrap();
        let found: Vec<_> =
            inodes.iter().map(|one| regions.function(one.file_system, one.inode)).collect();
        let first = Some("0000:01:00.0".to_owned());
        assert_eq!(found, [first.clone(), first, None, Some("0000:02:00.1".to_owned())]);
        let other = DeviceNumber { major: 1, ..regions.file_system() };
        assert_eq!(regions.function(other, inodes[0].inode), None);
    }
}
