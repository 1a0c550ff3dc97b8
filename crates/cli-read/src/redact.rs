//! What a capture leaves out: names, identifiers, and whatever this program does not need.
//!
//! Identifiers become stand-ins, the same everywhere in one capture, so that a reader can still
//! tell tenants apart. Configuration, logs and environments keep only the lines that are
//! understood.

use std::collections::BTreeMap;

use peerway_core::snapshot::Snapshot;
use peerway_read::tree::Node;

/// Words of which a kernel log record must have one to be kept.
const LOG_WORDS: [&str; 16] = [
    "Linux version ",
    "AMD-Vi",
    "DMAR",
    "iommu",
    "arm-smmu",
    "SEV",
    "SNP",
    "Memory Encryption",
    "NVRM",
    "nvidia",
    "vfio",
    "p2pdma",
    "ACS",
    "BAR ",
    "callbacks suppressed",
    "x2apic",
];

/// Keys of tenants' configurations that bear on devices.
const CONFIG_WORDS: [&str; 12] = [
    "hostpci",
    "args:",
    "amd-sev",
    "lxc.cgroup",
    "lxc.mount.entry",
    "dev",
    "map ",
    "path=",
    "name:",
    "hostname:",
    "machine:",
    "[",
];

/// Words of the command line whose values name disks, networks or keys.
const PRIVATE_WORDS: [&str; 11] = [
    "root",
    "resume",
    "ip",
    "nfsroot",
    "cryptdevice",
    "BOOT_IMAGE",
    "initrd",
    "boot",
    "ostree",
    "init",
    "rdinit",
];

/// Stand-ins for identifiers, and the rules of what is kept.
#[derive(Debug)]
pub struct Redaction {
    /// Identifier and stand-in, longest identifiers first.
    names: Vec<(String, String)>,
}

impl Redaction {
    /// From what a snapshot knows to be an identifier.
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        let mut add = |name: Option<&String>, stand_in: String| {
            // Very short names would be replaced inside ordinary words.
            if let Some(name) = name.filter(|name| name.len() > 3) {
                names.entry(name.clone()).or_insert(stand_in);
            }
        };
        add(snapshot.origin.hostname.known(), "host-1".to_owned());
        add(snapshot.origin.boot_id.known(), "00000000-0000-4000-8000-000000000001".to_owned());
        for (index, tenant) in snapshot.tenants.iter().enumerate() {
            add(tenant.name.known(), format!("tenant-{}", index + 1));
        }
        if let Some(gpus) = snapshot.nvidia.gpus.known() {
            for (index, gpu) in gpus.iter().enumerate() {
                let stand_in = format!("GPU-00000000-0000-4000-8000-{:012}", index + 1);
                add(gpu.uuid.known(), stand_in);
            }
        }
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Self { names }
    }

    /// A text with its identifiers replaced.
    pub fn text(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (name, stand_in) in &self.names {
            if out.contains(name.as_str()) {
                out = out.replace(name.as_str(), stand_in);
            }
        }
        out
    }

    /// A path with its identifiers replaced.
    pub fn path(&self, path: &str) -> String {
        self.text(path)
    }

    /// What is kept of a node.
    pub fn node(&self, path: &str, node: &Node) -> Node {
        match node {
            Node::Link(target) => Node::Link(self.text(target)),
            Node::File(bytes) => Node::File(self.file(path, bytes)),
            Node::Directory(_) | Node::Sparse { .. } | Node::Fails(_) | Node::Hangs => node.clone(),
        }
    }

    fn file(&self, path: &str, bytes: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(bytes) else { return bytes.to_vec() };
        let is_libvirt = path.starts_with("/etc/libvirt/");
        let kept = match path {
            "/proc/cmdline" => command_line(text),
            "/proc/kallsyms" => symbols(text),
            "/proc/cpuinfo" => processors(text),
            "/dev/kmsg" => kernel_log(text),
            _ if path.ends_with("/environ") => environment(text),
            _ if path.starts_with("/proc/") && path.ends_with("/cmdline") => vfio_words(text),
            _ if is_tenant_configuration(path) => lines(text, |line| {
                let line = line.trim_start();
                // Resource names of a pci.cfg mapping stand at the front of a line.
                CONFIG_WORDS.iter().any(|word| line.starts_with(word))
                    || path.ends_with("/mapping/pci.cfg")
                    || is_libvirt && xml_line(line)
            }),
            _ => text.to_owned(),
        };
        self.text(&kept).into_bytes()
    }
}

fn is_tenant_configuration(path: &str) -> bool {
    ["/etc/pve/", "/var/lib/lxc/", "/etc/libvirt/"].iter().any(|tree| path.starts_with(tree))
}

fn xml_line(line: &str) -> bool {
    [
        "<domain",
        "</domain",
        "<name>",
        "<hostdev",
        "</hostdev",
        "<source",
        "</source",
        "<address",
        "<launchSecurity",
        "</launchSecurity",
        "<devices",
        "</devices",
    ]
    .iter()
    .any(|word| line.starts_with(word))
}

fn lines(text: &str, mut keep: impl FnMut(&str) -> bool) -> String {
    text.split_inclusive('\n').filter(|line| keep(line)).collect()
}

/// Records that bear on the matter; the command line in them as private as by itself.
fn kernel_log(text: &str) -> String {
    lines(text, |line| LOG_WORDS.iter().any(|word| line.contains(word)))
        .split_inclusive('\n')
        .map(|line| match line.split_once("ommand line: ") {
            Some((head, words)) => [head, "ommand line: ", &command_line(words)].concat(),
            None => line.to_owned(),
        })
        .collect()
}

fn command_line(text: &str) -> String {
    let words: Vec<String> = text
        .split_ascii_whitespace()
        .map(|word| {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let private = PRIVATE_WORDS.contains(&key) || key.starts_with("rd.luks");
            if private && !value.is_empty() { format!("{key}=removed") } else { word.to_owned() }
        })
        .collect();
    // What follows two hyphens is for the first process, and none of this program's business.
    let own: Vec<String> = words.iter().take_while(|word| *word != "--").cloned().collect();
    let rest = if own.len() < words.len() { " -- removed" } else { "" };
    format!("{}{rest}\n", own.join(" "))
}

/// The symbols that are asked for, and one datum, which shows that data are listed at all.
fn symbols(text: &str) -> String {
    lines(text, |line| {
        let name = line.split_ascii_whitespace().nth(2).unwrap_or_default();
        matches!(name, "iommu_dma_ops" | "iommu_dma_map_resource" | "_text" | "init_task")
    })
}

/// The first processor whole, of the others their number.
fn processors(text: &str) -> String {
    let mut first = true;
    lines(text, |line| {
        if line.trim().is_empty() {
            first = false;
            return true;
        }
        first || line.starts_with("processor")
    })
}

fn environment(text: &str) -> String {
    // Fronts of the variables that a scan of holders keeps.
    const KEPT: [&str; 6] = [
        "NCCL_",
        "GGML_CUDA_P2P",
        "VLLM_",
        "SGLANG_",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
    ];
    text.split_inclusive('\0')
        .filter(|entry| KEPT.iter().any(|name| entry.starts_with(name)))
        .collect()
}

/// Of a process's arguments only those that hand devices to a virtual machine.
fn vfio_words(text: &str) -> String {
    text.split_inclusive('\0')
        .filter(|word| word.starts_with("vfio-pci") || word.starts_with("sev-snp-guest"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_goes() {
        assert_eq!(
            command_line("BOOT_IMAGE=/vm root=UUID=12 amd_iommu=on quiet ip=10.0.0.2"),
            "BOOT_IMAGE=removed root=removed amd_iommu=on quiet ip=removed\n"
        );
        assert_eq!(
            environment("HOME=/root\0NCCL_P2P_DISABLE=1\0TOKEN=x\0"),
            "NCCL_P2P_DISABLE=1\0"
        );
        assert_eq!(
            processors("processor\t: 0\nvendor_id\t: A\n\nprocessor\t: 1\nvendor_id\t: A\n\n"),
            "processor\t: 0\nvendor_id\t: A\n\nprocessor\t: 1\n\n"
        );
    }
}
