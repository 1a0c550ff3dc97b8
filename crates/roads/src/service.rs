//! What can be stopped and started by name: a unit, a container, a machine.

use std::fmt;
use std::str::FromStr;

use peerway_core::snapshot::tenant::{TenantId, TenantKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Something that a named manager stops and starts. Spelled `MANAGER:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Service {
    /// Who stops and starts it.
    pub manager: Manager,
    /// Its name there.
    pub name: String,
}

/// Who stops and starts a service.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Manager {
    /// `systemctl stop NAME`.
    Unit,
    /// `pct stop ID` (Proxmox VE).
    Pct,
    /// `lxc-stop -n NAME`.
    Lxc,
    /// `docker stop NAME`.
    Docker,
    /// `podman stop NAME`.
    Podman,
    /// `qm stop ID` (Proxmox VE).
    Qm,
    /// `virsh shutdown NAME`.
    Virsh,
}

impl Manager {
    const ALL: [Self; 7] =
        [Self::Unit, Self::Pct, Self::Lxc, Self::Docker, Self::Podman, Self::Qm, Self::Virsh];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Pct => "pct",
            Self::Lxc => "lxc",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Qm => "qm",
            Self::Virsh => "virsh",
        }
    }
}

/// A text that names no service.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} names no service; write unit:NAME, pct:ID, lxc:NAME, docker:NAME, podman:NAME, qm:ID or virsh:NAME"
)]
pub struct ServiceError(String);

impl FromStr for Service {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let error = || ServiceError(text.to_owned());
        let (manager, name) = text.split_once(':').ok_or_else(error)?;
        let manager =
            Manager::ALL.into_iter().find(|one| one.word() == manager).ok_or_else(error)?;
        // Names travel to other programs as one argument; what no manager allows is refused here.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@:\\".contains(&byte);
        if name.is_empty() || name.starts_with('-') || !name.bytes().all(plain) {
            return Err(error());
        }
        if matches!(manager, Manager::Pct | Manager::Qm)
            && !name.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(error());
        }
        Ok(Self { manager, name: name.to_owned() })
    }
}

impl fmt::Display for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!("{}:{}", self.manager.word(), self.name))
    }
}

/// Units that stop guests or containers of everybody when they are stopped.
const SHARED_UNITS: [&str; 20] = [
    "containerd",
    "crio",
    "dbus",
    "dbus-broker",
    "docker",
    "kubelet",
    "libvirtd",
    "lxc",
    "lxc-monitord",
    "machines",
    "pve-cluster",
    "pve-guests",
    "pvedaemon",
    "qemu",
    "slurmd",
    "ssh",
    "sshd",
    "systemd-logind",
    "systemd-udevd",
    "virtqemud",
];
/// Beginnings of names of units that hold more than one service: sessions, whole users, and the
/// containers and machines of runtimes that do not say whose.
const SHARED_FAMILIES: [&str; 6] =
    ["session-", "user@", "docker-", "libpod-", "cri-containerd-", "machine-"];

impl Service {
    /// The tenant that this is, where its manager names tenants.
    pub fn tenant(&self) -> Option<TenantId> {
        let kind = match self.manager {
            Manager::Unit => return self.tenant_of_unit(),
            Manager::Pct | Manager::Lxc => TenantKind::Lxc,
            Manager::Docker | Manager::Podman => TenantKind::Container,
            Manager::Qm | Manager::Virsh => TenantKind::Vm,
        };
        Some(TenantId::of(kind, &self.name))
    }

    /// Whether stopping it would stop other tenants too.
    pub fn is_shared(&self) -> bool {
        if self.manager != Manager::Unit {
            return false;
        }
        let (stem, kind) = self.unit();
        matches!(kind, "slice" | "target" | "mount" | "device" | "swap")
            || (stem, kind) == ("init", "scope")
            || SHARED_UNITS.contains(&stem)
            || SHARED_FAMILIES.iter().any(|family| stem.starts_with(family))
    }

    /// Name and type of a unit; without a type it is a service, as for `systemctl`.
    fn unit(&self) -> (&str, &str) {
        const TYPES: [&str; 11] = [
            "automount",
            "device",
            "mount",
            "path",
            "scope",
            "service",
            "slice",
            "socket",
            "swap",
            "target",
            "timer",
        ];
        let parts = self.name.rsplit_once('.').filter(|(_, kind)| TYPES.contains(kind));
        parts.unwrap_or((&self.name, "service"))
    }

    /// The tenant that a unit is: containers and machines run in units of their managers.
    fn tenant_of_unit(&self) -> Option<TenantId> {
        let number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match self.unit() {
            (stem, "service") => {
                let (manager, name) = stem.split_once('@')?;
                let lxc = matches!(manager, "pve-container" | "pve-container-debug" | "lxc");
                lxc.then(|| TenantId::of(TenantKind::Lxc, name))
            }
            // Proxmox VE's `qemu.slice/ID.scope`.
            (stem, "scope") if number(stem) => Some(TenantId::of(TenantKind::Vm, stem)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spelling and tenant; absent where the text is refused.
    #[track_caller]
    fn check(text: &str, expected: Option<(&str, &str)>) {
        let seen = text.parse::<Service>().ok().map(|service| {
            let tenant = service.tenant().map(|tenant| tenant.to_string());
            (service.to_string(), tenant.unwrap_or_default())
        });
        let expected = expected.map(|(text, tenant)| (text.to_owned(), tenant.to_owned()));
        assert_eq!(seen, expected);
    }

    #[test]
    fn spellings() {
        for (text, tenant) in [
            ("unit:sglang.service", ""),
            ("pct:129", "lxc:129"),
            ("docker:web_1", "container:web_1"),
            ("qm:132", "vm:132"),
            ("unit:pve-container@129", "lxc:129"),
            ("unit:pve-container@129.service", "lxc:129"),
            ("unit:lxc@web.service", "lxc:web"),
            ("unit:132.scope", "vm:132"),
            ("unit:engine@gpu0.service", ""),
            ("unit:model-0.5.service", ""),
        ] {
            check(text, Some((text, tenant)));
        }
        for text in ["pct:$(reboot)", "unit:--now", "unit:", "129", "qm:../1", "unit:a b"] {
            check(text, None);
        }
    }

    #[test]
    fn units_that_stop_everybody() {
        for (unit, shared) in [
            ("unit:docker.service", true),
            ("unit:docker", true),
            ("unit:qemu.slice", true),
            ("unit:multi-user.target", true),
            ("unit:session-4.scope", true),
            ("unit:docker-0123456789ab.scope", true),
            ("unit:user@1000", true),
            ("unit:init.scope", true),
            ("unit:ssh", true),
            ("unit:data.mount", true),
            ("unit:sglang.service", false),
            ("unit:qwen3.5", false),
            ("unit:engine.socket", false),
        ] {
            assert_eq!(unit.parse::<Service>().unwrap().is_shared(), shared, "{unit}");
        }
    }
}
