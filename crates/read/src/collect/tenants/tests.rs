//! Hosts of our own making: two GPUs with the driver, two with VFIO (`fixture.rs`).

use super::*;
use crate::collect::holders::fixture::{address, devices, groups, nvidia, root};

fn look(entries: &str) -> (Vec<Tenant>, Vec<Claim>, Vec<Gap>) {
    let root = root(entries);
    let mut gaps = Vec::new();
    let holders = crate::collect::holders::collect(&root, &devices(), &nvidia(), &mut gaps);
    collect(&root, &devices(), &groups(), &holders, &nvidia())
}

#[track_caller]
fn check(entries: &str, expected: &[&str]) {
    let (tenants, claims, gaps) = look(entries);
    let mut seen: Vec<String> = tenants
        .iter()
        .map(|one| {
            let running = one.running;
            let confidential = if one.confidential == Tristate::Yes { " confidential" } else { "" };
            format!("{} ({}) running {running}{confidential}", one.id, one.name)
        })
        .collect();
    seen.extend(
        claims
            .iter()
            .map(|one| format!("{} {} {}: {}", one.device, one.tenant, one.active, one.source)),
    );
    seen.extend(gaps.iter().map(|gap| format!("gap {}: {}", gap.source, gap.why)));
    assert_eq!(seen, expected, "{seen:#?}");
}

const HOST: &str = "host (none) running yes";

#[test]
fn a_host_without_managers_is_its_own() {
    check("//- /proc/1/fd/\n", &[HOST]);
}

const VM: &str = "//- /etc/pve/qemu-server/311.conf\nname: render\namd-sev: snp\nhostpci0: c1:00,pcie=1\n\
                  [snap]\nhostpci1: 0000:42:00.0\n";

fn kvm(pid: u32, group: u32, id: u32) -> String {
    format!(
        "//- /run/qemu-server/{id}.pid\n{pid}\n//- /proc/{pid}/comm\nkvm\n\
         //- /proc/{pid}/fd/9 -> /dev/vfio/{group}\n//- /proc/{pid}/cgroup\n0::/qemu.slice/{id}.scope\n\
         //- /proc/{pid}/environ\n"
    )
}

#[test]
fn a_running_guest_holds_its_gpu() {
    check(
        &format!("{VM}{}", kvm(4711, 13, 311)),
        &[
            HOST,
            "vm:311 (render) running yes confidential",
            "0000:c1:00.0 vm:311 yes: /etc/pve/qemu-server/311.conf: hostpci0: c1:00,pcie=1",
            "0000:c1:00.0 vm:311 yes: process 4711 (kvm)",
        ],
    );
    // Its descriptors cannot be read, but its name shows that it runs.
    check(
        &format!(
            "{VM}//- /run/qemu-server/311.pid\n4711\n//- /proc/4711/comm\nkvm\n//- /proc/4711/fd !EACCES\n"
        ),
        &[
            HOST,
            "vm:311 (render) running yes confidential",
            "0000:c1:00.0 vm:311 yes: /etc/pve/qemu-server/311.conf: hostpci0: c1:00,pcie=1",
        ],
    );
}

#[track_caller]
fn check_running(entries: &str, expected: &str) {
    let (tenants, claims, _) = look(&format!("{VM}{entries}"));
    let tenant = tenants.iter().find(|one| one.id.0 == "vm:311").unwrap();
    let claim = claims.iter().find(|one| one.tenant == tenant.id).unwrap();
    assert_eq!(format!("{} {}", tenant.running, claim.active), expected);
}

#[test]
fn whether_a_guest_runs() {
    check_running("//- /run/qemu-server/\n", "no no");
    check_running("//- /proc/cmdline\nquiet\n", "unknown unknown");
    check_running("//- /run/qemu-server !EACCES\n", "unknown unknown");
    check_running("//- /run/qemu-server/311.pid\nnone\n", "unknown unknown");
    // The recording shows no processes at all.
    check_running("//- /run/qemu-server/311.pid\n4711\n", "unknown unknown");
    // The process is gone, or another has its number.
    check_running("//- /run/qemu-server/311.pid\n4711\n//- /proc/1/comm\ninit\n", "no no");
    check_running("//- /run/qemu-server/311.pid\n4711\n//- /proc/4711/comm\nbash\n", "no no");
    check_running(
        "//- /run/qemu-server/311.pid\n4711\n//- /proc/4711/comm\nrender\n\
         //- /proc/4711/cgroup\n0::/qemu.slice/311.scope\n",
        "yes yes",
    );
}

#[test]
fn a_stopped_guest_claims_what_the_driver_has_now() {
    check(
        "//- /etc/pve/qemu-server/312.conf\nhostpci0: 0000:42:00.0;0000:99:00\n//- /run/qemu-server/\n",
        &[
            HOST,
            "vm:312 (none) running no",
            "0000:42:00.0 vm:312 no: /etc/pve/qemu-server/312.conf: hostpci0: 0000:42:00.0;0000:99:00",
            "0000:99:00.0 vm:312 no: /etc/pve/qemu-server/312.conf: hostpci0: 0000:42:00.0;0000:99:00",
        ],
    );
}

#[test]
fn vfio_gives_out_groups() {
    check(
        "//- /etc/pve/qemu-server/312.conf\nhostpci0: c2:00.0\nhostpci1: over there\n//- /run/qemu-server/\n",
        &[
            HOST,
            "vm:312 (none) running no",
            "0000:c2:00.0 vm:312 no: /etc/pve/qemu-server/312.conf: hostpci0: c2:00.0",
            "0000:c2:00.1 vm:312 no: /etc/pve/qemu-server/312.conf: hostpci0: c2:00.0 (group of 0000:c2:00.0)",
            "gap /etc/pve/qemu-server/312.conf: cannot tell which device \"hostpci1: over there\" means",
        ],
    );
}

const MAPPED: &str = "//- /proc/sys/kernel/hostname\nalpha\n//- /etc/pve/qemu-server/313.conf\nhostpci0: mapping=big\n\
    //- /etc/pve/mapping/pci.cfg\nbig\n\tmap id=10de:1,node=alpha,path=0000:c1:00.0\n\
    \tmap id=10de:1,node=alpha,path=0000:42:00.0\n\tmap id=10de:1,node=beta,path=0000:41:00.0\n";

#[track_caller]
fn check_mapping(entries: &str, expected: &[&str]) {
    let (_, claims, gaps) = look(&format!("{MAPPED}{entries}"));
    let mut seen: Vec<String> =
        claims.iter().map(|one| format!("{} {} {}", one.device, one.tenant, one.active)).collect();
    seen.extend(gaps.iter().map(|gap| gap.why.clone()));
    assert_eq!(seen, expected);
}

#[test]
fn a_mapping_claims_each_of_its_alternatives_here() {
    check_mapping("//- /run/qemu-server/\n", &["0000:42:00.0 vm:313 no", "0000:c1:00.0 vm:313 no"]);
    let runs = "//- /run/qemu-server/313.pid\n90\n//- /proc/90/comm\nkvm\n";
    // One of several, and nothing says which.
    check_mapping(runs, &["0000:42:00.0 vm:313 no", "0000:c1:00.0 vm:313 unknown"]);
    let reserved = "//- /run/qemu-server/pci-id-reservations\n0000:c1:00.0 313 pid:90\n";
    check_mapping(
        &format!("{runs}{reserved}"),
        &["0000:42:00.0 vm:313 no", "0000:c1:00.0 vm:313 yes"],
    );
    let elsewhere = "//- /run/qemu-server/pci-id-reservations\n0000:c1:00.0 314 pid:91\n\
                     //- /run/qemu-server/314.pid\n91\n//- /proc/91/comm\nkvm\n";
    check_mapping(
        &format!("{runs}{elsewhere}"),
        &["0000:42:00.0 vm:313 no", "0000:c1:00.0 vm:313 no"],
    );
    let (_, _, gaps) = look("//- /etc/pve/qemu-server/313.conf\nhostpci0: mapping=small\n");
    assert_eq!(
        gaps.iter().map(|gap| gap.why.as_str()).collect::<Vec<_>>(),
        ["mapping \"small\" names no device of this host in /etc/pve/mapping/pci.cfg"]
    );
}

#[test]
fn a_guest_without_a_readable_configuration_is_seen_by_its_process() {
    check(
        "//- /etc/pve !EACCES\n//- /run/qemu-server/315.pid\n92\n//- /proc/92/comm\nkvm\n\
         //- /proc/92/cmdline\nkvm\0-id\x00315\0-device\0vfio-pci,host=0000:c1:00.0,id=hostpci0\0-object\0sev-snp-guest,id=sev0\0\n",
        &[
            HOST,
            "vm:315 (unknown (its configuration was not read)) running yes confidential",
            "0000:c1:00.0 vm:315 yes: /proc/92/cmdline: -device vfio-pci",
            "gap /etc/pve/mapping/pci.cfg: permission denied",
            "gap /etc/pve: permission denied",
        ],
    );
}

#[test]
fn a_container_claims_what_it_is_given() {
    check(
        "//- /etc/pve/lxc/204.conf\nhostname: engine\ndev0: /dev/nvidia1\ndev1: /dev/nvidiactl\n\
         [pve:pending]\ndev2: /dev/nvidia0\n\
         //- /proc/70/fd/8 -> /dev/nvidia1\n//- /proc/70/comm\npython3\n//- /proc/70/cgroup\n0::/lxc/204/ns\n\
         //- /proc/70/environ\n",
        &[
            HOST,
            "lxc:204 (engine) running yes",
            "0000:41:00.0 lxc:204 yes: /etc/pve/lxc/204.conf: dev0: /dev/nvidia1",
            "0000:41:00.0 lxc:204 yes: process 70 (python3)",
        ],
    );
    check(
        "//- /etc/pve/lxc/205.conf\nhostname: second\nlxc.cgroup2.devices.allow: c 195:* rwm\n",
        &[
            "lxc:205 (second) running unknown",
            "0000:41:00.0 lxc:205 unknown: /etc/pve/lxc/205.conf: lxc.cgroup2.devices.allow: c 195:* rwm",
            "0000:42:00.0 lxc:205 unknown: /etc/pve/lxc/205.conf: lxc.cgroup2.devices.allow: c 195:* rwm",
            "0000:c1:00.0 lxc:205 no: /etc/pve/lxc/205.conf: lxc.cgroup2.devices.allow: c 195:* rwm",
            "0000:c2:00.0 lxc:205 no: /etc/pve/lxc/205.conf: lxc.cgroup2.devices.allow: c 195:* rwm",
        ],
    );
}

#[track_caller]
fn check_container_running(entries: &str, expected: Tristate) {
    let (tenants, _, _) =
        look(&format!("//- /var/lib/lxc/web/config\nlxc.uts.name = web\n{entries}"));
    let tenant = tenants.iter().find(|one| one.id.0 == "lxc:web").unwrap();
    assert_eq!(tenant.running, expected);
}

#[test]
fn whether_a_container_runs() {
    let there = "//- /sys/fs/cgroup/cgroup.controllers\ncpu io\n";
    let events = |populated: u8| {
        format!(
            "//- /sys/fs/cgroup/lxc.payload.web/cgroup.events\npopulated {populated}\nfrozen 0\n"
        )
    };
    check_container_running("//- /proc/cmdline\nquiet\n", Tristate::Unknown);
    check_container_running(there, Tristate::No);
    check_container_running(&events(1), Tristate::Yes);
    check_container_running(&events(0), Tristate::No);
}

#[test]
fn generated_configurations_do_not_count_twice() {
    check(
        "//- /etc/pve/lxc/206.conf\nhostname: third\ndev0: /dev/nvidia0\n\
         //- /var/lib/lxc/206/config\nlxc.mount.entry = /dev/nvidia0 dev/nvidia0 none bind\n\
         //- /var/lib/lxc/plain/config\nlxc.mount.entry = /dev/nvidia0 dev/nvidia0 none bind\n",
        &[
            HOST,
            "lxc:206 (third) running unknown",
            "lxc:plain (none) running unknown",
            "0000:42:00.0 lxc:206 unknown: /etc/pve/lxc/206.conf: dev0: /dev/nvidia0",
            "0000:42:00.0 lxc:plain unknown: /var/lib/lxc/plain/config: lxc.mount.entry = /dev/nvidia0 dev/nvidia0 none bind",
        ],
    );
}

#[test]
fn a_domain_of_libvirt() {
    let domain = "//- /etc/libvirt/qemu/east.xml\n<domain><name>east</name><launchSecurity type='sev-snp'/>\
        <hostdev type='pci'><source><address domain='0x0' bus='0xc1' slot='0x0' function='0x0'/></source></hostdev></domain>\n\
        //- /etc/libvirt/qemu/networks/default.xml\n<network/>\n";
    check(
        &format!(
            "{domain}//- /run/libvirt/qemu/east.pid\n50\n//- /proc/50/comm\nqemu-system-x86\n"
        ),
        &[
            HOST,
            "vm:east (east) running yes confidential",
            "0000:c1:00.0 vm:east yes: /etc/libvirt/qemu/east.xml: hostdev 0000:c1:00.0",
        ],
    );
    check(
        &format!("{domain}//- /run/libvirt/qemu/\n"),
        &[
            HOST,
            "vm:east (east) running no confidential",
            "0000:c1:00.0 vm:east no: /etc/libvirt/qemu/east.xml: hostdev 0000:c1:00.0",
        ],
    );
}

#[test]
fn what_cannot_be_read_is_a_gap() {
    check(
        "//- /etc/pve/lxc/207.conf !EIO\n//- /var/lib/lxc !EACCES\n//- /etc/libvirt/qemu !EACCES\n//- /etc/pve/qemu-server !HANG\n",
        &[
            HOST,
            "gap /etc/pve/qemu-server: no answer within a second",
            "gap /etc/pve/lxc/207.conf: input/output error",
            "gap /var/lib/lxc: permission denied",
            "gap /etc/libvirt/qemu: permission denied",
        ],
    );
    check(
        "//- /etc/pve/\n",
        &[
            HOST,
            "gap /etc/pve: no guest configurations below it: is the cluster file system mounted?",
        ],
    );
}

#[test]
fn a_tenant_of_which_only_a_process_is_seen() {
    check(
        "//- /proc/71/fd/8 -> /dev/nvidia0\n//- /proc/71/comm\nserve\n\
         //- /proc/71/cgroup\n0::/system.slice/docker-3f1c0d9a77b2e4f15566778899aabbcc.scope\n//- /proc/71/environ\n",
        &[
            "container:3f1c0d9a77b2 (unknown (its configuration was not found)) running yes",
            HOST,
            "0000:42:00.0 container:3f1c0d9a77b2 yes: process 71 (serve)",
        ],
    );
}

#[test]
fn the_host_is_a_tenant_only_if_something_is_its_own() {
    let vfio = "//- /etc/pve/lxc/204.conf\nlxc.cgroup2.devices.allow: c 195:* rwm\n";
    let root = root(vfio);
    let only: Vec<PciDevice> =
        devices().into_iter().filter(|one| one.address != address("0000:c2:00.1")).collect();
    let (tenants, _, _) = collect(&root, &only, &groups(), &Observed::Known(Vec::new()), &nvidia());
    let ids: Vec<&str> = tenants.iter().map(|one| one.id.0.as_str()).collect();
    assert_eq!(ids, ["lxc:204"]);
}
