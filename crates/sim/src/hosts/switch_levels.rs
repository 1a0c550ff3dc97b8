//! Two levels of switches: an outer one with two inner ones below it (GPUs a, b on the first, c on
//! the second), and another switch with GPUs d and e on a root port of its own. Kernel 6.12, all
//! groups translated; only the place of the redirecting ports differs.
//!
//! | host: redirect on | a ↔ b | a, b ↔ c | d ↔ e | across the two root ports |
//! |---|---|---|---|---|
//! | `levels-lower`: ports above a, b | broken | broken | works | broken |
//! | `levels-upper`: ports above the inner switches | works | broken | works | broken |
//! | `levels-above`: the root ports only | works | works | works | broken |
//! | `levels-elsewhere`: ports above d, e | works | works | broken | broken |
//!
//! Ports above the common bridge do not count, nor does another switch.

use peerway_core::address::PciAddress;
use peerway_core::snapshot::pci::Acs;

use crate::build::function::{ACS_CLEAR, ACS_REDIRECT, EPYC_ROOT_PORT, Function, PEX89, Port};
use crate::build::model::RTX_PRO_6000;
use crate::build::{Bus, HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

/// Which ports redirect.
#[derive(Clone, Copy, PartialEq)]
enum Redirect {
    Lower,
    Upper,
    Above,
    Elsewhere,
}

pub(super) fn expected() -> Vec<ExpectedHost> {
    vec![
        levels("levels-lower", Redirect::Lower),
        levels("levels-upper", Redirect::Upper),
        levels("levels-above", Redirect::Above),
        levels("levels-elsewhere", Redirect::Elsewhere),
    ]
}

fn levels(name: &'static str, redirect: Redirect) -> ExpectedHost {
    let acs = |place| if redirect == place { ACS_REDIRECT } else { ACS_CLEAR };
    let mut host = HostBuilder::new(name, kernels::DEBIAN_6_12, cpu::EPYC_9334);
    host.iommu(Iommu::AMD, "DMA-FQ").nvidia("580.95.05", NvidiaFlavour::Open);
    let root = host.root_bus(0, 0x40, 0);
    let root_port = Port::root(EPYC_ROOT_PORT, 1, 0x41).function(1).acs(acs(Redirect::Above));
    let port = host.port(root, root_port);
    let outer = [(0, 0x43), (1, 0x47)]
        .map(|(device, bus)| Port::downstream(PEX89, device, bus).acs(acs(Redirect::Upper)));
    let outer = host.switch(port, Port::upstream(PEX89, 0x42), &outer);
    let mut inner = outer.into_iter();
    let lower = acs(Redirect::Lower);
    let near = inner.next().map(|bus| gpus(&mut host, bus, 0x44, lower, 2)).unwrap_or_default();
    let far = inner.next().map(|bus| gpus(&mut host, bus, 0x48, ACS_CLEAR, 1)).unwrap_or_default();
    let root = host.root_bus(0, 0xa0, 1);
    let port = host.port(root, Port::root(EPYC_ROOT_PORT, 1, 0xa1).function(1));
    let other = gpus(&mut host, port, 0xa2, acs(Redirect::Elsewhere), 2);

    let (near_verdict, near_code) = local(redirect == Redirect::Lower);
    let (far_verdict, far_code) = local(matches!(redirect, Redirect::Lower | Redirect::Upper));
    let (other_verdict, other_code) = local(redirect == Redirect::Elsewhere);
    let first_switch: Vec<PciAddress> = near.iter().chain(&far).copied().collect();
    ExpectedHost::new(name, host)
        .all(&near, near_verdict, near_code)
        .between(&near, &far, far_verdict, far_code)
        .all(&other, other_verdict, other_code)
        .between(&first_switch, &other, Verdict::Broken, "PW0201")
}

/// Verdict and code of a pair below one bridge.
fn local(redirected: bool) -> (Verdict, &'static str) {
    if redirected { (Verdict::Broken, "PW0202") } else { (Verdict::Works, "PW0212") }
}

/// A switch with GPUs; the bus inside it is `inside`, those behind its ports follow.
fn gpus(host: &mut HostBuilder, bus: Bus, inside: u8, acs: Acs, count: u8) -> Vec<PciAddress> {
    let ports: Vec<Port> = (0..count)
        .map(|index| Port::downstream(PEX89, index, inside + 1 + index).acs(acs))
        .collect();
    let slots = host.switch(bus, Port::upstream(PEX89, inside), &ports);
    let gpu = Function::of(&RTX_PRO_6000).driver("nvidia");
    slots.into_iter().map(|slot| host.device(slot, gpu.clone())).collect()
}
