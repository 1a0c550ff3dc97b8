//! The script in the lab.

use anyhow::{Context as _, Result};
use peerway_lab_protocol::Step;

use super::super::super::boot::Report;
use super::super::super::script;
use super::super::{PLACE, PLAN, board, declared, long, plan_for, product, shell, told};
use super::state::{State, functions};
use super::{Act, Line};

/// The copies that prove the change.
const PROBE: &str = "/lab/bin/lab-copy";

/// The steps of a line: the act, and what is looked at after it.
pub(super) fn steps(line: &Line) -> Vec<Step> {
    let name = line.name;
    let act = match line.act {
        Act::Plan(devices) => plan_for(name, devices),
        Act::Apply(seconds) => {
            let seconds = seconds.to_string();
            let words =
                ["apply", PLAN, "--unproved", "--probe", PROBE, "--confirm-within", &seconds];
            declared(name, &words)
        }
        Act::Product(words) => product(name, words),
        Act::HolderBegins => script::start(
            "a holder",
            &[
                "sh",
                "-c",
                "d=/dev/$(ls /sys/bus/pci/devices/0000:11:00.0/uio); exec 3<>$d; echo ready; read line",
            ],
        ),
        Act::HolderEnds => script::stop("a holder"),
        Act::TimePasses => shell(
            name,
            &format!(
                "for i in $(seq 300); do {PLACE} history --format jsonl 2> /dev/null | tail -n 1 | \
                 grep -q 'pending holder\\|taken back' && break; sleep 1; done"
            ),
        ),
        Act::DriverFails => board::given(name),
    };
    vec![act, look(line)]
}

fn look(line: &Line) -> Step {
    let name = line.name;
    let plan = match line.act {
        Act::Plan(_) => format!("echo \"plan $(tr -d '\\n' < {PLAN})\""),
        _ => String::new(),
    };
    let line = format!(
        "for n in {functions}; do d=/sys/bus/pci/devices/$n
  l=$(readlink $d/driver); echo \"$n driver ${{l##*/}}\"
  echo \"$n override $(cat $d/driver_override)\"
  echo \"$n type $(cat $d/iommu_group/type)\"
done
echo \"environment $(grep -v '^#' /run/peerway/p2p.env 2> /dev/null | tr '\\n' ' ')\"
echo \"history $({PLACE} history --format jsonl | tail -n 1)\"
{plan}",
        functions = functions().join(" "),
    );
    long(&format!("after {name}"), &["sh", "-c", &line])
}

/// What a line came to.
pub(super) fn state(report: &Report, line: &Line) -> Result<State> {
    let mut state = State::default();
    if line.exit.is_some() {
        (state.exit, state.said) = told(report.outcome(line.name)?);
    }
    for text in report.stdout(&format!("after {}", line.name))?.lines() {
        let (key, rest) = text.split_once(' ').context("a line without a key")?;
        match key {
            "history" => state.history(rest)?,
            "plan" if matches!(line.act, Act::Plan(_)) && line.exit == Some(0) => {
                state.plan(rest)?;
            }
            "plan" => {}
            "environment" => {
                state.values.insert(key.to_owned(), rest.trim().to_owned());
            }
            device => {
                let (what, value) = rest.split_once(' ').unwrap_or((rest, ""));
                state.values.insert(format!("{device} {what}"), value.to_owned());
            }
        }
    }
    Ok(state)
}
