//! The initial RAM disk of a boot: the lab's own small system, or what leads to one on a disk.

use anyhow::{Context as _, Result};
use peerway_lab_protocol::{SCRIPT_PATH, Script};

use super::super::initramfs::Initramfs;
use super::super::kernel::Kernel;
use super::super::{guest, process};
use super::Boot;

/// Mounts the disk as a distribution's initramfs does, read-only in the end, brings the script there, and
/// hands over to its first process.
const LEADS: &str = r"#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for m in $($b cat /lab/storage); do $b insmod /lab/modules/$m.ko; done
$b mount -t ext4 /dev/vda /disk || exec $b poweroff -f
if [ -e /lab/script.json ]; then $b cp /lab/script.json /disk/lab/script.json; fi
$b mount -o remount,ro /disk
$b umount /proc /sys
$b mount --move /dev /disk/dev
exec $b switch_root /disk /lib/systemd/systemd
";

/// What leads to the system on a disk, without the script: as it lies in that system's `/boot`.
pub(in super::super) fn leading(kernel: &Kernel) -> Result<Initramfs> {
    let mut disk = Initramfs::default();
    let busybox = process::find("busybox").context("no busybox; install busybox-static")?;
    disk.program("bin/busybox", &busybox)?;
    disk.file("init", 0o755, LEADS.as_bytes().to_vec());
    disk.file("lab/storage", 0o644, kernel.storage.join("\n").into_bytes());
    for module in &kernel.storage {
        disk.copy(&format!("lab/modules/{module}.ko"), 0o644, &kernel.module(module)?)?;
    }
    for place in ["proc", "sys", "disk"] {
        disk.file(&format!("{place}/.keep"), 0o644, Vec::new());
    }
    Ok(disk)
}

impl Boot<'_> {
    pub(super) fn initial_disk(&self) -> Result<Vec<u8>> {
        if self.leads {
            let mut disk = leading(self.kernel)?;
            // Its units load the modules.
            disk.file(SCRIPT_PATH, 0o644, serde_json::to_vec(&self.script(Vec::new()))?);
            return disk.archive();
        }
        let mut disk = Initramfs::default();
        let built = guest::build()?;
        for program in guest::PROGRAMS {
            disk.copy(&format!("lab/bin/{program}"), 0o755, &built.join(program))?;
        }
        disk.link("init", "/lab/bin/lab-init");
        let busybox = process::find("busybox").context("no busybox; install busybox-static")?;
        disk.program("bin/busybox", &busybox)?;
        disk.file(
            "etc/passwd",
            0o644,
            b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n".to_vec(),
        );
        disk.file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n".to_vec());
        let mut modules = Vec::new();
        let storage = self.kernel.storage.iter().filter(|_| self.storage);
        for module in self.kernel.modules.iter().chain(storage) {
            let place = format!("/lab/modules/{module}.ko");
            disk.copy(&place, 0o644, &self.kernel.module(module)?)?;
            modules.push(place);
        }
        for (place, source) in &self.programs {
            disk.program(place, source)?;
        }
        for (place, content) in &self.files {
            disk.file(place, 0o644, content.clone());
        }
        disk.copy("lab/accelerators.toml", 0o644, &self.machine.accelerators_file())?;
        disk.file(SCRIPT_PATH, 0o644, serde_json::to_vec(&self.script(modules))?);
        disk.archive()
    }

    fn script(&self, modules: Vec<String>) -> Script {
        Script {
            modules,
            bindings: self.machine.bindings(),
            accelerators: self.machine.accelerators(),
            steps: self.steps.clone(),
        }
    }
}
