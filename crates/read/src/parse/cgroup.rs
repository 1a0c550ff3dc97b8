//! `/proc/PID/cgroup`: which tenant a process belongs to.
//!
//! Lines read `N:controllers:path` (`0::path` for version 2, `Documentation/admin-guide/cgroup-v2.rst`).
//! The outermost known container names the tenant: a Docker container inside a system container
//! belongs to the latter.

use peerway_core::snapshot::tenant::{TenantId, TenantKind};

/// Digits of a container's identity that are shown, as its own tools do.
const SHORT_ID: usize = 12;

/// Names of control groups may be as long as file names; identities are cut here.
const LONGEST: usize = 200;

/// The tenant of a process, from the text of its `cgroup` file; the host where nothing else shows.
pub fn tenant(text: &str) -> TenantId {
    named(text).map_or_else(TenantId::host, |(kind, id)| TenantId::of(kind, &id))
}

/// Kind and identity of the tenant, if the process is not the host's own.
pub fn named(text: &str) -> Option<(TenantKind, String)> {
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(of_path)
}

/// Walks a control group's path from the outside in.
fn of_path(path: &str) -> Option<(TenantKind, String)> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let batch = parts.iter().position(|part| part.contains("slurm") || part.contains("uid_"));
    parts.iter().enumerate().find_map(|(index, part)| {
        let in_batch = batch.is_some_and(|batch| batch < index);
        of_part(part, parts.get(index + 1).copied(), in_batch)
    })
}

/// `in_batch`: below a group of the batch system.
fn of_part(part: &str, next: Option<&str>, in_batch: bool) -> Option<(TenantKind, String)> {
    if let Some(name) = part.strip_prefix("lxc.payload.") {
        return known(TenantKind::Lxc, name);
    }
    if part == "lxc" || part == "lxc.payload" {
        return known(TenantKind::Lxc, next?);
    }
    if part == "qemu.slice" {
        return known(TenantKind::Vm, next?.strip_suffix(".scope")?);
    }
    if let Some(uid) = pod_uid(part) {
        return known(TenantKind::Pod, &uid);
    }
    if let Some(name) = machine(part) {
        return known(TenantKind::Vm, &name);
    }
    if let Some(name) = part.strip_prefix("systemd-nspawn@") {
        return known(TenantKind::Container, &unescape(name.strip_suffix(".service")?));
    }
    if let Some(id) = container_scope(part) {
        return known(TenantKind::Container, id);
    }
    // `/docker/ID`, `/libpod_parent/libpod-ID`, `/actions_job/ID`: the cgroupfs drivers.
    if part == "docker" || part == "libpod_parent" || part == "podman" {
        let id = next?;
        return known(TenantKind::Container, hex_id(id.strip_prefix("libpod-").unwrap_or(id))?);
    }
    if let Some(job) = part.strip_prefix("job_")
        && in_batch
        && job.bytes().all(|byte| byte.is_ascii_digit())
    {
        return known(TenantKind::Job, job);
    }
    None
}

/// An identity, if it is one; characters that could disturb a terminal are replaced.
fn known(kind: TenantKind, id: &str) -> Option<(TenantKind, String)> {
    if id.is_empty() {
        return None;
    }
    Some((kind, plain(id).chars().take(LONGEST).collect()))
}

/// Text for identities: what is not printable becomes `?`.
pub fn plain(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { '?' } else { one }).collect()
}

/// `kubepods-burstable-podUID.slice` (systemd driver) or `podUID` (cgroupfs driver).
fn pod_uid(part: &str) -> Option<String> {
    let rest = match part.strip_suffix(".slice") {
        Some(stem) => stem.strip_prefix("kubepods")?.rsplit_once("-pod")?.1,
        None => part.strip_prefix("pod")?,
    };
    // systemd takes '-' for its hierarchy, so the UID's hyphens are written '_'.
    let uid = rest.replace('_', "-");
    let shape = uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    shape.then_some(uid)
}

/// `machine-qemu\x2d3\x2dNAME.scope` of libvirt, with systemd's escapes.
fn machine(part: &str) -> Option<String> {
    let stem = part.strip_suffix(".scope").or_else(|| part.strip_suffix(".libvirt-qemu"))?;
    let name = match stem.strip_prefix("machine-") {
        Some(name) => unescape(name),
        None if part.ends_with(".libvirt-qemu") => return Some(stem.to_owned()),
        None => return None,
    };
    let rest = name.strip_prefix("qemu-")?;
    match rest.split_once('-') {
        Some((number, name)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(name.to_owned())
        }
        _ => Some(rest.to_owned()),
    }
}

/// systemd's `\xNN`.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\x") {
        let (head, tail) = rest.split_at(at);
        out.push_str(head);
        let code = tail.get(2..4).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(code) if code.is_ascii() => {
                out.push(char::from(code));
                rest = tail.get(4..).unwrap_or_default();
            }
            _ => {
                out.push_str("\\x");
                rest = tail.get(2..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    out
}

/// `docker-ID.scope`, `cri-containerd-ID.scope`, `crio-ID.scope`, `libpod-ID.scope`, `nerdctl-ID.scope`.
fn container_scope(part: &str) -> Option<&str> {
    let stem = part.strip_suffix(".scope")?;
    let (engine, id) = stem.rsplit_once('-')?;
    let engines = ["docker", "cri-containerd", "crio", "libpod", "nerdctl", "containerd"];
    if engines.contains(&engine) { hex_id(id) } else { None }
}

/// The short form of a long hexadecimal identity.
fn hex_id(id: &str) -> Option<&str> {
    let hex = id.len() >= SHORT_ID && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hex { id.get(..SHORT_ID) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(tenant(text).to_string(), expected);
    }

    const LONG: &str = "3f1c0d9a77b2e4f15566778899aabbccddeeff00112233445566778899aabbcc";

    #[test]
    fn the_outermost_container_names_the_tenant() {
        check("0::/lxc/204/ns/system.slice/engine.service\n", "lxc:204");
        check("0::/lxc.payload.web-1/init.scope\n", "lxc:web-1");
        check("0::/lxc.payload/web-1\n", "lxc:web-1");
        check(&format!("0::/lxc/204/ns/system.slice/docker-{LONG}.scope"), "lxc:204");
        check("0::/qemu.slice/311.scope", "vm:311");
        check(
            "0::/machine.slice/machine-qemu\\x2d3\\x2ddb\\x2deast.scope/libvirt/emulator",
            "vm:db-east",
        );
        check("0::/machine/guest-a.libvirt-qemu/emulator", "vm:guest-a");
        check(&format!("0::/system.slice/docker-{LONG}.scope"), "container:3f1c0d9a77b2");
        check(&format!("12:devices:/docker/{LONG}\n0::/"), "container:3f1c0d9a77b2");
        check(
            &format!("0::/machine.slice/libpod-{LONG}.scope/container"),
            "container:3f1c0d9a77b2",
        );
        check("0::/machine.slice/systemd-nspawn@build\\x2da.service/payload", "container:build-a");
        check(
            &format!(
                "0::/kubepods.slice/kubepods-burstable.slice/\
                 kubepods-burstable-pod0b1d2e3f_4455_6677_8899_aabbccddeeff.slice/\
                 cri-containerd-{LONG}.scope"
            ),
            "pod:0b1d2e3f-4455-6677-8899-aabbccddeeff",
        );
        check(
            "0::/kubepods/besteffort/pod0b1d2e3f-4455-6677-8899-aabbccddeeff/abcdef",
            "pod:0b1d2e3f-4455-6677-8899-aabbccddeeff",
        );
        check("0::/system.slice/slurmstepd.scope/job_991/step_0/user/task_0", "job:991");
        check("5:memory:/slurm/uid_1000/job_77/step_batch", "job:77");
    }

    #[test]
    fn the_rest_is_the_host() {
        check("", "host");
        check("0::/", "host");
        check("0::/user.slice/user-0.slice/session-3.scope", "host");
        check("0::/system.slice/nvidia-persistenced.service", "host");
        check("0::/lxc.monitor/204", "host");
        check("0::/lxc", "host");
        check("0::/qemu.slice", "host");
        check("0::/system.slice/docker.service", "host");
        check("0::/system.slice/job_12.service", "host");
        check("0::/user.slice/podcast", "host");
        check("garbage", "host");
    }

    #[test]
    fn names_cannot_disturb_a_terminal() {
        check("0::/lxc.payload.a\u{1b}[2J/x", "lxc:a?[2J");
    }

    proptest! {
        #[test]
        fn any_text_has_a_tenant(text in "(0::|/|lxc|qemu.slice|\\\\x|\\\\x2d|pod|machine-|.scope|[a-f0-9]{0,3}|\n|é){0,40}") {
            prop_assert!(!tenant(&text).0.is_empty());
        }
    }
}
