//! Configurations of our own making, in the shapes that Proxmox writes.

use proptest::prelude::*;

use super::*;

fn spec(device: &DeviceSpec) -> String {
    if device.all_functions {
        device.address.to_string().trim_end_matches(".0").to_owned() + ".*"
    } else {
        device.address.to_string()
    }
}

#[track_caller]
fn check_vm(text: &str, expected: &str) {
    let vm = vm(text);
    let mut seen: Vec<String> = vm
        .passthrough
        .iter()
        .map(|one| {
            let kept = if one.keeps_driver { " kept" } else { "" };
            match &one.target {
                Target::Devices(devices) => {
                    let devices: Vec<String> = devices.iter().map(spec).collect();
                    devices.join(" ") + kept
                }
                Target::Mapping(id) => format!("mapping {id}{kept}"),
            }
        })
        .collect();
    if vm.confidential {
        seen.push("confidential".to_owned());
    }
    seen.extend(vm.unclear.iter().map(|line| format!("unclear {line:?}")));
    assert_eq!(seen.join(", "), expected);
}

#[test]
fn devices_of_a_vm() {
    check_vm("hostpci0: 0000:c1:00,pcie=1,x-vga=1\n", "0000:c1:00.*");
    check_vm("hostpci0: c1:00.0\n", "0000:c1:00.0");
    check_vm(
        "hostpci1: host=0000:c1:00.0;c2:00;10000:01:00.1,rombar=0\n",
        "0000:c1:00.0 0000:c2:00.* 10000:01:00.1",
    );
    check_vm("hostpci15: mapping=big-gpu,pcie=1\n", "mapping big-gpu");
    check_vm("hostpci0: 0000:c1:00.4,mdev=nvidia-63\n", "0000:c1:00.4 kept");
    check_vm("hostpci0: pcie=1,host=c1:00.0,driver=keep\n", "0000:c1:00.0 kept");
    check_vm("hostpci0: the big one\n", ", unclear \"hostpci0: the big one\"");
    check_vm("hostpci0: pcie=1\n", "unclear \"hostpci0: pcie=1\"");
    check_vm("hostpciX: c1:00.0\nhostpci: c1:00.0\nscsi0: local:vm-1,size=8G\n", "");
}

#[test]
fn only_the_current_state_counts() {
    let text = "#hostpci0: 01:00\nmemory: 4096\nname: render\n[PENDING]\nhostpci0: 02:00\n\
                [before-update]\nhostpci0: 03:00\namd-sev: snp\n";
    check_vm(text, "");
    assert_eq!(vm(text).name.as_deref(), Some("render"));
}

#[test]
fn hand_written_arguments() {
    check_vm(
        "args: -cpu host -device vfio-pci,host=0000:c1:00.0,x-nv-gpudirect-clique=4,id=a -device 'vfio-pci,host=c2:00.0'\n",
        "0000:c1:00.0 0000:c2:00.0",
    );
    check_vm(
        "args: -device '{\"driver\":\"vfio-pci\",\"host\":\"0000:c1:00.0\",\"id\":\"g\"}'\n",
        "0000:c1:00.0",
    );
    check_vm("args: -device vfio-pci,sysfsdev=/sys/bus/pci/devices/0000:c1:00.0\n", "0000:c1:00.0");
    check_vm("args: -device e1000,host=c1:00.0\n", "");
    check_vm("args: -object sev-snp-guest,id=sev0,cbitpos=51\n", "confidential");
}

#[test]
fn encrypted_memory() {
    check_vm("amd-sev: type=snp,kernel-hashes=1\n", "confidential");
    check_vm("amd-sev: std\n", "confidential");
    check_vm("intel-tdx: type=tdx\n", "confidential");
}

#[track_caller]
fn check_container(text: &str, expected: &[Granted]) {
    let seen: Vec<Granted> = container(text).grants.into_iter().map(|grant| grant.what).collect();
    assert_eq!(seen, expected);
}

#[test]
fn devices_of_a_container() {
    let node = |path: &str| Granted::Node(path.to_owned());
    check_container(
        "hostname: engine\ndev0: /dev/nvidia0,gid=44\ndev1: path=/dev/nvidiactl,mode=0666\nnet0: name=eth0\n",
        &[node("/dev/nvidia0"), node("/dev/nvidiactl")],
    );
    check_container(
        "arch: amd64\nlxc.cgroup2.devices.allow: c 195:* rwm\nlxc.mount.entry: /dev/nvidia1 dev/nvidia1 none bind\n\
         [pve:pending]\ndev0: /dev/nvidia7\n[snap]\nlxc.cgroup2.devices.allow: a\n",
        &[Granted::Numbers { major: Some(195), minor: None }, node("/dev/nvidia1")],
    );
    check_container("#lxc.cgroup2.devices.allow: a\ndevelop: 1\n", &[]);
    assert_eq!(container("hostname: engine\n").name.as_deref(), Some("engine"));
}

#[test]
fn alternatives_of_a_mapping() {
    let text = "big-gpu\n\tmap id=10de:2331,iommugroup=7,node=alpha,path=0000:c1:00.0;0000:c1:00.1,subsystem-id=10de:1626\n\
                \tmap id=10de:2331,node=beta,path=0000:41:00\n\tmdev 1\n\nempty\n\tdescription nothing\n";
    let seen: Vec<String> = mappings(text)
        .into_iter()
        .map(|(id, alternatives)| {
            let alternatives: Vec<String> = alternatives
                .into_iter()
                .map(|one| {
                    let devices: Vec<String> = one.devices.iter().map(spec).collect();
                    format!("{}={}", one.node.unwrap_or_default(), devices.join("+"))
                })
                .collect();
            format!("{id}: {}", alternatives.join(" | "))
        })
        .collect();
    assert_eq!(seen, ["big-gpu: alpha=0000:c1:00.0+0000:c1:00.1 | beta=0000:41:00.*", "empty: "]);
}

#[test]
fn reserved_devices() {
    let text = "0000:c1:00.0 311 pid:4711\n0000:c2:00 312 time:1790000000\nbroken\n";
    let seen: Vec<String> = reservations(text)
        .iter()
        .map(|one| format!("{} {} {:?}", spec(&one.device), one.vm, one.pid))
        .collect();
    assert_eq!(seen, ["0000:c1:00.0 311 Some(4711)", "0000:c2:00.* 312 None"]);
}

proptest! {
    #[test]
    fn any_text_is_read(text in "(hostpci0: |args: |map |dev0: |host=|mapping=|vfio-pci|[;,='\"\\\\]|[0-9a-f]{2}:|\\.0|\n|\t| |é){0,60}") {
        let lines = text.lines().count();
        prop_assert!(vm(&text).passthrough.len() <= lines);
        prop_assert!(container(&text).grants.len() <= lines);
        prop_assert!(mappings(&text).len() <= lines);
        prop_assert!(reservations(&text).len() <= lines);
    }
}
