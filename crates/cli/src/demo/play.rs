//! A simulated host with its journal, on which the acts are played.

use std::sync::atomic::AtomicBool;

use peerway_cli_read::commands::roads::with_request;
use peerway_cli_read::text::wrap;
use peerway_core::diagnose::Diagnosis;
use peerway_core::diagnose::pairs::PairScope;
use peerway_core::observed::Observed;
use peerway_core::snapshot::Snapshot;
use peerway_read::root::SMALL;
use peerway_roads::op::ENVIRONMENT_FILE;
use peerway_roads::plan::Phase;
use peerway_roads::{Constraints, Knowledge, Plan, Road, RoadId};
use peerway_sim::react::SimHost;
use peerway_write::WriteGrant;
use peerway_write::grant::Place;
use peerway_write::history::{Record, history};
use peerway_write::journal::{Entry, Journal, Way};
use peerway_write::store::MemoryStore;
use peerway_write::transaction::{Ladder, Settings, TransactionError};

use super::DemoError;

/// Seconds in which the operator of the story has to confirm.
const CONFIRM_WITHIN: u64 = 600;

pub(super) struct Stage {
    name: &'static str,
    pub(super) host: SimHost,
    store: MemoryStore,
    /// The environment for jobs before anything was done.
    pub(super) environment: Option<String>,
}

impl Stage {
    /// The simulated host of a name, untouched.
    pub(super) fn new(name: &'static str) -> Result<Self, DemoError> {
        let broken = |why: String| DemoError::Host { name, why };
        let host = SimHost::named(name)
            .ok_or_else(|| broken("there is none".to_owned()))?
            .map_err(|error| broken(error.to_string()))?;
        let environment = host.root().text(ENVIRONMENT_FILE, SMALL).ok();
        Ok(Self { name, host, store: MemoryStore::default(), environment })
    }

    /// What it looks like now.
    pub(super) fn look(&self) -> (Snapshot, Diagnosis) {
        let snapshot = self.host.snapshot();
        let scope = PairScope { across_tenants: false, nics: false, nvme: false };
        let diagnosis = peerway_core::diagnose::diagnose(&snapshot, &scope);
        (snapshot, diagnosis)
    }

    /// A plan for a road, with the hazard of unbinding accepted.
    pub(super) fn plan(&self, id: RoadId) -> Result<Plan, DemoError> {
        let (snapshot, diagnosis) = self.look();
        let mut constraints = Constraints::default();
        constraints.accepted.unbind_hazard = true;
        let knowledge = Knowledge::builtin();
        let made = with_request(&snapshot, &diagnosis, &constraints, &knowledge, |request| {
            peerway_roads::plan(request, id)
        });
        Ok(made?)
    }

    /// The roads now, with what the journal remembers.
    pub(super) fn roads(&mut self) -> Result<Vec<Road>, DemoError> {
        let (snapshot, diagnosis) = self.look();
        let mut knowledge = Knowledge::builtin();
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method has the journal's lifetime in its path, and any will do here"
        )]
        let outcomes = self.journal(|journal| journal.outcomes())?;
        knowledge.remember(&Observed::Known(outcomes));
        let constraints = Constraints::default();
        with_request(&snapshot, &diagnosis, &constraints, &knowledge, peerway_roads::roads)
            .map(|roads| roads.roads)
            .map_err(|error| self.other_way(error.to_string()))
    }

    /// One changing command.
    pub(super) fn act<T>(
        &mut self,
        command: impl FnOnce(WriteGrant<'_>, &mut SimHost, Settings<'_>) -> Result<T, TransactionError>,
    ) -> Result<T, DemoError> {
        let flag = AtomicBool::new(false);
        let settings =
            Settings { confirm_within: CONFIRM_WITHIN, interrupted: &flag, ladder: Ladder::Leave };
        let grant =
            WriteGrant::take(&mut self.store, Place::Simulated).map_err(TransactionError::from)?;
        Ok(command(grant, &mut self.host, settings)?)
    }

    /// The last transaction, and how many values of everybody else were compared.
    pub(super) fn last(&mut self) -> Result<(Record, usize), DemoError> {
        let found = self.journal(|journal| {
            let compared = journal.transactions().last().and_then(|one| {
                one.entries().iter().find_map(|entry| match entry {
                    Entry::Begin { untouched, .. } => Some(untouched.values.len()),
                    _ => None,
                })
            });
            history(journal).pop().zip(compared)
        })?;
        found.ok_or_else(|| self.other_way("no transaction was begun".to_owned()))
    }

    fn journal<T>(&mut self, ask: impl FnOnce(&Journal<'_>) -> T) -> Result<T, DemoError> {
        let journal = Journal::open(&mut self.store).map_err(TransactionError::from)?;
        Ok(ask(&journal))
    }

    /// The story is another than the one to be told.
    pub(super) fn other_way(&self, what: String) -> DemoError {
        DemoError::OtherWay { host: self.name, what }
    }
}

/// The plan in a few lines; `peerway plan` shows every step.
pub(super) fn summary(plan: &Plan) -> String {
    let mut out = String::new();
    let mut last = None;
    for step in &plan.steps {
        if last != Some(step.phase) {
            let steps = plan.steps.iter().filter(|one| one.phase == step.phase).count();
            let text =
                format!("{}: {steps} steps, such as {}: {}", name(step.phase), step.op, step.set);
            out.push_str(&wrap(&text, "  ", "    "));
        }
        last = Some(step.phase);
    }
    let protects: Vec<&str> = plan.protects.iter().map(|one| one.tenant.0.as_str()).collect();
    out.push_str(&wrap(&format!("untouched: {}", protects.join(" ")), "  ", "    "));
    out
}

/// What was done, phase by phase, and how far the way back went.
pub(super) fn done(plan: &Plan, record: &Record) -> String {
    let mut out = String::new();
    for phase in [Phase::Prepare, Phase::Control, Phase::Canary, Phase::Rest, Phase::Confirm] {
        let of: Vec<u32> =
            plan.steps.iter().filter(|step| step.phase == phase).map(|step| step.number).collect();
        let ran = record.steps.iter().filter(|step| step.way == Way::Forward && step.done);
        let ran = ran.filter(|step| of.contains(&step.number)).count();
        if ran > 0 {
            let text = format!("{}: {ran} of {} steps done", name(phase), of.len());
            out.push_str(&wrap(&text, "  ", "    "));
        }
    }
    let back = record.steps.iter().filter(|step| step.way == Way::Back && step.done).count();
    if back > 0 {
        out.push_str(&wrap(&format!("taken back: {back} steps, the last first"), "  ", "    "));
    }
    out
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Prepare => "prepare",
        Phase::Control => "control arm",
        Phase::Canary => "canary",
        Phase::Rest => "the rest",
        Phase::Confirm => "confirm",
    }
}
