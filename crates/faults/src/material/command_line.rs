//! `/proc/cmdline`.

/// Parameters that a kernel's command line has and prose has not.
const NAMES: [&str; 16] = [
    "BOOT_IMAGE",
    "root",
    "initrd",
    "iommu",
    "intel_iommu",
    "amd_iommu",
    "iommu.passthrough",
    "iommu.strict",
    "pcie_acs_override",
    "pci",
    "vfio-pci.ids",
    "mem_encrypt",
    "kvm_amd.sev",
    "default_hugepagesz",
    "modprobe.blacklist",
    "console",
];

/// The command line, if a text is one.
pub fn read(text: &str) -> Option<String> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let line = lines.next()?.trim();
    if lines.next().is_some() {
        return None;
    }
    let line = line
        .strip_prefix("GRUB_CMDLINE_LINUX_DEFAULT=")
        .or_else(|| line.strip_prefix("GRUB_CMDLINE_LINUX="))
        .map_or(line, |quoted| quoted.trim_matches(['"', '\'']));
    let named = |word: &str| word.split_once('=').is_some_and(|(name, _)| NAMES.contains(&name));
    line.split_whitespace().any(named).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_with_a_parameter() {
        assert_eq!(read("amd_iommu=on iommu=pt\n").as_deref(), Some("amd_iommu=on iommu=pt"));
        assert_eq!(
            read("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=pt\"").as_deref(),
            Some("quiet iommu=pt")
        );
        assert_eq!(read("iommu=pt\nsecond line\n"), None);
        assert_eq!(read("what does iommu do?"), None);
    }
}
