//! Units of systemd that the operator named: stopped and started as steps of a plan, and nothing with
//! them. A unit of which stopping or starting would do more than its name says is the operator's to
//! stop; containers and machines are [`super::guest`]'s.
//!
//! Jobs are queued (`systemctl --no-block`) and their outcome is read, so that a service that takes
//! its time keeps no lock, and the way back replaces a job that does not end. Properties:
//! `systemd.unit(5)`, `org.freedesktop.systemd1(5)`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use peerway_core::address::PciAddress;
use peerway_read::root::SMALL;
use peerway_roads::op::Found;
use peerway_roads::service::{Manager, Service};
use peerway_roads::{Op, Plan};

use super::program::{self, Ran};
use super::{LiveHost, PATIENCE};
use crate::mutator::{Host as _, WriteError, spell};
use crate::scope;
use crate::wait;

/// Where systemd's own client is, below the root.
const CLIENT: &str = "usr/bin/systemctl";
/// There while systemd is the manager of the system (`sd_booted(3)`).
const RUNS: &str = "/run/systemd/system";
/// What a unit may take to stop: systemd's own limit is 90 s (`systemd-system.conf(5)`,
/// `DefaultTimeoutStopSec=`), and some units have twice that.
const STOP_PATIENCE: Duration = Duration::from_mins(4);
/// What a start may take until it is under way; one that waits for a stop has the time of both.
const START_PATIENCE: Duration = Duration::from_secs(30);
const BETWEEN: Duration = Duration::from_millis(250);
/// Units that stop when this one does.
const DRAGGED: [&str; 5] =
    ["RequiredBy", "BoundBy", "ConsistsOf", "RequisiteOf", "PropagatesStopTo"];
/// Units that would start it again.
const WAKING: [&str; 2] = ["TriggeredBy", "UpheldBy"];
/// Units that it starts when it ends, in whatever state they are.
const FOLLOWING: [&str; 2] = ["OnSuccess", "OnFailure"];
const PROPERTIES: [&str; 21] = [
    "Id",
    "LoadState",
    "ActiveState",
    "Job",
    "Type",
    "Transient",
    "CanStart",
    "CanStop",
    "RefuseManualStart",
    "RefuseManualStop",
    "ControlGroup",
    "Conflicts",
    "RequiredBy",
    "BoundBy",
    "ConsistsOf",
    "RequisiteOf",
    "PropagatesStopTo",
    "TriggeredBy",
    "UpheldBy",
    "OnSuccess",
    "OnFailure",
];

/// Properties of one unit by name.
type Unit = BTreeMap<String, String>;

impl LiveHost {
    fn client(&self) -> PathBuf {
        self.place.join(CLIENT)
    }

    /// What systemd says of some units, in the order in which they were named.
    fn units(&self, names: &[String]) -> Result<Vec<Unit>, String> {
        let root = self.root().map_err(|error| error.to_string())?;
        root.list(RUNS).map_err(|error| format!("systemd does not run here: {error}"))?;
        let asked = format!("--property={}", PROPERTIES.join(","));
        let mut words = vec!["show", &asked, "--"];
        words.extend(names.iter().map(String::as_str));
        let text = program::ask((&self.client(), &words), PATIENCE)?;
        // A blank line between two units.
        let blocks = text.split("\n\n").map(|block| {
            let pairs = block.lines().filter_map(|line| line.split_once('='));
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Unit>()
        });
        let units: Vec<Unit> = blocks.filter(|unit| !unit.is_empty()).collect();
        if units.len() == names.len() {
            Ok(units)
        } else {
            Err(format!(
                "systemctl told of {} units, and was asked of {}",
                units.len(),
                names.len()
            ))
        }
    }

    /// A unit that is there.
    fn unit(&self, service: &Service) -> Result<Unit, String> {
        let mut units = self.units(std::slice::from_ref(&service.name))?;
        let unit = units.pop().unwrap_or_default();
        match (word(&unit, "LoadState"), word(&unit, "ActiveState")) {
            ("loaded", "") => Err(format!("systemctl tells no state of {service}")),
            ("loaded", _) => Ok(unit),
            (other, _) => Err(format!("systemd has no unit {} ({other})", service.name)),
        }
    }

    /// Whether a unit runs, as an act asks it: one that still stops is not yet stopped, and is no
    /// more started.
    pub(super) fn service(&self, act: &Op, service: &Service) -> Result<Found, WriteError> {
        if service.manager != Manager::Unit {
            return self.guest(act, service);
        }
        let unit = self.unit(service).map_err(|why| Self::unreadable(act, why))?;
        let runs = match act {
            Op::Stop { .. } => !is_stopped(&unit),
            _ => is_started(&unit),
        };
        Ok(if runs { Found::Value("running".to_owned()) } else { Found::Nothing })
    }

    /// Stops or starts a unit, and waits until it is stopped, or its start is under way.
    pub(super) fn switch_service(&self, act: &Op, service: &Service) -> Result<(), WriteError> {
        if service.manager != Manager::Unit {
            return self.switch_guest(act, service);
        }
        let not_offered = |why: String| WriteError::NotOffered { act: spell(act), why };
        let unit = self.unit(service).map_err(not_offered)?;
        if let Op::Stop { .. } = act {
            // Others may have come to depend on it since the plan began.
            self.stops_alone(service, &unit).map_err(not_offered)?;
            self.tell(act, "stop", service)?;
            return self.settles(act, service, STOP_PATIENCE);
        }
        let conflicts = words(&unit, &["Conflicts"]).map_err(not_offered)?;
        if let Some(other) = self.first_active(conflicts).map_err(not_offered)? {
            return Err(not_offered(format!("starting {service} would stop {other}")));
        }
        self.tell(act, "start", service)?;
        let started = self.settles(act, service, STOP_PATIENCE + START_PATIENCE);
        if started.is_err() {
            // A job that is still queued would start it later, in the middle of something else.
            self.tell(act, "stop", service)?;
        }
        started
    }

    fn tell(&self, act: &Op, verb: &str, service: &Service) -> Result<(), WriteError> {
        let not_offered = |why: String| WriteError::NotOffered { act: spell(act), why };
        let words = [verb, "--no-block", "--no-ask-password", "--", &service.name];
        match program::run(&self.blocking, (&self.client(), &words), &spell(act), PATIENCE) {
            Ok(Ran::Done) => Ok(()),
            Ok(Ran::Refused(said)) => Err(not_offered(format!("systemctl says {said}"))),
            Ok(Ran::Hangs) => Err(WriteError::Hangs { act: spell(act) }),
            Err(why) => Err(not_offered(why)),
        }
    }

    /// Waits until a job that was queued has had its effect, or is gone without it.
    fn settles(&self, act: &Op, service: &Service, limit: Duration) -> Result<(), WriteError> {
        let not_offered = |why: String| WriteError::NotOffered { act: spell(act), why };
        let begun = Instant::now();
        loop {
            let unit = self.unit(service).map_err(not_offered)?;
            let there = match act {
                Op::Stop { .. } => is_stopped(&unit),
                _ => is_started(&unit),
            };
            if there {
                return Ok(());
            }
            let (state, waited) = (word(&unit, "ActiveState"), begun.elapsed());
            // The state of before is read until the job has begun.
            let over = !has_job(&unit) && is_stopped(&unit) && waited > START_PATIENCE;
            if over || waited > limit {
                let seconds = waited.as_secs();
                return Err(not_offered(format!("{service} is {state} after {seconds} s")));
            }
            std::thread::sleep(BETWEEN);
        }
    }

    /// Why units of a plan are not Peerway's to stop: they would stop or start what nobody named, or
    /// could not be started again.
    pub(super) fn services_refuse(&self, plan: &Plan) -> Option<String> {
        let services = plan.services();
        let reach = scope::reach(plan);
        services.iter().find_map(|service| self.service_refuses(service, &reach).err())
    }

    fn service_refuses(&self, service: &Service, reach: &[PciAddress]) -> Result<(), String> {
        if service.manager != Manager::Unit {
            return self.guest_refuses(service, reach);
        }
        let unit = self.unit(service)?;
        let id = word(&unit, "Id");
        if id != service.name && id != format!("{}.service", service.name) {
            return Err(format!("{service} is another name of {id}: name that"));
        }
        let own = Service { manager: Manager::Unit, name: id.to_owned() };
        let stays = "stop it yourself, and make the plan with --stop operator";
        if own.is_shared() || own.tenant().is_some() {
            return Err(format!("{service} is not one tenant's service: {stays}"));
        }
        for (name, wanted) in [
            ("Transient", "no"),
            ("CanStart", "yes"),
            ("CanStop", "yes"),
            ("RefuseManualStart", "no"),
            ("RefuseManualStop", "no"),
        ] {
            if word(&unit, name) != wanted {
                let is = word(&unit, name);
                return Err(format!("{service} has {name}={is}: {stays}"));
            }
        }
        let kind = word(&unit, "Type");
        if !id.ends_with(".service") || matches!(kind, "" | "oneshot") {
            return Err(format!("{service} is no service that runs on ({kind:?}): {stays}"));
        }
        let state = word(&unit, "ActiveState");
        if state != "active" || has_job(&unit) {
            return Err(format!(
                "{service} is {state}, or changes just now: leave it out, or wait"
            ));
        }
        self.stops_alone(service, &unit)?;
        self.holds(service, word(&unit, "ControlGroup"), reach)
    }

    /// Stopping it stops nothing else, ends not this command, and lasts.
    fn stops_alone(&self, service: &Service, unit: &Unit) -> Result<(), String> {
        let group = word(unit, "ControlGroup");
        let own = self.group_of("self")?.ok_or("in which unit this command runs is unknown")?;
        if !group.is_empty() && within(&own, group) {
            return Err(format!("this command runs within {service}, and would be ended by it"));
        }
        if let Some(other) = self.first_active(self.dragged(unit)?)? {
            return Err(format!("stopping {service} would stop {other} too: stop both yourself"));
        }
        if let Some(other) = words(unit, &FOLLOWING)?.first() {
            return Err(format!("{other} would start when {service} ends: stop it yourself"));
        }
        match self.first_active(words(unit, &WAKING)?)? {
            Some(other) => Err(format!("{other} would start {service} again: stop both yourself")),
            None => Ok(()),
        }
    }

    /// All units that stop with it, whatever their states: those between may be asleep.
    fn dragged(&self, unit: &Unit) -> Result<BTreeSet<String>, String> {
        let mut all = words(unit, &DRAGGED)?;
        let mut new = all.clone();
        while !new.is_empty() {
            let names: Vec<String> = new.iter().cloned().collect();
            let mut next = BTreeSet::new();
            for unit in self.units(&names)? {
                next.extend(words(&unit, &DRAGGED)?);
            }
            new = next.difference(&all).cloned().collect();
            all.extend(next);
        }
        Ok(all)
    }

    /// The first of some units that runs, or is about to.
    fn first_active(&self, others: BTreeSet<String>) -> Result<Option<String>, String> {
        if others.is_empty() {
            return Ok(None);
        }
        let names: Vec<String> = others.into_iter().collect();
        let units = self.units(&names)?;
        let active = units.iter().zip(&names).find(|(unit, _)| !is_stopped(unit));
        Ok(active.map(|(_, name)| name.clone()))
    }

    /// Something that runs in it has one of the devices: a unit that holds none is no reason.
    fn holds(&self, service: &Service, group: &str, reach: &[PciAddress]) -> Result<(), String> {
        for pid in wait::pids(self, reach)? {
            // One that is gone by now holds nothing.
            let text = self.group_of(&pid.to_string())?.unwrap_or_default();
            if !group.is_empty() && within(&text, group) {
                return Ok(());
            }
        }
        Err(format!("nothing that runs in {service} has one of the devices open: leave it out"))
    }

    /// Control groups of a process, one line each; none of one that is gone.
    pub(super) fn group_of(&self, process: &str) -> Result<Option<String>, String> {
        let root = self.root().map_err(|error| error.to_string())?;
        match root.text(&format!("/proc/{process}/cgroup"), SMALL) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(format!("in which unit process {process} runs is unknown: {error}")),
        }
    }
}

/// Whether a process is in a control group or below it, by the text of its `cgroup`: lines
/// `NUMBER:CONTROLLERS:PATH` (cgroups(7)).
fn within(text: &str, group: &str) -> bool {
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|path| {
        path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn word<'a>(unit: &'a Unit, name: &str) -> &'a str {
    unit.get(name).map_or("", String::as_str)
}

/// The units that some properties list. Every service conflicts with the end of the system.
fn words(unit: &Unit, names: &[&str]) -> Result<BTreeSet<String>, String> {
    let all = names.iter().flat_map(|name| word(unit, name).split(' '));
    let all: BTreeSet<String> = all
        .filter(|name| !name.is_empty() && *name != "shutdown.target")
        .map(str::to_owned)
        .collect();
    // Names with a backslash are printed for a shell.
    match all.iter().find(|name| name.contains(['"', '\'', '$', '\\'])) {
        Some(name) => Err(format!("the unit {name} has a name that cannot be asked about")),
        None => Ok(all),
    }
}

fn has_job(unit: &Unit) -> bool {
    !matches!(word(unit, "Job"), "" | "0")
}

/// Nothing of it runs, and nothing is about to.
fn is_stopped(unit: &Unit) -> bool {
    matches!(word(unit, "ActiveState"), "inactive" | "failed") && !has_job(unit)
}

/// It runs, or is on its way, and nobody asked for something else.
fn is_started(unit: &Unit) -> bool {
    match word(unit, "ActiveState") {
        "active" => !has_job(unit),
        "activating" | "reloading" | "refreshing" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
