//! The timer over a real journal, a simulated host, and a clock of the test's own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use peerway_core::diagnose::pairs::{PairScope, judge_all};
use peerway_roads::{Constraints, Knowledge, Plan, Request, RoadId};
use peerway_sim::react::SimHost;
use peerway_write::WriteGrant;
use peerway_write::grant::Place;
use peerway_write::transaction::{Ending, Ladder, Settings, TransactionError};

use super::*;

static QUIET: AtomicBool = AtomicBool::new(false);
const SETTINGS: Settings<'static> =
    Settings { confirm_within: 600, interrupted: &QUIET, ladder: Ladder::Leave };
const JOB: u32 = 4711;

fn plan(host: &SimHost) -> Plan {
    let snapshot = host.snapshot();
    let pairs = judge_all(&snapshot, &PairScope::default());
    let request = Request {
        snapshot: &snapshot,
        pairs: &pairs,
        constraints: &Constraints::default(),
        knowledge: &Knowledge::builtin(),
        gains: &BTreeMap::new(),
        in_force: &BTreeMap::new(),
        faults: &[],
    };
    peerway_roads::plan(&request, RoadId::PeerMap).unwrap()
}

fn taken<T>(
    state: &Path,
    command: impl FnOnce(WriteGrant<'_>) -> Result<T, TransactionError>,
) -> Result<T, ChangeError> {
    let mut store = DirectoryStore::open(state).map_err(PlaceError::from)?;
    let grant = WriteGrant::take(&mut store, Place::Simulated).map_err(TransactionError::from)?;
    Ok(command(grant)?)
}

/// A job holds a device, then the journal cannot be read for a while: the timer tries until the
/// transaction is over, with growing pauses, and its log says what stood in the way.
#[test]
fn it_tries_until_everything_is_taken_back() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path();
    let mut host = SimHost::named("kpro6-pve7").unwrap().unwrap();
    let plan = plan(&host);
    let ending =
        taken(state, |grant| peerway_write::apply(grant, &mut host, &plan, SETTINGS)).unwrap();
    assert!(matches!(ending, Ending::Waiting { .. }), "{ending:?}");
    host.start_process(JOB, "python3", "/system.slice/job.service", &["/dev/nvidia0"]);
    let back = taken(state, |grant| {
        peerway_write::roll_back(grant, &mut host, SETTINGS, "the command's own")
    });
    assert!(matches!(back.unwrap(), Ending::PendingHolder { .. }));
    let host = RefCell::new(host);
    let pauses = RefCell::new(Vec::new());
    let journal = state.join("journal.jsonl");
    let length = || std::fs::metadata(&journal).unwrap().len();
    let before = length();
    let pause = |length_of: Duration| {
        let mut pauses = pauses.borrow_mut();
        pauses.push(length_of.as_secs());
        match pauses.len() {
            1 => assert_eq!(length(), before, "a try that finds the same adds nothing"),
            2 => {
                std::fs::rename(&journal, state.join("aside")).unwrap();
                std::fs::create_dir(&journal).unwrap();
            }
            4 => {
                std::fs::remove_dir(&journal).unwrap();
                std::fs::rename(state.join("aside"), &journal).unwrap();
                host.borrow_mut().end_process(JOB);
            }
            count => assert!(count < 5, "it never ends"),
        }
    };
    stand(state, &pause, &mut || {
        taken(state, |grant| {
            peerway_write::recover(grant, &mut *host.borrow_mut(), SETTINGS).map(|_| Exit::Fine)
        })
    });
    assert_eq!(*pauses.borrow(), [30, 60, 120, 240]);
    let journal = std::fs::read_to_string(&journal).unwrap();
    assert!(journal.contains("\"end\":\"taken_back\""), "{journal}");
    assert!(host.borrow().state().entries.is_empty());
    let log = std::fs::read_to_string(state.join(log::NAME)).unwrap();
    assert!(log.contains("pending holder: 4711 (python3"), "{log}");
    assert!(log.trim_end().ends_with("is taken back: the command's own"), "{log}");
}

/// Where systemd runs, the same process is in a scope that no unit and no login has; elsewhere
/// nothing else is asked for.
#[test]
fn under_systemd_it_has_a_scope_of_its_own() {
    let (program, state) = (Path::new("/usr/bin/peerway"), Path::new("/var/lib/peerway"));
    let plain = words(program, state, false);
    let expected = "/usr/bin/peerway --host live dead-man 0 --state /var/lib/peerway";
    let joined: Vec<&str> = plain.iter().map(|word| word.to_str().unwrap()).collect();
    assert_eq!(joined.join(" "), expected);
    let scoped = words(program, state, true);
    assert!(scoped.ends_with(&plain));
    let before: Vec<&str> = scoped.iter().map(|word| word.to_str().unwrap()).collect();
    for word in ["systemd-run", "--scope", "--slice=system.slice", "--collect"] {
        assert!(before.contains(&word), "{before:?}");
    }
}
