//! Units of systemd that the operator named: stopped and started as steps of a plan, and nothing with
//! them. Containers and guests of other managers are the operator's to stop.
//!
//! Jobs are queued (`systemctl --no-block`) and their outcome is read, so that a service that takes
//! its time keeps no lock, and the way back can replace a job that does not end. Properties:
//! `systemd.unit(5)`, `org.freedesktop.systemd1(5)`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use peerway_roads::op::Found;
use peerway_roads::service::{Manager, Service};
use peerway_roads::{Op, Plan};

use super::program::{self, Ran};
use super::{LiveHost, PATIENCE};
use crate::mutator::{Host as _, WriteError, spell};

/// Where systemd's own client is, below the root.
const CLIENT: &str = "usr/bin/systemctl";
/// There while systemd is the manager of the system (`sd_booted(3)`).
const RUNS: &str = "/run/systemd/system";
/// What a unit may take to stop: systemd's own limit is 90 s (`systemd-system.conf(5)`,
/// `DefaultTimeoutStopSec=`).
const STOP_PATIENCE: Duration = Duration::from_mins(2);
/// What a start may take until it is under way.
const START_PATIENCE: Duration = Duration::from_secs(30);
const BETWEEN: Duration = Duration::from_millis(250);
/// Units that stop when this one does.
const DRAGGED: [&str; 5] =
    ["RequiredBy", "BoundBy", "ConsistsOf", "RequisiteOf", "PropagatesStopTo"];
const ASKED: &str = "--property=Id,LoadState,ActiveState,RequiredBy,BoundBy,ConsistsOf,RequisiteOf,\
                     PropagatesStopTo,TriggeredBy";

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
        let mut words = vec!["show", ASKED, "--"];
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

    /// State of a unit that is there: `ActiveState` of `org.freedesktop.systemd1(5)`.
    fn state(&self, service: &Service) -> Result<String, String> {
        let units = self.units(std::slice::from_ref(&service.name))?;
        let unit = units.first().ok_or_else(|| "systemctl told nothing".to_owned())?;
        match (word(unit, "LoadState"), word(unit, "ActiveState")) {
            ("loaded", "") => Err(format!("systemctl tells no state of {service}")),
            ("loaded", state) => Ok(state.to_owned()),
            (other, _) => Err(format!("systemd has no unit {} ({other})", service.name)),
        }
    }

    /// Whether a unit runs; one that is being stopped still does.
    pub(super) fn service(&self, act: &Op, service: &Service) -> Result<Found, WriteError> {
        if let Some(why) = other_manager(service) {
            return Err(WriteError::NotOffered { act: spell(act), why });
        }
        match self.state(service).map_err(|why| Self::unreadable(act, why))?.as_str() {
            "inactive" | "failed" => Ok(Found::Nothing),
            _ => Ok(Found::Value("running".to_owned())),
        }
    }

    /// Stops or starts a unit, and waits until it is stopped, or its start is under way.
    pub(super) fn switch_service(&self, act: &Op, service: &Service) -> Result<(), WriteError> {
        let not_offered = |why: String| WriteError::NotOffered { act: spell(act), why };
        let (word, limit) = match act {
            Op::Stop { .. } => ("stop", STOP_PATIENCE),
            _ => ("start", START_PATIENCE),
        };
        let words = [word, "--no-block", "--no-ask-password", "--", &service.name];
        match program::run(&self.blocking, (&self.client(), &words), &spell(act), PATIENCE) {
            Ok(Ran::Done) => {}
            Ok(Ran::Refused(said)) => return Err(not_offered(format!("systemctl says {said}"))),
            Ok(Ran::Hangs) => return Err(WriteError::Hangs { act: spell(act) }),
            Err(why) => return Err(not_offered(why)),
        }
        let end = Instant::now() + limit;
        loop {
            let state = self.state(service).map_err(|why| Self::unreadable(act, why))?;
            match (word, state.as_str()) {
                ("stop", "inactive" | "failed") => return Ok(()),
                ("start", "active" | "activating" | "reloading" | "refreshing") => return Ok(()),
                ("start", "failed") => return Err(not_offered(format!("{service} failed"))),
                _ if Instant::now() >= end => {
                    let seconds = limit.as_secs();
                    return Err(not_offered(format!("{service} is {state} after {seconds} s")));
                }
                _ => std::thread::sleep(BETWEEN),
            }
        }
    }

    /// Why units of a plan cannot be stopped without stopping what nobody named, or would not stay
    /// stopped.
    pub(super) fn services_refuse(&self, plan: &Plan) -> Option<String> {
        let services = plan.services();
        if let Some(why) = services.iter().find_map(|service| other_manager(service)) {
            return Some(why);
        }
        if services.is_empty() {
            return None;
        }
        self.units_refuse(&services).err()
    }

    fn units_refuse(&self, services: &BTreeSet<&Service>) -> Result<(), String> {
        let names: Vec<String> = services.iter().map(|service| service.name.clone()).collect();
        let units = self.units(&names)?;
        let named: BTreeSet<&str> = units.iter().map(|unit| word(unit, "Id")).collect();
        for (service, unit) in services.iter().zip(&units) {
            let (load, state) = (word(unit, "LoadState"), word(unit, "ActiveState"));
            if load != "loaded" {
                return Err(format!("systemd has no unit {} ({load})", service.name));
            }
            if state == "deactivating" {
                return Err(format!("{service} is being stopped just now: wait for that"));
            }
            if self.is_within(word(unit, "Id"))? {
                return Err(format!(
                    "this command runs within {service}, and would be ended by it"
                ));
            }
            let dragged = DRAGGED.iter().flat_map(|name| word(unit, name).split(' '));
            if let Some(other) = self.first_active(dragged, &named)? {
                return Err(format!(
                    "stopping {service} would stop {other} too: name it as well, or stop both \
                     yourself"
                ));
            }
            let triggers = word(unit, "TriggeredBy").split(' ');
            if let Some(other) = self.first_active(triggers, &named)? {
                return Err(format!(
                    "{other} would start {service} again meanwhile: name it as well"
                ));
            }
        }
        Ok(())
    }

    /// The first unit that is active and not one of those that were named.
    fn first_active<'a>(
        &self,
        others: impl Iterator<Item = &'a str>,
        named: &BTreeSet<&str>,
    ) -> Result<Option<String>, String> {
        let others: BTreeSet<&str> =
            others.filter(|name| !name.is_empty() && !named.contains(name)).collect();
        if others.is_empty() {
            return Ok(None);
        }
        let others: Vec<String> = others.into_iter().map(str::to_owned).collect();
        let units = self.units(&others)?;
        let active = |unit: &&Unit| !matches!(word(unit, "ActiveState"), "inactive" | "failed");
        Ok(units.iter().find(active).map(|unit| word(unit, "Id").to_owned()))
    }

    /// Whether this process is in the control group of a unit.
    fn is_within(&self, id: &str) -> Result<bool, String> {
        let root = self.root().map_err(|error| error.to_string())?;
        let text = root
            .text("/proc/self/cgroup", peerway_read::root::SMALL)
            .map_err(|error| format!("in which unit this command runs is unknown: {error}"))?;
        Ok(text.lines().any(|line| line.split('/').any(|part| part == id)))
    }
}

fn other_manager(service: &Service) -> Option<String> {
    (service.manager != Manager::Unit).then(|| {
        format!(
            "{service} is not stopped or started on a running host yet: that was tried with units of \
             systemd only. Stop it yourself, and make the plan with --stop operator"
        )
    })
}

fn word<'a>(unit: &'a Unit, name: &str) -> &'a str {
    unit.get(name).map_or("", String::as_str)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the tree of the stand-in")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::super::tests::{allow, host, tree};
    use super::*;
    use crate::mutator::Mutator as _;

    /// A client that keeps each unit in a file, as systemd prints its properties. What it was told
    /// to do is in `told`.
    const CLIENT_TEXT: &str = "verb=$1; shift
while [ \"$1\" != -- ]; do shift; done; shift
for unit; do
    file=$PLACE/units/$unit
    case $verb in
    show) [ -e \"$file\" ] && cat \"$file\" || echo \"Id=$unit\nLoadState=not-found\"; echo ;;
    stop) echo stop $unit >> $PLACE/told; sed -i s/=active/=inactive/ \"$file\" ;;
    start) echo start $unit >> $PLACE/told; sed -i s/=inactive/=active/ \"$file\" ;;
    esac
done";

    fn with_units(units: &[(&str, &str)]) -> tempfile::TempDir {
        let place = tree();
        let root = place.path();
        for directory in ["usr/bin", "run/systemd/system", "units", "proc/self"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        let text = format!("#!/bin/sh\nPLACE={}\n{CLIENT_TEXT}\n", root.display());
        let text = format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{text}");
        std::fs::write(root.join(CLIENT), text).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(root.join(CLIENT), mode).unwrap();
        std::fs::write(root.join("proc/self/cgroup"), "0::/user.slice/session-1.scope\n").unwrap();
        for (name, properties) in units {
            let text = format!("Id={name}\nLoadState=loaded\n{properties}\n");
            std::fs::write(root.join("units").join(name), text).unwrap();
        }
        place
    }

    fn named(name: &str) -> Service {
        Service { manager: Manager::Unit, name: name.to_owned() }
    }

    fn told(place: &Path) -> String {
        std::fs::read_to_string(place.join("told")).unwrap_or_default()
    }

    #[test]
    fn a_unit_is_stopped_and_started() {
        let place = with_units(&[("engine.service", "ActiveState=active")]);
        let mut host = host(place.path());
        let service = named("engine.service");
        let (stop, start) =
            (Op::Stop { service: service.clone() }, Op::Start { service: service.clone() });
        assert_eq!(host.current(&stop).unwrap(), Found::Value("running".to_owned()));
        let error = host.perform(&stop).unwrap_err();
        assert!(error.to_string().contains("no step of the plan names unit:engine"), "{error}");
        assert_eq!(told(place.path()), "");
        allow(&mut host, &[Op::Restart { service }], "");
        host.perform(&stop).unwrap();
        assert_eq!(host.current(&stop).unwrap(), Found::Nothing);
        host.perform(&start).unwrap();
        assert_eq!(host.current(&start).unwrap(), Found::Value("running".to_owned()));
        assert_eq!(told(place.path()), "stop engine.service\nstart engine.service\n");
    }

    #[test]
    fn what_is_not_there_is_not_stopped() {
        let place = with_units(&[]);
        let host = host(place.path());
        let error = host.current(&Op::Stop { service: named("engine.service") }).unwrap_err();
        assert!(error.to_string().contains("no unit engine.service (not-found)"), "{error}");
        std::fs::remove_dir(place.path().join("run/systemd/system")).unwrap();
        let error = host.current(&Op::Stop { service: named("engine.service") }).unwrap_err();
        assert!(error.to_string().contains("systemd does not run here"), "{error}");
        let guest = Op::Stop { service: "qm:132".parse().unwrap() };
        let error = host.current(&guest).unwrap_err();
        assert!(error.to_string().contains("units of systemd only"), "{error}");
    }

    #[track_caller]
    fn check(named: &[&str], units: &[(&str, &str)], says: Option<&str>) {
        let place = with_units(units);
        let host = host(place.path());
        let services: Vec<Service> = named.iter().copied().map(self::named).collect();
        let seen = host.units_refuse(&services.iter().collect()).err();
        match says {
            None => assert_eq!(seen, None),
            Some(says) => {
                assert!(seen.as_ref().is_some_and(|why| why.contains(says)), "{seen:?}");
            }
        }
    }

    #[test]
    fn nothing_is_stopped_that_nobody_named() {
        let front = ("front.service", "ActiveState=active");
        let engine = |more: &str| format!("ActiveState=active\n{more}");
        let one = ["engine.service"];
        check(&one, &[("engine.service", &engine(""))], None);
        check(&one, &[], Some("no unit engine.service"));
        check(&one, &[("engine.service", "ActiveState=deactivating")], Some("just now"));
        let bound = engine("BoundBy=front.service");
        check(&one, &[("engine.service", &bound), front], Some("would stop front.service too"));
        let asleep = ("front.service", "ActiveState=inactive");
        check(&one, &[("engine.service", &bound), asleep], None);
        check(&["engine.service", "front.service"], &[("engine.service", &bound), front], None);
        let socket = ("engine.socket", "ActiveState=active");
        let triggered = engine("TriggeredBy=engine.socket");
        check(&one, &[("engine.service", &triggered), socket], Some("would start unit:engine"));
        let session = [("session-1.scope", "ActiveState=active")];
        check(&["session-1.scope"], &session, Some("runs within unit:session-1.scope"));
    }
}
