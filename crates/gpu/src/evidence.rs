//! What the host itself recorded while something was measured, joined to it by time and by device.

use peerway_core::address::{BusAddress, PciAddress};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was recorded during a span of time about the GPUs that were measured in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Requests of these GPUs that an IOMMU refused.
    pub faults: Vec<RefusedRequests>,
    /// Xids of these GPUs.
    pub xids: Vec<XidSeen>,
    /// PCI Express errors that these GPUs or the bridges above them counted or logged.
    pub bus_errors: Vec<BusErrors>,
    /// The links of these GPUs.
    pub links: Vec<LinkSeen>,
    /// Events of other devices in the same time.
    pub elsewhere: u64,
    /// Records that the kernel log lost or kept back in this time.
    pub lost: u64,
    /// What could not be looked at, with the reason.
    pub gaps: Vec<String>,
}

/// Refused requests of one kind, of one GPU, into one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedRequests {
    /// Who sent them.
    pub requester: PciAddress,
    /// The IOMMU's word for it, `io_page_fault`.
    pub kind: String,
    /// The GPU whose memory they were meant for, where the addresses lie in one.
    pub target: Option<PciAddress>,
    /// The first address.
    pub first_address: Option<BusAddress>,
    /// How many were logged; rate limits may have kept more out.
    pub count: u64,
}

/// An Xid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct XidSeen {
    /// The GPU.
    pub gpu: PciAddress,
    /// The number.
    pub number: u32,
    /// What it means, where that is known.
    pub meaning: Option<String>,
    /// How often.
    pub count: u64,
}

/// How bad a PCI Express error is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The hardware repaired it.
    Correctable,
    /// A request was lost.
    NonFatal,
    /// The link was lost.
    Fatal,
}

/// PCI Express errors of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BusErrors {
    /// The GPU, or a bridge above it.
    pub device: PciAddress,
    /// How bad.
    pub severity: Severity,
    /// How many its counters rose by.
    pub count: u64,
}

/// A link before and during a measurement. Idle links are slow; narrow ones are not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkSeen {
    /// The GPU whose link it is.
    pub gpu: PciAddress,
    /// Lanes before.
    pub lanes_before: u32,
    /// Fewest lanes during.
    pub lanes_least: u32,
    /// Best transfer rate per lane during, transfers per second.
    pub transfers_per_second: u64,
    /// The best that the GPU can.
    pub max_transfers_per_second: u64,
}

impl LinkSeen {
    /// It lost lanes meanwhile.
    pub fn narrowed(&self) -> bool {
        self.lanes_least < self.lanes_before
    }
}

impl Evidence {
    /// Nothing was recorded that speaks against what was measured.
    pub fn is_quiet(&self) -> bool {
        self.faults.is_empty()
            && self.xids.is_empty()
            && self.bus_errors.is_empty()
            && !self.links.iter().any(LinkSeen::narrowed)
    }

    /// Something was recorded that must not happen in a sound transfer. Repaired errors may.
    pub fn is_serious(&self) -> bool {
        !self.faults.is_empty()
            || !self.xids.is_empty()
            || self.bus_errors.iter().any(|one| one.severity > Severity::Correctable)
            || self.links.iter().any(LinkSeen::narrowed)
    }

    /// Whether something in it is about one of two GPUs.
    pub fn names(&self, one: PciAddress, other: PciAddress) -> bool {
        let either = |address: PciAddress| address == one || address == other;
        self.faults.iter().any(|fault| either(fault.requester))
            || self.xids.iter().any(|xid| either(xid.gpu))
            || self.bus_errors.iter().any(|errors| either(errors.device))
            || self.links.iter().any(|link| link.narrowed() && either(link.gpu))
    }

    /// What another span adds.
    pub fn add(&mut self, other: Self) {
        for one in other.faults {
            let same = self.faults.iter_mut().find(|had| {
                (had.requester, &had.kind, had.target) == (one.requester, &one.kind, one.target)
            });
            match same {
                Some(had) => had.count += one.count,
                None => self.faults.push(one),
            }
        }
        for one in other.xids {
            match self.xids.iter_mut().find(|had| (had.gpu, had.number) == (one.gpu, one.number)) {
                Some(had) => had.count += one.count,
                None => self.xids.push(one),
            }
        }
        for one in other.bus_errors {
            let same = self
                .bus_errors
                .iter_mut()
                .find(|had| (had.device, had.severity) == (one.device, one.severity));
            match same {
                Some(had) => had.count += one.count,
                None => self.bus_errors.push(one),
            }
        }
        for one in other.links {
            match self.links.iter_mut().find(|had| had.gpu == one.gpu) {
                Some(had) => {
                    had.lanes_least = had.lanes_least.min(one.lanes_least);
                    had.transfers_per_second =
                        had.transfers_per_second.max(one.transfers_per_second);
                }
                None => self.links.push(one),
            }
        }
        self.elsewhere += other.elsewhere;
        self.lost += other.lost;
        for gap in other.gaps {
            if !self.gaps.contains(&gap) {
                self.gaps.push(gap);
            }
        }
    }

    /// In sentences, the worst first.
    pub fn describe(&self) -> Vec<String> {
        let mut all = Vec::new();
        for fault in &self.faults {
            let place = match (fault.target, fault.first_address) {
                (Some(target), Some(address)) => {
                    format!(" at {address}, in the memory of {target}")
                }
                (None, Some(address)) => format!(" at {address}, in no GPU's memory"),
                (_, None) => String::new(),
            };
            all.push(format!(
                "kernel log: {} requests of {} were refused ({}{place})",
                fault.count, fault.requester, fault.kind
            ));
        }
        for xid in &self.xids {
            let meaning = xid.meaning.as_deref().unwrap_or("no known meaning");
            all.push(format!("kernel log: Xid {} of {}: {meaning}", xid.number, xid.gpu));
        }
        for errors in &self.bus_errors {
            let word = match errors.severity {
                Severity::Correctable => "repaired",
                Severity::NonFatal => "unrepaired",
                Severity::Fatal => "fatal",
            };
            all.push(format!("{} {word} PCIe errors of {}", errors.count, errors.device));
        }
        for link in self.links.iter().filter(|link| link.narrowed()) {
            all.push(format!(
                "the link of {} went from {} lanes to {} meanwhile",
                link.gpu, link.lanes_before, link.lanes_least
            ));
        }
        all
    }
}

/// Evidence of work that is about no single pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkEvidence {
    /// The work in words.
    pub work: String,
    /// What was recorded meanwhile.
    pub evidence: Evidence,
}

/// Looks at what the host records. The measurement itself reads nothing of the host.
pub trait Watch {
    /// A span about these GPUs begins; about all of them where none is named.
    fn begin(&mut self, gpus: &[PciAddress]);
    /// A step was begun: links are awake.
    fn sample(&mut self);
    /// The span ends.
    fn end(&mut self) -> Evidence;
    /// What was recorded between the last two spans, about any GPU: errors can be told after
    /// whoever made them has ended.
    fn between(&mut self) -> Evidence {
        Evidence::default()
    }
    /// What the links on the way between two GPUs carry, by what was seen in the last span; none
    /// where that can't be said.
    fn line(&self, _from: PciAddress, _to: PciAddress) -> Option<LineSeen> {
        None
    }
}

/// What the narrowest link on a way carries, bytes per second one way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineSeen {
    /// At the speed and width that links were seen at while they were at work.
    pub seen: f64,
    /// At the best that both ends of each link can: no transfer can be faster.
    pub most: f64,
}

/// Sees nothing.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn begin(&mut self, _gpus: &[PciAddress]) {}

    fn sample(&mut self) {}

    fn end(&mut self) -> Evidence {
        Evidence::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    #[test]
    fn spans_add_up() {
        let fault = |count| RefusedRequests {
            requester: gpu("0000:21:00.0"),
            kind: "io_page_fault".to_owned(),
            target: Some(gpu("0000:41:00.0")),
            first_address: None,
            count,
        };
        let link = |lanes_least, transfers_per_second| LinkSeen {
            gpu: gpu("0000:21:00.0"),
            lanes_before: 16,
            lanes_least,
            transfers_per_second,
            max_transfers_per_second: 32_000_000_000,
        };
        let span = |count, lanes, rate| Evidence {
            faults: vec![fault(count)],
            links: vec![link(lanes, rate)],
            gaps: vec!["no log".to_owned()],
            ..Evidence::default()
        };
        let mut all = span(2, 16, 2_500_000_000);
        assert!(all.is_serious() && !all.is_quiet());
        all.add(span(3, 8, 32_000_000_000));
        assert_eq!(all.faults, [fault(5)]);
        assert_eq!(all.links, [link(8, 32_000_000_000)]);
        assert_eq!(all.gaps.len(), 1);
        let said = all.describe();
        assert!(said[0].starts_with("kernel log: 5 requests of 0000:21:00.0"), "{said:?}");
        assert!(said[1].contains("from 16 lanes to 8"), "{said:?}");
    }

    #[test]
    fn repaired_errors_are_told_and_harmless() {
        let errors = |severity| Evidence {
            bus_errors: vec![BusErrors { device: gpu("0000:20:01.0"), severity, count: 1 }],
            ..Evidence::default()
        };
        let repaired = errors(Severity::Correctable);
        assert!(!repaired.is_quiet() && !repaired.is_serious());
        assert!(errors(Severity::NonFatal).is_serious());
        assert!(Evidence::default().is_quiet());
    }
}
