//! What a kernel is booted on: whose IOMMU the machine has, and which emulator plays it.

use std::process::Command;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::system::System;
use super::{process, tools};

/// The Debian release whose backports carry the newer emulator.
const RELEASE: &str = "trixie";
/// Its suite there.
const BACKPORTS: &str = "trixie-backports";

/// Whose IOMMU a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Iommu {
    /// VT-d.
    #[default]
    Intel,
    /// AMD's.
    Amd,
}

/// Which emulator plays a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Emulator {
    /// This machine's own `qemu-system-x86_64`.
    #[default]
    Own,
    /// That of Debian 13's backports, in a system of its own below `target/lab/systems`.
    Newer,
}

/// Both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Platform {
    /// The IOMMU.
    pub iommu: Iommu,
    /// The emulator.
    pub emulator: Emulator,
}

impl Platform {
    /// A platform for an IOMMU; AMD's is emulated well enough from QEMU 11.1 on only.
    pub fn with(iommu: Iommu, emulator: Emulator) -> Self {
        let emulator = if iommu == Iommu::Amd { Emulator::Newer } else { emulator };
        Self { iommu, emulator }
    }

    /// What the names of its documents have before the kernel's series.
    pub fn prefix(self) -> &'static str {
        match self.iommu {
            Iommu::Intel => "",
            Iommu::Amd => "amd-",
        }
    }

    /// What a command of the lab is given to run on it.
    pub fn option(self) -> &'static str {
        match self.iommu {
            Iommu::Intel => "",
            Iommu::Amd => " --iommu amd",
        }
    }
}

impl Emulator {
    /// Sees to it that it is there.
    ///
    /// # Errors
    /// Where it is missing and cannot be brought, with the command that brings it.
    pub(super) fn ensure(self) -> Result<()> {
        tools::ensure()?;
        if self == Self::Own {
            return Ok(());
        }
        let system = System::ensure(RELEASE)?;
        if !system.root().join("usr/bin/qemu-system-x86_64").exists() {
            eprintln!("lab: fetching the emulator of {BACKPORTS}");
            system.install_from(BACKPORTS, "qemu-system-x86")?;
        }
        Ok(())
    }

    /// The program, to which arguments are added.
    pub(super) fn command(self) -> Command {
        if self == Self::Own {
            return Command::new("qemu-system-x86_64");
        }
        // With the loader and the libraries of its own release it runs without being installed here, and
        // sees this machine's files.
        let root = System::at(RELEASE).root().to_path_buf();
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        let mut command = Command::new(root.join("lib64/ld-linux-x86-64.so.2"));
        command
            .arg("--library-path")
            .arg(&libraries)
            .arg(root.join("usr/bin/qemu-system-x86_64"))
            .env("QEMU_MODULE_DIR", libraries.join("qemu"));
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(root.join(firmware));
        }
        command
    }

    /// First line of its version.
    ///
    /// # Errors
    /// Where it does not start.
    pub(super) fn version(self) -> Result<String> {
        let text = process::output(self.command().arg("--version"))
            .context("cannot ask the emulator for its version")?;
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    }
}
