//! What a reading command does, seen from outside: its system calls, as `strace` writes them.
//!
//! The list is of what is allowed, so that a call nobody thought of is a violation and no gap.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// Calls that change nothing outside their own process, whatever their arguments.
const HARMLESS: [&str; 59] = [
    "access",
    "arch_prctl",
    "brk",
    "capget",
    "clock_gettime",
    "clock_nanosleep",
    "clone",
    "clone3",
    "close",
    "dup",
    "dup2",
    "exit",
    "exit_group",
    "fcntl",
    "fstat",
    "fstatfs",
    "futex",
    "getcwd",
    "getdents64",
    "geteuid",
    "getpid",
    "getrandom",
    "gettid",
    "getuid",
    "lseek",
    "lstat",
    "madvise",
    "membarrier",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "nanosleep",
    "newfstatat",
    "pause",
    "pipe2",
    "poll",
    "ppoll",
    "pread64",
    "prlimit64",
    "read",
    "readlink",
    "readlinkat",
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_getaffinity",
    "sched_yield",
    "set_robust_list",
    "set_tid_address",
    "sigaltstack",
    "stat",
    "statfs",
    "statx",
    "uname",
    "wait4",
    "waitid",
];

/// Calls that raise the walls, or start what raises its own; none of them after the walls.
const RAISING: [&str; 7] = [
    "capset",
    "chdir",
    "execve",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "unshare",
];

/// Flags of an open that could change a file.
const WRITABLE: [&str; 6] = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND", "O_TMPFILE"];

/// Opens for writing that are allowed, each with its reason.
const EXCEPTIONS: [(&str, &str); 1] =
    [("\"/dev/null\"", "standard input and error of a child; nothing is kept there")];

/// One process or thread: its calls in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// Lines of `strace`.
    pub lines: Vec<String>,
}

/// What came of watching a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Its exit status; `None` where a signal ended it.
    pub status: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it printed on standard error.
    pub stderr: String,
    /// Its processes and threads, by number.
    pub processes: Vec<Process>,
}

/// Runs a program under `strace`, each of its processes into a file of its own.
///
/// # Errors
/// Where `strace` cannot be started, or wrote nothing.
pub fn watch(program: &Path, arguments: &[&str], into: &Path) -> Result<Watched> {
    fs::create_dir_all(into)?;
    let output = Command::new("strace")
        .args(["-ff", "-y", "-s", "200", "-o"])
        .arg(into.join("trace"))
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot start strace; install it (package strace)")?;
    let mut processes = Vec::new();
    for entry in fs::read_dir(into)? {
        let path = entry?.path();
        let id = path.extension().and_then(|text| text.to_string_lossy().parse().ok());
        let id = id.with_context(|| format!("{} is no trace", path.display()))?;
        let bytes = fs::read(&path)?;
        let text = String::from_utf8_lossy(&bytes);
        processes.push(Process { id, lines: text.lines().map(str::to_owned).collect() });
    }
    processes.sort_by_key(|process| process.id);
    anyhow::ensure!(!processes.is_empty(), "strace wrote nothing: {output:?}");
    Ok(Watched {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        processes,
    })
}

/// What was seen of a command, and every call that its promise does not allow.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Calls in all.
    pub calls: usize,
    /// Calls after the walls.
    pub behind_walls: usize,
    /// Processes and threads.
    pub processes: usize,
    /// Those that never had walls.
    pub bare: usize,
    /// Allowed opens for writing, by path.
    pub excepted: BTreeSet<String>,
    /// Calls that are not allowed, with the number of their process.
    pub violations: Vec<String>,
}

/// Judges every call.
pub fn judge(processes: &[Process]) -> Seen {
    let numbers: BTreeSet<u32> = processes.iter().map(|process| process.id).collect();
    let mut seen = Seen { processes: processes.len(), ..Seen::default() };
    // A thread has the walls of its maker, whose number is the smaller one.
    let mut behind: BTreeMap<u32, bool> = BTreeMap::new();
    for process in processes {
        let mut own = One {
            numbers: &numbers,
            walls: behind.get(&process.id).copied().unwrap_or(false),
            own_mounts: false,
        };
        for line in &process.lines {
            let Some((name, rest)) = call(line) else { continue };
            seen.calls += 1;
            seen.behind_walls += usize::from(own.walls);
            match own.allowed(name, rest) {
                Allowed::Yes => {}
                Allowed::Exception(path) => {
                    seen.excepted.insert(path.to_owned());
                }
                Allowed::No => seen.violations.push(format!("{}: {line}", process.id)),
            }
            if matches!(name, "clone" | "clone3")
                && let Some(child) = result(rest).and_then(|text| text.parse().ok())
            {
                behind.insert(child, own.walls);
            }
            let succeeded = result(rest) == Some("0");
            own.own_mounts |= name == "unshare" && succeeded;
            own.walls |= name == "seccomp" && succeeded;
        }
        seen.bare += usize::from(!own.walls);
    }
    seen
}

enum Allowed<'a> {
    Yes,
    Exception(&'a str),
    No,
}

struct One<'a> {
    numbers: &'a BTreeSet<u32>,
    walls: bool,
    own_mounts: bool,
}

impl One<'_> {
    fn allowed<'a>(&self, name: &str, rest: &'a str) -> Allowed<'a> {
        let yes = match name {
            "open" | "openat" | "openat2" => return opened(rest),
            // Further filters only ever take away.
            "seccomp" => rest.starts_with("SECCOMP_SET_MODE_FILTER"),
            "prctl" => {
                !self.walls
                    || ["PR_SET_NO_NEW_PRIVS", "PR_GET_", "PR_SET_NAME", "PR_SET_VMA"]
                        .iter()
                        .any(|begin| rest.starts_with(begin))
            }
            "write" => rest.starts_with("1<") || rest.starts_with("2<") || rest.contains("<pipe:["),
            // What a terminal is like.
            "ioctl" => rest.contains("TCGETS") || rest.contains("TIOCGWINSZ"),
            "kill" | "tgkill" => {
                let number = rest.split([',', ')']).next().and_then(|text| text.parse().ok());
                number.is_some_and(|number| self.numbers.contains(&number))
            }
            "mount" => {
                let makes_private = rest.contains("MS_REC|MS_SLAVE") || rest.contains("MS_PRIVATE");
                let makes_read_only = rest.contains("MS_RDONLY") && rest.contains("MS_REMOUNT");
                !self.walls && self.own_mounts && (makes_private || makes_read_only)
            }
            _ if RAISING.contains(&name) => !self.walls,
            _ => HARMLESS.contains(&name),
        };
        if yes { Allowed::Yes } else { Allowed::No }
    }
}

fn opened(rest: &str) -> Allowed<'_> {
    // A path may hold any word: flags stand behind its closing quote.
    let (before, flags) = rest.rsplit_once("\", ").unwrap_or(("", rest));
    // And before what the call returned, which names the path once more.
    let flags = flags.split_once(") = ").map_or(flags, |(flags, _)| flags);
    if !WRITABLE.iter().any(|flag| flags.contains(flag)) {
        return Allowed::Yes;
    }
    let path = before.split_once('"').map_or("", |(_, path)| path);
    match EXCEPTIONS.iter().find(|(allowed, _)| allowed.trim_matches('"') == path) {
        Some((allowed, _)) => Allowed::Exception(allowed.trim_matches('"')),
        None => Allowed::No,
    }
}

/// Name and the rest of a line that is a call.
fn call(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.split_once('(')?;
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (!name.is_empty() && name.chars().all(letters)).then_some((name, rest))
}

/// The first word of what a call returned.
fn result(rest: &str) -> Option<&str> {
    rest.rsplit_once(" = ").and_then(|(_, result)| result.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[&str], expected: &[&str]) {
        let lines = lines.iter().map(|&line| line.to_owned()).collect();
        let seen = judge(&[Process { id: 7, lines }]);
        let expected: Vec<String> = expected.iter().map(|line| format!("7: {line}")).collect();
        assert_eq!(seen.violations, expected);
    }

    const WALL: &str = "seccomp(SECCOMP_SET_MODE_FILTER, 0, {len=4, filter=0x1}) = 0";

    #[test]
    fn opening_for_writing_is_a_violation_wherever_it_happens() {
        let write = "openat(AT_FDCWD</>, \"/tmp/x\", O_RDWR|O_CLOEXEC) = 3</tmp/x>";
        check(&[write, WALL, write], &[write, write]);
        check(&["openat(AT_FDCWD</>, \"/tmp/O_RDWR\", O_RDONLY) = 3</tmp/O_RDWR>"], &[]);
        let create =
            "openat2(3</>, \"sys\", {flags=O_RDONLY|O_CREAT, resolve=RESOLVE_IN_ROOT}, 24) = 4";
        check(&[create], &[create]);
        check(&["open(\"/dev/null\", O_RDWR) = 3</dev/null>"], &[]);
    }

    #[test]
    fn behind_the_walls_nothing_is_started_or_mounted() {
        let start = "execve(\"/bin/true\", [\"true\"], 0x1 /* 0 vars */) = 0";
        check(&[start, WALL, start], &[start]);
        let mount = "mount(NULL, \"/\", NULL, MS_RDONLY|MS_REMOUNT|MS_BIND, \"\") = 0";
        check(&[mount], &[mount]);
        check(&["unshare(CLONE_NEWNS) = 0", mount], &[]);
        check(&["unshare(CLONE_NEWNS) = 0", WALL, mount], &[mount]);
    }

    #[test]
    fn writes_go_to_standard_streams_and_pipes() {
        let other = "write(5</tmp/x>, \"a\", 1) = 1";
        check(
            &["write(1</tmp/x>, \"a\", 1) = 1", "write(9<pipe:[4]>, \"a\", 1) = 1", other],
            &[other],
        );
    }

    #[test]
    fn an_unknown_call_and_a_foreign_signal_are_violations() {
        let (socket, kill) = ("socket(AF_UNIX, SOCK_STREAM, 0) = 3", "kill(1, SIGTERM) = 0");
        check(&[socket, kill, "kill(7, SIGTERM) = 0", "+++ exited with 0 +++"], &[socket, kill]);
    }
}
