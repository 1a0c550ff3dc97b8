//! What could not be read never makes data arrive.

use std::collections::BTreeMap;

use peerway_core::judge::Verdict;
use serde_json::Value;

use crate::facts::{Facts, arrives, hosts, verdicts};

/// Kinds of facts without which a pair may be said to work although another value of them would
/// decide, each with the reason.
const EXCUSED: [(&str, &str); 6] = [
    ("kernel.iommu_dma_ops", "follows from the release, which is read beside it"),
    ("devices.config", "a sleeping endpoint is left alone; its ports are awake and decide"),
    // Open: the judge takes these for what they mostly are.
    ("cpu.flags", "a host whose flags cannot be read is taken for no guest"),
    ("iommu.units", "identity without a known IOMMU is taken for plain pass-through"),
    ("nvidia.params", "unread parameters are taken for stock ones"),
    ("nvidia.version", "an unread version is taken for a stock driver"),
];

fn is_excused(kind: &str) -> bool {
    EXCUSED.iter().any(|(excused, _)| *excused == kind)
}

/// Of how many devices of a host a kind of fact is tried: they are much alike.
const ALIKE: u32 = 6;

#[test]
fn taking_a_fact_away_never_makes_data_arrive() {
    // The first offence of each kind of fact.
    let mut offences = BTreeMap::new();
    for (name, snapshot) in hosts() {
        let facts = Facts::of(&snapshot);
        let before = verdicts(&snapshot);
        let mut tried: BTreeMap<String, u32> = BTreeMap::new();
        for fact in facts.list() {
            let kind = fact.kind();
            if !fact.is_read() || is_excused(&kind) || offences.contains_key(&kind) {
                continue;
            }
            let tried = tried.entry(kind.clone()).or_default();
            *tried += 1;
            if *tried > ALIKE {
                continue;
            }
            let after = verdicts(&facts.with(&fact, fact.taken_away()).unwrap());
            let worse = after.iter().find(|(ends, pair)| {
                let before = before.get(ends);
                arrives(pair.verdict) && before.is_some_and(|before| !arrives(before.verdict))
            });
            if let Some((ends, pair)) = worse {
                offences.insert(kind, format!("{name} {ends:?}: {}", pair.reason));
            }
        }
    }
    assert!(offences.is_empty(), "{offences:#?}");
}

/// The values that each kind of fact has on the hosts; of facts that hold others, such as a whole
/// configuration space, as many as tell apart what is inside.
fn pool() -> BTreeMap<String, Vec<Value>> {
    const MOST: usize = 12;
    let mut pool: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (_, snapshot) in hosts() {
        for fact in Facts::of(&snapshot).list() {
            let values = pool.entry(fact.kind()).or_default();
            if fact.is_read() && values.len() < MOST && !values.contains(&fact.value) {
                values.push(fact.value);
            }
        }
    }
    pool
}

#[test]
fn what_works_does_not_rest_on_what_was_not_read() {
    let pool = pool();
    let mut offences: BTreeMap<String, String> = BTreeMap::new();
    for (name, snapshot) in hosts() {
        let facts = Facts::of(&snapshot);
        let mut tried: BTreeMap<String, u32> = BTreeMap::new();
        for fact in facts.list() {
            let kind = fact.kind();
            if is_excused(&kind) || offences.contains_key(&kind) {
                continue;
            }
            let tried = tried.entry(kind.clone()).or_default();
            *tried += 1;
            if *tried > ALIKE {
                continue;
            }
            let without = verdicts(&facts.with(&fact, fact.taken_away()).unwrap());
            let trusted: Vec<_> = without
                .iter()
                .filter(|(_, pair)| pair.verdict == Verdict::Works)
                .map(|(ends, _)| *ends)
                .collect();
            if trusted.is_empty() {
                continue;
            }
            for value in pool.get(&kind).into_iter().flatten() {
                let Some(other) = facts.with(&fact, value.clone()) else { continue };
                let other = verdicts(&other);
                let fooled = trusted
                    .iter()
                    .filter_map(|ends| other.get(ends))
                    .find(|pair| !arrives(pair.verdict));
                if let Some(pair) = fooled {
                    let ends = (pair.from, pair.to);
                    offences.insert(
                        kind.clone(),
                        format!(
                            "{name} {ends:?}: {:?} with {value} ({})",
                            pair.verdict, pair.reason
                        ),
                    );
                    break;
                }
            }
        }
    }
    assert!(offences.is_empty(), "{offences:#?}");
}
