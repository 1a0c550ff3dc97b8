//! Why a plan is not carried out on this machine at all.

use peerway_roads::{Plan, RoadId};

use super::{LiveHost, gates};

impl LiveHost {
    /// The first reason; what opens GPUs to be asked comes last.
    pub(super) fn refusal(&self, plan: &Plan) -> Option<String> {
        if let Some(why) = self.unproved_road(plan) {
            return Some(why);
        }
        let gates = if plan.road == RoadId::PeerMap {
            self.peer_map_refuses(plan)
        } else {
            plan.proves_at_once().then(|| gates::refuse(self, plan)).flatten()
        };
        // Last what opens the GPUs to be asked.
        let undone =
            gates.or_else(|| self.services_refuse(plan)).or_else(|| self.persistence_refuses(plan));
        if undone.is_some() {
            return undone;
        }
        if let Some(why) = self.in_initramfs(plan) {
            return Some(why);
        }
        // A change whose effect nobody can prove is not begun.
        let copies = plan.proves_at_once().then(|| self.eyes.can_copy());
        copies.and_then(Result::err)
    }

    /// Where a road was tried, and where it was not.
    fn unproved_road(&self, plan: &Plan) -> Option<String> {
        match plan.road {
            RoadId::LiveWithout => {}
            // One that was confirmed here lasts as it was asked for.
            RoadId::IdentityGroups if self.unproved || plan.before_driver => {}
            RoadId::PeerMap | RoadId::AcsDirect if self.unproved => {}
            RoadId::PeerMap => {
                return Some(format!(
                    "{} was applied and taken back on real kernels of emulated machines, and by \
                     nobody on GPUs, on AMD's own hardware or under SNP; --unproved takes it all \
                     the same, and docs/peer-map-trial.md says what to measure",
                    plan.road
                ));
            }
            RoadId::AcsDirect => {
                return Some(format!(
                    "{} was applied and taken back on simulated hosts only: no emulator turns \
                     requests at a switch, and it was not measured on hardware; --unproved takes \
                     it all the same",
                    plan.road
                ));
            }
            RoadId::IdentityGroups => {
                return Some(format!(
                    "{} was applied and taken back on a real kernel of an emulated machine, through \
                     kills and power cuts too, and by nobody on GPUs; --unproved takes it all the same",
                    plan.road
                ));
            }
            other => {
                return Some(format!(
                    "{other} is not applied on a running host yet: it was proved on simulated \
                     hosts only, and not on a real kernel"
                ));
            }
        }
        None
    }
}
