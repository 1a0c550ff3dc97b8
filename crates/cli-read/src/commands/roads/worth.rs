//! Gains of a workload, joined to the roads of a host.

use std::collections::BTreeMap;

use peerway_core::snapshot::Snapshot;
use peerway_roads::gain::GainBasis;
use peerway_roads::workload::{Choice, ChoiceKind, Workload, rank};
use peerway_roads::{Gain, Goal, RoadId, Roads, State};
use peerway_worth::allreduce::Arm;
use peerway_worth::hardware::{self, Gpu};
use peerway_worth::options::{Available, Basis, Interaction, OptionRow};
use peerway_worth::{Estimate, Interval};

use super::state;
use crate::commands::worth::estimate::percent;
use crate::text::{self, add, bold, wrap};

/// Roads that let the goal's GPUs reach each other over their own links.
const TO_PEERS: [RoadId; 6] = [
    RoadId::PeerMap,
    RoadId::IdentityGroups,
    RoadId::AcsDirect,
    RoadId::VfioGuest,
    RoadId::MappingDriver,
    RoadId::BootPassthrough,
];

const SOURCE: &str = "peerway worth estimate, same options";

/// The type of the goal's GPUs and their number, where all are of one known type.
pub(super) fn gpus(snapshot: &Snapshot, goal: Option<&Goal>) -> Option<(Gpu, u32)> {
    let goal = goal?;
    let mut types = goal.devices.iter().map(|address| {
        let device = snapshot.devices.iter().find(|device| device.address == *address)?;
        hardware::of_board(device.ids.known()?.device)
    });
    let first = types.next()??;
    let same = types.all(|other| other.is_some_and(|other| other.name == first.name));
    same.then_some((first, u32::try_from(goal.devices.len()).unwrap_or(u32::MAX)))
}

fn gain(text: String, interval: Interval, basis: GainBasis, source: &str) -> Gain {
    Gain {
        text,
        low_percent: Some(interval.low),
        high_percent: Some(interval.high),
        basis,
        source: source.to_owned(),
    }
}

/// Gain by road.
pub(super) fn gains(estimate: &Estimate) -> BTreeMap<RoadId, Gain> {
    let mut gains = BTreeMap::new();
    let of = |arm: Arm| estimate.p2p.iter().find(|value| value.arm == arm);
    if let Some(peer) = of(Arm::Peer) {
        let kernel = of(Arm::PeerKernel);
        let mut text = format!(
            "{} tokens/s in decode over NCCL, {} prefill time",
            percent(peer.decode_percent),
            percent(peer.prefill_time_percent.map(|one| -one))
        );
        let mut whole = peer.decode_percent;
        if let Some(kernel) = kernel {
            add(
                &mut text,
                &format!("; {} in decode with one-shot kernels", percent(kernel.decode_percent)),
            );
            whole.high = whole.high.max(kernel.decode_percent.high);
        }
        for road in TO_PEERS {
            gains.insert(road, gain(text.clone(), whole, GainBasis::Estimated, SOURCE));
        }
        let opens = Interval::new(0.0, 0.0, whole.high.max(0.0));
        let text = format!("nothing by itself; where it opens another road, that road's: {text}");
        gains.insert(RoadId::DriverPolicy, gain(text, opens, GainBasis::Estimated, SOURCE));
    }
    let best = estimate
        .options
        .iter()
        .filter(|row| {
            row.available == Available::Yes
                && row.basis == Basis::Estimated
                && row.interaction != Interaction::IsP2p
        })
        .filter_map(|row| Some((row, row.gain_percent?)))
        .max_by(|a, b| a.1.low.total_cmp(&b.1.low));
    if let Some((row, interval)) = best {
        let text = format!("{}: {}; more below", row.title, percent(interval));
        gains.insert(RoadId::Elsewhere, gain(text, interval, GainBasis::Estimated, SOURCE));
    }
    gains
}

/// The workload with roads and options in one ranking.
pub(super) fn workload(estimate: &Estimate, roads: &Roads, asked: Option<RoadId>) -> Workload {
    let options = estimate
        .options
        .iter()
        // The roads themselves stand for peer access.
        .filter(|row| !matches!(row.id, "p2p" | "p2p-kernels"))
        .map(|row| {
            let mut choice = choice(row);
            if row.id == "mtp-and-p2p" {
                needs_a_road(&mut choice, roads);
            }
            choice
        })
        .collect();
    let assumed = if estimate.all_reduce_assumed { ", all-reduce times assumed" } else { "" };
    Workload {
        text: format!(
            "{} with {}, {} on {}, {} at once{assumed}",
            estimate.sizes.model_type,
            estimate.engine,
            estimate.layout,
            estimate.gpu,
            estimate.concurrency
        ),
        ranking: rank(&roads.roads, asked, options),
    }
}

/// What rests on peer access is no more open than the best road to it.
fn needs_a_road(choice: &mut Choice, roads: &Roads) {
    let to_peers = roads.roads.iter().filter(|road| TO_PEERS.contains(&road.id));
    match to_peers.min_by_key(|road| road.state) {
        Some(road) if road.state == State::Open => {
            choice.note = format!("by {}; {}", road.id, choice.note);
        }
        Some(road) => {
            choice.state = road.state;
            "no road to peer access is open here".clone_into(&mut choice.note);
        }
        None => choice.state = State::Closed,
    }
}

fn choice(row: &OptionRow) -> Choice {
    let basis = match row.basis {
        Basis::Estimated => GainBasis::Estimated,
        Basis::Reported => GainBasis::Reported,
        Basis::None => GainBasis::None,
    };
    let of = |interval: Interval| gain(percent(interval), interval, basis, row.source);
    Choice {
        rank: 0,
        kind: ChoiceKind::Option,
        id: row.id.to_owned(),
        title: row.title.clone(),
        state: match row.available {
            Available::Yes => State::Open,
            Available::No => State::Closed,
            Available::Unknown => State::Unknown,
        },
        gain: row.gain_percent.map_or_else(
            || Gain {
                text: "not estimated".to_owned(),
                low_percent: None,
                high_percent: None,
                basis: GainBasis::None,
                source: row.source.to_owned(),
            },
            of,
        ),
        gain_with_p2p: row.gain_with_p2p_percent.map(of),
        interaction: text::word(row.interaction),
        note: row.note.clone(),
    }
}

/// The ranking for people.
pub(super) fn page(workload: &Workload) -> String {
    let mut out = format!("\n{}\n", bold("roads and options in one ranking, by the low end"));
    out.push_str(&wrap(&workload.text, "for ", "    "));
    for choice in &workload.ranking {
        let reported =
            if choice.gain.basis == GainBasis::Reported { ", reported, not ranked" } else { "" };
        // A road's gain stands in full with the road.
        let gain = match (choice.kind, choice.gain.low_percent, choice.gain.high_percent) {
            (ChoiceKind::Road, Some(low), Some(high)) => format!("{low:+.0} to {high:+.0} %"),
            _ => choice.gain.text.clone(),
        };
        let name = match choice.kind {
            ChoiceKind::Road => choice.id.clone(),
            ChoiceKind::Option => format!("{} ({})", choice.id, choice.title),
        };
        let line = format!("{} {}: {gain}{reported}", state(choice.state), name);
        out.push_str(&wrap(&line, &format!("{:>2}  ", choice.rank), "    "));
        let with = choice.gain_with_p2p.as_ref().filter(|_| {
            matches!(choice.interaction.as_str(), "substitutes" | "complements")
                && choice.state != State::Closed
        });
        if let Some(with) = with {
            let how = if choice.interaction == "substitutes" { "less" } else { "more" };
            let line = format!("worth {how} where peer access works: {}", with.text);
            out.push_str(&wrap(&line, "      ", "      "));
        }
    }
    out
}
