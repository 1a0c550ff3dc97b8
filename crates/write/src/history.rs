//! What was done on this host, one transaction a line.

use serde::Serialize;

use crate::journal::{End, Entry, Journal, Way};

/// One transaction, by the published contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Its name.
    pub id: String,
    /// The road.
    pub road: String,
    /// Where it stands.
    pub state: String,
    /// Steps that were begun, in order.
    pub steps: Vec<StepRecord>,
    /// Time of day.
    pub began: String,
    /// Time of day; absent while it is not over.
    pub ended: Option<String>,
    /// Why it was taken back, or what stands in the way.
    pub why: Option<String>,
    /// Digest of the plan.
    pub plan: String,
}

/// One step that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepRecord {
    /// Number in the plan; 0: the safe environment, out of turn.
    pub number: u32,
    /// The act.
    pub op: String,
    /// The file that it writes, where it writes one.
    pub path: Option<String>,
    /// `forward` or `back`.
    pub way: Way,
    /// Whether it was finished and read back.
    pub done: bool,
}

/// Every transaction of a journal.
pub fn history(journal: &Journal<'_>) -> Vec<Record> {
    let mut records = Vec::new();
    for one in journal.transactions() {
        let Some((id, plan, _, began, _)) = one.begin() else { continue };
        let mut steps: Vec<StepRecord> = Vec::new();
        let (mut why, mut doubts): (Option<String>, Vec<&str>) = (None, Vec::new());
        for entry in one.entries() {
            match entry {
                Entry::Intent { step, way, act, .. } => steps.push(StepRecord {
                    number: *step,
                    op: act.word().to_owned(),
                    path: act.path(),
                    way: *way,
                    done: false,
                }),
                Entry::Done { step, way } => {
                    let own =
                        |record: &&mut StepRecord| record.number == *step && record.way == *way;
                    if let Some(record) = steps.iter_mut().rev().find(own) {
                        record.done = true;
                    }
                }
                Entry::TurningBack { why: text, .. } | Entry::Remains { why: text, .. } => {
                    why = Some(text.clone());
                }
                Entry::PendingHolder { holders } => why = Some(holders.join("; ")),
                Entry::Doubt { what } => doubts.push(what),
                _ => {}
            }
        }
        // Once it is back, what stood in the way is over.
        if let (Some((End::TakenBack, _)), Some((turned, _))) = (one.end(), one.turned_back()) {
            let doubts = doubts.iter().map(|what| format!("; not known: {what}"));
            why = Some(format!("{turned}{}", doubts.collect::<String>()));
        }
        records.push(Record {
            id: id.to_owned(),
            road: plan.road.word().to_owned(),
            state: one.state().word().to_owned(),
            steps,
            began: began.to_owned(),
            ended: one.end().map(|(_, ended)| ended.to_owned()),
            why,
            plan: plan.digest.clone(),
        });
    }
    records
}
