//! The process that is walled in.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;

use peerway_walls::{Capability, MountPolicy, Plan, Report, Wall};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::attempts::{ATTEMPTS, Prey};
use crate::raw;

/// First argument of a run behind walls; then the directory and options.
pub(crate) const ARGUMENT: &str = "--behind-walls";
/// First argument of the process that attempts may try to hurt.
pub(crate) const SLEEPER: &str = "--sleep";

/// Sleeps until its parent is gone.
pub(crate) fn sleep_until_closed() -> ExitCode {
    let mut nothing = Vec::new();
    match std::io::stdin().read_to_end(&mut nothing) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Raises the walls as the options say, tries everything, and prints one line for each attempt:
/// its name, a tab, `done` or the number of the error.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let dir = PathBuf::from(&args[0]);
    let has = |option: &str| args[1..].iter().any(|a| a == option);
    if has("--lack-landlock") {
        take_away(libc::SYS_landlock_create_ruleset, None, Errno::NOSYS);
    }
    if has("--lack-mounts") {
        take_away(libc::SYS_unshare, None, Errno::PERM);
    }
    if has("--lack-filter") {
        // PR_GET_SECCOMP, by which the library asks.
        take_away(libc::SYS_prctl, Some(21), Errno::INVAL);
    }
    let (parked, wake) = mpsc::channel::<()>();
    let second = has("--second-thread").then(|| std::thread::spawn(move || wake.recv()));
    let mut victim = sleeper();
    let out = run(&dir, &victim, &has);
    print(&out);
    drop(parked);
    drop(victim.stdin.take());
    victim.wait().unwrap();
    assert!(second.is_none_or(|s| s.join().unwrap().is_err()), "the thread only waited");
    ExitCode::SUCCESS
}

fn run(dir: &Path, victim: &Child, has: &dyn Fn(&str) -> bool) -> String {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let foreign = rustix::fs::open(dir.join("foreign/file"), flags, Mode::empty()).unwrap();
    let walled = !has("--no-walls");
    let mut out = String::new();
    if walled {
        match plan(dir, has).raise() {
            Ok(report) => describe(&report, &mut out),
            Err(e) => return format!("error\t{e}\n"),
        }
    }
    if has("--report-only") {
        return out;
    }
    if has("--abort") {
        std::process::abort();
    }
    let victim = rustix::process::Pid::from_child(victim);
    let mut prey = Prey { own: PathBuf::new(), foreign, victim };
    for attempt in ATTEMPTS {
        // The control run has to print in the end, so it keeps its stdout.
        if walled || !attempt.name.contains("stdout") {
            prey.own = dir.join(attempt.name);
            line(&mut out, attempt.name, (attempt.run)(&prey));
        }
    }
    if walled {
        for (name, number, args) in raw::CALLS.iter().chain(raw::CALLS_HERE) {
            line(&mut out, name, raw::call(*number, *args).map(drop));
        }
        reading(dir, &mut out);
        threads(&mut out);
    }
    out
}

fn plan(dir: &Path, has: &dyn Fn(&str) -> bool) -> Plan {
    let mut plan = Plan::new()
        .read_beneath(dir)
        .read_beneath("/proc")
        .read_beneath("/sys")
        .read_beneath("/no/such/tree")
        .write_to(std::io::stdout())
        .write_to(std::io::stderr());
    if has("--keep-all") {
        plan = plan
            .keep(Capability::SysAdmin, "configuration space")
            .keep(Capability::SysLog, "the kernel log")
            .keep(Capability::DacReadSearch, "files of other users")
            .keep(Capability::SysPtrace, "descriptors of other users")
            .mounts(MountPolicy::Always);
    }
    if has("--unguarded") {
        plan = plan.unguarded_openat2();
    }
    plan
}

/// Reading goes on: what is allowed can be read, what is not cannot where Landlock stands.
fn reading(dir: &Path, out: &mut String) {
    let read = |path: &Path| -> Result<(), Errno> {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut byte = [0_u8; 1];
        rustix::io::read(file, &mut byte).map(drop)
    };
    line(out, "read_allowed", read(&dir.join("foreign/file")));
    line(out, "read_proc", read(Path::new("/proc/self/status")));
    line(out, "read_outside", read(Path::new("/etc/passwd")));
    let list = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        .and_then(rustix::fs::Dir::new)
        .map(|entries| assert!(entries.count() > ATTEMPTS.len(), "the whole directory is listed"));
    line(out, "list_allowed", list);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/proc", flags, Mode::empty()).unwrap();
    let file = rustix::fs::openat2(root, "/version", flags, Mode::empty(), ResolveFlags::IN_ROOT);
    line(out, "read_by_openat2", file.map(drop));
}

/// Threads, channels, locks, allocation, panics and time still work.
fn threads(out: &mut String) {
    let (send, receive) = mpsc::channel();
    let workers: Vec<_> = (0..8_u64)
        .map(|n| {
            let send = send.clone();
            std::thread::Builder::new().name(format!("worker {n}")).spawn(move || {
                let many: Vec<u64> = (0..200_000).map(|i| i ^ n).collect();
                std::thread::sleep(std::time::Duration::from_millis(1));
                send.send(many.iter().sum::<u64>()).unwrap();
            })
        })
        .collect();
    drop(send);
    let started = workers.iter().filter(|w| w.is_ok()).count();
    let heard = receive.iter().count();
    line(out, "threads", if (started, heard) == (8, 8) { Ok(()) } else { Err(Errno::AGAIN) });
    for worker in workers.into_iter().flatten() {
        worker.join().unwrap();
    }
}

fn describe(report: &Report, out: &mut String) {
    writeln!(out, "report\t{}", serde_json::to_string(report).unwrap()).unwrap();
    assert!(report.standing(Wall::NoNewPrivileges).is_some(), "every wall is in the report");
}

fn line(out: &mut String, name: &str, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => writeln!(out, "{name}\tdone").unwrap(),
        Err(e) => writeln!(out, "{name}\t{}", e.raw_os_error()).unwrap(),
    }
}

fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).unwrap();
    stdout.flush().unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a test starts itself again")]
fn sleeper() -> Child {
    let mut command = Command::new("/proc/self/exe");
    command.arg(SLEEPER).stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// Makes the kernel look as if it lacked a call, or one of its commands (the first argument).
fn take_away(call: i64, command: Option<u64>, answer: Errno) {
    let answer = SeccompAction::Errno(answer.raw_os_error().unsigned_abs());
    let rule = |command| {
        let is_it = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, command);
        SeccompRule::new(vec![is_it.unwrap()]).unwrap()
    };
    let calls = [(call, command.map(rule).into_iter().collect())].into_iter().collect();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, answer, arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}
