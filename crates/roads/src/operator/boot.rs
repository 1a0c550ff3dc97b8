//! Words of the kernel command line, for each boot loader.

use crate::guide::Guide;

/// `iommu=pt`, rendered for the boot loaders that there are. Which one boots a host is not read,
/// so each piece says how to tell.
pub(crate) fn passthrough() -> Vec<Guide> {
    words("iommu=pt", "")
}

/// Adding or removing a word.
pub(super) fn words(add: &str, remove: &str) -> Vec<Guide> {
    let change = match (add.is_empty(), remove.is_empty()) {
        (false, _) => format!("add: {add}"),
        (true, _) => format!("take out: {remove}"),
    };
    vec![
        Guide::new(
            "proxmox-boot-tool (Proxmox VE on ZFS or with Secure Boot: proxmox-boot-tool status)",
            &["# where it reports UEFI and systemd-boot: one line, in /etc/kernel/cmdline"],
        )
        .line(format!("# {change}"))
        .line("nano /etc/kernel/cmdline")
        .line("proxmox-boot-tool refresh")
        .line("# where it reports grub: as for GRUB, and then")
        .line("proxmox-boot-tool refresh"),
        Guide::new(
            "GRUB (there is /etc/default/grub, and proxmox-boot-tool manages nothing)",
            &["# in /etc/default/grub, the line GRUB_CMDLINE_LINUX_DEFAULT"],
        )
        .line(format!("# {change}"))
        .line("update-grub")
        .line(if add.is_empty() {
            format!("# Fedora and its like: grubby --update-kernel=ALL --remove-args={remove}")
        } else {
            format!("# Fedora and its like: grubby --update-kernel=ALL --args={add}")
        }),
        Guide::new(
            "systemd-boot without proxmox-boot-tool (bootctl status)",
            &["# in /etc/kernel/cmdline, which kernel-install writes into each new entry; in the \
                 entries that there are (loader/entries/*.conf on the boot partition), the line \
                 options"],
        )
        .line(format!("# {change}")),
        Guide::new(
            "after the reboot",
            &[
                "cat /proc/cmdline",
                "peerway status",
                "# amd_iommu=on is no option and changes nothing; on Intel hosts intel_iommu=on is \
                 one, and is needed where the kernel does not have it on by default",
            ],
        ),
    ]
}
