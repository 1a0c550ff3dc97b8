//! The order in which functions are read: down the tree, bridge before what hangs from it.
//!
//! A directory is opened from that of the bridge above, which is still open, so that one name is
//! looked up instead of the whole path; and when a bridge is left, everything below it was seen,
//! so that it is known whether it is on the way to a device asked about.

use std::collections::BTreeMap;

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::Gap;
use peerway_core::snapshot::pci::PciDevice;

use super::{DEVICES, Depth, More, Scope, VANISHED, read_shallow};
use crate::collect::spread::{in_parts, spread};
use crate::error::shown;
use crate::parse::sysfs::{self, Place};
use crate::root::{Directory, Root};

/// A function by its link.
struct Linked {
    address: PciAddress,
    name: String,
    target: String,
    place: Place,
}

/// A function that was read, and how far.
pub(super) struct Found<'a> {
    pub(super) device: PciDevice,
    target: &'a str,
    depth: Option<Depth>,
}

/// Reads functions, and more of those asked about and of the bridges above them.
pub(super) fn read(
    root: &Root,
    scope: &Scope,
    listing: &Directory<'_>,
    functions: Vec<(PciAddress, String)>,
    gaps: &mut Vec<Gap>,
) -> Vec<PciDevice> {
    let linked = follow(root, listing, functions, gaps);
    let parts = in_parts(root, &linked, |part| {
        let mut walk =
            Walk { scope, listing, above: Vec::new(), found: Vec::new(), gaps: Vec::new() };
        walk.found.reserve(part.len());
        for one in part {
            walk.visit(one);
        }
        while walk.leave() {}
        (walk.found, walk.gaps)
    });
    let mut found = Vec::new();
    for (part, more) in parts {
        if found.is_empty() {
            found = part;
        } else {
            found.extend(part);
        }
        gaps.extend(more);
    }
    found.sort_by_key(|one| one.device.address);
    found.dedup_by_key(|one| one.device.address);
    deepen(root, scope, &mut found, gaps);
    found.into_iter().map(|one| one.device).collect()
}

/// Where the links lead, in the order of the tree.
fn follow(
    root: &Root,
    listing: &Directory<'_>,
    functions: Vec<(PciAddress, String)>,
    gaps: &mut Vec<Gap>,
) -> Vec<Linked> {
    let targets = spread(root, &functions, |(_, name)| listing.link_text(name));
    let mut linked = Vec::with_capacity(functions.len());
    for ((address, name), target) in functions.into_iter().zip(targets) {
        let why = match target {
            Observed::Known(target) => match sysfs::place(&target, address) {
                Some(place) => {
                    linked.push(Linked { address, name, target, place });
                    continue;
                }
                None => {
                    format!("it leads to {}, which is no place in the PCI tree", shown(&target))
                }
            },
            Observed::Absent => VANISHED.to_owned(),
            Observed::Unreadable(why) => why,
        };
        gaps.push(Gap { source: listing.path_of(&name), why });
    }
    // No character of a path comes before the slash but the full stop, and after the function's
    // number comes none: what is below a bridge follows it at once.
    linked.sort_by(|one, other| one.target.cmp(&other.target));
    linked
}

struct Walk<'a, 'root> {
    scope: &'a Scope,
    listing: &'a Directory<'root>,
    above: Vec<Level<'a, 'root>>,
    found: Vec<Found<'a>>,
    gaps: Vec<Gap>,
}

/// A function whose directory is still open.
struct Level<'a, 'root> {
    target: &'a str,
    directory: Directory<'root>,
    /// Its number among those found.
    at: usize,
    /// Something below it was asked about.
    passed: bool,
}

impl<'a> Walk<'a, '_> {
    fn visit(&mut self, one: &'a Linked) {
        let (parent, last) = one.target.rsplit_once('/').unwrap_or_default();
        while self.above.last().is_some_and(|level| !is_below(parent, level.target)) {
            self.leave();
        }
        let inner = self
            .above
            .last()
            .filter(|level| level.target == parent)
            .and_then(|level| level.directory.inner(last, self.listing.path_of(&one.name)));
        let directory = match inner {
            Some(directory) => Ok(directory),
            None => self.listing.directory_behind(&one.name, &one.target),
        };
        let read = directory.map_err(|error| format!("{VANISHED}: {}", error.reason)).and_then(
            |directory| {
                let device = read_shallow(self.listing, &directory, one.address, &one.name)?;
                Ok((directory, device))
            },
        );
        let (directory, mut device) = match read {
            Ok(read) => read,
            Err(why) => {
                self.gaps.push(Gap { source: self.listing.path_of(&one.name), why });
                return;
            }
        };
        device.ancestors.clone_from(&one.place.ancestors);
        device.root = one.place.root;
        let asked = self.scope.wants(&device);
        if asked {
            More::read(&directory, Depth::Asked, self.scope.wake).put(&mut device);
            for level in &mut self.above {
                level.passed = true;
            }
        }
        let depth = asked.then_some(Depth::Asked);
        self.above.push(Level {
            target: &one.target,
            directory,
            at: self.found.len(),
            passed: false,
        });
        self.found.push(Found { device, target: &one.target, depth });
    }

    /// Closes the lowest directory; reads more of it if it is on the way to a device asked about.
    fn leave(&mut self) -> bool {
        let Some(level) = self.above.pop() else { return false };
        if let Some(found) = self.found.get_mut(level.at)
            && level.passed
            && found.depth.is_none()
        {
            More::read(&level.directory, Depth::Passed, self.scope.wake).put(&mut found.device);
            found.depth = Some(Depth::Passed);
        }
        true
    }
}

/// Whether a path is a place or below it.
fn is_below(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads more of those that the walk passed too early: bridges of another part of the walk, and
/// bridges that are not where their devices say.
fn deepen(root: &Root, scope: &Scope, found: &mut [Found<'_>], gaps: &mut Vec<Gap>) {
    let mut depths: BTreeMap<PciAddress, Depth> = BTreeMap::new();
    for one in found.iter().filter(|one| one.depth == Some(Depth::Asked)) {
        for bridge in &one.device.ancestors {
            depths.insert(*bridge, Depth::Passed);
        }
    }
    for one in found.iter_mut().filter(|one| one.depth.is_none()) {
        let Some(depth) = depths.get(&one.device.address).copied() else { continue };
        let path = format!("{DEVICES}/{}", one.device.address);
        match root.directory_behind(&path, one.target) {
            Ok(directory) => More::read(&directory, depth, scope.wake).put(&mut one.device),
            Err(error) => {
                let why = error.reason.to_string();
                one.device.config = Observed::Unreadable(why.clone());
                gaps.push(Gap { source: path, why });
            }
        }
    }
}
