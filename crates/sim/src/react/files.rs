//! Edits of the tree, and the kernel log.

use std::sync::Arc;

use peerway_core::address::PciAddress;
use peerway_read::root::{KMSG, SMALL};
use peerway_read::tree::{Node, Tree};

use super::{SimHost, line};
use crate::build::walk;

impl SimHost {
    pub(super) fn edit(&mut self) -> &mut Tree {
        Arc::make_mut(&mut self.tree)
    }

    pub(super) fn put(&mut self, path: &str, text: &str) {
        self.put_node(path, line(text));
    }

    pub(super) fn put_link(&mut self, path: &str, target: &str) {
        self.put_node(path, Node::Link(target.to_owned()));
    }

    pub(super) fn put_node(&mut self, path: &str, node: Node) {
        // Paths are the simulation's own: absolute and plain, so that nothing refuses them.
        let put = self.edit().set(path, node);
        debug_assert_eq!(put, Ok(()), "{path}");
    }

    pub(super) fn text(&self, path: &str) -> Option<String> {
        self.root().text(path, SMALL).ok()
    }

    pub(super) fn names(&self, path: &str) -> Result<Vec<String>, peerway_read::error::ReadError> {
        self.root().list(path)
    }

    /// Directory of a function in the tree of devices.
    pub(super) fn device_path(&self, device: PciAddress) -> Option<String> {
        let link = self.root().link(&format!("/sys/bus/pci/devices/{device}")).ok()?;
        Some(format!("/sys/{}", link.trim_start_matches("../")))
    }

    /// Number of a function's group.
    pub(super) fn group_of(&self, device: PciAddress) -> Option<u32> {
        let link = self.root().link(&format!("/sys/bus/pci/devices/{device}/iommu_group")).ok()?;
        link.rsplit('/').next()?.parse().ok()
    }

    pub(super) fn members(&self, group: u32) -> Vec<PciAddress> {
        let names = self.names(&format!("/sys/kernel/iommu_groups/{group}/devices"));
        names.unwrap_or_default().iter().filter_map(|name| name.parse().ok()).collect()
    }

    pub(super) fn type_of(&self, group: u32) -> Option<String> {
        self.text(&format!("/sys/kernel/iommu_groups/{group}/type"))
    }

    /// Adds a record to the kernel log, as `/dev/kmsg` gives it.
    pub(super) fn log(&mut self, level: u8, text: &str, device: Option<PciAddress>) {
        use std::fmt::Write as _;
        let old = self.root().kernel_log(usize::MAX).unwrap_or_default();
        let old = String::from_utf8_lossy(&old).into_owned();
        let last = old.lines().rev().find_map(|record| {
            let mut fields = record.split(';').next()?.split(',');
            let _level = fields.next()?.parse::<u32>().ok()?;
            Some((fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?))
        });
        let (sequence, time) = last.map_or((0, 0), |(number, time)| (number + 1, time + 41));
        let time = time.max(self.now().saturating_mul(1_000_000));
        let mut new = old;
        // Writing to a String cannot fail.
        writeln!(new, "{level},{sequence},{time},-;{text}").unwrap_or_default();
        if let Some(device) = device {
            write!(new, " SUBSYSTEM=pci\n DEVICE=+pci:{device}\n").unwrap_or_default();
        }
        self.put_node(KMSG, Node::File(new.into_bytes()));
    }

    /// Paths below a directory, with their nodes; files and links only.
    pub(super) fn below(&self, directory: &str) -> Vec<(String, Node)> {
        let mut all = Vec::new();
        let prefix = format!("{directory}/");
        walk(&self.tree, &mut |path, node| {
            if path.starts_with(&prefix) && !matches!(node, Node::Directory(_)) {
                all.push((path.to_owned(), node.clone()));
            }
        });
        all
    }
}

/// A relative link from a directory to another place, both absolute.
pub(super) fn relative(from: &str, to: &str) -> String {
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let (from, to) = (parts(from), parts(to));
    let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
    let up = from.iter().skip(common).map(|_| "..");
    up.chain(to.iter().skip(common).map(String::as_str)).collect::<Vec<_>>().join("/")
}
