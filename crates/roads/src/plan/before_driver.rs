//! A plan that was confirmed, as it is carried out on a later boot before any driver binds: nothing is
//! unbound, and nothing is proved yet.

use peerway_core::observed::Observed;
use peerway_core::snapshot::Snapshot;
use thiserror::Error;

use super::fingerprint::{self, Difference};
use super::{MadeFor, Phase, Plan, Step, ports_of};
use crate::canonical;
use crate::id::RoadId;
use crate::op::{Environment, Op};

/// Sources that are other ones on every boot.
const OF_THE_BOOT: [&str; 1] = ["/proc/sys/kernel/random/boot_id"];

/// Why a plan is not carried out before the driver binds.
#[derive(Debug, Error)]
pub enum NotBefore {
    /// The road needs the driver.
    #[error("{0} needs the driver, so that it is not set before that binds")]
    Road(RoadId),
    /// The host is not the one that it was confirmed on.
    #[error(
        "{} was {} when the plan was confirmed and is {} now; make a new plan",
        .0.source, .0.planned.as_deref().unwrap_or("nothing"), .0.now.as_deref().unwrap_or("nothing")
    )]
    Differs(Box<Difference>),
    /// It is too late.
    #[error(
        "{device} has the driver {driver} already: it bound before this, perhaps in the initramfs"
    )]
    Bound {
        /// The function.
        device: String,
        /// Its driver.
        driver: String,
    },
    /// The plan could not be written down.
    #[error("cannot make the plan's digest: {0}")]
    Digest(#[from] serde_json::Error),
}

impl Plan {
    /// This plan for a boot on which no driver is bound to its devices yet: the safe environment and
    /// the types of the groups. Everything else that it rested on has to be as it was.
    pub fn before_driver(&self, snapshot: &Snapshot) -> Result<Self, NotBefore> {
        if self.road != RoadId::IdentityGroups {
            return Err(NotBefore::Road(self.road));
        }
        let fingerprint = fingerprint::values(snapshot, &self.goal, &ports_of(&self.steps), true);
        let rested: std::collections::BTreeMap<String, String> = self
            .fingerprint
            .iter()
            .filter(|(source, _)| fingerprint.contains_key(*source))
            .map(|(source, value)| (source.clone(), value.clone()))
            .collect();
        let differences = fingerprint::differences(&rested, &fingerprint);
        let other = differences.into_iter().find(|one| !OF_THE_BOOT.contains(&one.source.as_str()));
        if let Some(other) = other {
            return Err(NotBefore::Differs(Box::new(other)));
        }
        for device in &self.goal.devices {
            let members = self.group_members(*device).unwrap_or_default();
            for member in members.split(' ').filter_map(|member| member.parse().ok()) {
                let function = snapshot.device(member).filter(|function| !function.is_bridge());
                if let Some(Observed::Known(driver)) = function.map(|function| &function.driver) {
                    let (device, driver) = (member.to_string(), driver.clone());
                    return Err(NotBefore::Bound { device, driver });
                }
            }
        }
        let mut plan = Self {
            digest: String::new(),
            host_fingerprint: canonical::digest(&fingerprint)?,
            fingerprint,
            made_for: MadeFor {
                hostname: snapshot.origin.hostname.known().cloned(),
                boot_id: snapshot.origin.boot_id.known().cloned(),
                ..self.made_for.clone()
            },
            steps: self.steps.iter().filter(|step| stays(step)).cloned().collect(),
            canary: None,
            needs: Vec::new(),
            assumptions: Vec::new(),
            before_driver: true,
            ..self.clone()
        };
        for (step, number) in plan.steps.iter_mut().zip(1..) {
            step.number = number;
        }
        plan.digest = plan.compute_digest()?;
        Ok(plan)
    }
}

/// Steps that need no driver; the environment is lifted once data was seen to arrive.
fn stays(step: &Step) -> bool {
    match &step.act {
        Op::WriteEnvironment { kind: Environment::Safe, .. } => true,
        Op::WriteEnvironment { kind: Environment::Lifted, .. } => step.phase == Phase::Confirm,
        Op::WriteGroupType { .. } => true,
        _ => false,
    }
}
