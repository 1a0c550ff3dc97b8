//! Whose view a measurement has: `--in lxc:ID` and `--in pid:N`, found by what the host shows.

use std::str::FromStr;

use peerway_core::snapshot::tenant::TenantKind;
use peerway_gpu::View;
use peerway_read::parse::cgroup;
use peerway_read::root::Root;
use thiserror::Error;

/// The hidden subcommand of the process that enters a view.
pub(super) const ENTER: &str = "gpu-test-enter";

/// Whose view is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// An LXC container, as Proxmox and LXC run it.
    Lxc(String),
    /// Any process.
    Pid(u32),
}

/// A word that names no view.
#[derive(Debug, Error)]
#[error("write lxc:ID or pid:N, as in lxc:101")]
pub(crate) struct WantedError;

impl FromStr for Wanted {
    type Err = WantedError;

    fn from_str(text: &str) -> Result<Self, WantedError> {
        match text.split_once(':') {
            Some(("lxc", id)) if id.chars().all(is_name) && id.chars().any(|one| one != '.') => {
                Ok(Self::Lxc(id.to_owned()))
            }
            Some(("pid", number)) => match number.parse() {
                Ok(pid) if pid > 0 => Ok(Self::Pid(pid)),
                _ => Err(WantedError),
            },
            _ => Err(WantedError),
        }
    }
}

/// What names of containers are made of.
fn is_name(one: char) -> bool {
    one.is_ascii_alphanumeric() || matches!(one, '-' | '_' | '.')
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lxc(id) => write!(out, "lxc:{id}"),
            Self::Pid(pid) => write!(out, "pid:{pid}"),
        }
    }
}

impl Wanted {
    /// The tenant that it is, where the word says it.
    pub(super) fn tenant(&self) -> Option<String> {
        matches!(self, Self::Lxc(_)).then(|| self.to_string())
    }

    /// Finds the process whose view it is.
    pub(super) fn resolve(&self, root: &Root) -> Result<View, String> {
        let pid = match self {
            Self::Pid(pid) => *pid,
            Self::Lxc(id) => first_process(root, id)?,
        };
        let stat = root
            .text(&format!("/proc/{pid}/stat"), peerway_read::root::SMALL)
            .map_err(|_| format!("there is no process {pid} here"))?;
        let start = started(&stat).ok_or_else(|| format!("/proc/{pid}/stat cannot be read"))?;
        Ok(View { name: self.to_string(), pid, start, arguments: vec![ENTER.to_owned()] })
    }
}

/// Field 22, behind the name in parentheses (`proc_pid_stat(5)`).
fn started(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The first process of a container: of those in its control group, the one that is number 1 one
/// level below the host. LXC's monitor is in a group of its own.
fn first_process(root: &Root, id: &str) -> Result<u32, String> {
    let names = root.list("/proc").map_err(|error| error.to_string())?;
    let mut running = Vec::new();
    let mut inside = 0_u32;
    for pid in names.iter().filter_map(|name| name.parse::<u32>().ok()) {
        // A process that ended meanwhile, or that may not be read.
        let Ok(groups) = root.text(&format!("/proc/{pid}/cgroup"), peerway_read::root::SMALL)
        else {
            continue;
        };
        let Some((TenantKind::Lxc, name)) = cgroup::named(&groups) else { continue };
        if name != id {
            running.push(name);
            continue;
        }
        inside += 1;
        let status = root.observe(&format!("/proc/{pid}/status"));
        if status.known().is_some_and(|status| is_first(status)) {
            return Ok(pid);
        }
    }
    running.sort();
    running.dedup();
    Err(not_found(root, id, &running, inside))
}

/// `NSpid` lists a process's number in every level from the reader's on down.
fn is_first(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let mut numbers = numbers.unwrap_or_default().split_ascii_whitespace();
    let (own, inner) = (numbers.next(), numbers.next());
    own.is_some() && inner == Some("1") && numbers.next().is_none()
}

fn not_found(root: &Root, id: &str, running: &[String], inside: u32) -> String {
    if inside > 0 {
        return format!(
            "container {id} has {inside} processes, but none of them shows as its first one; name \
             one of its processes with --in pid:N"
        );
    }
    // Made by LXC for each container, by Proxmox when one starts.
    if root.list(&format!("/var/lib/lxc/{id}")).is_ok() {
        return format!(
            "container {id} does not run: start it first (pct start {id}, or lxc-start {id})"
        );
    }
    match running {
        [] => format!("no LXC container runs here, so there is no {id}"),
        some => format!("there is no container {id}; running here: {}", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use peerway_read::host_file;
    use std::sync::Arc;

    /// Two containers, one of them with a nested one, the monitor of the first, and one that does
    /// not run.
    const HOST: &str = "\
peerway-host 1
//- /proc/10/cgroup
0::/lxc.monitor/204
//- /proc/10/status
NSpid:\t10
//- /proc/20/cgroup
0::/lxc/204/ns/system.slice/engine.service
//- /proc/20/status
NSpid:\t20\t77
//- /proc/30/cgroup
0::/lxc/204/ns/init.scope
//- /proc/30/status
NSpid:\t30\t1
//- /proc/30/stat
30 (init (x)) S 10 30 30 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0
//- /proc/40/cgroup
0::/lxc/204/ns/lxc/5/init.scope
//- /proc/40/status
NSpid:\t40\t99\t1
//- /proc/50/cgroup
1:name=systemd:/lxc.payload.web/init.scope
//- /proc/50/status
NSpid:\t50\t1
//- /proc/50/stat
50 (init) S 10 30 30 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5050 0 0
//- /proc/60/cgroup
0::/lxc/9/ns/x
//- /var/lib/lxc/300/config
lxc.uts.name = idle
";

    fn resolve(word: &str) -> Result<(u32, u64), String> {
        let parts = HOST.lines().filter(|line| line.starts_with("//- /")).count();
        let tree = host_file::parse(&format!("{HOST}//- end {parts}\n")).unwrap();
        let root = Root::recorded(Arc::new(tree));
        let view = word.parse::<Wanted>().unwrap().resolve(&root)?;
        assert_eq!(view.name, word);
        Ok((view.pid, view.start))
    }

    #[test]
    fn containers_are_found_by_their_control_group() {
        assert_eq!(resolve("lxc:204"), Ok((30, 4242)));
        assert_eq!(resolve("lxc:web"), Ok((50, 5050)));
        assert_eq!(resolve("pid:50"), Ok((50, 5050)));
    }

    #[test]
    fn what_is_not_there_is_told() {
        let check = |word: &str, said: &str| {
            let why = resolve(word).unwrap_err();
            assert!(why.contains(said), "{why}");
        };
        check("lxc:300", "pct start 300");
        check("lxc:7", "running here: 204, 9, web");
        check("lxc:9", "--in pid:N");
        check("pid:99", "no process 99");
    }

    #[test]
    fn words_that_name_no_view() {
        for word in ["101", "lxc:", "lxc:..", "lxc:a/b", "pid:0", "pid:x", "docker:1", ""] {
            assert!(word.parse::<Wanted>().is_err(), "{word}");
        }
    }
}
