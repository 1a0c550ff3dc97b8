//! The way of a peer request: from the requester up to where it turns, and down to the target.

use crate::address::PciAddress;
use crate::observed::Observed;
use crate::snapshot::Snapshot;
use crate::snapshot::pci::{Acs, LinkState, PciDevice};

/// Where a peer request turns round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// NVLink carries it; PCIe is not used.
    NvLink {
        /// Links that are up.
        links: u32,
    },
    /// Both functions hang below this bridge. With redirect on a port below it the request goes
    /// on to the root complex and comes back.
    Bridge(PciAddress),
    /// Different root ports of one host bridge.
    HostBridge,
    /// Different host bridges; both NUMA nodes known and equal, or one unknown.
    HostBridges,
    /// Different host bridges on different NUMA nodes: across sockets or dies.
    Nodes,
}

/// One port on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its address.
    pub address: PciAddress,
    /// Access control of the port; absent where it has no such capability.
    pub acs: Observed<Acs>,
    /// State of the link below it.
    pub link: Observed<LinkState>,
}

/// The route of one ordered pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Who issues the request.
    pub from: PciAddress,
    /// Whose memory it addresses.
    pub to: PciAddress,
    /// Where it turns.
    pub turn: Turn,
    /// Ports from the requester's side up to the turn, the common bridge excluded.
    pub up: Vec<Port>,
    /// Ports from the turn down to the target's side, the common bridge excluded.
    pub down: Vec<Port>,
    /// Ports above the common bridge, which a redirected request passes twice.
    pub above: Vec<Port>,
}

/// What access control below the common bridge does to requests and completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// There is no common bridge: every request goes to the root complex.
    NoCommonBridge,
    /// No port between the two redirects: the request turns at the common bridge.
    None,
    /// These ports redirect: the request goes to the root complex.
    By(Vec<PciAddress>),
    /// Nothing seen redirects, but these ports could not be read.
    Unknown(Vec<(PciAddress, String)>),
}

impl Route {
    /// The route between two devices of a snapshot.
    pub fn between(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> Self {
        let common = common_length(from, to);
        let turn = match (nvlink(snapshot, from, to), last_common(from, common)) {
            (Some(links), _) => Turn::NvLink { links },
            (None, Some(bridge)) => Turn::Bridge(bridge),
            (None, None) if from.root == to.root => Turn::HostBridge,
            (None, None) => match (from.numa_node.known(), to.numa_node.known()) {
                (Some(a), Some(b)) if a != b => Turn::Nodes,
                _ => Turn::HostBridges,
            },
        };
        let ports = |addresses: &[PciAddress]| -> Vec<Port> {
            addresses.iter().map(|address| port(snapshot, *address)).collect()
        };
        let below = |device: &PciDevice| -> Vec<PciAddress> {
            device.ancestors.iter().skip(common).copied().collect()
        };
        let mut up = below(from);
        up.reverse();
        let shared: Vec<PciAddress> =
            from.ancestors.iter().take(common.saturating_sub(1)).copied().collect();
        Self {
            from: from.address,
            to: to.address,
            turn,
            up: ports(&up),
            down: ports(&below(to)),
            above: ports(&shared),
        }
    }

    /// Whether access control sends peer requests past the common bridge.
    ///
    /// Ports between the two and the common bridge count, on both sides and at every level, as in
    /// the kernel's own verdict (`drivers/pci/p2pdma.c`, `calc_map_type_and_dist`); ports above
    /// the common bridge and on other switches do not. Source validation redirects nothing.
    pub fn redirect(&self) -> Redirect {
        if !matches!(self.turn, Turn::Bridge(_)) {
            return Redirect::NoCommonBridge;
        }
        let mut redirecting = Vec::new();
        let mut unknown = Vec::new();
        for port in self.up.iter().chain(&self.down) {
            match &port.acs {
                Observed::Known(acs) if acs.redirects() => redirecting.push(port.address),
                Observed::Known(_) | Observed::Absent => {}
                Observed::Unreadable(why) => unknown.push((port.address, why.clone())),
            }
        }
        match (redirecting.is_empty(), unknown.is_empty()) {
            (false, _) => Redirect::By(redirecting),
            (true, true) => Redirect::None,
            (true, false) => Redirect::Unknown(unknown),
        }
    }

    /// The narrowest link of the ports passed: rate at its best speed and present width, in bytes
    /// per second. Idle devices lower their speed, so the present speed says nothing.
    pub fn narrowest(&self) -> Option<(PciAddress, u64)> {
        self.up
            .iter()
            .chain(&self.down)
            .filter_map(|port| {
                let link = port.link.known()?;
                Some((port.address, LinkState::rate(link.max_speed, link.width)))
            })
            .min_by_key(|(_, rate)| *rate)
    }
}

fn port(snapshot: &Snapshot, address: PciAddress) -> Port {
    match snapshot.device(address) {
        Some(bridge) => Port {
            address,
            acs: bridge.config.as_ref().and_then(|config| {
                if config.dead {
                    Observed::Unreadable("the port does not answer".to_owned())
                } else {
                    config.acs.clone()
                }
            }),
            link: bridge.link.clone(),
        },
        None => Port {
            address,
            acs: Observed::Unreadable("the port is not listed".to_owned()),
            link: Observed::default(),
        },
    }
}

/// How many bridges from the root down the two have in common.
fn common_length(from: &PciDevice, to: &PciDevice) -> usize {
    if from.root != to.root {
        return 0;
    }
    from.ancestors.iter().zip(&to.ancestors).take_while(|(a, b)| a == b).count()
}

fn last_common(from: &PciDevice, common: usize) -> Option<PciAddress> {
    from.ancestors.get(common.checked_sub(1)?).copied()
}

fn nvlink(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> Option<u32> {
    let links = snapshot.nvlinks.known()?;
    let between: u32 = links
        .iter()
        .filter(|link| {
            (link.a == from.address && link.b == to.address)
                || (link.b == from.address && link.a == to.address)
        })
        .map(|link| link.links)
        .sum();
    (between > 0).then_some(between)
}
