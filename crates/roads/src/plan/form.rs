//! The form of a plan: which acts each road has, and in which part. A digest says that a file is
//! whole; what it asks for is held to what a plan of its road can ask for.

use super::{Invalid, Phase, Plan};
use crate::id::RoadId;
use crate::lasting;
use crate::op::{Environment, Op, PEER_MAP_MODULE};
use crate::operator::environment;

impl Plan {
    /// Whether a step changes how a device is reached, whatever the plan calls itself: such a change
    /// is proved by copies, and needs the operator's word.
    pub fn changes_devices(&self) -> bool {
        self.steps.iter().any(|step| {
            matches!(
                step.act,
                Op::Map(_)
                    | Op::WriteGroupType { .. }
                    | Op::WriteAcs { .. }
                    | Op::SetOverride { .. }
                    | Op::Unbind { .. }
                    | Op::Probe { .. }
            )
        })
    }

    /// The same where the proof belongs to the change itself: before a driver is bound nothing can
    /// copy, and nobody is let in until something did.
    pub fn proves_at_once(&self) -> bool {
        self.changes_devices() && !self.before_driver
    }
}

pub(super) fn check(plan: &Plan) -> Result<(), Invalid> {
    let whole = |why| Err(Invalid::Whole { road: plan.road, why });
    for step in &plan.steps {
        if !fits(plan, step.phase, &step.act) {
            return Err(Invalid::Form { number: step.number, road: plan.road });
        }
    }
    let safe = |act: &Op| matches!(act, Op::WriteEnvironment { kind: Environment::Safe, .. });
    if !plan.steps.first().is_some_and(|step| safe(&step.act)) {
        return whole("does not begin with the safe environment");
    }
    let lifts = |act: &Op| matches!(act, Op::WriteEnvironment { kind: Environment::Lifted, .. });
    let lifted = plan.steps.iter().any(|step| lifts(&step.act));
    if plan.changes_devices() && !lifted {
        return whole("changes devices and does not wait for your word");
    }
    let answered = |act: &Op| match act {
        Op::Stop { service } => Some(Op::Restart { service: service.clone() }),
        Op::Persistence { device, .. } => Some(Op::RestorePersistence { device: *device }),
        Op::Fence { node, .. } => Some(Op::Unfence { node: node.clone() }),
        _ => None,
    };
    let has = |wanted: &Op| plan.steps.iter().any(|step| step.act == *wanted);
    if plan.steps.iter().filter_map(|step| answered(&step.act)).any(|wanted| !has(&wanted)) {
        return whole("stops, fences or switches off what it does not give back");
    }
    if plan.canary.is_some() != plan.proves_at_once() {
        return whole("does not try its change on one device first");
    }
    Ok(())
}

/// Whether a road has an act in a part.
fn fits(plan: &Plan, phase: Phase, act: &Op) -> bool {
    use Phase::{Canary, Confirm, Control, Prepare, Rest};
    let road = plan.road;
    let changes = matches!(road, RoadId::PeerMap | RoadId::IdentityGroups | RoadId::AcsDirect);
    let on_devices = matches!(phase, Canary | Rest);
    if plan.before_driver && (road != RoadId::IdentityGroups || !stays(act)) {
        return false;
    }
    match act {
        Op::WriteEnvironment { kind: Environment::Safe, content } => {
            phase == Prepare && *content == environment::safe_file()
        }
        Op::WriteEnvironment { kind: Environment::Lifted, content } => {
            changes && phase == Confirm && environment::is_lifted(content)
        }
        Op::Install { path, mode, .. } => phase == Confirm && lasting::mode_of(path) == Some(*mode),
        Op::Wait { .. } => changes,
        Op::Stop { .. } | Op::Persistence { on: false, .. } => changes && phase == Prepare,
        Op::Fence { mode, .. } => changes && phase == Prepare && *mode == 0,
        Op::Unfence { .. } | Op::RestorePersistence { .. } | Op::Restart { .. } => {
            changes && phase == Confirm
        }
        Op::LoadModule { module } => {
            road == RoadId::PeerMap && phase == Prepare && module == PEER_MAP_MODULE
        }
        Op::Map(_) => road == RoadId::PeerMap && on_devices,
        Op::WriteAcs { .. } => road == RoadId::AcsDirect && on_devices,
        Op::WriteGroupType { to, .. } => {
            road == RoadId::IdentityGroups && on_devices && to == "identity"
        }
        Op::SetOverride { .. }
        | Op::ClearOverride { .. }
        | Op::Unbind { .. }
        | Op::Probe { .. } => road == RoadId::IdentityGroups && (on_devices || phase == Control),
        // Of these a plan has the inverses only, and what brings a device back.
        Op::Reset { .. }
        | Op::Start { .. }
        | Op::Persistence { on: true, .. }
        | Op::RemoveEnvironment
        | Op::Uninstall { .. }
        | Op::UnloadModule { .. }
        | Op::Unmap(_)
        | Op::Nothing => false,
    }
}

/// What is left of a plan before the driver binds.
fn stays(act: &Op) -> bool {
    matches!(act, Op::WriteEnvironment { .. } | Op::WriteGroupType { .. })
}
