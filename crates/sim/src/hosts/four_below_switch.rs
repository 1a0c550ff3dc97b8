//! Four A6000 below one PEX 8747 switch of an EPYC, kernel 6.12, groups translated.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `switch-redirect` | all | broken: redirect sends the request to the IOMMU |
//! | `switch-clear` | all | works: the request turns in the switch |
//! | `switch-source-only` | all | works: source validation redirects nothing |
//! | `switch-unprivileged` | all | unknown: access control lies beyond the bytes that may be read |
//! | `switch-asleep` | to and from the sleeping one | works: the ports are awake and decide |

use peerway_core::address::PciAddress;
use peerway_core::snapshot::pci::Acs;

use crate::build::function::{
    ACS_CLEAR, ACS_REDIRECT, ACS_SOURCE_ONLY, Condition, EPYC_ROOT_PORT, Function, PEX8747, Port,
};
use crate::build::model::{A6000, Link};
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    let make = |name: &'static str, acs, verdict, code: Option<&'static str>| {
        let (builder, gpus) = host(name, acs, Condition::Healthy);
        ExpectedHost::new(name, builder).all(&gpus, verdict, code)
    };
    let (mut unprivileged, gpus) = host("switch-unprivileged", ACS_CLEAR, Condition::Healthy);
    unprivileged.unprivileged();
    let (asleep, _) = host("switch-asleep", ACS_CLEAR, Condition::Asleep);
    vec![
        make("switch-redirect", ACS_REDIRECT, Verdict::Broken, Some("PW0202")),
        make("switch-clear", ACS_CLEAR, Verdict::Works, Some("PW0212")),
        make("switch-source-only", ACS_SOURCE_ONLY, Verdict::Works, Some("PW0212")),
        ExpectedHost::new("switch-unprivileged", unprivileged).all(&gpus, Verdict::Unknown, None),
        ExpectedHost::new("switch-asleep", asleep).all(&gpus, Verdict::Works, "PW0212"),
    ]
}

/// The condition is that of the last GPU.
fn host(name: &str, acs: Acs, last: Condition) -> (HostBuilder, Vec<PciAddress>) {
    let mut host = HostBuilder::new(name, kernels::DEBIAN_6_12, cpu::EPYC_9334);
    host.iommu(Iommu::AMD, "DMA-FQ").nvidia("570.195.03", NvidiaFlavour::Open);
    let root = host.root_bus(0, 0x40, 0);
    let port = host.port(root, Port::root(EPYC_ROOT_PORT, 1, 0x41).function(1));
    let upstream = Port::upstream(PEX8747, 0x42).link(Link::GEN3_X16);
    let downstream = [(0x08, 0x43), (0x09, 0x44), (0x10, 0x45), (0x11, 0x46)]
        .map(|(device, bus)| Port::downstream(PEX8747, device, bus).acs(acs).link(Link::GEN3_X16));
    let slots = host.switch(port, upstream, &downstream);
    let count = slots.len();
    let gpus = slots.into_iter().enumerate().map(|(index, slot)| {
        let condition = if index + 1 == count { last } else { Condition::Healthy };
        let gpu = Function::of(&A6000).driver("nvidia").link(Link::GEN3_X16);
        host.device(slot, gpu.condition(condition))
    });
    let gpus = gpus.collect();
    (host, gpus)
}
