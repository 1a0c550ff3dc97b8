//! What is the other tenant's, read from outside of the product: the closed list of "untouched".

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use peerway_lab_protocol::Step;

use super::super::boot::Report;
use super::{OTHERS, shell};

/// Lines of `thing value`.
#[derive(Debug)]
pub(super) struct Others {
    values: BTreeMap<String, String>,
}

/// The step that reads them. Copies in the lab are the requesters' own: a fault that names one of the others
/// counts as a value too.
pub(super) fn step(name: &str) -> Step {
    let slots: Vec<&str> = OTHERS.iter().map(|one| one.trim_end_matches(".0")).collect();
    let line = format!(
        r#"for s in {slots}; do for d in /sys/bus/pci/devices/$s.*; do n=${{d##*/}}
  echo "$n group $(readlink $d/iommu_group)"
  echo "$n type $(cat $d/iommu_group/type)"
  echo "$n driver $(readlink $d/driver)"
  echo "$n override $(cat $d/driver_override)"
  echo "$n configuration $(sha256sum < $d/config)"
  echo "$n regions $(sha256sum < $d/resource)"
  echo "$n power $(cat $d/power_state) $(cat $d/power/runtime_status)"
  echo "$n enabled $(cat $d/enable)"
  p=$(readlink -f $d); p=${{p%/*}}
  echo "$n port ${{p##*/}} $(sha256sum < $p/config)"
done; done
for p in $(pidof lab-vfio); do
  echo "$p start $(cut -d' ' -f22 /proc/$p/stat)"
  echo "$p state $(cut -d' ' -f3 /proc/$p/stat)"
  echo "$p group $(cat /proc/$p/cgroup)"
  for f in /proc/$p/fd/*; do echo "$p holds-$(basename $f) $(readlink $f)"; done
done
for s in {short}; do echo "$s faults $(dmesg | grep 'DMAR: .DMA' | grep -c $s)"; done"#,
        slots = slots.join(" "),
        short =
            slots.iter().map(|slot| slot.trim_start_matches("0000:")).collect::<Vec<_>>().join(" "),
    );
    shell(name, &line)
}

impl Others {
    /// What a step read.
    ///
    /// # Errors
    /// Where it did not read what there is to read.
    pub(super) fn of(report: &Report, name: &str) -> Result<Self> {
        let mut values = BTreeMap::new();
        for line in report.stdout(name)?.lines() {
            let mut words = line.splitn(3, ' ');
            let (Some(thing), Some(what)) = (words.next(), words.next()) else { continue };
            let value = words.next().unwrap_or_default().trim().to_owned();
            values.insert(format!("{thing} {what}"), value);
        }
        // Nine of each function, and the process: a step that reads nothing proves nothing.
        let functions = values.keys().filter(|key| key.ends_with(" configuration")).count();
        ensure!(functions == 2 * OTHERS.len(), "{name}: {functions} functions in {values:?}");
        ensure!(values.keys().any(|key| key.ends_with(" start")), "{name}: nobody holds them");
        Ok(Self { values })
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// What is another now.
    pub(super) fn differences(&self, now: &Self) -> Vec<String> {
        let keys: BTreeSet<&String> = self.values.keys().chain(now.values.keys()).collect();
        let changed = keys.into_iter().filter(|key| self.values.get(*key) != now.values.get(*key));
        changed
            .map(|key| format!("{key}: {:?}, {:?}", self.values.get(key), now.values.get(key)))
            .collect()
    }
}
