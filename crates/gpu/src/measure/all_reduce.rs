//! All-reduce with and without P2P: the same values, the same sizes, different roads.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;

use super::Ongoing;
use crate::protocol::{AllReduceWork, Event, Work};
use crate::result::{AllReduceResult, Arm, Verdict};

/// Settings of both arms. NCCL's own files never override the environment.
const BOTH: [(&str, &str); 11] = [
    // Nobody's settings but these.
    ("NCCL_CONF_FILE", "/dev/null"),
    ("NCCL_DEBUG", "INFO"),
    ("NCCL_DEBUG_SUBSYS", "INIT,P2P,SHM,GRAPH,ENV"),
    // Multicast in switches is a resource of the whole host, and not what is measured.
    ("NCCL_NVLS_ENABLE", "0"),
    ("NCCL_MNNVL_ENABLE", "0"),
    ("NCCL_SHM_DISABLE", "0"),
    ("NCCL_IGNORE_DISABLED_P2P", "0"),
    // Nothing of this leaves the host.
    ("NCCL_IB_DISABLE", "1"),
    ("NCCL_SOCKET_IFNAME", "lo"),
    // No listener.
    ("NCCL_RAS_ENABLE", "0"),
    ("NCCL_NET_PLUGIN", "none"),
];

/// P2P at any distance. One process would use plain pointers, servers with a process for each GPU
/// can't: the latter is what is to be measured.
const WITH_P2P: [(&str, &str); 3] =
    [("NCCL_P2P_DISABLE", "0"), ("NCCL_P2P_LEVEL", "SYS"), ("NCCL_P2P_DIRECT_DISABLE", "1")];

const WITHOUT_P2P: [(&str, &str); 1] = [("NCCL_P2P_DISABLE", "1")];

impl Ongoing<'_> {
    pub(super) fn all_reduce(&mut self, gpus: &[PciAddress]) {
        let apart = self.settings.all_reduce_apart && gpus.len() > 1;
        let mut arms = vec![(Arm::Host, false), (Arm::P2p, false)];
        if apart {
            arms.extend([(Arm::Host, true), (Arm::P2p, true)]);
        }
        for arm in arms {
            // A mode that the driver does not offer is none that NCCL could use.
            let unsound = self
                .result
                .pairs
                .iter()
                .any(|row| !matches!(row.verdict, Verdict::Intact | Verdict::Refused));
            if arm.0 == Arm::P2p && gpus.len() > 1 && unsound {
                // The pairs have said what there is to say; NCCL would hang or worse.
                let why = "left out: not every pair was right";
                self.note_missing(gpus, arm, Verdict::NotRun, why, &BTreeSet::new());
                continue;
            }
            self.arm(gpus, arm);
        }
    }

    fn arm(&mut self, gpus: &[PciAddress], arm: (Arm, bool)) {
        let step_limit_ms = u64::try_from(self.settings.step_limit.as_millis());
        let work = AllReduceWork {
            gpus: gpus.to_vec(),
            arm: arm.0,
            apart: arm.1,
            sizes: self.settings.all_reduce_sizes.clone(),
            iterations: self.settings.all_reduce_iterations,
            step_limit_ms: step_limit_ms.unwrap_or(u64::MAX),
        };
        let mut environment = BOTH.to_vec();
        match arm.0 {
            Arm::P2p => environment.extend(WITH_P2P),
            Arm::Host => environment.extend(WITHOUT_P2P),
        }
        let done = self.run_with(Work::AllReduce(work), gpus, &environment);
        let transports = transports(&done.log);
        let verdict = done.verdict();
        let mut sizes = BTreeSet::new();
        // The failure is told already: by a row, or by what is not met.
        let mut told = false;
        for event in done.events {
            match event {
                Event::AllReduce(mut row) => {
                    row.transports.clone_from(&transports);
                    take_transports(&mut row);
                    sizes.insert(row.bytes);
                    told |= row.verdict != Verdict::Intact;
                    self.result.all_reduce.push(row);
                }
                Event::Unmet(unmet) => {
                    told = true;
                    if !self.result.preconditions.contains(&unmet) {
                        self.result.preconditions.push(unmet);
                    }
                }
                _ => {}
            }
        }
        if let (Some(why), false) = (done.failure, told) {
            self.note_missing(gpus, arm, verdict, &why, &sizes);
        }
    }

    /// One row for the first size that has none; larger ones were not tried.
    fn note_missing(
        &mut self,
        gpus: &[PciAddress],
        (arm, apart): (Arm, bool),
        verdict: Verdict,
        why: &str,
        done: &BTreeSet<u64>,
    ) {
        let Some(bytes) = self.settings.all_reduce_sizes.iter().find(|bytes| !done.contains(bytes))
        else {
            return;
        };
        self.result.all_reduce.push(AllReduceResult {
            gpus: gpus.to_vec(),
            arm,
            processes: if apart { u32::try_from(gpus.len()).unwrap_or(u32::MAX) } else { 1 },
            bytes: *bytes,
            verdict,
            wrong_elements: 0,
            seconds: None,
            algorithm_bytes_per_second: None,
            bus_bytes_per_second: None,
            transports: Vec::new(),
            nccl_version: None,
            detail: Some(why.to_owned()),
        });
    }
}

/// An arm counts as what NCCL says that it used: it falls back to other roads without an error.
fn take_transports(row: &mut AllReduceResult) {
    if row.gpus.len() < 2 || row.verdict != Verdict::Intact {
        return;
    }
    let is_p2p = |name: &String| name.starts_with("P2P/");
    let used = row.transports.join(", ");
    let why = match row.arm {
        Arm::P2p if row.transports.is_empty() => {
            "NCCL's log does not say which roads it took: whether that was P2P is unknown"
                .to_owned()
        }
        Arm::P2p if !row.transports.iter().all(is_p2p) => {
            format!("NCCL did not use P2P, or not for all ({used}): sums were right that way")
        }
        Arm::Host if row.transports.iter().any(is_p2p) => {
            format!("NCCL used P2P all the same ({used}): there is nothing to compare with")
        }
        Arm::P2p | Arm::Host => return,
    };
    row.verdict = Verdict::NotRun;
    row.detail = Some(why);
}

/// What NCCL's lines about channels say behind `via`, each once.
fn transports(log: &[String]) -> Vec<String> {
    let mut found = BTreeSet::new();
    for line in log {
        let Some((_, channel)) = line.split_once("NCCL INFO Channel ") else { continue };
        let Some((_, via)) = channel.split_once(" via ") else { continue };
        // Lines of a network go on with what is not a transport.
        let via = via.trim();
        let name = via.strip_suffix(" comm").unwrap_or(via);
        let end = name.find(" comm ").unwrap_or(name.len());
        found.insert(name.get(..end).unwrap_or(name).to_owned());
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_read_from_the_log() {
        let log = [
            "node7:812:812 [0] NCCL INFO Channel 00/02 :    0   1",
            "node7:812:830 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
            "node7:812:830 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
            "node7:812:831 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct",
            "node7:812:831 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/direct pointer",
            "node7:812:831 [1] NCCL INFO Connected all rings",
        ]
        .map(str::to_owned);
        assert_eq!(transports(&log), ["P2P/CUMEM/read", "P2P/direct pointer", "SHM/direct/direct"]);
    }
}
