//! The plan of `acs-direct`: redirect cleared on the ports between the goal's pairs.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;
use peerway_core::route::Redirect;
use peerway_core::snapshot::pci::Acs;

use super::Phase;
use super::build::{Draft, Expect};
use super::fingerprint::acs_key;
use crate::gate::{Gate, GateCode, Passed};
use crate::gates::switch;
use crate::id::RoadId;
use crate::op::Op;
use crate::scene::Scene;

/// Bits that send peer requests or completions upstream.
const REDIRECT: u16 = Acs::REQUEST_REDIRECT | Acs::COMPLETION_REDIRECT | Acs::EGRESS_CONTROL;

pub(super) fn steps(scene: &Scene<'_>, draft: &mut Draft) -> Result<(), Gate> {
    let first: BTreeSet<PciAddress> = scene
        .open_pairs()
        .find_map(|pair| match pair.route.redirect() {
            Redirect::By(ports) => {
                draft.canary = Some(pair.from);
                Some(ports.into_iter().collect())
            }
            Redirect::NoCommonBridge | Redirect::None | Redirect::Unknown(_) => None,
        })
        .unwrap_or_default();
    let all = switch::redirecting_ports(scene.open_pairs());
    draft.prepare(scene);
    for (phase, ports) in [
        (Phase::Canary, first.iter().copied().collect::<Vec<_>>()),
        (Phase::Rest, all.difference(&first).copied().collect()),
    ] {
        for port in ports {
            let acs = scene
                .snapshot()
                .device(port)
                .and_then(|device| device.config.known())
                .and_then(|config| config.acs.known())
                .ok_or_else(|| {
                    let read = format!("ACS control of {port} = unknown");
                    Gate::unknown(GateCode::AcsReadable, read, "a new scan as root")
                })?;
            let act = Op::WriteAcs { port, mask: REDIRECT, bits: 0 };
            draft.push(phase, act, Expect::value(acs.control.to_string()));
            let after = Acs { control: acs.control & !REDIRECT, ..*acs };
            let (key, value) = acs_key(port, after);
            draft.after.insert(key, value);
        }
    }
    draft.confirm(scene, RoadId::AcsDirect);
    draft.assume(
        "the type file of a group accepts a write: not relied on, no type is written",
        "plan: no step writes a type",
        Passed::Yes,
    );
    draft.assume_others(scene);
    draft.assume(
        "a GPU survives unbind and rebind: not relied on, no driver is unbound",
        "plan: no step unbinds",
        Passed::Yes,
    );
    draft.assume(
        "the switch turns requests round once redirect is off",
        "verify: copies checked on the owner's side, and no IOMMU fault since the mark",
        Passed::Unknown,
    );
    draft.assume(
        "nothing brings the bits back: no reset or resume of a port, and no new bind of a driver \
         on kernels that write them then",
        "verify, whenever it is run: the control words are what was written",
        Passed::Unknown,
    );
    Ok(())
}
