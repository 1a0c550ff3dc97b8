//! The guest's initial RAM disk, the same byte for byte from the same parts.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use cpio::newc::{Builder, ModeFileType, trailer};

use super::process;

/// The kernel looks for the first archive's end on a boundary of this many bytes.
const BLOCK: usize = 512;

/// Files by their place in the guest, without the leading slash.
#[derive(Debug, Default)]
pub(super) struct Initramfs {
    files: BTreeMap<String, (u32, Vec<u8>)>,
    links: BTreeMap<String, String>,
}

impl Initramfs {
    /// Adds a file.
    pub(super) fn file(&mut self, place: &str, mode: u32, content: Vec<u8>) {
        self.files.insert(place.trim_start_matches('/').to_owned(), (mode, content));
    }

    /// Adds a file of this host.
    pub(super) fn copy(&mut self, place: &str, mode: u32, source: &Path) -> Result<()> {
        let content =
            fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        self.file(place, mode, content);
        Ok(())
    }

    /// Adds a program and the shared libraries that it is linked with, so that it runs as it is.
    pub(super) fn program(&mut self, place: &str, source: &Path) -> Result<()> {
        self.copy(place, 0o755, source)?;
        for library in libraries(source) {
            self.copy(&library.display().to_string(), 0o755, &library)?;
        }
        Ok(())
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, place: &str, target: &str) {
        self.links.insert(place.trim_start_matches('/').to_owned(), target.to_owned());
    }

    /// The archive.
    pub(super) fn archive(&self) -> Result<Vec<u8>> {
        let mut archive = Vec::new();
        let mut number = 0;
        for directory in self.directories() {
            number += 1;
            let entry = entry(&directory, number, 0o755, ModeFileType::Directory);
            entry.write(&mut archive, 0).finish()?;
        }
        // The kernel opens the first process's standard streams here, before anything is mounted.
        number += 1;
        entry("dev/console", number, 0o600, ModeFileType::Char)
            .rdev_major(5)
            .rdev_minor(1)
            .write(&mut archive, 0)
            .finish()?;
        for (place, (mode, content)) in &self.files {
            number += 1;
            write(&mut archive, entry(place, number, *mode, ModeFileType::Regular), content)?;
        }
        for (place, target) in &self.links {
            number += 1;
            let entry = entry(place, number, 0o777, ModeFileType::Symlink);
            write(&mut archive, entry, target.as_bytes())?;
        }
        let mut archive = trailer(archive)?;
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
        Ok(archive)
    }

    /// Every directory that some entry needs, parents first.
    fn directories(&self) -> Vec<String> {
        let mut found = std::collections::BTreeSet::from(["dev".to_owned(), "root".to_owned()]);
        for place in self.files.keys().chain(self.links.keys()) {
            let parents = Path::new(place).ancestors().skip(1);
            found.extend(parents.map(|path| path.display().to_string()));
        }
        found.remove("");
        found.into_iter().collect()
    }
}

fn entry(place: &str, number: u32, mode: u32, kind: ModeFileType) -> Builder {
    Builder::new(place).ino(number).nlink(1).mode(mode).set_mode_file_type(kind)
}

fn write(archive: &mut Vec<u8>, entry: Builder, content: &[u8]) -> Result<()> {
    let size = u32::try_from(content.len()).context("a file is too large for the archive")?;
    let mut writer = entry.write(archive, size);
    writer.write_all(content)?;
    writer.finish()?;
    Ok(())
}

/// Shared libraries and loader of a program, as `ldd` finds them; none for a static one.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let Ok(text) = process::output(Command::new("ldd").arg(program)) else {
        return Vec::new();
    };
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_before_children_and_the_archive_ends_on_a_block() {
        let mut disk = Initramfs::default();
        disk.file("/lab/bin/tool", 0o755, b"tool".to_vec());
        disk.link("/init", "/lab/bin/tool");
        assert_eq!(disk.directories(), ["dev", "lab", "lab/bin", "root"]);
        let archive = disk.archive().unwrap();
        assert_eq!(archive.len() % BLOCK, 0);
        assert_eq!(archive, disk.archive().unwrap());
    }
}
