//! The journal: one record a line, each chained to the one before by a checksum, and synced before
//! the act that it announces.
//!
//! A torn end (the process or the host went down while a record was written) is cut away when the
//! journal is opened: nothing was done on its account. A record that does not fit anywhere else is
//! damage, and nothing is done with a damaged journal.

mod state;

use peerway_core::address::PciAddress;
use peerway_roads::op::Found;
use peerway_roads::{Op, Outcome, Plan};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::store::{Store, StoreError};
use crate::untouched::Untouched;

pub use state::{Begun, State, Transaction};

/// Number of the journal's own format.
pub const JOURNAL_SCHEMA: u32 = 1;

/// Which way a step was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// As the plan has it.
    Forward,
    /// Its inverse.
    Back,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Verified and confirmed.
    Succeeded,
    /// Failed, not confirmed, or not wanted any more: the first state is back.
    TakenBack,
    /// The host was booted meanwhile: nothing that a transaction sets survives that.
    GoneWithBoot,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    /// A transaction begins; nothing was changed before.
    Begin {
        /// [`JOURNAL_SCHEMA`] of the writer.
        schema: u32,
        /// Its name.
        id: String,
        /// What is carried out, whole: recovery needs nothing else.
        plan: Box<Plan>,
        /// The boot.
        boot_id: Option<String>,
        /// Time of day.
        began: String,
        /// Seconds that the operator has to confirm.
        confirm_within: u64,
        /// What is compared of everybody else.
        untouched: Box<Untouched>,
    },
    /// A step is about to be taken.
    Intent {
        /// Its number in the plan; 0 for the safe environment that is written out of turn.
        step: u32,
        /// Which way.
        way: Way,
        /// The act as planned.
        act: Op,
        /// What was in place.
        found: Found,
    },
    /// It was taken, and read back.
    Done {
        /// Number.
        step: u32,
        /// Which way.
        way: Way,
    },
    /// It failed.
    Failed {
        /// Number.
        step: u32,
        /// Which way.
        way: Way,
        /// Why.
        why: String,
    },
    /// Verified; the operator has the word until then.
    Waiting {
        /// Seconds since boot.
        until: u64,
        /// Last record of the kernel log when the change was in place.
        mark: u64,
    },
    /// The operator gave the word; from here it goes on and not back.
    Confirmed,
    /// It is taken back from here.
    TurningBack {
        /// Why.
        why: String,
        /// How the outcome counts for later plans; absent where it says nothing about the road.
        outcome: Option<Box<Outcome>>,
    },
    /// Somebody holds a device, so that nothing more is taken back.
    PendingHolder {
        /// Who.
        holders: Vec<String>,
    },
    /// A device is about to be bound again. Until it is said how that went, what its driver says after
    /// this record of the kernel log speaks of it.
    Rising {
        /// Which.
        device: PciAddress,
        /// Its driver.
        driver: String,
        /// Last record of the kernel log before.
        mark: u64,
    },
    /// A device was bound again, and did not come up.
    Fallen {
        /// Which.
        device: PciAddress,
        /// Its driver.
        driver: String,
        /// What the driver says.
        why: String,
    },
    /// It was bound again, and its driver has nothing to complain of.
    Risen {
        /// Which.
        device: PciAddress,
    },
    /// A step cannot be taken back now.
    Remains {
        /// Which.
        step: u32,
        /// Why.
        why: String,
    },
    /// It was taken back, and this about it could not be told.
    Doubt {
        /// What.
        what: String,
    },
    /// Data was seen to arrive under a transaction that was over without: what waited for that goes
    /// on.
    Proved {
        /// Its name.
        id: String,
    },
    /// A transaction that was over is to be taken back after all.
    Reopened {
        /// Its name.
        id: String,
    },
    /// It is over.
    End {
        /// How.
        end: End,
        /// Time of day.
        ended: String,
        /// What is to be remembered about the road.
        outcome: Option<Box<Outcome>>,
    },
}

/// What a line begins with; its sum follows.
const HEAD: &str = "{\"sum\":\"";
/// What stands between the sum and the record.
const MIDDLE: &str = "\",\"entry\":";

/// Why a journal cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JournalError {
    /// It could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Not at its end, but inside, it is not what was written.
    #[error(
        "{place} is damaged at line {line}: {why}; nothing was done. Keep a copy, compare the host \
         with the records before that line, and move the file away once the host is as it should be"
    )]
    Damaged {
        /// The journal.
        place: String,
        /// Line, from 1.
        line: usize,
        /// What does not fit.
        why: String,
    },
    /// A record could not be written whole, nor cut away.
    #[error(
        "{0} ends in half a record that could not be cut away; mend its disk, then run recover"
    )]
    Broken(String),
    /// A record could not be rendered: a defect of this program.
    #[error("cannot render a record of the journal: {0}")]
    Render(String),
    /// Another transaction is not over.
    #[error("{0} has a transaction that is not over; run recover first")]
    AlreadyOpen(String),
    /// The records do not make sense in this order: a defect of this program.
    #[error("{0} has no open transaction")]
    NotOpen(String),
}

/// An open journal.
pub struct Journal<'s> {
    store: &'s mut dyn Store,
    entries: Vec<Entry>,
    sum: String,
    /// Bytes of the records that are whole.
    length: u64,
    /// Something stands behind them that could not be cut away.
    broken: bool,
}

impl std::fmt::Debug for Journal<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Journal({} records in {})", self.entries.len(), self.store.place())
    }
}

/// Sum of a record: 16 digits of SHA-256 over the sum before and the record's text.
fn sum_of(before: &str, entry: &str) -> String {
    let digest = Sha256::new().chain_update(before).chain_update(entry).finalize();
    let first = digest.iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    format!("{first:016x}")
}

fn render(before: &str, entry: &Entry) -> Result<(String, String), JournalError> {
    let text =
        serde_json::to_string(entry).map_err(|error| JournalError::Render(error.to_string()))?;
    let sum = sum_of(before, &text);
    Ok((sum.clone(), format!("{HEAD}{sum}{MIDDLE}{text}}}\n")))
}

/// Records with the last sum, and how many bytes of the text they are.
struct Parsed {
    entries: Vec<Entry>,
    sum: String,
    good: usize,
}

fn parse(bytes: &[u8], place: &str) -> Result<Parsed, JournalError> {
    let mut parsed = Parsed { entries: Vec::new(), sum: String::new(), good: 0 };
    let damaged = |line: usize, why: &str| JournalError::Damaged {
        place: place.to_owned(),
        line,
        why: why.to_owned(),
    };
    for (index, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let last = parsed.good + text.len() == bytes.len();
        match parse_line(&parsed.sum, text) {
            Ok((sum, entry)) => {
                parsed.sum = sum;
                parsed.entries.push(entry);
                parsed.good += text.len();
            }
            // Only a line without its end can be the torn one: the newline is written last.
            Err(_) if last && !text.ends_with(b"\n") => break,
            Err(why) => return Err(damaged(index + 1, &why)),
        }
    }
    Ok(parsed)
}

/// The sum is over the record's own bytes, so that it does not depend on how JSON is spelled.
fn parse_line(before: &str, text: &[u8]) -> Result<(String, Entry), String> {
    let text = text.strip_suffix(b"\n").ok_or("it has no end")?;
    let text = std::str::from_utf8(text).map_err(|_| "it is not text")?;
    let parts = text.strip_prefix(HEAD).and_then(|rest| rest.split_once(MIDDLE));
    let (sum, entry) = parts.ok_or("it is no record")?;
    let entry = entry.strip_suffix('}').ok_or("it is no record")?;
    if sum_of(before, entry) != sum {
        return Err("its checksum does not fit".to_owned());
    }
    let parsed = serde_json::from_str(entry).map_err(|error| error.to_string())?;
    Ok((sum.to_owned(), parsed))
}

impl<'s> Journal<'s> {
    /// Reads a journal, and cuts a torn end away.
    pub fn open(store: &'s mut dyn Store) -> Result<Self, JournalError> {
        let bytes = store.read()?;
        let parsed = parse(&bytes, &store.place())?;
        let length = u64::try_from(parsed.good).unwrap_or(0);
        if parsed.good < bytes.len() {
            store.truncate(length)?;
        }
        Ok(Self { store, entries: parsed.entries, sum: parsed.sum, length, broken: false })
    }

    /// Its records.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Where it is.
    pub fn place(&self) -> String {
        self.store.place()
    }

    /// Appends a record; it is on the disk when this comes back.
    pub fn append(&mut self, entry: Entry) -> Result<(), JournalError> {
        if self.broken {
            return Err(JournalError::Broken(self.store.place()));
        }
        // Records belong to the transaction that was opened last: a second open one would get the
        // first one's.
        let opens =
            matches!(entry, Entry::Begin { .. } | Entry::Reopened { .. } | Entry::Proved { .. });
        if opens && self.open_transaction().is_some() {
            return Err(JournalError::AlreadyOpen(self.store.place()));
        }
        let (sum, text) = render(&self.sum, &entry)?;
        if let Err(error) = self.store.append(text.as_bytes()) {
            // Half of the record, or all of it, may be there: what is appended behind it would
            // never be read again. A process that is gone cuts nothing; the next one does.
            if !matches!(error, StoreError::Stopped) {
                self.broken = self.store.truncate(self.length).is_err();
            }
            return Err(error.into());
        }
        self.length = self.length.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
        self.sum = sum;
        self.entries.push(entry);
        Ok(())
    }

    /// Makes sure that so many bytes can still be appended.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), JournalError> {
        Ok(self.store.reserve(bytes)?)
    }

    /// Every transaction, oldest first.
    pub fn transactions(&self) -> Vec<Transaction<'_>> {
        state::transactions(&self.entries)
    }

    /// The transaction that is not over.
    pub fn open_transaction(&self) -> Option<Transaction<'_>> {
        self.transactions().into_iter().rev().find(|one| one.end().is_none())
    }

    /// A name for the next transaction.
    pub fn next_id(&self) -> String {
        format!("t{:06}", self.transactions().len() + 1)
    }

    /// What earlier transactions say about roads here.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let outcome = |entry: &Entry| match entry {
            Entry::End { outcome: Some(outcome), .. } => Some((**outcome).clone()),
            _ => None,
        };
        self.entries.iter().filter_map(outcome).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn entries() -> Vec<Entry> {
        vec![
            Entry::Intent { step: 1, way: Way::Forward, act: Op::Nothing, found: Found::Nothing },
            Entry::Done { step: 1, way: Way::Forward },
            Entry::Failed { step: 2, way: Way::Back, why: "a \"reason\"\nof two lines".to_owned() },
            Entry::Confirmed,
        ]
    }

    fn written() -> Vec<u8> {
        let mut store = MemoryStore::default();
        let mut journal = Journal::open(&mut store).unwrap();
        for entry in entries() {
            journal.append(entry).unwrap();
        }
        store.bytes()
    }

    #[test]
    fn cut_at_any_byte_it_holds_a_beginning_of_what_was_written() {
        let bytes = written();
        for length in 0..=bytes.len() {
            let mut store = MemoryStore::with(bytes[..length].to_vec());
            let journal = Journal::open(&mut store).unwrap();
            let count = bytes[..length].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(journal.entries(), &entries()[..count], "cut at {length}");
        }
    }

    #[test]
    fn after_a_cut_it_goes_on() {
        let bytes = written();
        let mut store = MemoryStore::with(bytes[..bytes.len() - 3].to_vec());
        let mut journal = Journal::open(&mut store).unwrap();
        journal.append(Entry::Confirmed).unwrap();
        assert_eq!(store.bytes(), bytes);
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let bytes = written();
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            let mut store = MemoryStore::with(changed);
            let read = Journal::open(&mut store).map(|journal| journal.entries().len());
            // The newline at the very end is the one byte that can be lost and not changed.
            let torn = index == bytes.len() - 1;
            assert!(matches!(read, Err(JournalError::Damaged { .. })) || torn, "byte {index}");
        }
    }

    #[test]
    fn lines_that_are_missing_are_noticed() {
        let bytes = written();
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        for missing in 0..lines.len() - 1 {
            let rest: Vec<&[u8]> = [&lines[..missing], &lines[missing + 1..]].concat();
            let mut store = MemoryStore::with(rest.concat());
            let error = Journal::open(&mut store).unwrap_err();
            assert!(error.to_string().contains(&format!("line {}", missing + 1)), "{error}");
        }
    }
}
