//! Verdict and fact of every ordered pair.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use peerway_lab_protocol::{Probe, Verdict};

use super::super::boot::Report;
use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::scenario::{probes_of, routes, short, sides};
use super::document::{self, Diagnosis, Pair};
use super::{boot, diagnoses};

/// The code of a verdict that rests on requests turning in a switch, which the emulator never lets them.
const TURNS_IN_SWITCH: &str = "PW0212";

/// Verdicts by kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) works: usize,
    pub(super) broken: usize,
    pub(super) unknown: usize,
    /// Works, because the request turns in a switch: not comparable here.
    pub(super) in_switch: usize,
}

/// Machines whose paths or settings differ, with the verdicts that are expected among all pairs.
const MACHINES: [(&str, &[&str], Counts); 5] = [
    ("iommu-off", &[], Counts { works: 56, broken: 0, unknown: 0, in_switch: 0 }),
    ("passthrough", &[], Counts { works: 28, broken: 0, unknown: 28, in_switch: 0 }),
    ("switch", &[], Counts { works: 0, broken: 4, unknown: 0, in_switch: 2 }),
    ("no-acs", &[], Counts { works: 0, broken: 12, unknown: 0, in_switch: 0 }),
    ("sides", &["--with", "nic,nvme"], Counts { works: 0, broken: 28, unknown: 44, in_switch: 0 }),
];

/// On each of them: what the kernel is expected to do, and what the product says of it.
pub(super) fn machines(kernel: &Kernel) -> Result<Facts> {
    let mut facts = Facts::default();
    for (name, more, expected) in MACHINES {
        let machine = Machine::named(name)?;
        if !machine.fits(kernel.platform.emulator) {
            facts.say(format!("Machine `{name}`: {}.", routes::WITHOUT));
            continue;
        }
        let arrives = routes::MACHINES.iter().find(|(of, _)| *of == name);
        let steps = if arrives.is_some() { routes::steps() } else { sides::steps() };
        let report = boot(kernel, &machine)?.steps(diagnoses("said", more)).steps(steps).run()?;
        match arrives {
            Some((_, arrives)) => routes::judge(&mut facts, &machine, *arrives, &report)?,
            None => sides::judge(&mut facts, &report)?,
        }
        let matrix = probes_of(&report, "matrix")?;
        let held = held(&machine);
        let found = compare(&mut facts, name, &report, "said all", &matrix, &held)?;
        facts.expect(&format!("{name}: verdicts"), &found, &expected);
    }
    Ok(facts)
}

/// Accelerators that VFIO has on a machine.
pub(super) fn held(machine: &Machine) -> BTreeSet<String> {
    let all = machine.bindings().into_iter().filter(|binding| binding.driver == "vfio-pci");
    all.map(|binding| binding.address).collect()
}

/// Holds every verdict of a diagnosis against the copy of the same pair; tells how many there were of
/// each kind.
pub(super) fn compare(
    facts: &mut Facts,
    what: &str,
    report: &Report,
    step: &str,
    probes: &[Probe],
    held: &BTreeSet<String>,
) -> Result<Counts> {
    let said: Diagnosis = document::of(report, step)?;
    let copies: BTreeMap<(&str, &str), &Probe> =
        probes.iter().map(|probe| ((probe.from.as_str(), probe.to.as_str()), probe)).collect();
    let mut counts = Counts::default();
    let mut rows: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for pair in &said.pairs {
        let copy = copies.get(&(pair.from.as_str(), pair.to.as_str())).copied();
        let agrees = judge(&mut counts, pair, copy, held);
        let name = format!("{what}, {step}: {} to {}", pair.from, pair.to);
        let fact = copy.map_or_else(|| "no copy".to_owned(), short);
        let shown = format!("{} {} {}", pair.verdict, pair.codes.join(" "), pair.reason);
        facts.expect(&format!("{name}: {shown}, and the copy: {fact}; they agree"), &agrees, &true);
        let codes = pair.codes.first().cloned().unwrap_or_default();
        *rows.entry((pair.verdict.clone(), codes, fact)).or_default() += 1;
    }
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|((verdict, code, fact), count)| vec![verdict, code, fact, count.to_string()])
        .collect();
    facts.say(format!("What the product said on `{what}` (`{step}`), and what the copies did:"));
    facts.table(&["verdict", "code", "copy", "pairs"], &rows);
    Ok(counts)
}

/// Whether a verdict and a copy go together.
fn judge(counts: &mut Counts, pair: &Pair, copy: Option<&Probe>, held: &BTreeSet<String>) -> bool {
    let fact = copy.map(|probe| probe.verdict);
    let in_switch = pair.codes.first().is_some_and(|code| code == TURNS_IN_SWITCH);
    let count = match pair.verdict.as_str() {
        "works" if in_switch => &mut counts.in_switch,
        "works" => &mut counts.works,
        "broken" => &mut counts.broken,
        "unknown" => &mut counts.unknown,
        _ => return false,
    };
    *count += 1;
    match pair.verdict.as_str() {
        "works" if in_switch => true,
        "works" => fact == Some(Verdict::Intact),
        "broken" => fact == Some(Verdict::Damaged),
        // Only what somebody else decides, or what nobody declared, may be left open.
        _ => held.contains(&pair.from) || copy.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(verdict: &str, code: &str, fact: Option<Verdict>, agrees: bool) {
        let (from, to) = ("0000:01:00.0".to_owned(), "0000:11:00.0".to_owned());
        let probe = fact.map(|verdict| Probe {
            protocol: 1,
            from: from.clone(),
            to: to.clone(),
            engine: String::new(),
            mode: String::new(),
            verdict,
            damage: None,
            bytes: 0,
            first_bad_offset: None,
            detail: String::new(),
        });
        let pair = Pair {
            from,
            to,
            verdict: verdict.to_owned(),
            codes: vec![code.to_owned()],
            reason: String::new(),
        };
        let found = judge(&mut Counts::default(), &pair, probe.as_ref(), &BTreeSet::new());
        assert_eq!(found, agrees, "{verdict} {code} {fact:?}");
    }

    #[test]
    fn only_a_copy_that_arrived_agrees_with_works() {
        check("works", "PW0210", Some(Verdict::Intact), true);
        check("works", "PW0210", Some(Verdict::Damaged), false);
        check("works", "PW0210", None, false);
        check("broken", "PW0201", Some(Verdict::Damaged), true);
        check("broken", "PW0201", Some(Verdict::Intact), false);
        check("broken", "PW0201", Some(Verdict::Refused), false);
    }

    #[test]
    fn what_was_declared_and_is_free_must_be_decided() {
        check("unknown", "PW0207", Some(Verdict::Damaged), false);
        check("unknown", "PW0207", None, true);
        check("works", TURNS_IN_SWITCH, Some(Verdict::Damaged), true);
        check("impaired", "PW0501", Some(Verdict::Intact), false);
    }
}
