//! Tenants and processes: `/etc/pve`, `/run/qemu-server`, `/proc/PID`.

use std::fmt::Write as _;

use super::super::HostBuilder;
use super::super::files::Files;
use super::super::layout::Placed;
use super::super::tenants::{Process, Tenant, Vm};

pub(super) fn render(host: &HostBuilder, placed: &[Placed], files: &mut Files) {
    for tenant in &host.tenants {
        match tenant {
            Tenant::Lxc { id, name, nodes, raw } => {
                let mut text = format!(
                    "arch: amd64\ncores: 48\nfeatures: nesting=1\nhostname: {name}\n\
                     memory: 393216\nostype: debian\nrootfs: local-zfs:subvol-{id}-disk-0,size=800G\n\
                     swap: 0\nunprivileged: 1\n"
                );
                for (index, node) in nodes.iter().enumerate() {
                    // Writing to a String cannot fail.
                    writeln!(text, "dev{index}: {node}").unwrap_or_default();
                }
                for line in raw {
                    writeln!(text, "{line}").unwrap_or_default();
                }
                files.text(&format!("/etc/pve/lxc/{id}.conf"), text);
            }
            Tenant::Vm(vm) => virtual_machine(host, vm, placed, files),
        }
    }
    for process in &host.processes {
        render_process(process, files);
    }
}

fn virtual_machine(host: &HostBuilder, vm: &Vm, placed: &[Placed], files: &mut Files) {
    let mut text = String::new();
    if vm.snp {
        text.push_str("amd-sev: type=snp\n");
    }
    text.push_str("bios: ovmf\ncores: 48\ncpu: EPYC-v4\n");
    for (index, device) in vm.devices.iter().enumerate() {
        writeln!(text, "hostpci{index}: {device},pcie=1").unwrap_or_default();
    }
    write!(
        text,
        "machine: q35\nmemory: 393216\nname: {}\nnet0: virtio=BC:24:11:00:01:32,bridge=vmbr0\n\
         numa: 0\nostype: l26\nscsi0: local-zfs:vm-{}-disk-0,size=400G\nscsihw: virtio-scsi-single\n",
        vm.name, vm.id
    )
    .unwrap_or_default();
    files.text(&format!("/etc/pve/qemu-server/{}.conf", vm.id), text);
    let Some(pid) = vm.pid else { return };
    files.line(&format!("/run/qemu-server/{}.pid", vm.id), pid);
    let mut process = Process::new(pid, "kvm")
        .cgroup(&format!("/qemu.slice/{}.scope", vm.id))
        .command_line(&qemu_words(vm).iter().map(String::as_str).collect::<Vec<_>>())
        .holds("/dev/kvm")
        .holds("/dev/vfio/vfio");
    for device in &vm.devices {
        let one = placed.iter().find(|one| one.address == *device);
        if let Some(group) = one.and_then(|one| one.group) {
            process = process.holds(format!("/dev/vfio/{group}")).holds("anon_inode:[vfio-device]");
        }
    }
    if vm.snp && host.encryption.snp {
        process = process.holds("/dev/sev");
    }
    render_process(&process, files);
}

fn qemu_words(vm: &Vm) -> Vec<String> {
    let mut words: Vec<String> = [
        "/usr/bin/kvm",
        "-id",
        &vm.id.to_string(),
        "-name",
        &format!("{},debug-threads=on", vm.name),
    ]
    .map(str::to_owned)
    .into();
    if vm.snp {
        let object = "sev-snp-guest,id=sev0,cbitpos=51,reduced-phys-bits=1";
        words.extend(["-object", object].map(str::to_owned));
    }
    for (index, device) in vm.devices.iter().enumerate() {
        words.push("-device".to_owned());
        words.push(format!(
            "vfio-pci,host={device},id=hostpci{index},bus=ich9-pcie-port-{}",
            index + 1
        ));
    }
    words
}

fn render_process(process: &Process, files: &mut Files) {
    let Process { pid, command, start, uid, .. } = process;
    let at = |name: &str| format!("/proc/{pid}/{name}");
    files.line(&at("comm"), command);
    // Field 22 is the start time; the fields between are of no account here.
    files.line(
        &at("stat"),
        format_args!(
            "{pid} ({command}) S 1 {pid} {pid} 0 -1 4194560 0 0 0 0 9000 800 0 0 20 0 64 0 {start} \
             0 0 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0"
        ),
    );
    files.text(
        &at("status"),
        format!(
            "Name:\t{command}\nState:\tS (sleeping)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t1\n\
             Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\nThreads:\t64\n"
        ),
    );
    files.line(&at("cgroup"), format_args!("0::{}", process.cgroup));
    files.text(&at("cmdline"), format!("{}\0", process.command_line.join("\0")));
    let variables = process.environment.iter().map(|(name, value)| format!("{name}={value}\0"));
    files.text(&at("environ"), variables.collect::<String>());
    files.link(&at("fd/0"), "/dev/null");
    for (number, node) in (3..).zip(&process.nodes) {
        files.link(&at(&format!("fd/{number}")), node);
    }
    files.text(&at("maps"), "");
}
