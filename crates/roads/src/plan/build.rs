//! Parts that plans share: preparation, confirmation, assumptions, who is protected.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::tenant::TenantId;

use super::{Assumption, Need, Phase, Protected, Step};
use crate::gate::Passed;
use crate::gates::{driver, tenants};
use crate::id::RoadId;
use crate::op::{Environment, Found, Op, Until};
use crate::operator::environment;
use crate::scene::Scene;

/// Two scans with a wait between, after a container had time to end.
pub(super) const NO_HOLDERS_SECONDS: u32 = 60;
/// A GPU with its firmware takes tens of seconds to come up; twice that is no slow start any more.
pub(super) const HEALTHY_SECONDS: u32 = 120;
/// Files of sysfs and procfs follow within moments.
pub(super) const SETTLED_SECONDS: u32 = 10;

/// A plan that grows.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) steps: Vec<Step>,
    pub(super) after: BTreeMap<String, String>,
    pub(super) canary: Option<PciAddress>,
    pub(super) needs: Vec<Need>,
    pub(super) assumptions: Vec<Assumption>,
}

/// What a step expects.
pub(crate) enum Expect {
    /// This, by the snapshot.
    Read(Found),
    /// The run finds out; the inverse is shown for this case.
    AtRun(Found),
}

impl Expect {
    pub(super) fn value(text: impl Into<String>) -> Self {
        Self::Read(Found::Value(text.into()))
    }

    pub(super) fn run(text: &str) -> Self {
        Self::AtRun(Found::Value(text.to_owned()))
    }
}

impl Draft {
    /// Adds a step.
    pub(crate) fn push(&mut self, phase: Phase, act: Op, expect: Expect) {
        let (found, shown) = match expect {
            Expect::Read(found) => {
                let text = match &found {
                    Found::Nothing => "none".to_owned(),
                    Found::Value(text) => text.clone(),
                };
                (found, Some(text))
            }
            Expect::AtRun(found) => (found, None),
        };
        let (inverse, irreversible) = match act.inverse(&found) {
            Ok(inverse) => (Some(inverse), None),
            Err(error) => (None, Some(error.to_string())),
        };
        self.steps.push(Step {
            number: u32::try_from(self.steps.len() + 1).unwrap_or(u32::MAX),
            phase,
            op: act.word().to_owned(),
            path: act.path(),
            expect: shown,
            set: act.set(),
            act,
            inverse,
            irreversible,
        });
    }

    /// Adds a wait.
    pub(super) fn wait(&mut self, phase: Phase, until: Until, seconds: u32) {
        self.push(phase, Op::Wait { until, seconds }, Expect::AtRun(Found::Nothing));
    }

    pub(super) fn need(&mut self, text: impl Into<String>, checked_by: &str) {
        self.needs.push(Need { text: text.into(), checked_by: checked_by.to_owned() });
    }

    pub(super) fn assume(&mut self, text: impl Into<String>, checked_by: &str, result: Passed) {
        self.assumptions.push(Assumption {
            text: text.into(),
            checked_by: checked_by.to_owned(),
            result,
        });
    }

    /// The safe environment, before anything else.
    pub(super) fn safe_environment(&mut self) {
        let act =
            Op::WriteEnvironment { kind: Environment::Safe, content: environment::safe_file() };
        self.push(Phase::Prepare, act, Expect::AtRun(Found::Nothing));
    }

    /// Safe environment, nobody on the devices, fence.
    pub(super) fn prepare(&mut self, scene: &Scene<'_>) {
        self.safe_environment();
        for service in scene.stops() {
            let act = Op::Stop { service: service.clone() };
            self.push(Phase::Prepare, act, Expect::run("running"));
        }
        if scene.stops().is_empty() {
            let own: Vec<String> = scene
                .holders()
                .filter(|holder| !tenants::is_persistence_daemon(holder))
                .map(|holder| format!("{} ({})", holder.pid, holder.command))
                .collect();
            if !own.is_empty() {
                self.need(
                    format!(
                        "stop what holds the devices: processes {}; or name it, so that the plan \
                         does (--stop unit:NAME)",
                        own.join(", ")
                    ),
                    "apply: the step that waits until nobody holds the devices",
                );
            }
        }
        for device in driver::nvidia(scene) {
            let act = Op::Persistence { device: device.address, on: false };
            self.push(Phase::Prepare, act, Expect::run("on"));
        }
        let devices = scene.devices().iter().map(|device| device.address).collect();
        self.wait(Phase::Prepare, Until::NoHolders { devices }, NO_HOLDERS_SECONDS);
        for node in nodes(scene) {
            self.push(Phase::Prepare, Op::Fence { node, mode: 0 }, Expect::run("438"));
        }
        self.need(
            "units that use the devices take EnvironmentFile=/run/peerway/p2p.env (without a \
             leading -), and containers refuse to start without that file",
            "peerway roads shows which do not",
        );
    }

    /// What follows the operator's word: fence down, environment lifted, services started.
    pub(super) fn confirm(&mut self, scene: &Scene<'_>, road: RoadId) {
        for node in nodes(scene) {
            self.push(Phase::Confirm, Op::Unfence { node }, Expect::run("0"));
        }
        for device in driver::nvidia(scene) {
            let act = Op::RestorePersistence { device: device.address };
            self.push(Phase::Confirm, act, Expect::run("off"));
        }
        let act = Op::WriteEnvironment {
            kind: Environment::Lifted,
            content: environment::lifted_file(scene, road),
        };
        self.push(Phase::Confirm, act, Expect::value(environment::safe_file()));
        for service in scene.stops() {
            let act = Op::Restart { service: service.clone() };
            self.push(Phase::Confirm, act, Expect::AtRun(Found::Nothing));
        }
    }

    /// What every change of the host's devices takes for granted about others.
    pub(super) fn assume_others(&mut self, scene: &Scene<'_>) {
        let others: Vec<String> = scene.protected().iter().map(ToString::to_string).collect();
        self.assume(
            "the groups are independent: a change of one leaves every other as it is",
            "plan: the groups' members are nobody else's; apply: type, driver and members of every \
             other group, before and after",
            Passed::Unknown,
        );
        self.assume(
            if others.is_empty() {
                "there is no other tenant to affect".to_owned()
            } else {
                format!("{} stay unaffected", others.join(", "))
            },
            "plan: no step names what is theirs; apply: group, type, driver, holders, ACS and \
             command bits, BARs, power, fault counters and run state, before and after",
            if others.is_empty() { Passed::Yes } else { Passed::Unknown },
        );
    }
}

/// Nodes of the goal's GPUs.
fn nodes(scene: &Scene<'_>) -> Vec<String> {
    driver::nvidia(scene)
        .filter_map(|device| minor(scene, device.address))
        .map(|minor| format!("/dev/nvidia{minor}"))
        .collect()
}

/// The number of a GPU's node.
pub(super) fn minor(scene: &Scene<'_>, device: PciAddress) -> Option<u32> {
    let gpus = scene.snapshot().nvidia.gpus.known()?;
    gpus.iter().find(|gpu| gpu.address == device)?.minor.known().copied()
}

/// Tenants that are not touched, with what is theirs.
pub(super) fn protects(scene: &Scene<'_>) -> Vec<Protected> {
    of_tenants(scene.snapshot(), scene.protected().iter())
}

/// Some tenants, with what is theirs.
pub(super) fn of_tenants<'a>(
    snapshot: &Snapshot,
    tenants: impl Iterator<Item = &'a TenantId>,
) -> Vec<Protected> {
    let mut devices: BTreeMap<TenantId, BTreeSet<PciAddress>> =
        tenants.map(|tenant| (tenant.clone(), BTreeSet::new())).collect();
    for claim in &snapshot.claims {
        if let Some(own) = devices.get_mut(&claim.tenant) {
            own.insert(claim.device);
        }
    }
    for device in snapshot.accelerated() {
        if let Some(tenant) = snapshot.tenant_of(device)
            && let Some(own) = devices.get_mut(&tenant)
        {
            own.insert(device.address);
        }
    }
    devices
        .into_iter()
        .map(|(tenant, devices)| {
            let groups: BTreeSet<u32> = devices
                .iter()
                .filter_map(|address| snapshot.device(*address)?.group.known().copied())
                .collect();
            Protected {
                tenant,
                devices: devices.into_iter().collect(),
                groups: groups.into_iter().collect(),
            }
        })
        .collect()
}
