//! System containers: plain LXC's own configurations, and claims for any of them.

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::tenant::{TenantId, TenantKind};

use super::{Facts, Found, Look};
use crate::parse::lxc::{self, Container, Granted};

const TOP: &str = "/var/lib/lxc";

/// Containers below `/var/lib/lxc`, except those whose manager's configuration was read: Proxmox
/// writes the files here from its own.
pub(super) fn collect(look: &Look<'_>, found: &mut Found) {
    let names = found.read(look.root.list(TOP)).unwrap_or_default();
    for name in names {
        if found.has(&TenantId::of(TenantKind::Lxc, &name)) {
            continue;
        }
        let path = format!("{TOP}/{name}/config");
        if let Some(text) = found.read(look.root.text(&path, 1 << 20)) {
            claim(look, &name, &path, &lxc::config(&text), found);
        }
    }
}

/// A container and what its configuration gives it.
pub(super) fn claim(
    look: &Look<'_>,
    id: &str,
    path: &str,
    container: &Container,
    found: &mut Found,
) {
    let tenant = TenantId::of(TenantKind::Lxc, id);
    let running = look.container_runs(&tenant, id);
    let name = container.name.clone().map_or(Observed::Absent, Observed::Known);
    found.tenant(&tenant, TenantKind::Lxc, Facts { name, confidential: Tristate::No, running });
    for grant in &container.grants {
        if found.is_full() {
            return;
        }
        for device in devices(look, &grant.what) {
            let active = look.container_holds(&tenant, running, device);
            found.claim(device, &tenant, &format!("{path}: {}", grant.text), active);
        }
    }
}

fn devices(look: &Look<'_>, granted: &Granted) -> Vec<PciAddress> {
    match granted {
        Granted::Node(path) => look.nodes.by_path(path),
        Granted::Numbers { major, minor } => look.nodes.by_numbers(*major, *minor),
        Granted::Visible(value) => look.nodes.visible(value),
    }
}
