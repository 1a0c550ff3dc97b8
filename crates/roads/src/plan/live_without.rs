//! The plan of `live-without`: the safe environment, and nothing on the devices.

use super::build::Draft;

pub(super) fn steps(draft: &mut Draft) {
    draft.safe_environment();
    draft.need(
        "units take EnvironmentFile=/run/peerway/p2p.env (without a leading -), containers the same \
         by a hook, and the engine is started with its own switches: none of them is an environment \
         variable",
        "peerway roads shows which processes do not have it",
    );
}
