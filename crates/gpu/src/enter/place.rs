//! Where a process lives: its namespaces, its root, its control group, read before any of it is
//! entered.

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::ThreadNameSpaceType as Kind;

use super::EnterError;
use super::identity::Identity;

/// Longest file of `/proc` that is read here; an environment is the longest.
const LONGEST: usize = 4 << 20;

/// Namespaces, by the kernel's names.
const NAMESPACES: [(&str, Kind); 7] = [
    ("user", Kind::USER),
    ("mnt", Kind::MOUNT),
    ("pid", Kind::PROCESS_ID),
    ("ipc", Kind::INTER_PROCESS_COMMUNICATION),
    ("net", Kind::NETWORK),
    ("uts", Kind::HOST_NAME_AND_NIS_DOMAIN_NAME),
    ("cgroup", Kind::CONTROL_GROUP),
];

/// Variables of the process that decide which library and which GPUs it gets.
const TAKEN: [&str; 2] = ["LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"];

/// A process's place.
pub(super) struct Place {
    pid: u32,
    process: OwnedFd,
    root: OwnedFd,
    different: Kind,
    control_groups: String,
    pub(super) identity: Identity,
    pub(super) environment: Vec<(String, String)>,
}

impl Place {
    /// Looks at a process that started at `start`.
    pub(super) fn look(pid: u32, start: u64) -> Result<Self, EnterError> {
        let gone = || EnterError::Gone(pid);
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        let process =
            rustix::process::pidfd_open(number, PidfdFlags::empty()).map_err(|_| gone())?;
        // From here on the number means this process, or nothing.
        let stat = read(&format!("/proc/{pid}/stat")).map_err(|_| gone())?;
        if started(&stat) != Some(start) {
            return Err(gone());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty())
            .map_err(|errno| EnterError::Refused { pid, why: errno.into() })?;
        let mut different = Kind::empty();
        for (name, kind) in NAMESPACES {
            let own = link(&format!("/proc/self/ns/{name}"));
            let other = link(&format!("/proc/{pid}/ns/{name}"))
                .map_err(|errno| EnterError::Refused { pid, why: errno.into() })?;
            if own.as_deref().ok() != Some(other.as_str()) {
                different |= kind;
            }
        }
        let file = |name: &str| read(&format!("/proc/{pid}/{name}"));
        let act = "read what the process is";
        let identity = Identity::parse(
            &file("status").map_err(EnterError::call(act))?,
            &file("uid_map").map_err(EnterError::call(act))?,
            &file("gid_map").map_err(EnterError::call(act))?,
        )?;
        let control_groups = file("cgroup").unwrap_or_default();
        let environment = taken(&file("environ").unwrap_or_default());
        Ok(Self { pid, process, root, different, control_groups, identity, environment })
    }

    /// Joins the control groups that decide about devices; says what could not be joined. Before
    /// the file system changes, since the groups are seen from here.
    pub(super) fn join_control_groups(&self) -> Vec<String> {
        let own = read("/proc/self/cgroup").unwrap_or_default();
        let own: Vec<&str> = own.lines().collect();
        let mut notes = Vec::new();
        for line in self.control_groups.lines().filter(|line| !own.contains(line)) {
            let Some(directories) = directories(line) else { continue };
            let mut outcome = Err(Errno::NOENT);
            for directory in directories {
                outcome = join(&directory);
                if outcome != Err(Errno::NOENT) {
                    break;
                }
            }
            if let Err(errno) = outcome {
                notes.push(format!(
                    "the control group {line} could not be joined ({}): its rules about devices \
                     did not hold for this measurement",
                    std::io::Error::from(errno)
                ));
            }
        }
        notes
    }

    /// Enters namespaces and root; says what differs from what the process itself has.
    pub(super) fn enter(&self) -> Result<Vec<String>, EnterError> {
        let refused = |errno: Errno| EnterError::Refused { pid: self.pid, why: errno.into() };
        let mut notes = Vec::new();
        if self.different.is_empty() {
            notes.push(format!(
                "process {} has no namespace of its own: only its root directory, its user and \
                 its variables were taken",
                self.pid
            ));
        } else {
            rustix::thread::move_into_thread_name_spaces(self.process.as_fd(), self.different)
                .map_err(refused)?;
        }
        rustix::process::fchdir(&self.root).map_err(refused)?;
        match rustix::process::chroot(".") {
            Ok(()) => {}
            // A namespace's root is where one stands after entering it.
            Err(Errno::PERM) if self.different.contains(Kind::MOUNT) => notes.push(
                "the root directory is that of the mount namespace, which the process itself may \
                 have changed"
                    .to_owned(),
            ),
            Err(errno) => return Err(refused(errno)),
        }
        rustix::process::chdir("/").map_err(refused)?;
        Ok(notes)
    }
}

/// This program as a file in memory that nobody can change, so that what runs in there cannot
/// change the program of the host.
pub(super) fn sealed_program() -> Result<OwnedFd, EnterError> {
    let act = "copy this program into memory";
    let open = || -> Result<OwnedFd, Errno> {
        let own =
            rustix::fs::open("/proc/self/exe", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let copy = rustix::fs::memfd_create("peerway-test", flags)?;
        while rustix::fs::sendfile(&copy, &own, None, 16 << 20)? > 0 {}
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&copy, seals)?;
        Ok(copy)
    };
    open().map_err(EnterError::call(act))
}

/// Where a line of `/proc/PID/cgroup` may be mounted; none for hierarchies without device rules.
fn directories(line: &str) -> Option<Vec<String>> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    // Seen through a namespace of control groups, a path may climb out of what is mounted here.
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    match controllers {
        "" => Some(vec![format!("/sys/fs/cgroup{path}"), format!("/sys/fs/cgroup/unified{path}")]),
        _ if controllers.split(',').any(|one| one == "devices") => {
            Some(vec![format!("/sys/fs/cgroup/{controllers}{path}")])
        }
        _ => None,
    }
}

fn join(directory: &str) -> Result<(), Errno> {
    let path = format!("{directory}/cgroup.procs");
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    // Zero is the writer itself.
    rustix::io::write(&file, b"0").map(|_| ())
}

/// When a process started, from its `stat`: field 22, behind the name in parentheses.
pub(super) fn started(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The variables that are taken over, from an `environ` file.
fn taken(environ: &str) -> Vec<(String, String)> {
    environ
        .split('\0')
        .filter_map(|entry| entry.split_once('='))
        .filter(|(name, _)| TAKEN.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn link(path: &str) -> Result<String, Errno> {
    rustix::fs::readlink(path, Vec::new()).map(|text| text.to_string_lossy().into_owned())
}

fn read(path: &str) -> Result<String, Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(LONGEST).unwrap_or(u64::MAX);
    // The descriptor is a file of /proc; the standard library's reader spares the loop.
    std::io::PipeReader::from(file)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        assert_eq!(directories(line).unwrap_or_default(), expected);
    }

    #[test]
    fn groups_that_decide_about_devices() {
        check(
            "0::/lxc/204/ns/init.scope",
            &[
                "/sys/fs/cgroup/lxc/204/ns/init.scope",
                "/sys/fs/cgroup/unified/lxc/204/ns/init.scope",
            ],
        );
        check("5:devices:/lxc/204", &["/sys/fs/cgroup/devices/lxc/204"]);
        check("4:memory:/lxc/204", &[]);
        check("0::/../outside", &[]);
        check("nonsense", &[]);
    }

    #[test]
    fn starts_are_read_behind_any_name() {
        let stat = "77 (a) b (c)) S 1 77 77 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 0 0";
        assert_eq!(started(stat), Some(123_456));
        assert_eq!(started("77 (x) S"), None);
        let own = read("/proc/self/stat").unwrap();
        assert!(started(&own).is_some_and(|start| start > 0));
    }

    #[test]
    fn only_two_variables_are_taken() {
        let environ = "SECRET=1\0LD_LIBRARY_PATH=/opt/lib\0CUDA_VISIBLE_DEVICES=0\0PATH=/bin\0";
        let taken = taken(environ);
        let names: Vec<&str> = taken.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"]);
    }

    #[test]
    fn a_process_of_another_start_is_gone() {
        let pid = std::process::id();
        let Err(error) = Place::look(pid, 1) else { unreachable!() };
        assert!(matches!(error, EnterError::Gone(gone) if gone == pid), "{error}");
    }

    #[test]
    fn the_copy_of_the_program_cannot_change() {
        let copy = sealed_program().unwrap();
        assert!(rustix::fs::fstat(&copy).unwrap().st_size > 100_000);
        assert_eq!(rustix::io::write(&copy, b"x"), Err(Errno::PERM));
    }
}
