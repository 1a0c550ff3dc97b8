//! Guests of libvirt: `/etc/libvirt/qemu/NAME.xml`, `/run/libvirt/qemu/NAME.pid`.

use peerway_core::observed::Observed;
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::tenant::{TenantId, TenantKind};

use super::{Facts, Found, Look};
use crate::parse::libvirt::{self, Domain};
use crate::root::SMALL;

const TOP: &str = "/etc/libvirt/qemu";
const RUN: &str = "/run/libvirt/qemu";

pub(super) fn collect(look: &Look<'_>, found: &mut Found) {
    let names = found.read(look.root.list(TOP)).unwrap_or_default();
    for name in names.iter().filter_map(|name| name.strip_suffix(".xml")) {
        let path = format!("{TOP}/{name}.xml");
        if let Some(text) = found.read(look.root.text(&path, 4 << 20)) {
            claim(look, name, &path, &libvirt::domain(&text), found);
        }
    }
}

fn claim(look: &Look<'_>, file: &str, path: &str, domain: &Domain, found: &mut Found) {
    let name = domain.name.as_deref().unwrap_or(file);
    let tenant = TenantId::of(TenantKind::Vm, &crate::parse::cgroup::plain(name));
    let running = running(look, &tenant, name);
    let confidential = if domain.launch_security.is_some() { Tristate::Yes } else { Tristate::No };
    let facts = Facts { name: Observed::Known(name.to_owned()), confidential, running };
    found.tenant(&tenant, TenantKind::Vm, facts);
    for address in &domain.unclear {
        found.gap(path, format!("cannot tell which device {address:?} means"));
    }
    for device in &domain.devices {
        let active = look.vm_holds(&tenant, running, *device, false);
        found.claim(*device, &tenant, &format!("{path}: hostdev {device}"), active);
    }
}

fn running(look: &Look<'_>, tenant: &TenantId, name: &str) -> Tristate {
    if look.is_seen(tenant) {
        return Tristate::Yes;
    }
    let text = crate::error::observe(look.root.text(&format!("{RUN}/{name}.pid"), SMALL));
    match text {
        Observed::Known(text) => match text.trim().parse() {
            Ok(pid) => look.emulator_runs(pid),
            Err(_) => Tristate::Unknown,
        },
        // Without the directory nobody keeps track here.
        Observed::Absent if look.root.list(RUN).is_ok() => Tristate::No,
        Observed::Absent | Observed::Unreadable(_) => Tristate::Unknown,
    }
}
