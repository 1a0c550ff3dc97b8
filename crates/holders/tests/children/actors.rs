//! Processes that play a part in a test.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use peerway_holders::{
    NodeKind, Pattern, Patterns, ScanChild, ScanOptions, SlowError, SlowOptions, SlowReader, scan,
};
use peerway_walls::Plan;
use rustix::fs::{Mode, OFlags};
use rustix::thread::UnshareFlags;

/// The user `nobody`.
pub(crate) const NOBODY: u32 = 65534;

/// Plays a part if the arguments ask for one.
pub(crate) fn dispatch(args: &[OsString]) -> Option<ExitCode> {
    let path = || PathBuf::from(args.get(1).cloned().unwrap_or_default());
    match args.first()?.to_str()? {
        "--hold" => Some(hold(Some(&path()), false)),
        "--hold-in-namespace" => Some(hold(Some(&path()), true)),
        "--be-mapped" => Some(hold(None, false)),
        "--scan" => Some(print_scan(&path())),
        "--parent" => Some(parent(&path())),
        "--pass" => Some(ExitCode::SUCCESS),
        _ => None,
    }
}

/// Opens a file, says so, and keeps it until its own input ends.
fn hold(path: Option<&Path>, in_namespace: bool) -> ExitCode {
    if in_namespace {
        #[expect(deprecated, reason = "the safe form; no descriptors are unshared")]
        let unshared = rustix::thread::unshare(UnshareFlags::NEWUSER);
        if let Err(e) = unshared {
            say(&format!("refused {e}\n"));
            return ExitCode::SUCCESS;
        }
    }
    let open = |p: &Path| rustix::fs::open(p, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let held = path.map(open).transpose().unwrap();
    say("ready\n");
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing).unwrap();
    drop(held);
    ExitCode::SUCCESS
}

/// Scans in this process, as whoever runs it.
fn print_scan(path: &Path) -> ExitCode {
    let list = scan(&options(path)).unwrap();
    say(&serde_json::to_string(&list).unwrap());
    ExitCode::SUCCESS
}

/// What the command line does: children, walls, answers. `dir` holds a file and a pipe.
fn parent(dir: &Path) -> ExitCode {
    let holders = ScanChild::spawn(&options(&dir.join("held"))).unwrap();
    let slow = SlowReader::spawn(&SlowOptions {
        root: dir.to_owned(),
        trees: vec![PathBuf::from("/")],
        patience: Duration::from_millis(300),
        open_special: true,
    })
    .unwrap();
    let report = Plan::new()
        .read_beneath("/proc")
        .write_to(std::io::stdout())
        .write_to(std::io::stderr())
        .write_to(slow.requests())
        .raise()
        .unwrap();
    let found = holders.collect(Instant::now() + Duration::from_secs(20));
    assert!(found.gap.is_none(), "{found:?}");
    let pids: Vec<u32> = found.list.processes.iter().map(|p| p.pid).collect();
    let content = slow.read("/held", 100).unwrap();
    let begun = Instant::now();
    let hung = slow.read("/pipe", 100);
    assert!(matches!(hung, Err(SlowError::NotAnswered { .. })), "{hung:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let walls = serde_json::to_string(&report).unwrap();
    say(&format!("{pids:?}\n{}\n{walls}\n", String::from_utf8_lossy(&content)));
    ExitCode::SUCCESS
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Looks for one file, of any kind.
pub(crate) fn options(path: &Path) -> ScanOptions {
    let text = path.to_str().unwrap().to_owned();
    let pattern = Pattern { text, kind: NodeKind::Other, any_file: true };
    ScanOptions { patterns: Patterns::new(vec![pattern]), ..ScanOptions::default() }
}

/// A process that plays a part until it is dropped.
#[derive(Debug)]
pub(crate) struct Actor {
    child: Child,
    pub(crate) pid: u32,
    /// What it said first.
    pub(crate) said: String,
}

impl Actor {
    pub(crate) fn start(program: &Path, part: &str, path: &Path, uid: Option<u32>) -> Self {
        let mut command = command(program, part, path, uid);
        command.env("NCCL_P2P_DISABLE", "1").env("PEERWAY_SECRET", "hush");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut out = child.stdout.take().unwrap();
        let mut byte = [0_u8; 1];
        while out.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
            said.push(char::from(byte[0]));
        }
        Self { pid: child.id(), child, said }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// This program in another part, as another user if the tests run as root.
#[expect(clippy::disallowed_methods, reason = "a test starts itself again")]
pub(crate) fn command(program: &Path, part: &str, path: &Path, uid: Option<u32>) -> Command {
    let mut command = Command::new(program);
    command.arg(part).arg(path);
    if let Some(uid) = uid.filter(|_| is_root()) {
        command.uid(uid).gid(uid);
    }
    command
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory that every user may enter, with a copy of this program and a file `held`.
pub(crate) fn stage() -> (tempfile::TempDir, PathBuf, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    settle(|| command(&program, "--pass", Path::new("/"), None).status());
    let held = dir.path().join("held");
    write(&held, "held\n");
    (dir, program, held)
}

/// A file that was just written cannot be executed while a process that another test is about to
/// start still has it open; that passes.
pub(crate) fn settle<T>(mut start: impl FnMut() -> std::io::Result<T>) -> T {
    loop {
        match start() {
            Ok(started) => return started,
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => panic!("cannot start: {e}"),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test makes its own files")]
pub(crate) fn write(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
}
