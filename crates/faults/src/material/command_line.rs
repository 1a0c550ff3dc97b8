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
    let grub: Vec<&str> = text.lines().filter_map(grub).collect();
    let line = if grub.is_empty() {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let line = lines.next()?.trim();
        if lines.next().is_some() {
            return None;
        }
        line.to_owned()
    } else {
        grub.join(" ")
    };
    let named = |word: &str| word.split_once('=').is_some_and(|(name, _)| NAMES.contains(&name));
    line.split_whitespace().any(named).then_some(line)
}

/// What GRUB's settings add to the command line.
fn grub(line: &str) -> Option<&str> {
    let line = line.trim();
    line.strip_prefix("GRUB_CMDLINE_LINUX_DEFAULT=")
        .or_else(|| line.strip_prefix("GRUB_CMDLINE_LINUX="))
        .map(|quoted| quoted.trim_matches(['"', '\'']))
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
        let file = "GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=pt\"\n\
                    GRUB_CMDLINE_LINUX=\"\"\n";
        assert_eq!(read(file).as_deref(), Some("quiet iommu=pt "));
        assert_eq!(read("iommu=pt\nsecond line\n"), None);
        assert_eq!(read("what does iommu do?"), None);
    }
}
