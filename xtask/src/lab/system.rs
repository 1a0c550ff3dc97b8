//! Systems of other Debian releases below `target/lab/systems`, for programs that this machine's release
//! does not have: compilers, and a newer emulator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{apt, paths, process, tools};

/// A small Debian system in a directory.
#[derive(Debug)]
pub(super) struct System {
    root: PathBuf,
}

impl System {
    /// The system of a release, whether it is there or not.
    pub(super) fn at(release: &str) -> Self {
        Self { root: paths::cache().join("systems").join(release) }
    }

    /// The same, made if it is not there.
    ///
    /// # Errors
    /// Where it cannot be made: that needs root, debootstrap and a mirror.
    pub(super) fn ensure(release: &str) -> Result<Self> {
        Self::ensure_with(release, release, &["make", "xz-utils"])
    }

    /// The same under a name of its own, with some packages of the release.
    ///
    /// # Errors
    /// As [`System::ensure`].
    pub(super) fn ensure_with(name: &str, release: &str, packages: &[&str]) -> Result<Self> {
        let system = Self::at(name);
        let ready = system.root.join("build");
        if ready.is_dir() {
            return Ok(system);
        }
        tools::ensure_each(&[("debootstrap", "debootstrap")])?;
        eprintln!("lab: making a system of Debian {release}");
        if system.root.is_dir() {
            fs::remove_dir_all(&system.root)?;
        }
        fs::create_dir_all(&system.root)?;
        let mirror = apt::mirror()?;
        process::output(
            Command::new("debootstrap")
                .arg("--variant=minbase")
                .arg(format!("--include={}", packages.join(",")))
                .arg(release)
                .arg(&system.root)
                .arg(mirror),
        )
        .with_context(|| {
            format!("cannot make a system of Debian {release}; this needs root and debootstrap")
        })?;
        // Made last: it says that all else is there.
        fs::create_dir(&ready).with_context(|| format!("cannot create {}", ready.display()))?;
        Ok(system)
    }

    /// Its directory.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A command that runs in it.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.root).arg(program).env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// The same with `/proc`, as some programs need it; the mount ends with the command.
    pub(super) fn command_with_proc(&self) -> Command {
        let script = "mount -t proc proc \"$1/proc\" && exec chroot \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-ec", script, "sh"])
            .arg(&self.root)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Installs packages of its release.
    ///
    /// # Errors
    /// What apt said.
    pub(super) fn install(&self, packages: &[&str]) -> Result<()> {
        let words = ["install", "--yes", "--quiet=2", "--no-install-recommends"];
        process::output(self.command("apt-get").args(words).args(packages))?;
        Ok(())
    }

    /// Installs a package of another suite.
    ///
    /// # Errors
    /// What apt said.
    pub(super) fn install_from(&self, suite: &str, package: &str) -> Result<()> {
        let list = self.root.join("etc/apt/sources.list.d").join(format!("{suite}.list"));
        fs::write(&list, apt::source_line(suite)?)
            .with_context(|| format!("cannot write {}", list.display()))?;
        process::output(self.command("apt-get").args(["--quiet=2", "update"]))?;
        self.install(&["--target-release", suite, package])
    }
}
