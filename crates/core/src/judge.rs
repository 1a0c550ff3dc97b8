//! The verdict on one ordered pair: can a request of the one reach the memory of the other?
//!
//! The order of the questions ([`judge`], `answer`): do both devices answer, is either in a guest,
//! does NVLink carry it, does the requester's driver offer peer access and with which addresses,
//! can the target be reached at them, where does the request turn, what does the requester's own
//! IOMMU domain do to it, does the root complex forward it, what makes a yes doubtful, are the links
//! what they should be. The first answer that is not yes decides: a "no" makes the pair broken
//! (unknown where NVLink that was not seen may carry it all the same), an unknown makes it unknown.
//! Only yes on every question makes it work, as a prediction; a measurement that still holds comes
//! last and outranks it (`measured`).

pub mod addressing;
pub mod domain;
mod doubt;
pub mod encryption;
pub mod forwarding;
pub mod measured;
mod nvlink;
mod peer_map;
pub mod reach;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::PciAddress;
use crate::code::{self, Code};
use crate::route::{Redirect, Route, Turn};
use crate::snapshot::Snapshot;
use crate::snapshot::iommu::IommuVendor;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::PciDevice;
use addressing::Peers;
use domain::Passage;

/// What is said about a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Measured right, or predicted right with nothing unknown on the route.
    Works,
    /// Data cannot arrive.
    Broken,
    /// Data arrives, but the route gives less than half of what its links should.
    Impaired,
    /// Anything else.
    Unknown,
}

/// What a verdict rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Data was copied and checked.
    Measured,
    /// Concluded from what the host shows.
    Predicted,
}

/// How sure a statement is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Directly observed.
    Certain,
    /// Follows from what was read by rules that are known to hold.
    Probable,
    /// Follows from rules that nobody has verified for this case.
    Possible,
}

/// One ordered pair with its verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Who issues requests.
    pub from: PciAddress,
    /// Whose memory they address.
    pub to: PciAddress,
    /// The verdict.
    pub verdict: Verdict,
    /// What it rests on.
    pub basis: Basis,
    /// How sure it is.
    pub confidence: Confidence,
    /// Codes of the findings that explain it, the deciding one first; none where a measurement says
    /// otherwise than the prediction that they explained.
    pub codes: Vec<Code>,
    /// In one sentence, why.
    pub reason: String,
    /// The way of a request.
    pub route: Route,
}

/// An intermediate answer: verdict, confidence, codes, reason.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    pub(crate) confidence: Confidence,
    pub(crate) codes: Vec<Code>,
    pub(crate) reason: String,
}

impl Answer {
    fn new(
        verdict: Verdict,
        confidence: Confidence,
        code: Code,
        reason: impl Into<String>,
    ) -> Self {
        Self { verdict, confidence, codes: vec![code], reason: reason.into() }
    }

    pub(crate) fn broken(confidence: Confidence, code: Code, reason: impl Into<String>) -> Self {
        Self::new(Verdict::Broken, confidence, code, reason)
    }

    pub(crate) fn unknown(code: Code, reason: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, Confidence::Possible, code, reason)
    }

    fn works(confidence: Confidence, code: Code, reason: impl Into<String>) -> Self {
        Self::new(Verdict::Works, confidence, code, reason)
    }

    fn also(mut self, code: Code) -> Self {
        if !self.codes.contains(&code) {
            self.codes.push(code);
        }
        self
    }

    /// Never more sure than this.
    fn at_most(mut self, confidence: Confidence) -> Self {
        self.confidence = self.confidence.max(confidence);
        self
    }
}

/// Judges one ordered pair.
pub fn judge(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> Pair {
    let route = Route::between(snapshot, from, to);
    let answer = witnessed(snapshot, from, to, answer(snapshot, from, to, &route));
    Pair {
        from: from.address,
        to: to.address,
        verdict: answer.verdict,
        basis: Basis::Predicted,
        confidence: answer.confidence,
        codes: answer.codes,
        reason: answer.reason,
        route,
    }
}

/// A broken pair whose requests were seen to be refused inside the target's memory is observed and
/// no prediction. The log says nothing about pairs that are predicted to work: it may be older than
/// what makes them work.
fn witnessed(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice, answer: Answer) -> Answer {
    if answer.verdict != Verdict::Broken {
        return answer;
    }
    let count: u64 = snapshot.refused(from, to).map(|(_, hit)| hit.count).sum();
    if count == 0 {
        return answer;
    }
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let reason =
        format!("{}; the kernel log shows it: refused {times} inside the target", answer.reason);
    Answer { confidence: Confidence::Certain, reason, ..answer }.also(code::PEER_FAULTS)
}

fn answer(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice, route: &Route) -> Answer {
    if let Some(dead) = reach::dead(from, to) {
        return dead;
    }
    if let Some(guest) = in_guest(snapshot, from, to) {
        return guest;
    }
    if let Turn::NvLink { links } = route.turn {
        return Answer::works(
            Confidence::Probable,
            code::NVLINK,
            format!("{links} NVLink connections carry it; PCIe is not used"),
        );
    }
    let peers = addressing::of(snapshot, from, to);
    if let Peers::None(answer) = peers {
        return nvlink::may_carry(snapshot, from, to, answer);
    }
    if let Some(unreachable) = reach::check(snapshot, from, to) {
        return unreachable;
    }
    let answer = on_route(snapshot, from, to, route, &peers);
    let answer = doubt::weigh(snapshot, from, to, answer);
    slow_links(nvlink::may_carry(snapshot, from, to, answer), from, to, route)
}

/// Devices that a guest holds are decided in the guest; a system that is a guest cannot see what
/// its host does.
fn in_guest(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> Option<Answer> {
    // Whoever declares an accelerator vouches for the way its requests take.
    let vouched = snapshot.accelerator(from.address).is_some();
    if !vouched && snapshot.is_guest() == Tristate::Yes {
        return Some(Answer::unknown(
            code::HOST_NOT_VISIBLE,
            "this system is a guest: its host's IOMMU and access control decide, and cannot be \
             seen from here",
        ));
    }
    match (from.is_vfio(), to.is_vfio()) {
        (true, true) => Some(Answer::unknown(
            code::DECIDED_IN_GUEST,
            "both devices are bound to VFIO: whoever holds them decides what is mapped",
        )),
        (true, false) => Some(Answer::unknown(
            code::DECIDED_IN_GUEST,
            "the requester is bound to VFIO: whoever holds it decides what is mapped for it",
        )),
        // The requester's own domain decides, whoever holds the target.
        (false, _) => None,
    }
}

fn on_route(
    snapshot: &Snapshot,
    from: &PciDevice,
    to: &PciDevice,
    route: &Route,
    peers: &Peers,
) -> Answer {
    match route.redirect() {
        Redirect::NoCommonBridge => through_root_complex(snapshot, from, to, route, peers),
        Redirect::By(_) => through_root_complex(snapshot, from, to, route, peers)
            .also(code::ACS_REDIRECT)
            .with_redirect(),
        Redirect::None => in_switch(snapshot, from, to, route, peers),
        Redirect::Unknown(ports) => {
            let direct = in_switch(snapshot, from, to, route, peers);
            let redirected = through_root_complex(snapshot, from, to, route, peers);
            if direct.verdict == redirected.verdict {
                // Whatever the ports do, the outcome is the same; sure only as the less sure.
                let confidence = direct.confidence;
                return redirected.at_most(confidence);
            }
            let (port, why) = ports.first().cloned().unwrap_or((from.address, String::new()));
            Answer::unknown(
                code::ROUTE_UNKNOWN,
                format!("access control of port {port} could not be read ({why}), and it decides"),
            )
        }
    }
}

impl Answer {
    /// Below one switch the redirect is the cause that can be changed: it comes second, after
    /// what the root complex does with the request.
    fn with_redirect(mut self) -> Self {
        if self.verdict == Verdict::Broken {
            self.reason = format!(
                "redirect on the switch ports sends the request to the root complex, and there {}",
                self.reason
            );
        }
        self
    }
}

/// No redirect below the common bridge: a raw address turns there and never meets the IOMMU; a
/// mapped one is no address of the target and goes up to be translated.
fn in_switch(
    snapshot: &Snapshot,
    from: &PciDevice,
    to: &PciDevice,
    route: &Route,
    peers: &Peers,
) -> Answer {
    let turns = |confidence, how: &str| {
        Answer::works(
            confidence,
            code::TURNS_IN_SWITCH,
            format!("no redirect below the common bridge: the request turns there{how}"),
        )
    };
    match domain::of(snapshot, from) {
        Passage::Raw { .. } => match peers {
            Peers::Unknown(why) => Answer::unknown(code::ADDRESSING_UNKNOWN, why.clone()),
            Peers::None(answer) => answer.clone(),
            Peers::Raw { .. } | Peers::Mapped { .. } => turns(Confidence::Probable, ""),
        },
        Passage::Translating { .. } => match peers {
            Peers::Raw { .. } => turns(Confidence::Possible, " and never meets the IOMMU"),
            Peers::Mapped { .. } => through_root_complex(snapshot, from, to, route, peers),
            Peers::Unknown(why) => Answer::unknown(code::ADDRESSING_UNKNOWN, why.clone()),
            Peers::None(answer) => answer.clone(),
        },
        // The domain refuses or cannot serve the device's own DMA, or nobody could tell.
        Passage::Closed(answer) | Passage::Unknown(answer) => answer,
    }
}

/// The request goes to the root complex, where the requester's own group decides.
fn through_root_complex(
    snapshot: &Snapshot,
    from: &PciDevice,
    to: &PciDevice,
    route: &Route,
    peers: &Peers,
) -> Answer {
    match domain::of(snapshot, from) {
        Passage::Closed(answer) | Passage::Unknown(answer) => answer,
        Passage::Raw { why, code, confidence } => match peers {
            // Untranslated, every driver's address is the peer's own; but a driver that is not
            // known to reach this peer at all does not get there by being untranslated.
            Peers::Unknown(why) => Answer::unknown(code::ADDRESSING_UNKNOWN, why.clone()),
            Peers::None(answer) => answer.clone(),
            Peers::Raw { .. } | Peers::Mapped { .. } => {
                forwarding::check(snapshot, from, to, route)
                    .unwrap_or_else(|| Answer::works(confidence, code, why))
            }
        },
        Passage::Translating { group, domain } => match peers {
            Peers::Raw { why, code } => {
                if let Some(mapped) = peer_map::check(snapshot, from, to, route) {
                    return mapped;
                }
                // The driver's choice of address was read for x86 kernels.
                let (confidence, read) = if is_x86(snapshot) {
                    (Confidence::Probable, "")
                } else {
                    (Confidence::Possible, " (read for x86)")
                };
                let mut answer = Answer::broken(
                    confidence,
                    code::RAW_UNDER_TRANSLATION,
                    format!(
                        "group {group} of {} translates ({domain}), no entry exists for the \
                         peer's address, and {why}{read}",
                        from.address
                    ),
                );
                if let Some(code) = code {
                    answer = answer.also(*code);
                }
                answer
            }
            Peers::Mapped { why } => encryption::check(snapshot, from)
                .or_else(|| forwarding::check(snapshot, from, to, route))
                .unwrap_or_else(|| {
                    Answer::works(Confidence::Possible, code::MAPPED_BY_DRIVER, why.clone())
                }),
            Peers::Unknown(why) => Answer::unknown(code::ADDRESSING_UNKNOWN, why.clone()),
            Peers::None(answer) => answer.clone(),
        },
    }
}

fn is_x86(snapshot: &Snapshot) -> bool {
    let by_processor =
        snapshot.cpu.vendor.known().map(|vendor| {
            ["AuthenticAMD", "GenuineIntel", "HygonGenuine"].contains(&vendor.as_str())
        });
    let by_unit = matches!(snapshot.iommu_vendor(), Some(IommuVendor::Amd | IommuVendor::Intel));
    by_processor.unwrap_or(by_unit)
}

/// A pair that works over a link with less than half its lanes is impaired. Speed is no sign:
/// idle devices lower it.
fn slow_links(answer: Answer, from: &PciDevice, to: &PciDevice, route: &Route) -> Answer {
    if answer.verdict != Verdict::Works {
        return answer;
    }
    let ends = [(from.address, &from.link), (to.address, &to.link)];
    let ports = route.up.iter().chain(&route.down).map(|port| (port.address, &port.link));
    let narrow = ends.into_iter().chain(ports).find_map(|(address, link)| {
        let link = link.known()?;
        (link.width.saturating_mul(2) < link.max_width).then_some((address, *link))
    });
    match narrow {
        Some((address, link)) => Answer {
            verdict: Verdict::Impaired,
            codes: [&[code::NARROW_LINK][..], &answer.codes].concat(),
            reason: format!(
                "the link of {address} runs at x{} of x{}; otherwise {}",
                link.width, link.max_width, answer.reason
            ),
            ..answer
        },
        None => answer,
    }
}
