//! Entries of the peer-map module, as it lists them.

use peerway_core::observed::Observed;
use peerway_core::snapshot::peer_map::PeerMap;

use crate::error::observe;
use crate::parse::peer_map::list;
use crate::root::Root;

/// Where the module lists its entries.
const LIST: &str = "/proc/peerway-map";
/// Where the kernel shows that it is loaded.
const MODULE: &str = "/sys/module/peerway_map";
/// Some ten thousand entries.
const MOST: usize = 1 << 20;

/// What the module says; absent where it is not loaded.
pub fn collect(root: &Root) -> Observed<PeerMap> {
    match observe(root.text(LIST, MOST)) {
        Observed::Known(text) => match list(&text) {
            Ok(map) => Observed::Known(map),
            Err(why) => Observed::Unreadable(why),
        },
        Observed::Absent if root.list(MODULE).is_ok() => {
            Observed::Unreadable("the module is loaded, and shows no list".to_owned())
        }
        Observed::Absent => Observed::Absent,
        Observed::Unreadable(why) => Observed::Unreadable(why),
    }
}
