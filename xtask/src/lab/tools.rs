//! The programs that the lab needs from the system, and how they come there.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::process;

/// Program, and the Debian package that has it.
const TOOLS: [(&str, &str); 4] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("xz", "xz-utils"),
    ("dpkg-deb", "dpkg"),
];

/// Sees to it that every program is there; installs the missing ones when root.
///
/// # Errors
/// Gives the one command that installs them, where this process may not.
pub(super) fn ensure() -> Result<()> {
    ensure_each(&TOOLS)
}

/// The same for some programs, each with its package; what is no program is given by its whole path.
///
/// # Errors
/// As [`ensure`].
pub(super) fn ensure_each(tools: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<&str> = tools
        .iter()
        .filter(|(wanted, _)| match Path::new(wanted) {
            path if path.is_absolute() => !path.exists(),
            _ => process::find(wanted).is_none(),
        })
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let command = format!("apt-get install --no-install-recommends {}", missing.join(" "));
    if process::find("apt-get").is_none() {
        bail!("the lab needs programs of the Debian packages {}", missing.join(", "));
    }
    if !is_root()? {
        bail!("the lab needs programs that are missing here; run: sudo {command}");
    }
    eprintln!("lab: {command}");
    update_lists()?;
    process::run(apt_get().args(["install", "--yes", "--no-install-recommends"]).args(&missing))
        .with_context(|| format!("cannot install what the lab needs; run: {command}"))
}

/// Fetches this machine's package lists.
///
/// # Errors
/// Gives the command, where this process may not run it.
pub(super) fn update_lists() -> Result<()> {
    if !is_root()? {
        bail!("this machine's package lists are missing or too old; run: sudo apt-get update");
    }
    process::run(apt_get().arg("update"))
}

fn is_root() -> Result<bool> {
    Ok(process::output(Command::new("id").arg("-u"))?.trim() == "0")
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet=2");
    command
}
