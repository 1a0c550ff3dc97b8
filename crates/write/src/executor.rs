//! One loop for both directions: look, write down, act, read back, write down.
//!
//! It has no opinion: what is done stands in the plan, what is taken back stands in the journal.

use std::sync::atomic::{AtomicBool, Ordering};

use peerway_core::address::PciAddress;
use peerway_roads::Op;
use peerway_roads::op::Found;
use peerway_roads::plan::Step;
use rustix::io::Errno;
use thiserror::Error;

use crate::health;
use crate::journal::{Entry, Journal, JournalError, Transaction, Way};
use crate::mutator::{Host, WriteError, is_reached, spell};
use crate::scope;
use crate::store::StoreError;
use crate::transaction::{Ladder, Settings};
use crate::wait;

/// From 7.2 on a type is refused with EBUSY while a device of the group is being reset; resets
/// take a second at most, and are waited for this often.
const BUSY_TRIES: u32 = 5;
/// How often a place that cannot be read is read; each time may leave a reader behind.
const READ_TRIES: u32 = 3;

/// Why a step was not taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StepError {
    /// The host said no.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// What is in place is not what the plan expects.
    #[error("{act}: the plan expects {expected}, and there is {found}")]
    Unexpected {
        /// The act and the thing.
        act: String,
        /// By the plan.
        expected: String,
        /// There.
        found: String,
    },
    /// The call said yes, and reading back says no.
    #[error("{act}: the call succeeded, and reading back gives {found}")]
    NotTaken {
        /// The act and the thing.
        act: String,
        /// What is there.
        found: String,
    },
    /// What was waited for did not come.
    #[error("{what} did not come: {why}")]
    Waited {
        /// What.
        what: String,
        /// What was seen instead.
        why: String,
    },
    /// A signal asked to stop.
    #[error("interrupted by a signal")]
    Interrupted,
    /// What the act means stands in the journal, and is not there.
    #[error("{act}: the journal does not have what was there before")]
    NotJournaled {
        /// The act and the thing.
        act: String,
    },
    /// The journal could not be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl StepError {
    /// Whether the process is gone (simulated): nothing that follows may run.
    pub fn is_stop(&self) -> bool {
        matches!(
            self,
            Self::Write(WriteError::Stopped { .. })
                | Self::Journal(JournalError::Store(StoreError::Stopped))
        )
    }
}

/// Carries steps out.
pub struct Executor<'a, 's> {
    /// The host.
    pub host: &'a mut dyn Host,
    /// The journal.
    pub journal: &'a mut Journal<'s>,
    /// Set by a signal.
    pub interrupted: &'a AtomicBool,
    /// Last record of the kernel log before the part that runs now.
    pub mark: u64,
    /// What is tried where a device does not come back.
    pub ladder: Ladder,
}

impl std::fmt::Debug for Executor<'_, '_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Executor({:?})", self.journal)
    }
}

/// What is in place, in words.
pub(crate) fn words(found: &Found) -> &str {
    match found {
        Found::Nothing => "none",
        Found::Value(text) => text,
    }
}

impl<'a, 's> Executor<'a, 's> {
    /// One for a command that was set so.
    pub fn new(
        host: &'a mut dyn Host,
        journal: &'a mut Journal<'s>,
        settings: Settings<'a>,
    ) -> Self {
        let Settings { interrupted, ladder, .. } = settings;
        Self { host, journal, interrupted, mark: 0, ladder }
    }
}

impl Executor<'_, '_> {
    /// Sets the mark to where the kernel log ends now.
    pub fn set_mark(&mut self) -> Result<(), StepError> {
        self.mark = health::mark(self.host)?;
        Ok(())
    }

    /// Carries out steps of the plan.
    pub fn forward<'p>(
        &mut self,
        steps: impl IntoIterator<Item = &'p Step>,
    ) -> Result<(), (u32, StepError)> {
        for step in steps {
            if self.interrupted.load(Ordering::SeqCst) {
                return Err((step.number, StepError::Interrupted));
            }
            self.step(step.number, Way::Forward, &step.act, step.expect.as_deref())
                .map_err(|error| (step.number, error))?;
        }
        Ok(())
    }

    /// Takes one step, either way.
    pub fn step(
        &mut self,
        number: u32,
        way: Way,
        act: &Op,
        expect: Option<&str>,
    ) -> Result<(), StepError> {
        let result = self.attempt(number, way, act, expect);
        if let Err(error) = &result
            && !error.is_stop()
            && !matches!(error, StepError::Journal(_))
        {
            self.journal.append(Entry::Failed { step: number, way, why: error.to_string() })?;
        }
        result
    }

    fn attempt(
        &mut self,
        number: u32,
        way: Way,
        act: &Op,
        expect: Option<&str>,
    ) -> Result<(), StepError> {
        let real = self.meaning(act)?;
        let found = self.current(&real)?;
        if let Some(expected) = expect
            && words(&found) != expected
        {
            return Err(StepError::Unexpected {
                act: spell(act),
                expected: expected.to_owned(),
                found: words(&found).to_owned(),
            });
        }
        if way == Way::Forward && harms_holders(&real) && !is_reached(&real, &found) {
            self.nobody_holds()?;
        }
        self.journal.append(Entry::Intent {
            step: number,
            way,
            // Where the journal says that nothing is to be done, nothing is to be taken back.
            act: if real == Op::Nothing { Op::Nothing } else { act.clone() },
            found: found.clone(),
        })?;
        match &real {
            Op::Wait { until, seconds } => {
                let flag = (way == Way::Forward).then_some(self.interrupted);
                wait::wait(self.host, until, *seconds, self.mark, flag)?;
            }
            // What it does leaves nothing to read back.
            Op::Reset { .. } => self.perform(&real)?,
            real if is_reached(real, &found) => {}
            real => {
                self.perform(real)?;
                let now = self.current(real)?;
                if !is_reached(real, &now) {
                    return Err(StepError::NotTaken {
                        act: spell(real),
                        found: words(&now).to_owned(),
                    });
                }
            }
        }
        self.journal.append(Entry::Done { step: number, way })?;
        Ok(())
    }

    /// Asked before each act that would harm a holder, and not once for all: the control arm and the
    /// canary take minutes, in which a job may begin, and an unbinding with a user never returns.
    fn nobody_holds(&self) -> Result<(), StepError> {
        let open = self.journal.open_transaction();
        let Some((_, plan, ..)) = open.as_ref().and_then(Transaction::begin) else {
            return Ok(());
        };
        let held = wait::holders(self.host, &scope::reach(plan)).unwrap_or_else(|why| vec![why]);
        if held.is_empty() {
            return Ok(());
        }
        let what = "devices that nobody holds".to_owned();
        Err(StepError::Waited { what, why: format!("held by {}", held.join(", ")) })
    }

    /// What is in place. A host that is busy is asked again before the change turns back, or a step remains: a file
    /// that does not answer in time is one that cannot be read.
    fn current(&mut self, act: &Op) -> Result<Found, WriteError> {
        let mut tries = 1;
        loop {
            match self.host.current(act) {
                Err(WriteError::Unreadable { .. }) if tries < READ_TRIES => {
                    tries += 1;
                    self.host.pause(1);
                }
                result => return result,
            }
        }
    }

    fn perform(&mut self, act: &Op) -> Result<(), WriteError> {
        let mut tries = 1;
        loop {
            match self.host.perform(act) {
                Err(WriteError::Refused { errno: Errno::BUSY, .. })
                    if matches!(act, Op::WriteGroupType { .. }) && tries < BUSY_TRIES =>
                {
                    tries += 1;
                    self.host.pause(1);
                }
                result => return result,
            }
        }
    }

    /// An act whose meaning lies in what was found before, as one that says it.
    fn meaning(&self, act: &Op) -> Result<Op, StepError> {
        let missing = || StepError::NotJournaled { act: spell(act) };
        let here = self.journal.open_transaction().ok_or_else(missing)?;
        Ok(match act {
            Op::Restart { service } if here.ran_before(service) => {
                Op::Start { service: service.clone() }
            }
            Op::Restart { .. } => Op::Nothing,
            Op::Unfence { node } => {
                Op::Fence { node: node.clone(), mode: here.mode_before(node).ok_or_else(missing)? }
            }
            Op::RestorePersistence { device } => Op::Persistence {
                device: *device,
                on: here.persistence_before(*device).ok_or_else(missing)?,
            },
            other => other.clone(),
        })
    }
}

/// Whether an act would do harm to a process that has one of the devices open.
pub(crate) fn harms_holders(act: &Op) -> bool {
    match act {
        Op::Unbind { .. }
        | Op::Probe { .. }
        | Op::Reset { .. }
        | Op::SetOverride { .. }
        | Op::ClearOverride { .. }
        | Op::WriteGroupType { .. }
        | Op::WriteAcs { .. }
        | Op::Map(_)
        | Op::Unmap(_)
        | Op::UnloadModule { .. } => true,
        Op::WriteEnvironment { .. }
        | Op::RemoveEnvironment
        | Op::Stop { .. }
        | Op::Start { .. }
        | Op::Restart { .. }
        | Op::Fence { .. }
        | Op::Unfence { .. }
        | Op::Persistence { .. }
        | Op::RestorePersistence { .. }
        | Op::LoadModule { .. }
        | Op::Install { .. }
        | Op::Uninstall { .. }
        | Op::Wait { .. }
        | Op::Nothing => false,
    }
}

/// The device that an unbinding or binding concerns.
pub(crate) fn bound_device(act: &Op) -> Option<PciAddress> {
    match act {
        Op::Unbind { device, .. } | Op::Probe { device, .. } | Op::Reset { device } => {
            Some(*device)
        }
        _ => None,
    }
}
