//! Which open files matter.

use serde::{Deserialize, Serialize};

/// What kind of node is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// `/dev/nvidia0` and so on: one GPU, by the minor number.
    NvidiaGpu,
    /// `/dev/nvidiactl`, `/dev/nvidia-uvm` and the other nodes that belong to no single GPU.
    NvidiaShared,
    /// `/dev/vfio/…`: a group, a container, or a device of the newer interface.
    Vfio,
    /// `anon_inode:[vfio-device]`: a device taken from a VFIO group.
    VfioDevice,
    /// `/dev/iommu`.
    Iommufd,
    /// `/dev/dri/…`.
    Dri,
    /// `/dev/kfd`, AMD's compute node.
    Kfd,
    /// `/dev/uio…`.
    Uio,
    /// `/dev/accel/…`: accelerators that are no GPUs.
    Accel,
    /// A memory region of a PCI function, taken through sysfs (`resource0` and so on).
    PciMemory,
    /// A pattern of the caller's own.
    Other,
}

impl NodeKind {
    /// Whether a process that holds it may compute on a GPU, so that its environment bears on
    /// peer access.
    pub fn is_gpu(self) -> bool {
        matches!(self, Self::NvidiaGpu | Self::NvidiaShared | Self::Dri | Self::Kfd | Self::Other)
    }
}

/// One kind of path that matters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// How the path begins, from a slash; what precedes it is ignored, since the tree of a
    /// container may be seen from outside (`…/rootfs/dev/nvidia0`). Text that does not begin with
    /// a slash has to be the whole of the link.
    pub text: String,
    /// What it is.
    pub kind: NodeKind,
    /// Whether files count that are no character devices (for tests, and for trees of files).
    pub any_file: bool,
}

/// All that matters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patterns(Vec<Pattern>);

impl Default for Patterns {
    /// The nodes of GPUs and of drivers that give devices to user space.
    fn default() -> Self {
        let device = |text: &str, kind| Pattern { text: text.to_owned(), kind, any_file: false };
        Self(vec![
            device("/dev/nvidia", NodeKind::NvidiaShared),
            device("/dev/vfio/", NodeKind::Vfio),
            device("/dev/iommu", NodeKind::Iommufd),
            device("/dev/dri/", NodeKind::Dri),
            device("/dev/kfd", NodeKind::Kfd),
            device("/dev/uio", NodeKind::Uio),
            device("/dev/accel/", NodeKind::Accel),
            Pattern { text: "/sys/devices/".to_owned(), kind: NodeKind::PciMemory, any_file: true },
            device("anon_inode:[vfio-device]", NodeKind::VfioDevice),
        ])
    }
}

impl Patterns {
    /// Patterns of the caller's own.
    pub fn new(patterns: Vec<Pattern>) -> Self {
        Self(patterns)
    }

    /// The first pattern that a link or a mapped path meets, with the kind of node.
    pub(crate) fn find(&self, path: &[u8]) -> Option<(&Pattern, NodeKind)> {
        self.0.iter().find_map(|pattern| {
            let rest = after(path, pattern.text.as_bytes())?;
            match pattern.kind {
                NodeKind::NvidiaShared if is_number(rest) => Some((pattern, NodeKind::NvidiaGpu)),
                NodeKind::PciMemory => region(path).map(|_| (pattern, NodeKind::PciMemory)),
                kind => Some((pattern, kind)),
            }
        })
    }

    /// Bytes of which at least one stands in any text that holds a match: what to search for in a
    /// long text before looking closer. `/dev/` stands for all that begin with it.
    pub(crate) fn needles(&self) -> Vec<Vec<u8>> {
        let mut needles: Vec<Vec<u8>> = self
            .0
            .iter()
            .map(|p| if p.text.starts_with("/dev/") { "/dev/" } else { p.text.as_str() })
            .map(|text| text.as_bytes().to_vec())
            .collect();
        needles.sort();
        needles.dedup();
        needles
    }
}

/// What follows `text` in `path`.
fn after<'p>(path: &'p [u8], text: &[u8]) -> Option<&'p [u8]> {
    if text.starts_with(b"/") {
        let at = memchr::memmem::find(path, text)?;
        path.get(at..)?.strip_prefix(text)
    } else {
        path.strip_prefix(text).filter(|rest| rest.is_empty())
    }
}

/// The PCI function whose memory region a file of sysfs is: `…/0000:01:00.0/resource0`, or the same
/// with `_wc`.
pub(crate) fn region(path: &[u8]) -> Option<&str> {
    let path = std::str::from_utf8(path).ok()?;
    let (directory, name) = path.rsplit_once('/')?;
    let number = name.strip_prefix("resource")?;
    let number = number.strip_suffix("_wc").unwrap_or(number);
    let (_, function) = directory.rsplit_once('/')?;
    (is_number(number.as_bytes()) && is_function(function)).then_some(function)
}

/// Whether a name is that of a PCI function: domain, bus, device, function.
fn is_function(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let hexadecimal =
        |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.len() == 4 && parts.iter().all(hexadecimal)
}

fn is_number(rest: &[u8]) -> bool {
    !rest.is_empty() && rest.iter().all(u8::is_ascii_digit)
}

/// The drivers whose character devices matter under whatever name a node was made, by the names
/// that they registered (`/proc/devices`).
pub(crate) fn kind_of_driver(name: &str) -> Option<NodeKind> {
    match name {
        "nvidia" | "nvidia-frontend" => Some(NodeKind::NvidiaGpu),
        "drm" => Some(NodeKind::Dri),
        "kfd" => Some(NodeKind::Kfd),
        "uio" => Some(NodeKind::Uio),
        "accel" => Some(NodeKind::Accel),
        _ if name.starts_with("nvidia") => Some(NodeKind::NvidiaShared),
        _ if name.starts_with("vfio") => Some(NodeKind::Vfio),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: Option<NodeKind>) {
        let patterns = Patterns::default();
        assert_eq!(patterns.find(path.as_bytes()).map(|(_, kind)| kind), expected, "{path}");
        if expected.is_some() {
            let hit = patterns
                .needles()
                .iter()
                .any(|n| memchr::memmem::find(path.as_bytes(), n).is_some());
            assert!(hit, "{path} must be found by the quick search");
        }
    }

    #[test]
    fn nodes_are_told_by_their_paths() {
        check("/dev/nvidia0", Some(NodeKind::NvidiaGpu));
        check("/dev/nvidia15", Some(NodeKind::NvidiaGpu));
        check("/dev/nvidiactl", Some(NodeKind::NvidiaShared));
        check("/dev/nvidia-uvm", Some(NodeKind::NvidiaShared));
        check("/dev/nvidia-caps/nvidia-cap2", Some(NodeKind::NvidiaShared));
        check("/dev/vfio/97", Some(NodeKind::Vfio));
        check("/dev/vfio/devices/vfio3", Some(NodeKind::Vfio));
        check("/dev/iommu", Some(NodeKind::Iommufd));
        check("/dev/dri/renderD128", Some(NodeKind::Dri));
        check("/dev/kfd", Some(NodeKind::Kfd));
        check("/dev/uio0", Some(NodeKind::Uio));
        check("/dev/accel/accel0", Some(NodeKind::Accel));
        let function = "/sys/devices/pci0000:00/0000:00:01.0/10000:01:00.0";
        check(&format!("{function}/resource0"), Some(NodeKind::PciMemory));
        check(&format!("{function}/resource2_wc"), Some(NodeKind::PciMemory));
        check("anon_inode:[vfio-device]", Some(NodeKind::VfioDevice));
    }

    #[test]
    fn a_containers_tree_seen_from_outside_counts() {
        check("/var/lib/machines/a/rootfs/dev/nvidia3", Some(NodeKind::NvidiaGpu));
    }

    #[test]
    fn other_files_do_not_count() {
        check("/dev/null", None);
        check("/sys/devices/pci0000:00/0000:01:00.0/resource", None);
        check("/sys/devices/pci0000:00/0000:01:00.0/config", None);
        check("/sys/devices/system/cpu/resource0", None);
        check("/dev/shm/nvidia0", None);
        check("/srv/mydev/nvidia0", None);
        check("anon_inode:[vfio-device]x", None);
        check("anon_inode:[eventfd]", None);
        check("socket:[4711]", None);
        check("", None);
    }
}
