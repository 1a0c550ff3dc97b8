//! A disk with a small Debian system: systemd, the lab's units, and the product.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::super::super::kernel::Kernel;
use super::super::super::machine::Machine;
use super::super::super::system::System;
use super::super::super::{boot, guest, paths, process, product, tools};
use super::super::{OTHERS, PLACE};

/// The release whose kernels these are, and whose libraries the product is built against.
const RELEASE: &str = "bookworm";
/// Name of the system beside those that only compile.
const NAME: &str = "bookworm-host";
/// What a host of that release has, and what the product asks: `lsinitramfs`, logind with its sessions, and
/// the programs of LXC.
const PACKAGES: [&str; 9] = [
    "systemd",
    "systemd-sysv",
    "udev",
    "kmod",
    "dbus",
    "libpam-systemd",
    "initramfs-tools-core",
    "lxc",
    "busybox-static",
];
/// Room for the system, the product with its symbols, and the journals.
const SIZE: u64 = 1 << 30;
/// What no boot needs.
const LEFT_OUT: [&str; 7] = [
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/zoneinfo",
    "build",
];
/// Modules that the system loads by name, as a host's configuration does.
const LOADED: &str = "vfio_pci\nvfio_iommu_type1\npci_stub\nuio_pci_generic\n";

/// The drivers bind right after the modules are loaded, as udev would have them bind.
const DRIVERS: &str = "[Unit]
Description=Lab: drivers of the machine
DefaultDependencies=no
After=systemd-modules-load.service systemd-udev-trigger.service
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
StandardOutput=truncate:/run/lab-at-binding.json
ExecStart=/lab/bin/lab-systemd drivers

[Install]
WantedBy=sysinit.target
";

/// After everything else, so that the steps see a system that is up.
const STEPS: &str = "[Unit]
Description=Lab: steps of the script
DefaultDependencies=no
Conflicts=shutdown.target
After=multi-user.target
SuccessAction=poweroff
FailureAction=poweroff

[Service]
Type=exec
ExecStart=/lab/bin/lab-systemd steps

[Install]
WantedBy=multi-user.target
";

/// Builds the disk of a machine with a kernel, and with a module that is no package's where one is given.
///
/// # Errors
/// Where the system cannot be made, which needs root, or the disk cannot.
pub(super) fn build(
    kernel: &Kernel,
    machine: &Machine,
    module: Option<&(String, PathBuf)>,
) -> Result<PathBuf> {
    if kernel.storage.is_empty() {
        bail!("the kernel has no modules of a disk here; run: cargo xtask lab fetch --refresh");
    }
    tools::ensure_each(&[("mke2fs", "e2fsprogs")])?;
    let system = System::ensure_with(NAME, RELEASE, &PACKAGES)?;
    let place = paths::cache().join("run");
    let root = place.join("systemd-root");
    if root.is_dir() {
        fs::remove_dir_all(&root)?;
    }
    fs::create_dir_all(&place)?;
    process::output(Command::new("cp").arg("-a").arg(system.root()).arg(&root))?;
    for path in LEFT_OUT.map(|path| root.join(path)) {
        if path.is_dir() {
            fs::remove_dir_all(path)?;
        }
    }
    configure(&root)?;
    programs(&root, machine)?;
    modules(&root, kernel, module)?;
    units(&root)?;
    let image = place.join("systemd.img");
    fs::File::create(&image)?.set_len(SIZE)?;
    let program = process::find("mke2fs").context("no mke2fs; install e2fsprogs")?;
    let words = ["-q", "-F", "-t", "ext4", "-d"];
    process::output(Command::new(program).args(words).arg(&root).arg(&image))?;
    fs::remove_dir_all(&root)?;
    Ok(image)
}

/// A copy of a disk, for a story of its own.
pub(super) fn copy(image: &Path, name: &str) -> Result<PathBuf> {
    let copy = image.with_file_name(format!("{name}.img"));
    process::output(Command::new("cp").arg("--sparse=always").arg(image).arg(&copy))?;
    Ok(copy)
}

fn write(root: &Path, place: &str, mode: u32, content: impl AsRef<[u8]>) -> Result<()> {
    let file = root.join(place);
    let directory = file.parent().unwrap_or(root);
    fs::create_dir_all(directory)?;
    fs::write(&file, content).with_context(|| format!("cannot write {}", file.display()))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn configure(root: &Path) -> Result<()> {
    // The root is mounted read-only by the initramfs and made writable by systemd, as Debian does it.
    write(root, "etc/fstab", 0o644, "/dev/vda / ext4 defaults 0 0\n")?;
    write(root, "etc/hostname", 0o644, "lab\n")?;
    write(root, "etc/modules-load.d/lab.conf", 0o644, LOADED)?;
    // Everything takes its time under emulation.
    let patient = "[Manager]\nDefaultTimeoutStartSec=600s\nDefaultTimeoutStopSec=120s\n";
    write(root, "etc/systemd/system.conf.d/lab.conf", 0o644, patient)?;
    // One that ends its processes with the session, as a host may be told to.
    write(root, "etc/systemd/logind.conf.d/lab.conf", 0o644, "[Login]\nKillUserProcesses=yes\n")?;
    // Timers of packages would run in the middle of a step, and no container has a network.
    for unit in
        ["apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "lxc-net.service"]
    {
        let link = root.join("etc/systemd/system").join(unit);
        if fs::symlink_metadata(&link).is_err() {
            symlink("/dev/null", link)?;
        }
    }
    Ok(())
}

fn programs(root: &Path, machine: &Machine) -> Result<()> {
    let built = guest::build()?;
    for program in guest::PROGRAMS {
        write(root, &format!("lab/bin/{program}"), 0o755, fs::read(built.join(program))?)?;
    }
    write(root, PLACE.trim_start_matches('/'), 0o755, fs::read(product::binary()?)?)?;
    let accelerators = fs::read(machine.accelerators_file())?;
    write(root, "lab/accelerators.toml", 0o644, accelerators)
}

/// Modules where `modprobe` finds them, and the initramfs that the machine boots with, packed.
fn modules(root: &Path, kernel: &Kernel, more: Option<&(String, PathBuf)>) -> Result<()> {
    let place = format!("usr/lib/modules/{}/kernel", kernel.release);
    for module in kernel.modules.iter().chain(&kernel.storage) {
        let content = fs::read(kernel.module(module)?)?;
        write(root, &format!("{place}/{module}.ko"), 0o644, content)?;
    }
    if let Some((name, file)) = more {
        let place = format!("usr/lib/modules/{}/updates/{name}.ko", kernel.release);
        write(root, &place, 0o644, fs::read(file)?)?;
    }
    for list in ["modules.order", "modules.builtin"] {
        write(root, &format!("usr/lib/modules/{}/{list}", kernel.release), 0o644, "")?;
    }
    process::output(Command::new("chroot").arg(root).args(["depmod", &kernel.release]))?;
    let archive = boot::leading(kernel)?.archive()?;
    let place = format!("boot/initrd.img-{}", kernel.release);
    write(root, &place, 0o644, archive)?;
    // `lsinitramfs` takes an archive that is not compressed for one of microcode, and looks behind it.
    let file = root.join(&place);
    process::output(Command::new("gzip").arg("-1").arg(&file))?;
    let packed = format!("{}.gz", file.display());
    fs::rename(&packed, &file).with_context(|| format!("cannot rename {packed}"))
}

/// The lab's units; enabled by links, as `systemctl enable` makes them.
fn units(root: &Path) -> Result<()> {
    let holds = format!(
        "[Unit]\nDescription=Lab: the other tenant's virtual machine\nAfter=lab-drivers.service\n\
         [Service]\nType=exec\n\
         ExecStart=/bin/sh -c 'sleep infinity | systemd-run --scope --quiet --unit=132 \
         --slice=qemu.slice /lab/bin/lab-vfio {} --wait > /run/lab-vm'\n\
         [Install]\nWantedBy=multi-user.target\n",
        OTHERS.join(" ")
    );
    for (name, target, text) in [
        ("lab-drivers.service", "sysinit.target", DRIVERS),
        ("lab-vm.service", "multi-user.target", holds.as_str()),
        ("lab-steps.service", "multi-user.target", STEPS),
    ] {
        write(root, &format!("etc/systemd/system/{name}"), 0o644, text)?;
        let wants = root.join("etc/systemd/system").join(format!("{target}.wants"));
        fs::create_dir_all(&wants)?;
        symlink(format!("/etc/systemd/system/{name}"), wants.join(name))?;
    }
    Ok(())
}

/// Versions of what of the system matters.
pub(super) fn versions() -> Result<String> {
    let system = System::ensure_with(NAME, RELEASE, &PACKAGES)?;
    let words = ["-W", "-f", "${Package} ${Version}, ", "systemd", "udev", "dbus", "lxc"];
    let text = process::output(system.command("dpkg-query").args(words))?;
    Ok(format!("Debian {RELEASE}: {}", text.trim_end_matches(", ")))
}
