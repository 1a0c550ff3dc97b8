//! The rules of `/sys/kernel/iommu_groups/N/type`, measured and held against `lab/expect/type-rules.toml`.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use peerway_lab_protocol::Step;
use serde::Deserialize;

use super::{boot, type_write};
use crate::lab::boot::Report;
use crate::lab::facts::Facts;
use crate::lab::kernel::Kernel;
use crate::lab::{paths, script};

/// An engine in a group of its own, and the engine of another tenant, on machine `separate`.
const SINGLE: &str = "0000:11:00.0";
const OTHER: &str = "0000:81:00.0";
/// An engine whose memory is in the same group, on machine `replica`.
const PAIR: [&str; 2] = ["0000:11:00.0", "0000:11:00.1"];
/// Name of the step that holds a container.
const HOLDER: &str = "holder";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    rule: Vec<Rule>,
}

/// A write in a state, and what each kernel answers: the error or `ok`, then what the file reads.
#[derive(Debug, Deserialize)]
struct Rule {
    state: State,
    /// The word; empty where the file is only read.
    write: String,
    #[serde(flatten)]
    kernels: BTreeMap<String, String>,
}

/// What the group is like when it is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// One device, no driver.
    Unbound,
    /// One device, `uio_pci_generic`.
    KernelDriver,
    /// The same, the group's type having been set to `DMA` before.
    KernelDriverStrict,
    /// One device, `vfio-pci`, opened by nobody.
    VfioIdle,
    /// One device, held by a VFIO container.
    VfioHeld,
    /// The same, the type having been set to `identity` before.
    VfioHeldIdentity,
    /// Two devices, no drivers.
    PairUnbound,
    /// Two devices, the other on `pci-stub`.
    PairStub,
    /// Two devices, the other with `uio_pci_generic`.
    PairDriver,
}

impl State {
    fn machine(self) -> &'static str {
        match self {
            Self::PairUnbound | Self::PairStub | Self::PairDriver => "replica",
            _ => "separate",
        }
    }

    /// The device whose group is written to.
    fn subject(self) -> &'static str {
        match self {
            Self::VfioIdle | Self::VfioHeld | Self::VfioHeldIdentity => OTHER,
            Self::PairUnbound | Self::PairStub | Self::PairDriver => PAIR[0],
            Self::Unbound | Self::KernelDriver | Self::KernelDriverStrict => SINGLE,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Unbound => "no driver bound",
            Self::KernelDriver => "a kernel driver bound",
            Self::KernelDriverStrict => "a kernel driver bound, type set to `DMA` before",
            Self::VfioIdle => "`vfio-pci` bound, opened by nobody",
            Self::VfioHeld => "`vfio-pci` bound, held by a container",
            Self::VfioHeldIdentity => "held by a container, type set to `identity` before",
            Self::PairUnbound => "two devices, none bound",
            Self::PairStub => "two devices, the other on `pci-stub`",
            Self::PairDriver => "two devices, the other with a kernel driver",
        }
    }

    /// Steps from the state without drivers and with the type that the kernel booted with.
    fn enter(self, name: &str) -> Vec<Step> {
        let command = |what: &str, words: &[&str]| {
            let mut argv = vec!["lab-sysfs"];
            argv.extend(words);
            script::run(&format!("{name}: {what}"), &argv)
        };
        let vfio = || command("bind", &["bind", OTHER, "vfio-pci"]);
        let hold = || script::start(HOLDER, &["lab-vfio", OTHER, "--wait"]);
        match self {
            Self::Unbound | Self::PairUnbound => Vec::new(),
            Self::KernelDriver => vec![command("bind", &["bind", SINGLE, "uio_pci_generic"])],
            Self::KernelDriverStrict => vec![
                command("strict", &["set-type", SINGLE, "DMA"]),
                command("bind", &["bind", SINGLE, "uio_pci_generic"]),
            ],
            Self::VfioIdle => vec![vfio()],
            Self::VfioHeld => vec![vfio(), hold()],
            Self::VfioHeldIdentity => {
                vec![command("identity", &["set-type", OTHER, "identity"]), vfio(), hold()]
            }
            Self::PairStub => vec![command("bind", &["bind", PAIR[1], "pci-stub"])],
            Self::PairDriver => vec![command("bind", &["bind", PAIR[1], "uio_pci_generic"])],
        }
    }

    /// Steps back from it.
    fn leave(self, name: &str) -> Vec<Step> {
        let mut steps = Vec::new();
        if matches!(self, Self::VfioHeld | Self::VfioHeldIdentity) {
            steps.push(script::stop(HOLDER));
        }
        steps.extend(unbind_all(self.machine(), name));
        let argv = ["lab-sysfs", "set-type", self.subject(), "auto"];
        steps.push(script::run(&format!("{name}: back"), &argv));
        steps
    }
}

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let file = paths::sources().join("expect").join("type-rules.toml");
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let rules: Expected =
        toml::from_str(&text).with_context(|| format!("cannot understand {}", file.display()))?;
    let mut facts = Facts::default();
    let mut rows = Vec::new();
    for machine in ["separate", "replica"] {
        let chosen: Vec<&Rule> =
            rules.rule.iter().filter(|rule| rule.state.machine() == machine).collect();
        let report = boot(kernel, machine, steps(machine, &chosen))?;
        if machine == "separate" {
            let mode = report.stdout("mode")?.trim().to_owned();
            facts.say(format!("The file's mode is {mode}."));
        }
        for (number, rule) in chosen.iter().enumerate() {
            rows.push(row(&mut facts, kernel, &report, number, rule)?);
        }
    }
    facts.table(&["state of the group", "write", "answer", "reads then", "kernel's words"], &rows);
    Ok(facts)
}

fn steps(machine: &str, rules: &[&Rule]) -> Vec<Step> {
    let mut steps = vec![script::run("mode", &["lab-sysfs", "type-mode", SINGLE])];
    steps.extend(unbind_all(machine, "start"));
    for (number, rule) in rules.iter().enumerate() {
        let name = rule_name(number);
        steps.extend(rule.state.enter(&name));
        let subject = rule.state.subject();
        let argv = match rule.write.as_str() {
            "" => vec!["lab-sysfs", "get-type", subject],
            word => vec!["lab-sysfs", "set-type", subject, word],
        };
        steps.push(script::run(&name, &argv));
        steps.extend(rule.state.leave(&name));
    }
    steps
}

/// Steps that leave none of the devices that the rules use with a driver, except those that keep a
/// container's other members viable.
fn unbind_all(machine: &str, name: &str) -> Vec<Step> {
    let devices: &[&str] = if machine == "replica" { &PAIR } else { &[SINGLE, OTHER] };
    let step = |device: &&str| {
        script::run(&format!("{name}: unbind {device}"), &["lab-sysfs", "unbind", device])
    };
    devices.iter().map(step).collect()
}

fn rule_name(number: usize) -> String {
    format!("rule {number}")
}

fn row(
    facts: &mut Facts,
    kernel: &Kernel,
    report: &Report,
    number: usize,
    rule: &Rule,
) -> Result<Vec<String>> {
    let name = rule_name(number);
    let prefix = format!("{name}: ");
    for outcome in report.outcomes.iter().filter(|outcome| outcome.name.starts_with(&prefix)) {
        report.stdout(&outcome.name)?;
    }
    let outcome = report.outcome(&name)?;
    let write = type_write(outcome)?;
    let found = format!("{} {}", write.result, write.reads);
    let what = format!("{}, {:?}", rule.state.describe(), rule.write);
    let key = format!("{}{}", kernel.platform.prefix(), kernel.series);
    let expected = rule.kernels.get(&key).map(String::as_str).unwrap_or_default();
    facts.expect(&what, &found.as_str(), &expected);
    let word = if rule.write.is_empty() { "(only read)" } else { &rule.write };
    // A write's own words in the log; what drivers say when they come and go is of no interest.
    let words: Vec<&str> =
        outcome.kernel.iter().map(String::as_str).filter(|line| line.contains("iommu")).collect();
    Ok(vec![
        rule.state.describe().to_owned(),
        word.to_owned(),
        write.result,
        write.reads,
        words.join("; "),
    ])
}
