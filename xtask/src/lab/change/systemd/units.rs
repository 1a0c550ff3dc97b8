//! What systemd says of units.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use peerway_lab_protocol::Step;

use super::super::super::boot::Report;
use super::super::shell;

/// Units whose states are read, ours and those that stand in an order with them.
const NAMES: &str = "peerway-safe.service peerway-identity.service peerway-recover.service \
                     peerway-prove.service systemd-modules-load.service systemd-udev-trigger.service \
                     lab-drivers.service lab-vm.service";
const PROPERTIES: &str = "Id,LoadState,UnitFileState,ActiveState,Result,ExecMainStatus,\
                          ExecMainStartTimestampMonotonic,ExecMainExitTimestampMonotonic";

/// The step that reads them.
pub(super) fn step(name: &str) -> Step {
    shell(name, &format!("systemctl show -p {PROPERTIES} {NAMES}"))
}

/// All that one of our units said on this boot.
pub(super) fn said(at: &str, unit: &str) -> Step {
    let line = format!("journalctl --boot --output=cat --no-pager --unit=peerway-{unit}.service");
    shell(&format!("{at}: journal of {unit}"), &line)
}

/// The units that failed on this boot, one a line.
pub(super) fn failed(at: &str) -> Step {
    let line = "systemctl --failed --plain --no-legend | cut -d' ' -f1";
    shell(&format!("{at}: failed units"), line)
}

/// What was read, by unit and property.
#[derive(Debug)]
pub(super) struct Units(BTreeMap<String, BTreeMap<String, String>>);

impl Units {
    pub(super) fn of(report: &Report, name: &str) -> Result<Self> {
        let mut all = BTreeMap::new();
        for block in report.stdout(name)?.split("\n\n") {
            let properties: BTreeMap<String, String> = block
                .lines()
                .filter_map(|line| line.split_once('='))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();
            let id = properties.get("Id").context("a unit without a name")?.clone();
            all.insert(id, properties);
        }
        Ok(Self(all))
    }

    /// A property of one of ours, by the middle of its name.
    pub(super) fn of_ours(&self, unit: &str, property: &str) -> Result<&str> {
        self.get(&format!("peerway-{unit}.service"), property)
    }

    fn get(&self, unit: &str, property: &str) -> Result<&str> {
        let found = self.0.get(unit).and_then(|one| one.get(property));
        found.map(String::as_str).with_context(|| format!("{unit} has no {property}"))
    }

    /// When a unit's program began and ended, in microseconds since the boot; zero where it did not.
    pub(super) fn times(&self, unit: &str) -> Result<(u64, u64)> {
        let time = |what: &str| -> Result<u64> {
            Ok(self.get(unit, &format!("ExecMain{what}TimestampMonotonic"))?.parse()?)
        };
        Ok((time("Start")?, time("Exit")?))
    }

    /// A row for each unit of ours and each that stands in an order with them.
    pub(super) fn rows(&self) -> Result<Vec<Vec<String>>> {
        let mut rows = Vec::new();
        for unit in self.0.keys() {
            let (began, ended) = self.times(unit)?;
            let milliseconds = |time: u64| (time / 1000).to_string();
            rows.push(vec![
                unit.clone(),
                self.get(unit, "LoadState")?.to_owned(),
                self.get(unit, "Result")?.to_owned(),
                self.get(unit, "ExecMainStatus")?.to_owned(),
                milliseconds(began),
                milliseconds(ended),
            ]);
        }
        rows.sort_by_key(|row| row.get(4).and_then(|time| time.parse::<u64>().ok()));
        Ok(rows)
    }
}

/// Heads of those rows.
pub(super) const HEADS: [&str; 6] =
    ["unit", "load state", "result", "exit", "began (ms after boot)", "ended"];
