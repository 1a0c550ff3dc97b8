//! Building and installing the peer-map module.

use crate::guide::Guide;
use crate::op::{PEER_MAP_MODULE, PEER_MAP_PACKAGE};

/// What the operator does once per kernel.
pub(crate) fn install() -> Vec<Guide> {
    vec![
        Guide::new(
            "the peer-map module, once per kernel",
            &["# DKMS builds it against the running kernel's headers"],
        )
        .line(format!("dkms status {PEER_MAP_PACKAGE}"))
        .line(format!("dkms install {PEER_MAP_PACKAGE}/VERSION"))
        .line(format!("modinfo {PEER_MAP_MODULE}"))
        .line("# with Secure Boot the module has to be signed with a key that firmware trusts:")
        .line("mokutil --import /var/lib/dkms/mok.pub"),
    ]
}
