//! The document of `path`: the route of a pair, hop by hop, both ways.

use schemars::JsonSchema;
use serde::Serialize;

use super::diagnose::Pair;
use crate::address::{BusAddress, PciAddress};
use crate::diagnose::pairs::judge_one;
use crate::judge::forwarding;
use crate::judge::reach;
use crate::observed::Observed;
use crate::route::{self, Redirect, Route, Turn};
use crate::snapshot::Snapshot;
use crate::snapshot::pci::{LinkState, PciDevice};

/// Both directions of a pair.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Path {
    /// The two directions.
    pub directions: Vec<Direction>,
}

/// One direction.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Direction {
    /// The verdict on it.
    pub pair: Pair,
    /// Where a request turns: `nvlink`, `bridge`, `host_bridge`, `host_bridges`, `nodes`.
    pub turn: String,
    /// The common bridge, where there is one.
    pub common_bridge: Option<PciAddress>,
    /// `none`, `redirected`, `unknown`, `no_common_bridge`.
    pub redirect: String,
    /// Requester's IOMMU group.
    pub group: Option<u32>,
    /// Its type, or why that could not be read.
    pub domain: String,
    /// Whether the root complex is known to forward, and from where.
    pub root_complex: String,
    /// The target's memory region: start and bytes.
    pub target_start: Option<BusAddress>,
    /// Bytes of the region.
    pub target_size: Option<u64>,
    /// Width of the addresses that the requester can emit, bits.
    pub requester_address_bits: Option<u32>,
    /// Hops from the requester to the target.
    pub hops: Vec<Hop>,
    /// Best rate of the narrowest link, bytes per second, one way, before protocol overhead.
    pub narrowest_bytes_per_second: Option<u64>,
}

/// One hop.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Hop {
    /// `requester`, `port`, `common_bridge`, `root_complex`, `iommu`, `target`.
    pub kind: String,
    /// PCI address, where it has one.
    pub address: Option<PciAddress>,
    /// ACS control bits in `lspci`'s words, or why they are unknown.
    pub acs: Option<String>,
    /// Whether the port redirects peer requests.
    pub redirects: Option<bool>,
    /// Best rate of its link, bytes per second.
    pub bytes_per_second: Option<u64>,
    /// What happens here.
    pub note: String,
}

impl Direction {
    /// One direction of a pair.
    pub fn new(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> Self {
        let pair = judge_one(snapshot, from, to);
        let route = &pair.route;
        let memory = snapshot.peer_memory(to).map(|(_, bar)| bar);
        let (_, forwards) = forwarding::forwards(snapshot, from, to);
        let domain = snapshot.domain_of(from);
        Self {
            turn: turn_word(&route.turn).to_owned(),
            common_bridge: match route.turn {
                Turn::Bridge(address) => Some(address),
                _ => None,
            },
            redirect: redirect_word(&route.redirect()).to_owned(),
            group: from.group.known().copied(),
            domain: domain.to_string(),
            root_complex: forwards,
            target_start: memory.filter(|bar| bar.assigned).map(|bar| bar.start),
            target_size: memory.map(|bar| bar.size),
            requester_address_bits: reach::address_bits(snapshot, from).map(|(bits, _)| bits),
            hops: hops(snapshot, from, to, route, &domain.to_string()),
            narrowest_bytes_per_second: narrowest(from, to, route),
            pair: Pair::from(&pair),
        }
    }
}

fn turn_word(turn: &Turn) -> &'static str {
    match turn {
        Turn::NvLink { .. } => "nvlink",
        Turn::Bridge(_) => "bridge",
        Turn::HostBridge => "host_bridge",
        Turn::HostBridges => "host_bridges",
        Turn::Nodes => "nodes",
    }
}

fn redirect_word(redirect: &Redirect) -> &'static str {
    match redirect {
        Redirect::NoCommonBridge => "no_common_bridge",
        Redirect::None => "none",
        Redirect::By(_) => "redirected",
        Redirect::Unknown(_) => "unknown",
    }
}

fn best_rate(link: &Observed<LinkState>) -> Option<u64> {
    link.known().map(|link| LinkState::rate(link.max_speed, link.width))
}

fn narrowest(from: &PciDevice, to: &PciDevice, route: &Route) -> Option<u64> {
    let ends = [&from.link, &to.link].into_iter().filter_map(best_rate);
    ends.chain(route.narrowest().map(|(_, rate)| rate)).min()
}

fn hops(
    snapshot: &Snapshot,
    from: &PciDevice,
    to: &PciDevice,
    route: &Route,
    domain: &str,
) -> Vec<Hop> {
    let mut hops = vec![Hop {
        kind: "requester".to_owned(),
        address: Some(from.address),
        acs: None,
        redirects: None,
        bytes_per_second: best_rate(&from.link),
        note: format!("driver {}", from.driver),
    }];
    if let Turn::NvLink { links } = route.turn {
        hops.push(plain_hop("nvlink", None, format!("{links} NVLink connections")));
    } else {
        hops.extend(route.up.iter().map(|port| port_hop(port, "upwards")));
        turn_hops(snapshot, from, to, route, domain, &mut hops);
        hops.extend(route.down.iter().map(|port| port_hop(port, "downwards")));
    }
    let memory = snapshot.peer_memory(to).map_or_else(
        || "no memory region".to_owned(),
        |(owner, bar)| format!("region {} of {} at {}", bar.index, owner.address, bar.start),
    );
    hops.push(Hop {
        kind: "target".to_owned(),
        address: Some(to.address),
        acs: None,
        redirects: None,
        bytes_per_second: best_rate(&to.link),
        note: memory,
    });
    hops
}

fn plain_hop(kind: &str, address: Option<PciAddress>, note: String) -> Hop {
    Hop { kind: kind.to_owned(), address, acs: None, redirects: None, bytes_per_second: None, note }
}

fn port_hop(port: &route::Port, way: &str) -> Hop {
    Hop {
        kind: "port".to_owned(),
        address: Some(port.address),
        acs: Some(match &port.acs {
            Observed::Known(acs) => acs.words(),
            Observed::Absent => "no such capability".to_owned(),
            Observed::Unreadable(why) => format!("unknown ({why})"),
        }),
        redirects: match &port.acs {
            Observed::Known(acs) => Some(acs.redirects()),
            Observed::Absent => Some(false),
            Observed::Unreadable(_) => None,
        },
        bytes_per_second: best_rate(&port.link),
        note: way.to_owned(),
    }
}

/// What lies at the turn: the common bridge alone, or the root complex with the IOMMU.
fn turn_hops(
    snapshot: &Snapshot,
    from: &PciDevice,
    to: &PciDevice,
    route: &Route,
    domain: &str,
    hops: &mut Vec<Hop>,
) {
    if let (Turn::Bridge(bridge), Redirect::None) = (&route.turn, route.redirect()) {
        let note = "the request turns here if its address is the target's own";
        hops.push(plain_hop("common_bridge", Some(*bridge), note.to_owned()));
        return;
    }
    let group = match &from.group {
        Observed::Known(id) => format!("group {id} of the requester, type {domain}"),
        Observed::Absent => "no IOMMU group".to_owned(),
        Observed::Unreadable(why) => format!("group unknown ({why})"),
    };
    hops.push(plain_hop("iommu", None, group));
    let (_, forwards) = forwarding::forwards(snapshot, from, to);
    let note = format!("{}; {forwards}", forwarding::turn_text(route, true));
    hops.push(plain_hop("root_complex", None, note));
}
