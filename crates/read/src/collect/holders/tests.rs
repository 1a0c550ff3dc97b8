//! Recorded processes of our own making.

use super::fixture::{devices, nvidia, root};
use super::*;

const DRM: &str = "//- /sys/class/drm/card1/device -> ../../../0000:41:00.0\n\
                   //- /sys/class/drm/card1-DP-1/status\nconnected\n\
                   //- /sys/class/drm/renderD128/device -> ../../../0000:41:00.0\n\
                   //- /sys/class/drm/renderD129/device -> ../../../0000:42:00.0\n";

fn nodes(entries: &str) -> NodeMap {
    NodeMap::new(&root(entries), &devices(), &nvidia())
}

fn list(addresses: &[PciAddress]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check_path(path: &str, expected: &str) {
    assert_eq!(list(&nodes(DRM).by_path(path)), expected, "{path}");
}

#[test]
fn functions_behind_a_node() {
    check_path("/dev/nvidia0", "0000:42:00.0");
    check_path("/dev/nvidia1", "0000:41:00.0");
    check_path("/var/lib/machines/a/rootfs/dev/nvidia1", "0000:41:00.0");
    check_path("/dev/vfio/13", "0000:c1:00.0");
    check_path("/dev/vfio/noiommu-13", "0000:c1:00.0");
    check_path("/dev/vfio/14", "0000:c2:00.0 0000:c2:00.1");
    check_path("/dev/vfio/devices/vfio0", "0000:c1:00.0");
    check_path("/dev/dri/card1", "0000:41:00.0");
    check_path("/dev/dri/renderD129", "0000:42:00.0");
    check_path("/dev/dri/by-path/pci-0000:41:00.0-render", "0000:41:00.0");
    check_path("/dev/dri", "0000:41:00.0 0000:42:00.0");
}

#[test]
fn shared_and_unknown_nodes_name_no_gpu() {
    for path in [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia9",
        "/dev/vfio/vfio",
        "/dev/vfio/99",
        "/dev/dri/card9",
        "/dev/kfd",
        "/dev/null",
        "",
    ] {
        check_path(path, "");
    }
}

#[track_caller]
fn check_numbers(major: Option<u32>, minor: Option<u32>, expected: &str) {
    assert_eq!(list(&nodes(DRM).by_numbers(major, minor)), expected);
}

#[test]
fn functions_behind_numbers() {
    check_numbers(Some(195), None, "0000:41:00.0 0000:42:00.0 0000:c1:00.0 0000:c2:00.0");
    check_numbers(None, None, "0000:41:00.0 0000:42:00.0 0000:c1:00.0 0000:c2:00.0");
    check_numbers(Some(195), Some(1), "0000:41:00.0");
    check_numbers(Some(195), Some(255), "");
    check_numbers(Some(226), Some(129), "0000:42:00.0");
    check_numbers(Some(226), None, "0000:41:00.0 0000:42:00.0");
    check_numbers(Some(1), Some(3), "");
    assert_eq!(list(&nodes("").visible("0,GPU-bb, MIG-x,7")), "0000:41:00.0 0000:42:00.0");
}

#[track_caller]
fn check(entries: &str, expected: &[&str], expected_gaps: &[&str]) {
    let root = root(entries);
    let mut gaps = Vec::new();
    let seen: Vec<String> = match collect(&root, &devices(), &nvidia(), &mut gaps) {
        Observed::Known(holders) => holders
            .iter()
            .map(|one| {
                let switches: Vec<String> =
                    one.switches.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!(
                    "{} {} {} since {} uid {}: {} [{}] {}",
                    one.pid,
                    one.command,
                    one.tenant,
                    one.start,
                    one.uid,
                    one.nodes.join(","),
                    list(&one.devices),
                    switches.join(",")
                )
            })
            .collect(),
        other => vec![other.map(|_| String::new()).to_string()],
    };
    assert_eq!(seen, expected);
    let gaps: Vec<String> = gaps.iter().map(|gap| format!("{}: {}", gap.source, gap.why)).collect();
    assert_eq!(gaps, expected_gaps);
}

const ENGINE: &str = "//- /proc/70/fd/0 -> /dev/null\n//- /proc/70/fd/7 -> /dev/nvidiactl\n\
    //- /proc/70/fd/8 -> /dev/nvidia1\n//- /proc/70/fd/9 -> /dev/nvidia1\n//- /proc/70/comm\nengine: worker\n\
    //- /proc/70/stat\n70 (engine: (worker)) S 1 70 70 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 9 0 881200 1 2\n\
    //- /proc/70/status\nName:\tengine\nUid:\t100000\t100000\t100000\t100000\n\
    //- /proc/70/cgroup\n0::/lxc/204/ns/system.slice/engine.service\n\
    //- /proc/70/environ\nHOME=/root\nNCCL_P2P_DISABLE=1\nTOKEN=secret\nCUDA_VISIBLE_DEVICES=0\n";

#[test]
fn holders_of_a_recorded_host() {
    check(
        ENGINE,
        &["70 engine: worker lxc:204 since 881200 uid 100000: /dev/nvidia1,/dev/nvidiactl \
           [0000:41:00.0] CUDA_VISIBLE_DEVICES=0,NCCL_P2P_DISABLE=1"],
        &[],
    );
    check(
        "//- /proc/71/fd/30 -> /dev/vfio/14\n//- /proc/71/fd/31 -> anon_inode:[vfio-device]\n\
         //- /proc/71/comm\nkvm\n//- /proc/71/cgroup\n0::/qemu.slice/311.scope\n//- /proc/71/environ\n\
         //- /proc/1/fd/\n",
        &["71 kvm vm:311 since 0 uid 4294967295: /dev/vfio/14,anon_inode:[vfio-device] \
           [0000:c2:00.0 0000:c2:00.1] "],
        &[],
    );
    check(
        "//- /proc/72/fd/5 -> anon_inode:[vfio-device]\n//- /proc/72/environ\n\
         //- /proc/72/fdinfo/5\npos:\t0\nvfio-device-syspath: /sys/devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0\n",
        &["72  host since 0 uid 4294967295: anon_inode:[vfio-device] [0000:c1:00.0] "],
        &[],
    );
}

#[test]
fn an_emulator_started_by_hand_is_a_guest() {
    check(
        "//- /proc/74/fd/5 -> /dev/vfio/13\n//- /proc/74/comm\nqemu-system-x86\n//- /proc/74/environ\n\
         //- /proc/74/cgroup\n0::/user.slice/user-0.slice/session-1.scope\n\
         //- /proc/75/fd/5 -> /dev/vfio/14\n//- /proc/75/comm\ndpdk-app\n//- /proc/75/environ\n",
        &[
            "74 qemu-system-x86 vm:qemu-system-x86-74 since 0 uid 4294967295: /dev/vfio/13 [0000:c1:00.0] ",
            "75 dpdk-app host since 0 uid 4294967295: /dev/vfio/14 [0000:c2:00.0 0000:c2:00.1] ",
        ],
        &[],
    );
}

#[test]
fn nobody_and_nobody_looked_are_different() {
    check("//- /proc/1/fd/\n//- /proc/1/comm\ninit\n", &[], &[]);
    check(
        "//- /proc/cmdline\nquiet\n",
        &["unknown (no process was recorded)"],
        &["/proc/PID/fd: no process was recorded"],
    );
    check(
        "//- /proc/1/fd !EACCES\n//- /proc/2/fd !EACCES\n",
        &["unknown (permission denied)"],
        &["/proc/PID/fd: permission denied"],
    );
    check(
        "//- /proc/1/fd !EACCES\n//- /proc/2/fd !EACCES\n//- /proc/3/fd/\n",
        &[],
        &[
            "/proc/PID/fd: 2 processes could not be looked into, the first of them 1: permission denied",
        ],
    );
    check(
        "//- /proc/73/fd/5 -> /dev/nvidia0\n//- /proc/73/environ !EACCES\n",
        &["73  host since 0 uid 4294967295: /dev/nvidia0 [0000:42:00.0] "],
        &["/proc/73/environ: permission denied"],
    );
}

#[test]
fn the_number_tells_the_gpu_whatever_the_node_is_called() {
    let held = Held { path: "/dev/nvidia0".to_owned(), number: Some((195, 1)), ..Held::default() };
    assert_eq!(list(&devices_of(&held, &nodes(""))), "0000:41:00.0");
}

/// A node that a container has under a name of its own, or whose name is another device's, is told
/// by its numbers; one that stands for a device which cannot be told is said.
#[test]
fn nodes_with_other_names_are_told_by_their_numbers() {
    const CLASSES: &str = "//- /sys/class/uio/uio0/device -> ../../../0000:41:00.0\n\
                           //- /sys/class/uio/uio0/dev\n240:0\n\
                           //- /sys/class/uio/uio1/device -> ../../../0000:42:00.0\n\
                           //- /sys/class/uio/uio1/dev\n240:1\n\
                           //- /sys/class/accel/accel0/device -> ../../../0000:c1:00.0\n\
                           //- /sys/class/accel/accel0/dev\n261:0\n";
    let held = |path: &str, number, device: Option<&str>| Held {
        path: path.to_owned(),
        number,
        device: device.map(str::to_owned),
        stands_for_one: true,
    };
    let cases = [
        (held("/dev/uio0", None, None), "0000:41:00.0"),
        (held("/dev/uio0", Some((240, 1)), None), "0000:42:00.0"),
        (held("/dev/board", Some((240, 0)), None), "0000:41:00.0"),
        (held("/dev/npu", Some((261, 0)), None), "0000:c1:00.0"),
        (held("/dev/accel/accel0", None, None), "0000:c1:00.0"),
        (held("/mnt/region", None, Some("0000:c2:00.1")), "0000:c2:00.1"),
        (held("/dev/board", Some((240, 7)), None), "untold /dev/board"),
        (held("/dev/uio7", None, None), "untold /dev/uio7"),
        (held("/dev/nvidia9", None, None), "untold /dev/nvidia9"),
    ];
    let nodes = nodes(CLASSES);
    for (held, expected) in cases {
        let process = Process { held: vec![held], ..Process::default() };
        let holder = holder(process, &nodes);
        let untold = holder.untold.iter().map(|node| format!("untold {node}"));
        let told = holder.devices.iter().map(ToString::to_string);
        let seen: Vec<String> = told.chain(untold).collect();
        assert_eq!(seen, [expected]);
    }
}

#[test]
fn an_environment_is_cut_to_its_switches() {
    let seen =
        switches(b"A=1\0NCCL_DEBUG=INFO\nX=2\0SGLANG_ENABLE_SPEC_V2=1\0\xff\xfe\0NCCL_BROKEN\0");
    let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["NCCL_DEBUG", "SGLANG_ENABLE_SPEC_V2"]);
    assert_eq!(switches(b""), []);
}

#[test]
fn every_device_of_a_holder_is_claimed() {
    let mut gaps = Vec::new();
    let holders = collect(&root(ENGINE), &devices(), &nvidia(), &mut gaps);
    let claims = claims(holders.known().unwrap());
    let seen: Vec<String> = claims
        .iter()
        .map(|one| format!("{} {} {} {}", one.device, one.tenant, one.source, one.active))
        .collect();
    assert_eq!(seen, ["0000:41:00.0 lxc:204 process 70 (engine: worker) yes"]);
}

#[track_caller]
fn check_list(list: &HolderList, expected: &str, expected_gaps: &str) {
    let mut gaps = Vec::new();
    let seen = from_list(&root("//- /proc/stat\n"), list, &devices(), &nvidia(), &mut gaps);
    let seen = seen.map(|holders| {
        let holders: Vec<String> = holders
            .iter()
            .map(|one| format!("{} {} [{}]", one.pid, one.tenant, self::list(&one.devices)))
            .collect();
        holders.join(", ")
    });
    assert_eq!(seen.to_string(), expected);
    let gaps: Vec<&str> = gaps.iter().map(|gap| gap.why.as_str()).collect();
    assert_eq!(gaps.join("; "), expected_gaps);
}

fn live(path: &str, environment: Environment) -> peerway_holders::Process {
    peerway_holders::Process {
        pid: 80,
        comm: "python3".to_owned(),
        start_ticks: 5,
        uid: Some(0),
        cgroup: "0::/lxc/205/ns".to_owned(),
        held: vec![peerway_holders::Held {
            path: path.to_owned(),
            kind: NodeKind::NvidiaGpu,
            descriptors: vec![3],
            mappings: 0,
            device: Some(peerway_holders::DeviceNumber { major: 195, minor: 0 }),
            deleted: false,
            vfio_syspath: None,
            drm_address: None,
            region_of: None,
        }],
        environment,
    }
}

#[test]
fn the_scan_of_a_live_host() {
    let end = peerway_holders::ScanEnd {
        processes: 9,
        host_wide: Some(true),
        ..peerway_holders::ScanEnd::default()
    };
    let list = |processes, end| HolderList { processes, end, ..HolderList::default() };
    let read = Environment::Read { variables: Vec::new(), truncated: false };
    check_list(
        &list(vec![live("/dev/nvidia1", read)], Some(end.clone())),
        "80 lxc:205 [0000:42:00.0]",
        "",
    );
    check_list(
        &list(vec![live("/dev/nvidia0", Environment::Unreadable { errno: 13 })], Some(end.clone())),
        "80 lxc:205 [0000:42:00.0]",
        "permission denied",
    );
    check_list(&list(Vec::new(), Some(end)), "", "");
    check_list(&list(Vec::new(), None), "unknown (the scan did not end)", "the scan did not end");
}
