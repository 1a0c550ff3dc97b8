//! Containers and virtual machines that a plan names, stopped and started by their managers' own programs:
//! `pct` and `qm` of Proxmox VE (pct(1), qm(1)), and those of LXC (lxc-stop(1), lxc-start(1)). They are asked to
//! shut down, and never ended by force: the change goes back where one does not stop in time, and it may still
//! stop later.
//! Containers of other engines are the operator's to stop.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use peerway_core::address::PciAddress;
use peerway_read::root::SMALL;
use peerway_roads::Op;
use peerway_roads::op::Found;
use peerway_roads::service::{Manager, Service};

use super::program::{self, Ran};
use super::{LiveHost, PATIENCE};
use crate::mutator::{Host as _, WriteError, spell};
use crate::wait;

/// Seconds that a shutdown is given, by each program itself.
const SHUTDOWN: &str = "180";
/// When none of them answers any more.
const SHUTDOWN_PATIENCE: Duration = Duration::from_mins(4);
const START_PATIENCE: Duration = Duration::from_mins(2);
/// How long a shutdown is waited for that its manager gave up.
const LATE: Duration = Duration::from_mins(2);
const BETWEEN: Duration = Duration::from_secs(1);
/// What the high-availability manager of Proxmox VE keeps in a state of its own choice.
const KEPT: &str = "/etc/pve/ha/resources.cfg";
/// Stands for the name.
const NAME: &str = "NAME";

/// A program below the root, and its words.
type Line = (&'static str, &'static [&'static str]);

/// How a manager is told.
struct Tool {
    state: Line,
    stop: Line,
    start: Line,
}

const PCT: Tool = Tool {
    state: ("usr/sbin/pct", &["status", NAME]),
    stop: ("usr/sbin/pct", &["shutdown", NAME, "--timeout", SHUTDOWN]),
    start: ("usr/sbin/pct", &["start", NAME]),
};
const QM: Tool = Tool {
    state: ("usr/sbin/qm", &["status", NAME]),
    stop: ("usr/sbin/qm", &["shutdown", NAME, "--timeout", SHUTDOWN]),
    start: ("usr/sbin/qm", &["start", NAME]),
};
const LXC: Tool = Tool {
    state: ("usr/bin/lxc-info", &["-n", NAME, "-s", "-H"]),
    stop: ("usr/bin/lxc-stop", &["-n", NAME, "-t", SHUTDOWN, "--nokill"]),
    start: ("usr/bin/lxc-start", &["-n", NAME, "-d"]),
};

fn tool(service: &Service) -> Result<Tool, String> {
    match service.manager {
        Manager::Pct => Ok(PCT),
        Manager::Qm => Ok(QM),
        Manager::Lxc => Ok(LXC),
        Manager::Unit | Manager::Docker | Manager::Podman | Manager::Virsh => Err(format!(
            "{service} is not stopped or started on a running host: services of systemd, pct:, qm: and lxc: \
             are. Stop it yourself, and make the plan with --stop operator"
        )),
    }
}

impl LiveHost {
    fn line<'a>(&self, (program, words): Line, service: &'a Service) -> (PathBuf, Vec<&'a str>) {
        let word = |word: &&'static str| if *word == NAME { service.name.as_str() } else { *word };
        (self.place.join(program), words.iter().map(word).collect())
    }

    /// Its state in its manager's word.
    fn state_of(&self, service: &Service) -> Result<String, String> {
        let (program, words) = self.line(tool(service)?.state, service);
        let text = program::ask((&program, &words), PATIENCE)?;
        // `status: running`, or the word alone.
        let word = text.split_whitespace().last().unwrap_or_default().to_lowercase();
        if word.is_empty() {
            return Err(format!("{} tells no state of {service}", program.display()));
        }
        Ok(word)
    }

    /// Whether it runs, as an act asks it: one that is on its way is neither stopped nor started.
    pub(super) fn guest(&self, act: &Op, service: &Service) -> Result<Found, WriteError> {
        if let Err(why) = tool(service) {
            return Err(WriteError::NotOffered { act: spell(act), why });
        }
        let state = self.state_of(service).map_err(|why| Self::unreadable(act, why))?;
        let runs = match act {
            Op::Stop { .. } => state != "stopped",
            _ => state == "running",
        };
        Ok(if runs { Found::Value("running".to_owned()) } else { Found::Nothing })
    }

    pub(super) fn switch_guest(&self, act: &Op, service: &Service) -> Result<(), WriteError> {
        let not_offered = |why: String| WriteError::NotOffered { act: spell(act), why };
        let tool = tool(service).map_err(not_offered)?;
        let (line, limit) = match act {
            Op::Stop { .. } => {
                // It may have become the manager's own since the plan began.
                self.is_ours_to_stop(service).map_err(not_offered)?;
                (tool.stop, SHUTDOWN_PATIENCE)
            }
            _ => (tool.start, START_PATIENCE),
        };
        let (program, words) = self.line(line, service);
        match program::run(&self.blocking, (&program, &words), &spell(act), limit) {
            Ok(Ran::Done) => Ok(()),
            Ok(Ran::Refused(said)) => {
                // What was asked to shut down may do so after its manager gave up, and would stay down.
                let stops = matches!(act, Op::Stop { .. });
                let end = Instant::now() + LATE;
                while stops && Instant::now() < end {
                    if self.state_of(service).map_err(not_offered)? == "stopped" {
                        return Ok(());
                    }
                    std::thread::sleep(BETWEEN);
                }
                let late = if stops { "; it may still shut down: look at it" } else { "" };
                Err(not_offered(format!("{} says {said}{late}", program.display())))
            }
            Ok(Ran::Hangs) => Err(WriteError::Hangs { act: spell(act) }),
            Err(why) => Err(not_offered(why)),
        }
    }

    /// Why it is not Peerway's to stop, or has nothing to do with the devices.
    pub(super) fn guest_refuses(
        &self,
        service: &Service,
        reach: &[PciAddress],
    ) -> Result<(), String> {
        let state = self.state_of(service)?;
        if state != "running" {
            return Err(format!("{service} is {state}: leave it out, or wait"));
        }
        self.is_ours_to_stop(service)?;
        for pid in wait::pids(self, reach)? {
            // One that is gone by now holds nothing.
            let text = self.group_of(&pid.to_string())?.unwrap_or_default();
            if is_in(&text, service) {
                return Ok(());
            }
        }
        Err(format!("nothing that runs in {service} has one of the devices open: leave it out"))
    }

    /// Nobody else is at it, and nobody would start it again.
    fn is_ours_to_stop(&self, service: &Service) -> Result<(), String> {
        let (directory, kind) = match service.manager {
            Manager::Pct => ("lxc", "ct"),
            Manager::Qm => ("qemu-server", "vm"),
            _ => {
                // On Proxmox VE its own program knows of locks and of who keeps it.
                let root = self.root().map_err(|error| error.to_string())?;
                let path = format!("/etc/pve/lxc/{}.conf", service.name);
                return match root.text(&path, SMALL) {
                    Err(error) if error.is_absent() => Ok(()),
                    _ => Err(format!("{service} is Proxmox's: name pct:{}", service.name)),
                };
            }
        };
        let root = self.root().map_err(|error| error.to_string())?;
        match root.text(KEPT, SMALL) {
            Ok(text) if is_kept(&text, kind, &service.name) => {
                return Err(format!(
                    "the high-availability manager keeps {service} as it is: stop it there, and make the \
                     plan with --stop operator"
                ));
            }
            Ok(_) => {}
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(format!("who keeps {service} is unknown: {error}")),
        }
        let path = format!("/etc/pve/{directory}/{}.conf", service.name);
        let text = root.text(&path, SMALL).map_err(|error| error.to_string())?;
        match lock_of(&text) {
            Some(lock) => Err(format!("{service} is locked by its manager ({lock}): wait for it")),
            None => Ok(()),
        }
    }
}

/// Whether a resource stands in the manager's list: `ct: 101` begins its section.
fn is_kept(text: &str, kind: &str, name: &str) -> bool {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .any(|(word, rest)| word == kind && rest.split_whitespace().next() == Some(name))
}

/// What a guest is locked for, from its own section, which comes before those of its snapshots.
fn lock_of(text: &str) -> Option<&str> {
    let own = text.lines().take_while(|line| !line.starts_with('['));
    own.filter_map(|line| line.strip_prefix("lock:")).map(str::trim).next()
}

/// Whether a process runs in a guest, by the text of its `cgroup`: lines `NUMBER:CONTROLLERS:PATH` (cgroups(7)).
/// Those of root stand at the top, or below the service that started them; one of the same name further down is a
/// user's (`/user.slice/…`) or within another guest.
fn is_in(text: &str, service: &Service) -> bool {
    let name = &service.name;
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|path| {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let own = match parts.as_slice() {
            ["system.slice", _, own @ ..] => own,
            own => own,
        };
        let container = own.starts_with(&["lxc", name]);
        match service.manager {
            Manager::Pct => container,
            Manager::Lxc => {
                let payload = format!("lxc.payload.{name}");
                container || own.first() == Some(&payload.as_str())
            }
            Manager::Qm => own.starts_with(&["qemu.slice", &format!("{name}.scope")]),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests;
