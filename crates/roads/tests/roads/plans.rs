//! Plans and refusals on the simulated hosts.

use crate::host::Host;
use crate::refusals::refused;
use expect_test::{Expect, expect};
use peerway_core::observed::Observed;
use peerway_core::snapshot::iommu::DomainType;
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::pci::{Accelerator, Addressing};
use peerway_core::snapshot::tenant::{Claim, TenantId};
use peerway_roads::lasting::{self, Lasting};
use peerway_roads::op::{Environment, Op};
use peerway_roads::plan::{Invalid, Phase, Step};
use peerway_roads::road::Reversible;
use peerway_roads::{Plan, RoadId};

/// One line a step.
fn steps(plan: &Plan) -> String {
    let line = |step: &Step| {
        let phase = serde_json::to_value(step.phase).unwrap();
        let back = step.inverse.as_ref().map_or("-", |inverse| inverse.word());
        format!(
            "{:02} {:8} {} {} [{}] -> {} | {back}\n",
            step.number,
            phase.as_str().unwrap(),
            step.op,
            step.path.as_deref().unwrap_or("-"),
            step.expect.as_deref().map_or("?", |text| text.lines().next().unwrap_or_default()),
            step.set,
        )
    };
    plan.steps.iter().map(line).collect()
}

#[track_caller]
fn check(host: &str, road: RoadId, expected: &Expect) {
    let plan = Host::named(host).plan(road).unwrap();
    plan.check().unwrap();
    expected.assert_eq(&steps(&plan));
}

#[test]
fn a_peer_map_of_four_gpus() {
    check(
        "kpro6-pve7",
        RoadId::PeerMap,
        &expect![[r"
            01 prepare  write_safe_environment /run/peerway/p2p.env [?] -> peer access off | remove_environment
            02 prepare  stop - [?] -> pct:129 stopped | start
            03 prepare  persistence_off - [?] -> persistence of 0000:01:00.0 off | persistence_on
            04 prepare  persistence_off - [?] -> persistence of 0000:11:00.0 off | persistence_on
            05 prepare  persistence_off - [?] -> persistence of 0000:61:00.0 off | persistence_on
            06 prepare  persistence_off - [?] -> persistence of 0000:71:00.0 off | persistence_on
            07 prepare  wait - [?] -> no process holds any of 4 devices, seen twice, within 60 s | nothing
            08 prepare  fence /dev/nvidia0 [?] -> mode 0000 | unfence
            09 prepare  fence /dev/nvidia1 [?] -> mode 0000 | unfence
            10 prepare  fence /dev/nvidia2 [?] -> mode 0000 | unfence
            11 prepare  fence /dev/nvidia3 [?] -> mode 0000 | unfence
            12 prepare  load_module - [?] -> peerway_map loaded | unload_module
            13 canary   map_entry - [?] -> entry in the domain of 0000:01:00.0 for region 2 of 0000:11:00.0 at 0x34000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            14 canary   map_entry - [?] -> entry in the domain of 0000:01:00.0 for region 2 of 0000:61:00.0 at 0x20000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            15 canary   map_entry - [?] -> entry in the domain of 0000:01:00.0 for region 2 of 0000:71:00.0 at 0x30000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            16 canary   wait - [?] -> 0000:01:00.0 is bound to nvidia and healthy, within 120 s | nothing
            17 rest     map_entry - [?] -> entry in the domain of 0000:11:00.0 for region 2 of 0000:01:00.0 at 0x24000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            18 rest     map_entry - [?] -> entry in the domain of 0000:11:00.0 for region 2 of 0000:61:00.0 at 0x20000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            19 rest     map_entry - [?] -> entry in the domain of 0000:11:00.0 for region 2 of 0000:71:00.0 at 0x30000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            20 rest     map_entry - [?] -> entry in the domain of 0000:61:00.0 for region 2 of 0000:01:00.0 at 0x24000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            21 rest     map_entry - [?] -> entry in the domain of 0000:61:00.0 for region 2 of 0000:11:00.0 at 0x34000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            22 rest     map_entry - [?] -> entry in the domain of 0000:61:00.0 for region 2 of 0000:71:00.0 at 0x30000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            23 rest     map_entry - [?] -> entry in the domain of 0000:71:00.0 for region 2 of 0000:01:00.0 at 0x24000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            24 rest     map_entry - [?] -> entry in the domain of 0000:71:00.0 for region 2 of 0000:11:00.0 at 0x34000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            25 rest     map_entry - [?] -> entry in the domain of 0000:71:00.0 for region 2 of 0000:61:00.0 at 0x20000000000, offset 0x0, 0x2000000000 bytes | unmap_entry
            26 rest     wait - [?] -> 0000:11:00.0 is bound to nvidia and healthy, within 120 s | nothing
            27 rest     wait - [?] -> 0000:61:00.0 is bound to nvidia and healthy, within 120 s | nothing
            28 rest     wait - [?] -> 0000:71:00.0 is bound to nvidia and healthy, within 120 s | nothing
            29 confirm  unfence /dev/nvidia0 [?] -> the mode found before the fence | fence
            30 confirm  unfence /dev/nvidia1 [?] -> the mode found before the fence | fence
            31 confirm  unfence /dev/nvidia2 [?] -> the mode found before the fence | fence
            32 confirm  unfence /dev/nvidia3 [?] -> the mode found before the fence | fence
            33 confirm  restore_persistence - [?] -> persistence of 0000:01:00.0 as before | persistence_off
            34 confirm  restore_persistence - [?] -> persistence of 0000:11:00.0 as before | persistence_off
            35 confirm  restore_persistence - [?] -> persistence of 0000:61:00.0 as before | persistence_off
            36 confirm  restore_persistence - [?] -> persistence of 0000:71:00.0 as before | persistence_off
            37 confirm  lift_safe_environment /run/peerway/p2p.env [# Written by Peerway: peer access is not proved on this boot.] -> NCCL_P2P_LEVEL=PHB | write_safe_environment
            38 confirm  restart - [?] -> pct:129 running, if it ran before | stop
        "]],
    );
}

#[test]
fn identity_for_four_groups() {
    check(
        "fsp",
        RoadId::IdentityGroups,
        &expect![[r"
            01 prepare  write_safe_environment /run/peerway/p2p.env [?] -> peer access off | remove_environment
            02 prepare  stop - [?] -> pct:129 stopped | start
            03 prepare  persistence_off - [?] -> persistence of 0000:01:00.0 off | persistence_on
            04 prepare  persistence_off - [?] -> persistence of 0000:11:00.0 off | persistence_on
            05 prepare  persistence_off - [?] -> persistence of 0000:61:00.0 off | persistence_on
            06 prepare  persistence_off - [?] -> persistence of 0000:71:00.0 off | persistence_on
            07 prepare  wait - [?] -> no process holds any of 4 devices, seen twice, within 60 s | nothing
            08 prepare  fence /dev/nvidia0 [?] -> mode 0000 | unfence
            09 prepare  fence /dev/nvidia1 [?] -> mode 0000 | unfence
            10 prepare  fence /dev/nvidia2 [?] -> mode 0000 | unfence
            11 prepare  fence /dev/nvidia3 [?] -> mode 0000 | unfence
            12 control  set_driver_override /sys/bus/pci/devices/0000:01:00.0/driver_override [none] -> nvidia | clear_driver_override
            13 control  unbind /sys/bus/pci/drivers/nvidia/unbind [nvidia] -> 0000:01:00.0 | drivers_probe
            14 control  drivers_probe /sys/bus/pci/drivers_probe [none] -> 0000:01:00.0 | unbind
            15 control  wait - [?] -> 0000:01:00.0 is bound to nvidia and healthy, within 120 s | nothing
            16 control  wait - [?] -> 0000:01:00.0 has node number 0, within 10 s | nothing
            17 control  clear_driver_override /sys/bus/pci/devices/0000:01:00.0/driver_override [nvidia] -> none | set_driver_override
            18 canary   set_driver_override /sys/bus/pci/devices/0000:01:00.0/driver_override [none] -> nvidia | clear_driver_override
            19 canary   unbind /sys/bus/pci/drivers/nvidia/unbind [nvidia] -> 0000:01:00.0 | drivers_probe
            20 canary   write_group_type /sys/kernel/iommu_groups/42/type [DMA-FQ] -> identity | write_group_type
            21 canary   wait - [?] -> the group of 0000:01:00.0 reads identity, within 10 s | nothing
            22 canary   drivers_probe /sys/bus/pci/drivers_probe [none] -> 0000:01:00.0 | unbind
            23 canary   wait - [?] -> 0000:01:00.0 is bound to nvidia and healthy, within 120 s | nothing
            24 canary   wait - [?] -> 0000:01:00.0 has node number 0, within 10 s | nothing
            25 canary   clear_driver_override /sys/bus/pci/devices/0000:01:00.0/driver_override [nvidia] -> none | set_driver_override
            26 rest     set_driver_override /sys/bus/pci/devices/0000:11:00.0/driver_override [none] -> nvidia | clear_driver_override
            27 rest     unbind /sys/bus/pci/drivers/nvidia/unbind [nvidia] -> 0000:11:00.0 | drivers_probe
            28 rest     write_group_type /sys/kernel/iommu_groups/61/type [DMA-FQ] -> identity | write_group_type
            29 rest     wait - [?] -> the group of 0000:11:00.0 reads identity, within 10 s | nothing
            30 rest     drivers_probe /sys/bus/pci/drivers_probe [none] -> 0000:11:00.0 | unbind
            31 rest     wait - [?] -> 0000:11:00.0 is bound to nvidia and healthy, within 120 s | nothing
            32 rest     wait - [?] -> 0000:11:00.0 has node number 1, within 10 s | nothing
            33 rest     clear_driver_override /sys/bus/pci/devices/0000:11:00.0/driver_override [nvidia] -> none | set_driver_override
            34 rest     set_driver_override /sys/bus/pci/devices/0000:61:00.0/driver_override [none] -> nvidia | clear_driver_override
            35 rest     unbind /sys/bus/pci/drivers/nvidia/unbind [nvidia] -> 0000:61:00.0 | drivers_probe
            36 rest     write_group_type /sys/kernel/iommu_groups/28/type [DMA-FQ] -> identity | write_group_type
            37 rest     wait - [?] -> the group of 0000:61:00.0 reads identity, within 10 s | nothing
            38 rest     drivers_probe /sys/bus/pci/drivers_probe [none] -> 0000:61:00.0 | unbind
            39 rest     wait - [?] -> 0000:61:00.0 is bound to nvidia and healthy, within 120 s | nothing
            40 rest     wait - [?] -> 0000:61:00.0 has node number 2, within 10 s | nothing
            41 rest     clear_driver_override /sys/bus/pci/devices/0000:61:00.0/driver_override [nvidia] -> none | set_driver_override
            42 rest     set_driver_override /sys/bus/pci/devices/0000:71:00.0/driver_override [none] -> nvidia | clear_driver_override
            43 rest     unbind /sys/bus/pci/drivers/nvidia/unbind [nvidia] -> 0000:71:00.0 | drivers_probe
            44 rest     write_group_type /sys/kernel/iommu_groups/10/type [DMA-FQ] -> identity | write_group_type
            45 rest     wait - [?] -> the group of 0000:71:00.0 reads identity, within 10 s | nothing
            46 rest     drivers_probe /sys/bus/pci/drivers_probe [none] -> 0000:71:00.0 | unbind
            47 rest     wait - [?] -> 0000:71:00.0 is bound to nvidia and healthy, within 120 s | nothing
            48 rest     wait - [?] -> 0000:71:00.0 has node number 3, within 10 s | nothing
            49 rest     clear_driver_override /sys/bus/pci/devices/0000:71:00.0/driver_override [nvidia] -> none | set_driver_override
            50 confirm  unfence /dev/nvidia0 [?] -> the mode found before the fence | fence
            51 confirm  unfence /dev/nvidia1 [?] -> the mode found before the fence | fence
            52 confirm  unfence /dev/nvidia2 [?] -> the mode found before the fence | fence
            53 confirm  unfence /dev/nvidia3 [?] -> the mode found before the fence | fence
            54 confirm  restore_persistence - [?] -> persistence of 0000:01:00.0 as before | persistence_off
            55 confirm  restore_persistence - [?] -> persistence of 0000:11:00.0 as before | persistence_off
            56 confirm  restore_persistence - [?] -> persistence of 0000:61:00.0 as before | persistence_off
            57 confirm  restore_persistence - [?] -> persistence of 0000:71:00.0 as before | persistence_off
            58 confirm  lift_safe_environment /run/peerway/p2p.env [# Written by Peerway: peer access is not proved on this boot.] -> NCCL_P2P_LEVEL=PHB | write_safe_environment
            59 confirm  restart - [?] -> pct:129 running, if it ran before | stop
        "]],
    );
}

#[test]
fn living_without() {
    check(
        "kpro6",
        RoadId::LiveWithout,
        &expect![[r"
            01 prepare  write_safe_environment /run/peerway/p2p.env [?] -> peer access off | remove_environment
        "]],
    );
}

#[test]
fn a_stale_plan_says_where_the_host_differs() {
    let mut host = Host::named("fsp");
    let plan = host.plan(RoadId::IdentityGroups).unwrap();
    assert_eq!(plan.differences(&host.snapshot), vec![]);
    // The goal's processes end, as they should before the plan is carried out.
    host.snapshot.holders = Observed::Known(Vec::new());
    host.snapshot.claims.retain(|claim| !claim.source.starts_with("process"));
    assert_eq!(plan.differences(&host.snapshot), vec![]);
    for (id, group) in host.snapshot.groups.iter_mut().map(|group| (group.id, group)) {
        if [10, 28, 42, 61].contains(&id) {
            group.domain = Observed::Known(DomainType::Identity);
        }
    }
    assert_eq!(plan.differences(&host.snapshot).len(), 4);
    assert_eq!(plan.differences_after(&host.snapshot), vec![]);
}

#[test]
fn a_changed_plan_is_not_carried_out() {
    let plan = Host::named("fsp").plan(RoadId::IdentityGroups).unwrap();
    let mut changed = plan.clone();
    changed.steps.truncate(3);
    assert!(matches!(changed.check(), Err(Invalid::Digest { .. })));
    let mut other = plan.clone();
    other.schema += 1;
    assert!(matches!(other.check(), Err(Invalid::Schema { .. })));
    let again = Host::named("fsp").plan(RoadId::IdentityGroups).unwrap();
    assert_eq!(again.digest, plan.digest);
}

/// Whoever writes a plan by hand can give it its digest. What it asks for is still held to what a
/// plan of its road asks for.
#[track_caller]
fn check_forged(plan: &Plan, change: impl FnOnce(&mut Plan), says: &str) {
    let mut forged = plan.clone();
    change(&mut forged);
    for step in &mut forged.steps {
        (step.op, step.path) = (step.act.word().to_owned(), step.act.path());
        step.set = step.act.set();
    }
    if let Err(Invalid::Digest { computed, .. }) = forged.check() {
        forged.digest = computed;
    }
    let error = forged.check().unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn a_plan_by_hand_is_held_to_its_road() {
    let map = Host::named("kpro6-pve7").plan(RoadId::PeerMap).unwrap();
    let without = Host::named("kpro6-pve7").plan(RoadId::LiveWithout).unwrap();
    let identity = Host::named("fsp").plan(RoadId::IdentityGroups).unwrap();
    let how = Lasting { program: "/usr/bin/peerway".to_owned(), probe: None, accelerators: vec![] };
    let lasts = lasting::extend(without.clone(), &how).unwrap();
    for plan in [&map, &without, &identity, &lasts] {
        plan.check().unwrap();
    }
    let none = "is none that";
    // A harmless road's name over a change of devices.
    check_forged(&map, |plan| plan.road = RoadId::LiveWithout, none);
    check_forged(&without, |plan| plan.steps.extend(identity.steps.clone()), none);
    check_forged(&identity, |plan| plan.before_driver = true, none);
    // What is closed or switched off is given back.
    let gives_back = |act: &Op| matches!(act, Op::Unfence { .. } | Op::RestorePersistence { .. });
    assert!(map.steps.iter().any(|step| matches!(step.act, Op::Unfence { .. })));
    assert!(map.steps.iter().any(|step| matches!(step.act, Op::RestorePersistence { .. })));
    for (at, _) in map.steps.iter().enumerate().filter(|(_, step)| gives_back(&step.act)) {
        check_forged(&map, |plan| drop(plan.steps.remove(at)), "does not give back");
    }
    // No word of the operator, no trial on one device, no safe environment first.
    check_forged(
        &identity,
        |plan| plan.steps.retain(|step| step.phase != Phase::Confirm),
        "does not wait for your word",
    );
    check_forged(&map, |plan| plan.canary = None, "on one device first");
    check_forged(&map, |plan| drop(plan.steps.remove(0)), "begin with the safe environment");
    // What calls itself safe, what lifts too early, and what another plan never has.
    let safe = |content: &str| Op::WriteEnvironment {
        kind: Environment::Safe,
        content: content.to_owned(),
    };
    check_forged(&map, |plan| plan.steps[0].act = safe("NCCL_P2P_LEVEL=SYS\n"), none);
    check_forged(
        &map,
        |plan| {
            let lift = plan.steps.iter().find(|step| step.op == "lift_safe_environment").unwrap();
            let lift = Step { phase: Phase::Prepare, ..lift.clone() };
            plan.steps.insert(1, lift);
        },
        none,
    );
    check_forged(
        &map,
        |plan| plan.steps[1].act = Op::UnloadModule { module: "nvidia".to_owned() },
        none,
    );
    check_forged(
        &map,
        |plan| {
            let load = plan.steps.iter_mut().find(|step| step.op == "load_module").unwrap();
            load.act = Op::LoadModule { module: "vfio".to_owned() };
        },
        none,
    );
    check_forged(
        &lasts,
        |plan| {
            let install = plan.steps.iter_mut().find(|step| step.op == "install_file").unwrap();
            if let Op::Install { mode, .. } = &mut install.act {
                *mode = 0o4755;
            }
        },
        none,
    );
}

#[test]
fn the_canary_goes_first_and_only_confirmation_lifts() {
    for (host, road) in [("fsp", RoadId::IdentityGroups), ("kpro6-pve7", RoadId::PeerMap)] {
        let plan = Host::named(host).plan(road).unwrap();
        assert!(plan.steps.is_sorted_by_key(|step| step.phase), "{road}");
        assert!(plan.canary.is_some());
        let lifts = plan.steps.iter().filter(|step| step.op == "lift_safe_environment");
        assert!(
            lifts.clone().count() == 1 && lifts.clone().all(|step| step.phase == Phase::Confirm)
        );
        assert_eq!(plan.steps[0].op, "write_safe_environment");
    }
}

#[test]
fn all_four_assumptions_of_a_trial_are_written_down() {
    let plan = Host::named("fsp").plan(RoadId::IdentityGroups).unwrap();
    let texts: Vec<String> =
        plan.assumptions.iter().map(|one| format!("{} ({})", one.text, one.result)).collect();
    expect![[r"
        the type file of each group accepts the write of identity (unknown)
        the groups are independent: a change of one leaves every other as it is (unknown)
        host, vm:132 stay unaffected (unknown)
        a GPU survives unbind and rebind (unknown)
        a GPU boots under an identity domain (its security processor fetches firmware by DMA) (unknown)
        each GPU gets its node number back (yes)"]].assert_eq(&texts.join("\n"));
    assert!(plan.assumptions.iter().all(|one| !one.checked_by.is_empty()));
    assert!(plan.protects.iter().any(|one| one.tenant.0 == "vm:132" && one.groups.len() == 4));
}

/// A simulated host on which nobody was recorded to hold anything, and nobody does.
fn quiet(name: &str) -> Host {
    let hosts = peerway_sim::hosts::all();
    let builder = hosts.into_iter().find(|host| host.name == name).unwrap().builder;
    let mut host = Host::of(name, builder.tree().unwrap());
    host.snapshot.holders = Observed::Known(Vec::new());
    host.snapshot.gaps.retain(|gap| !gap.source.starts_with("/proc/PID"));
    host
}

#[test]
fn redirect_off_below_a_switch() {
    let mut host = quiet("switch-redirect");
    let plan = host.plan(RoadId::AcsDirect).unwrap();
    let text = steps(&plan);
    let acs: Vec<&str> = text.lines().filter(|line| line.contains("write_acs")).collect();
    expect![[r"
        11 canary   write_acs /sys/bus/pci/devices/0000:42:08.0/config [29] -> bits 0x002c = 0x0000 | write_acs
        12 canary   write_acs /sys/bus/pci/devices/0000:42:09.0/config [29] -> bits 0x002c = 0x0000 | write_acs
        13 rest     write_acs /sys/bus/pci/devices/0000:42:10.0/config [29] -> bits 0x002c = 0x0000 | write_acs
        14 rest     write_acs /sys/bus/pci/devices/0000:42:11.0/config [29] -> bits 0x002c = 0x0000 | write_acs"]].assert_eq(&acs.join("\n"));
    // Somebody else's device below the switch, whatever its slot: the road is closed.
    host.snapshot.claims.push(Claim {
        device: "0000:46:00.0".parse().unwrap(),
        tenant: TenantId("vm:7".to_owned()),
        source: "/etc/pve/qemu-server/7.conf: hostpci0".to_owned(),
        active: Tristate::No,
    });
    host.constraints.devices =
        ["0000:43:00.0", "0000:44:00.0"].map(|text| text.parse().unwrap()).into();
    refused(
        &host,
        RoadId::AcsDirect,
        &expect![[r"
        closed, the road is closed on this host: one-tenant=no
    "]],
    );
}

#[test]
fn declared_accelerators_are_mapped_by_their_memory_function() {
    let mut host = quiet("switch-redirect");
    // Stand-ins as in a machine without GPUs: 32-bit requesters, memory far above.
    let gpus: Vec<_> = host.snapshot.accelerated().iter().map(|device| device.address).collect();
    for device in host.snapshot.devices.iter_mut().filter(|one| gpus.contains(&one.address)) {
        device.class = Observed::Known(0xff_0000);
        device.driver = Observed::Known("uio_pci_generic".to_owned());
        device.dma_mask_bits = Observed::Known(32);
    }
    host.snapshot.accelerators = gpus
        .iter()
        .map(|gpu| Accelerator {
            name: "engine".to_owned(),
            requester: *gpu,
            memory: *gpu,
            bar: 1,
            addressing: Addressing::Raw,
            root_complex_forwards: true,
        })
        .collect();
    let host = Host { constraints: host.constraints, ..Host::with(host.snapshot) };
    let plan = host.plan(RoadId::PeerMap).unwrap();
    let text = steps(&plan);
    let maps: Vec<&str> = text.lines().filter(|line| line.contains("map_entry")).collect();
    assert_eq!(maps.len(), 12);
    expect!["04 canary   map_entry - [?] -> entry in the domain of 0000:43:00.0 for region 1 of 0000:44:00.0 at 0x22000000000, offset 0x0, 0x1000000000 bytes | unmap_entry"].assert_eq(maps[0]);
    // Nothing of NVIDIA's is asked of them.
    assert!(!text.contains("persistence") && !text.contains("/dev/nvidia"), "{text}");
}

#[test]
fn a_hazard_has_to_be_accepted() {
    let mut host = Host::named("fsp");
    if let Observed::Known(version) = &mut host.snapshot.nvidia.version {
        "595.45.04".clone_into(&mut version.version);
    }
    refused(
        &host,
        RoadId::IdentityGroups,
        &expect![[r"
        closed, the road is closed on this host: unbind-hazard=no
    "]],
    );
    host.constraints.accepted.unbind_hazard = true;
    let plan = host.plan(RoadId::IdentityGroups).unwrap();
    assert_eq!(plan.reversible, Reversible::Conditional);
}

/// Nothing is stopped for nothing: the change itself would refuse it.
#[test]
fn a_container_that_uses_no_device_is_not_stopped() {
    let mut host = Host::named("kpro6-pve7");
    host.snapshot.holders = Observed::Known(Vec::new());
    let idle = host.plan(RoadId::PeerMap).unwrap();
    assert!(!steps(&idle).contains("pct:129"));
}
