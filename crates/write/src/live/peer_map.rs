//! The peer-map module (`kmod/README.md`): loaded and unloaded by the kernel's own helper, told one
//! command a write, believed by what its list says afterwards.

use std::path::Path;
use std::time::Duration;

use peerway_core::observed::Observed;
use peerway_core::snapshot::peer_map::Entry;
use peerway_read::collect::peer_map::collect;
use peerway_read::root::{Root, SMALL};
use peerway_roads::op::{Found, MapEntry, PEER_MAP_MODULE, PEER_MAP_PACKAGE};
use peerway_roads::{Op, Plan};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::blocking::Written;
use super::files::Files;
use super::program::{self, Ran};
use super::{LiveHost, PATIENCE};
use crate::mutator::{Host, WriteError, spell};

/// Where commands go.
const DEVICE: &str = "/dev/peerway-map";
/// The number that the kernel gave it.
const NUMBER: &str = "/sys/class/misc/peerway-map/dev";
/// Where the module says what it did.
const LIST: &str = "/proc/peerway-map";
/// Some ten thousand entries.
const MOST_LIST: usize = 1 << 20;
/// The kernel's own way to load modules.
const HELPER: &str = "/proc/sys/kernel/modprobe";
/// An index of the modules of a distribution's kernel is a few hundred KiB.
const MOST_INDEX: usize = 16 << 20;
/// The module looks every page up, one by one: for the largest regions of today tens of millions.
const MAP_PATIENCE: Duration = Duration::from_mins(2);
/// The module never waits for a device's lock. A second is long for somebody's passing work.
const BUSY_TRIES: u32 = 5;
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// What the list has where an act would make or take an entry.
pub(super) fn current(root: &Root, act: &Op) -> Result<Found, String> {
    let (Op::Map(entry) | Op::Unmap(entry)) = act else {
        return Err("it is no act on the peer map".to_owned());
    };
    let listed = match collect(root) {
        Observed::Known(map) => map.entries.into_iter().find(|one| is_same(one, entry)),
        Observed::Absent => None,
        Observed::Unreadable(why) => return Err(why),
    };
    Ok(match (listed, act) {
        (None, _) => Found::Nothing,
        // Whatever became of it, it is there to be taken away.
        (Some(_), Op::Unmap(_)) => Found::Value("mapped".to_owned()),
        (Some(one), _) if one.start != entry.start => Found::Value("bar-moved".to_owned()),
        (Some(one), _) if one.is_ok() => Found::Value("mapped".to_owned()),
        (Some(one), _) => Found::Value(one.state),
    })
}

fn is_same(listed: &Entry, wanted: &MapEntry) -> bool {
    (listed.requester, listed.target, listed.bar, listed.offset, listed.length)
        == (wanted.requester, wanted.target, wanted.bar, wanted.offset, wanted.length)
}

/// Whether the module is loaded, with an interface that this program knows.
pub(super) fn loaded(root: &Root) -> Result<bool, String> {
    match collect(root) {
        Observed::Known(_) => Ok(true),
        Observed::Absent => Ok(false),
        Observed::Unreadable(why) => Err(why),
    }
}

/// The command of an act, as the module takes it.
fn command(act: &Op) -> Option<String> {
    let (verb, entry, members) = match act {
        Op::Map(entry) => ("map", entry, entry.members.as_slice()),
        Op::Unmap(entry) => ("unmap", entry, &[][..]),
        _ => return None,
    };
    let mut words = vec![
        verb.to_owned(),
        entry.requester.to_string(),
        entry.target.to_string(),
        entry.bar.to_string(),
        format!("{:#x}", entry.offset),
        format!("{:#x}", entry.length),
    ];
    words.extend(members.iter().map(ToString::to_string));
    Some(words.join(" "))
}

/// What the module says of the last command.
fn last_words(root: &Root) -> String {
    let text = root.text(LIST, MOST_LIST).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("last "));
    // Its number, a code, an error number, a sentence.
    let words: Vec<&str> = line.map(|line| line.splitn(4, ' ').collect()).unwrap_or_default();
    match words.as_slice() {
        [_, code, _, sentence] => format!("{code}: {sentence}"),
        _ => "it does not say why".to_owned(),
    }
}

/// The module's node, to be written: one with its number and no other. A node that only has the name
/// is not opened.
fn device(files: &Files, number: u64) -> Result<OwnedFd, Errno> {
    let (directory, name) = files.node(DEVICE)?;
    let is_it = |state: Stat| {
        FileType::from_raw_mode(state.st_mode) == FileType::CharacterDevice
            && state.st_rdev == number
    };
    if !is_it(rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?) {
        return Err(Errno::NODEV);
    }
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
    if is_it(rustix::fs::fstat(&file)?) { Ok(file) } else { Err(Errno::NODEV) }
}

/// Why the module can be neither used nor loaded.
fn missing(root: &Root) -> Option<String> {
    match loaded(root) {
        Ok(true) => return None,
        Ok(false) => {}
        Err(why) => return Some(format!("the module {PEER_MAP_MODULE} is not one to use: {why}")),
    }
    let release = match root.text("/proc/sys/kernel/osrelease", SMALL) {
        Ok(release) => release,
        Err(error) => return Some(error.to_string()),
    };
    let index = format!("/lib/modules/{release}/modules.dep");
    match root.text(&index, MOST_INDEX) {
        Ok(text) if lists(&text) => helper(root).err(),
        Ok(_) => Some(format!(
            "the module {PEER_MAP_MODULE} is not installed for kernel {release}; run: dkms install \
             {PEER_MAP_PACKAGE}/VERSION"
        )),
        Err(error) => Some(format!(
            "whether the module {PEER_MAP_MODULE} is installed is unknown: {error}; load it \
             yourself, or run depmod"
        )),
    }
}

/// Whether an index of modules has ours.
fn lists(index: &str) -> bool {
    index.lines().filter_map(|line| line.split(':').next()).any(|path| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.split('.').next() == Some(PEER_MAP_MODULE)
    })
}

/// The program that loads modules.
fn helper(root: &Root) -> Result<String, String> {
    let path = root.text(HELPER, SMALL).map_err(|error| error.to_string())?;
    if path.starts_with('/') {
        Ok(path)
    } else {
        Err(format!("{HELPER} names no program; load {PEER_MAP_MODULE} yourself"))
    }
}

/// An entry of the plan that is there and not what it should be: neither ours to mend, nor one to
/// build on.
fn spoiled(root: &Root, plan: &Plan) -> Option<String> {
    plan.steps.iter().filter(|step| matches!(step.act, Op::Map(_))).find_map(|step| {
        match current(root, &step.act) {
            Ok(Found::Nothing) => None,
            Ok(Found::Value(state)) if state == "mapped" => None,
            Ok(Found::Value(state)) => Some(format!(
                "step {}: the {} is there and {state}; whoever made it takes it away first (echo \
                 unmap or clear, see kmod/README.md)",
                step.number, step.set
            )),
            Err(why) => Some(why),
        }
    })
}

impl LiveHost {
    /// Why a plan of peer maps is not carried out here; nothing was changed.
    pub(super) fn peer_map_refuses(&self, plan: &Plan) -> Option<String> {
        let root = match Host::root(self) {
            Ok(root) => root,
            Err(error) => return Some(error.to_string()),
        };
        missing(&root).or_else(|| spoiled(&root, plan)).or_else(|| super::gates::refuse(self, plan))
    }

    /// Makes or takes an entry. A refusal has the module's own words.
    pub(super) fn change_map(&self, act: &Op) -> Result<(), WriteError> {
        let not_offered = |why: String| WriteError::NotOffered { act: spell(act), why };
        let text = command(act).ok_or_else(|| not_offered("it is no act on the map".to_owned()))?;
        self.tell_module(&spell(act), &text)
    }

    fn tell_module(&self, act: &str, command: &str) -> Result<(), WriteError> {
        let not_offered = |why: String| WriteError::NotOffered { act: act.to_owned(), why };
        let root = Host::root(self)?;
        for _ in 0..BUSY_TRIES {
            let file = self.module_device(&root).map_err(not_offered)?;
            match self.blocking.write(file, command, act, MAP_PATIENCE) {
                Ok(Written::Done) => return Ok(()),
                Ok(Written::Refused(Errno::AGAIN)) => std::thread::sleep(BUSY_PAUSE),
                Ok(Written::Refused(_)) => {
                    return Err(not_offered(format!("the module says {}", last_words(&root))));
                }
                Ok(Written::Hangs) => return Err(WriteError::Hangs { act: act.to_owned() }),
                Err(why) => return Err(not_offered(why)),
            }
        }
        Err(not_offered(format!("the module says {}", last_words(&root))))
    }

    fn module_device(&self, root: &Root) -> Result<OwnedFd, String> {
        let text = root.text(NUMBER, SMALL).map_err(|error| error.to_string())?;
        let number = text.split_once(':').and_then(|(major, minor)| {
            Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
        });
        let number = number.ok_or_else(|| format!("{NUMBER} reads {text:?}"))?;
        device(&self.files, number)
            .map_err(|errno| format!("cannot open {DEVICE}: {}", std::io::Error::from(errno)))
    }

    /// Loads or unloads the module; unloading is refused by the kernel while an entry lives.
    pub(super) fn switch_module(&self, act: &Op) -> Result<(), WriteError> {
        let not_offered = |why: String| WriteError::NotOffered { act: spell(act), why };
        let words: &[&str] = match act {
            Op::LoadModule { module } if module == PEER_MAP_MODULE => &[PEER_MAP_MODULE],
            Op::UnloadModule { module } if module == PEER_MAP_MODULE => &["-r", PEER_MAP_MODULE],
            _ => return Err(not_offered("no other module is loaded or unloaded".to_owned())),
        };
        let program = helper(&Host::root(self)?).map_err(not_offered)?;
        let told = (Path::new(&program), words);
        match program::run(&self.blocking, told, &spell(act), PATIENCE) {
            Ok(Ran::Done) => Ok(()),
            Ok(Ran::Refused(said)) => Err(not_offered(format!("{program} says {said}"))),
            Ok(Ran::Hangs) => Err(WriteError::Hangs { act: spell(act) }),
            Err(why) => Err(not_offered(why)),
        }
    }

    /// Has the module look at every page of every entry; says what it found, where that is not what
    /// it should be.
    pub(super) fn pages_of_map(&self, plan: &Plan) -> Result<Vec<String>, WriteError> {
        let root = Host::root(self)?;
        let any = plan.steps.iter().any(|step| matches!(step.act, Op::Map(_)));
        if !any || !matches!(loaded(&root), Ok(true)) {
            return Ok(Vec::new());
        }
        match self.tell_module("a look at every page of the peer map", "verify") {
            Ok(()) => Ok(Vec::new()),
            Err(WriteError::NotOffered { act, why }) => Ok(vec![format!("{act}: {why}")]),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> MapEntry {
        let address = |text: &str| text.parse().unwrap();
        MapEntry {
            requester: address("0000:01:00.0"),
            target: address("0000:11:00.1"),
            bar: 2,
            start: peerway_core::address::BusAddress(0x4_0000_0000),
            offset: 0,
            length: 0x8000_0000,
            members: vec![address("0000:01:00.1")],
        }
    }

    #[test]
    fn a_command_is_what_the_module_takes() {
        let map = "map 0000:01:00.0 0000:11:00.1 2 0x0 0x80000000 0000:01:00.1";
        assert_eq!(command(&Op::Map(entry())).as_deref(), Some(map));
        let unmap = "unmap 0000:01:00.0 0000:11:00.1 2 0x0 0x80000000";
        assert_eq!(command(&Op::Unmap(entry())).as_deref(), Some(unmap));
        assert_eq!(command(&Op::Nothing), None);
    }

    #[expect(clippy::disallowed_methods, reason = "tests make the tree that is read")]
    fn tree(list: Option<&str>, index: &str) -> (tempfile::TempDir, Root) {
        let place = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = place.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        if let Some(list) = list {
            write("proc/peerway-map", list);
        }
        write("proc/sys/kernel/osrelease", "6.12.1\n");
        write("proc/sys/kernel/modprobe", "/sbin/modprobe\n");
        write("lib/modules/6.12.1/modules.dep", index);
        let root = Root::open(place.path()).unwrap();
        (place, root)
    }

    fn listed(state: &str) -> String {
        format!(
            "peerway-map 1\nentries 1 dropped 0 lost 0\nlast 7 below-4g 99 no place for it\n\
             entry 0000:01:00.0 0000:11:00.1 2 0x0 0x80000000 at 0x400000000 {state}\n"
        )
    }

    #[test]
    fn an_entry_is_mapped_only_as_it_was_made_and_there_in_any_state() {
        for (state, map) in [("ok", "mapped"), ("ok held ats", "mapped"), ("lost", "lost")] {
            let (_place, root) = tree(Some(&listed(state)), "");
            let value = |text: &str| Ok(Found::Value(text.to_owned()));
            assert_eq!(current(&root, &Op::Map(entry())), value(map), "{state}");
            assert_eq!(current(&root, &Op::Unmap(entry())), value("mapped"), "{state}");
            let moved = MapEntry { start: peerway_core::address::BusAddress(0), ..entry() };
            assert_eq!(current(&root, &Op::Map(moved)), value("bar-moved"));
            let other = MapEntry { length: 0x1000, ..entry() };
            assert_eq!(current(&root, &Op::Map(other)), Ok(Found::Nothing));
        }
        let (_place, root) = tree(None, "");
        assert_eq!(current(&root, &Op::Map(entry())), Ok(Found::Nothing));
        let (_place, root) = tree(Some("peerway-map 2\nentries 0 dropped 0 lost 0\n"), "");
        assert!(current(&root, &Op::Map(entry())).is_err());
    }

    #[track_caller]
    fn check_missing(list: Option<&str>, index: &str, says: Option<&str>) {
        let (_place, root) = tree(list, index);
        let found = missing(&root);
        match says {
            None => assert_eq!(found, None),
            Some(says) => {
                assert!(found.as_ref().is_some_and(|one| one.contains(says)), "{found:?}")
            }
        }
    }

    #[test]
    fn a_module_that_is_missing_or_another_is_refused() {
        check_missing(Some(&listed("ok")), "", None);
        check_missing(None, "updates/dkms/peerway_map.ko.xz:\n", None);
        check_missing(None, "kernel/peerway_map_of_others.ko: a.ko\n", Some("not installed"));
        let other = "peerway-map 2\nentries 0 dropped 0 lost 0\n";
        check_missing(Some(other), "updates/peerway_map.ko:\n", Some("interface is 2"));
    }

    #[test]
    fn a_refusal_has_the_module_s_words() {
        let (_place, root) = tree(Some(&listed("ok")), "");
        assert_eq!(last_words(&root), "below-4g: no place for it");
    }
}
