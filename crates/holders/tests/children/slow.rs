//! The reader of files that may never answer.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use peerway_holders::{EntryKind, SlowEntry, SlowError, SlowOptions, SlowReader};
use peerway_walls::{Report, Standing, Wall};
use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::actors::{self, Actor, is_root, stage, write};

/// Long enough for a loaded machine.
const PATIENT: Duration = Duration::from_mins(1);

fn reader(root: &Path, patience: Duration, open_special: bool) -> SlowReader {
    let trees = vec![PathBuf::from("/")];
    let options = SlowOptions { root: root.to_owned(), trees, patience, open_special };
    SlowReader::spawn(&options).unwrap()
}

fn pipe(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RWXU | Mode::RWXG | Mode::RWXO, 0)
        .unwrap();
}

pub(crate) fn files_are_read_and_listed() -> Result<(), Failed> {
    let (dir, _, _) = stage();
    write(&dir.path().join("long"), &"x".repeat(300_000));
    std::os::unix::fs::symlink("held", dir.path().join("link")).unwrap();
    let reader = reader(dir.path(), PATIENT, false);
    assert_eq!(reader.read("/held", 5), Ok(b"held\n".to_vec()));
    assert_eq!(reader.read("link", 5), Ok(b"held\n".to_vec()));
    assert_eq!(reader.read("/held", 4), Err(SlowError::TooLong { limit: 4 }));
    assert_eq!(reader.read("/long", 1 << 20).map(|b| b.len()), Ok(300_000));
    assert_eq!(reader.read("/none", 5), Err(SlowError::Errno(2)));
    assert_eq!(reader.read("/", 5), Err(SlowError::Errno(21)));
    assert_eq!(reader.list("/held"), Err(SlowError::Errno(20)));
    assert_eq!(reader.read_link("/link"), Ok("held".to_owned()));
    assert_eq!(reader.read_link("/held"), Err(SlowError::Errno(2)));
    let entry = |name: &str, kind| SlowEntry { name: name.to_owned(), kind };
    let expected = vec![
        entry("held", EntryKind::File),
        entry("link", EntryKind::Link),
        entry("long", EntryKind::File),
        entry("program", EntryKind::File),
    ];
    assert_eq!(reader.list("/"), Ok(expected));
    let walls = reader.walls().unwrap();
    // Where nothing else guards openat2, that is said.
    let filter = walls.standing(Wall::SystemCalls);
    let guarded = filter == Some(&Standing::Raised);
    assert!(guarded || walls.gaps().iter().any(|gap| gap.contains("openat2")), "{walls:?}");
    Ok(())
}

/// One request waits its patience, and no request after it waits at all.
fn check_hangs(reader: &SlowReader, path: &str, patience: Duration) {
    let begun = Instant::now();
    let answer = reader.read(path, 10);
    let waited = begun.elapsed();
    let hung = SlowError::NotAnswered { hung: path.to_owned(), patience };
    assert_eq!(answer, Err(hung.clone()));
    assert!(waited >= patience && waited < patience + Duration::from_secs(5), "{waited:?}");
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(reader.read("/held", 10), Err(hung.clone()));
    }
    assert_eq!(reader.list("/"), Err(hung));
    assert!(begun.elapsed() < patience, "given up, and yet waited {:?}", begun.elapsed());
}

pub(crate) fn a_pipe_never_answers() -> Result<(), Failed> {
    let (dir, _, _) = stage();
    pipe(&dir.path().join("pipe"));
    let patience = Duration::from_millis(500);
    check_hangs(&reader(dir.path(), patience, true), "/pipe", patience);
    Ok(())
}

/// A FUSE file system whose server never says a word, as a cluster file system without quorum.
/// It takes root and `/dev/fuse`; where either is missing, mounting is refused, and that is all
/// that can be seen.
pub(crate) fn a_file_system_never_answers() -> Result<(), Failed> {
    let (dir, _, _) = stage();
    let patience = Duration::from_millis(500);
    let Some(mounted) = Silent::mount(dir.path()) else {
        assert!(!is_root() || !has_fuse(), "root with /dev/fuse can mount");
        return Ok(());
    };
    let reader = reader(dir.path(), patience, false);
    check_hangs(&reader, "/silent/file", patience);
    drop(reader);
    drop(mounted);
    Ok(())
}

struct Silent {
    /// The server's end. Closed, it makes every waiting request fail.
    _server: std::os::fd::OwnedFd,
    at: PathBuf,
}

fn fuse() -> rustix::io::Result<std::os::fd::OwnedFd> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

fn has_fuse() -> bool {
    fuse().is_ok()
}

impl Silent {
    fn mount(dir: &Path) -> Option<Self> {
        use std::os::fd::AsRawFd;
        let server = fuse().ok()?;
        let at = dir.join("silent");
        rustix::fs::mkdir(&at, Mode::RWXU).unwrap();
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let data = std::ffi::CString::new(data).unwrap();
        let flags = rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOSUID;
        rustix::mount::mount("silent", &at, "fuse", flags, data.as_c_str()).ok()?;
        Some(Self { _server: server, at })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// Opening a pipe would wake whoever waits at its other end.
pub(crate) fn pipes_are_left_alone() -> Result<(), Failed> {
    let (dir, _, _) = stage();
    let path = dir.path().join("pipe");
    pipe(&path);
    let reader = reader(dir.path(), PATIENT, false);
    assert_eq!(reader.read("/pipe", 10), Err(SlowError::NotRegular));
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let writer = rustix::fs::open(&path, flags, Mode::empty());
    assert_eq!(writer.map(drop), Err(rustix::io::Errno::NXIO), "nobody has it open for reading");
    assert_eq!(reader.read("/held", 10), Ok(b"held\n".to_vec()));
    Ok(())
}

pub(crate) fn nothing_leaves_the_root() -> Result<(), Failed> {
    let (dir, _, _) = stage();
    let root = dir.path().join("root");
    rustix::fs::mkdir(&root, Mode::RWXU).unwrap();
    write(&root.join("held"), "inside\n");
    std::os::unix::fs::symlink("/held", root.join("absolute")).unwrap();
    std::os::unix::fs::symlink("../held", root.join("up")).unwrap();
    let reader = reader(&root, PATIENT, false);
    for path in ["/absolute", "/up", "../held", "/../../held"] {
        assert_eq!(reader.read(path, 10), Ok(b"inside\n".to_vec()), "{path}");
    }
    Ok(())
}

pub(crate) fn a_reader_that_ends() -> Result<(), Failed> {
    let options = SlowOptions { patience: PATIENT, ..SlowOptions::live(&["/proc"]) };
    let program = Path::new("/bin/true");
    let reader = SlowReader::spawn_program(Some(program), &options).unwrap();
    let first = reader.read("/proc/version", 1000);
    assert!(matches!(first, Err(SlowError::Child(_))), "{first:?}");
    assert_eq!(reader.read("/proc/version", 1000), first);
    let gone = Path::new("/no/such/program");
    let error = SlowReader::spawn_program(Some(gone), &options).unwrap_err().to_string();
    assert!(error.contains("/no/such/program"), "{error}");
    Ok(())
}

/// Children first, then walls, then answers; and a child that hangs ends with its parent.
pub(crate) fn behind_walls() -> Result<(), Failed> {
    let (dir, program, held) = stage();
    pipe(&dir.path().join("pipe"));
    let actor = Actor::start(&program, "--hold", &held, None);
    let parent = actors::command(&program, "--parent", dir.path(), None).output().unwrap();
    let errors = String::from_utf8_lossy(&parent.stderr);
    assert!(parent.status.success(), "{errors}");
    let said = String::from_utf8(parent.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], format!("[{}]", actor.pid));
    assert_eq!(lines[1], "held");
    let report: Report = serde_json::from_str(lines[3]).unwrap();
    assert_eq!(report.standing(Wall::SystemCalls), Some(&Standing::Raised));
    drop(actor);
    // Whoever still runs the program has it mapped.
    let patience = Instant::now() + PATIENT;
    loop {
        let alive = peerway_holders::scan(&actors::options(&program)).unwrap().processes;
        if alive.is_empty() {
            return Ok(());
        }
        assert!(Instant::now() < patience, "a child outlived its parent: {alive:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
