//! What outlasts a boot: files that are put in place with the operator's word, and nothing else.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_read::tree::Node;
use peerway_roads::lasting::{self, Lasting};
use peerway_roads::{Op, Plan, RoadId};
use peerway_sim::build::walk;
use peerway_sim::react::SimHost;
use peerway_write::recovery::undo_all;
use peerway_write::store::MemoryStore;
use peerway_write::transaction::{Ending, prove};

use crate::common::*;
use crate::transaction::kind;

fn how() -> Lasting {
    Lasting {
        program: "/usr/bin/peerway".to_owned(),
        probe: Some("/usr/local/bin/copies".to_owned()),
        accelerators: vec!["[[accelerator]]\n".to_owned()],
    }
}

fn lasting_plan(host: &SimHost, road: RoadId) -> Plan {
    lasting::extend(plan(host, road).unwrap(), &how()).unwrap()
}

/// The files of ours that outlast a boot.
fn files(host: &SimHost) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk(host.tree(), &mut |path, node| {
        if lasting::is_ours(path) && !matches!(node, Node::Directory(_)) {
            found.insert(path.to_owned());
        }
    });
    found
}

/// A later boot: everything as it was before, but for the files.
fn later_boot(first: &SimHost, now: &SimHost, number: u8) -> SimHost {
    let mut tree = first.tree().clone();
    let id = format!("{number:08}-0000-4000-8000-000000000000\n").into_bytes();
    tree.set("/proc/sys/kernel/random/boot_id", Node::File(id)).unwrap();
    walk(now.tree(), &mut |path, node| {
        if lasting::is_ours(path) && !matches!(node, Node::Directory(_)) {
            tree.set(path, node.clone()).unwrap();
        }
    });
    SimHost::restored(first.name(), tree, first.state().clone())
}

fn walks() -> [(SimHost, RoadId); 3] {
    [
        (named("kpro6-pve7"), RoadId::PeerMap),
        (named("kpro6-pve7"), RoadId::LiveWithout),
        (healthy_boards(), RoadId::IdentityGroups),
    ]
}

/// On the same boot and on a later one, after the word and after a boot at any moment before it.
#[test]
fn undone_without_a_trace_on_whatever_boot() {
    for (first, road) in walks() {
        let plan = lasting_plan(&first, road);
        let mut store = MemoryStore::default();
        let mut watched = Watched::new(first.clone(), &store);
        assert_eq!(kind(&run(&mut store, &mut watched, &plan).unwrap()), "succeeded");
        let put = plan.steps.iter().filter(|step| matches!(step.act, Op::Install { .. })).count();
        assert!(put >= 7, "{road}: {put} files");
        assert_eq!(files(&watched.inner).len(), put, "{road}");
        watched.look(true);
        let mut cut_off = 0;
        for moment in watched.moments.into_inner() {
            let mut store = MemoryStore::with(moment.journal.clone());
            let mut host = later_boot(&first, &moment.host, 1);
            let ending = recover(&mut store, &mut host).unwrap();
            match ending {
                // Nothing began, or it was over.
                Ending::Nothing => {}
                Ending::GoneWithBoot { .. } => {
                    cut_off += usize::from(!files(&moment.host).is_empty());
                    assert_eq!(files(&host), BTreeSet::new(), "{road}");
                }
                other => panic!("{road}: {other:?}"),
            }
            undo_all(grant(&mut store), &mut host, SETTINGS).unwrap();
            assert_eq!(files(&host), BTreeSet::new(), "{road}");
            assert_eq!(undo_all(grant(&mut store), &mut host, SETTINGS).unwrap(), []);
        }
        assert!(cut_off > 3, "{road}: a boot between two files was met {cut_off} times");
        // And on the boot that it was confirmed on, with everything else.
        let mut host = watched.inner;
        let before = Essence::of(&first);
        undo_all(grant(&mut store), &mut host, SETTINGS).unwrap();
        let now = Essence::of(&host);
        assert!(now == before, "{road}: {}", before.difference(&now));
    }
}

/// A host on which no driver has bound yet, the other tenants' included, and which will.
fn unbound(host: &SimHost) -> (SimHost, Vec<(PciAddress, String)>) {
    let mut host = host.clone();
    for pid in host.root().list("/proc").unwrap().iter().filter_map(|name| name.parse().ok()) {
        if pid != 1 {
            host.end_process(pid);
        }
    }
    let mut drivers = Vec::new();
    for device in host.snapshot().devices.iter().filter(|device| !device.is_bridge()) {
        if let Observed::Known(driver) = &device.driver {
            let unbind = Op::Unbind { device: device.address, driver: driver.clone() };
            host.perform(&unbind).unwrap();
            drivers.push((device.address, driver.clone()));
        }
    }
    (host, drivers)
}

#[test]
fn domains_are_set_before_the_driver_binds_and_jobs_let_in_once_data_arrives() {
    let first = healthy_boards();
    let plan = lasting_plan(&first, RoadId::IdentityGroups);
    let mut store = MemoryStore::default();
    let mut host = first.clone();
    run(&mut store, &mut host, &plan).unwrap();
    let kept = host.root().read(lasting::PLAN, 1 << 20).unwrap();
    let kept: Plan = serde_json::from_slice(&kept).unwrap();
    kept.check().unwrap();
    // Too late, and on a host that is another one by now.
    let late = later_boot(&first, &host, 1);
    let error = kept.before_driver(&late.snapshot()).unwrap_err().to_string();
    assert!(error.contains("has the driver nvidia already"), "{error}");
    let (mut host, drivers) = unbound(&later_boot(&first, &host, 2));
    assert!(drivers.iter().any(|(device, _)| !kept.goal.devices.contains(device)), "{drivers:?}");
    let mut other = host.tree().clone();
    other.set("/proc/sys/kernel/osrelease", Node::File(b"6.19.0\n".to_vec())).unwrap();
    let other = SimHost::restored(host.name(), other, host.state().clone());
    let error = kept.before_driver(&other.snapshot()).unwrap_err().to_string();
    assert!(error.contains("osrelease") && error.contains("6.19.0"), "{error}");
    // In time.
    let derived = kept.before_driver(&host.snapshot()).unwrap();
    let ending = apply(&mut store, &mut host, &derived).unwrap();
    assert_eq!(kind(&ending), "succeeded", "{ending:?}");
    let environment = |host: &SimHost| Essence::of(host).environment.unwrap();
    assert!(environment(&host).contains("NCCL_P2P_DISABLE=1"));
    for device in &kept.goal.devices {
        let path = format!("/sys/bus/pci/devices/{device}/iommu_group/type");
        assert_eq!(host.root().text(&path, 64).unwrap(), "identity");
    }
    // Without drivers nothing arrives, and nobody is let in.
    let error = prove(&mut grant(&mut store), &mut host, SETTINGS).unwrap_err().to_string();
    assert!(error.contains("not proved on this boot"), "{error}");
    assert!(environment(&host).contains("NCCL_P2P_DISABLE=1"));
    for (device, driver) in drivers {
        host.perform(&Op::Probe { device, driver }).unwrap();
    }
    let proved = prove(&mut grant(&mut store), &mut host, SETTINGS).unwrap().unwrap();
    assert_eq!(kind(&proved), "succeeded", "{proved:?}");
    assert!(!environment(&host).contains("NCCL_P2P_DISABLE"));
    assert_eq!(prove(&mut grant(&mut store), &mut host, SETTINGS).unwrap(), None);
    let (_, problems) =
        peerway_write::transaction::in_force(&grant(&mut store), &mut host).unwrap().unwrap();
    assert_eq!(problems, Vec::<String>::new());
}

/// Without its declarations a host has no such devices, and a warning would be one about that.
#[test]
fn whatever_is_called_later_is_told_about_the_accelerators() {
    for (host, road) in walks() {
        let plan = lasting_plan(&host, road);
        let mut calls = 0;
        for step in &plan.steps {
            let Op::Install { path, content, .. } = &step.act else { continue };
            let content = content.replace("[ -x /usr/bin/peerway ]", "");
            for line in content.lines().filter(|line| line.contains("/usr/bin/peerway")) {
                let told = "/usr/bin/peerway --accelerator /etc/peerway/accelerator-0.toml ";
                let bare = line.replace(told, "");
                assert!(
                    line.contains(told) && !bare.contains("/usr/bin/peerway"),
                    "{path}: {line}"
                );
                calls += 1;
            }
        }
        assert!(calls >= 3, "{road}: {calls}");
    }
}

#[test]
fn a_plan_that_puts_other_files_in_place_is_refused() {
    let host = named("kpro6-pve7");
    let plan = lasting_plan(&host, RoadId::LiveWithout);
    let at = plan.steps.iter().position(|step| matches!(step.act, Op::Install { .. })).unwrap();
    for path in ["/etc/passwd", "/etc/systemd/system/ssh.service", "/etc/peerway/../shadow"] {
        let mut forged = plan.clone();
        let content = "x\n".to_owned();
        forged.steps[at].act = Op::Install { path: path.to_owned(), mode: 0o644, content };
        let error = peerway_write::scope::check(&forged, &host.snapshot()).unwrap_err();
        assert!(error.to_string().contains("no file of Peerway's own"), "{error}");
    }
    peerway_write::scope::check(&plan, &host.snapshot()).unwrap();
}

/// The files of one road are not written over by another: what lasts already is undone first.
#[test]
fn a_second_road_leaves_the_files_of_the_first() {
    let mut host = named("kpro6-pve7");
    let mut store = MemoryStore::default();
    let first = lasting_plan(&host, RoadId::LiveWithout);
    assert_eq!(kind(&run(&mut store, &mut host, &first).unwrap()), "succeeded");
    let contents = |host: &SimHost| -> Vec<_> {
        files(host).into_iter().map(|path| host.root().read(&path, 1 << 20).unwrap()).collect()
    };
    let (names, before) = (files(&host), contents(&host));
    let second = lasting_plan(&host, RoadId::PeerMap);
    let ending = run(&mut store, &mut host, &second).unwrap();
    let Ending::TakenBack { why, .. } = &ending else { panic!("{ending:?}") };
    assert!(why.contains("the plan expects none"), "{why}");
    assert_eq!((files(&host), contents(&host)), (names, before));
}

/// Records belong to the transaction that was opened last.
#[test]
fn nothing_is_opened_while_another_change_waits() {
    let mut host = named("kpro6-pve7");
    let mut store = MemoryStore::default();
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    assert_eq!(kind(&apply(&mut store, &mut host, &plan).unwrap()), "waiting");
    let error = prove(&mut grant(&mut store), &mut host, SETTINGS).unwrap_err().to_string();
    assert!(error.contains("t000001 is not over"), "{error}");
    let before = store.bytes();
    let mut journal = peerway_write::Journal::open(&mut store).unwrap();
    for entry in [
        peerway_write::Entry::Proved { id: "t000001".to_owned() },
        peerway_write::Entry::Reopened { id: "t000001".to_owned() },
    ] {
        let error = journal.append(entry).unwrap_err().to_string();
        assert!(error.contains("a transaction that is not over"), "{error}");
    }
    drop(journal);
    assert_eq!(store.bytes(), before);
    assert_eq!(kind(&confirm(&mut store, &mut host).unwrap()), "succeeded");
}

/// A boot carries out only what the operator confirmed here.
#[test]
fn a_plan_that_nobody_confirmed_is_no_plan_for_a_boot() {
    use peerway_write::transaction::{claims_unseen, was_made_to_last};
    let host = healthy_boards();
    let plan = lasting_plan(&host, RoadId::IdentityGroups);
    let kept = |host: &SimHost| -> Plan {
        serde_json::from_slice(&host.root().read(lasting::PLAN, 1 << 20).unwrap()).unwrap()
    };
    let mut store = MemoryStore::default();
    let mut done = host.clone();
    run(&mut store, &mut done, &plan).unwrap();
    let confirmed = kept(&done);
    assert!(was_made_to_last(grant(&mut store).journal(), &confirmed));
    let mut other = confirmed.clone();
    other.notes.push("another".to_owned());
    assert!(!was_made_to_last(grant(&mut store).journal(), &other));
    let nobody = MemoryStore::default();
    assert!(!was_made_to_last(grant(&mut { nobody }).journal(), &confirmed));
    undo_all(grant(&mut store), &mut done, SETTINGS).unwrap();
    assert!(!was_made_to_last(grant(&mut store).journal(), &confirmed));
    // Proxmox says later whose the devices are.
    assert_eq!(claims_unseen(&host.root()), None);
    let mut tree = host.tree().clone();
    for name in host.root().list("/etc/pve").unwrap() {
        tree.remove(&format!("/etc/pve/{name}"));
    }
    let early = SimHost::restored(host.name(), tree, host.state().clone());
    let why = claims_unseen(&early.root());
    assert!(why.is_some_and(|why| why.contains("/etc/pve")));
}
