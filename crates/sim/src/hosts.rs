//! Hosts that tests run over, one machine a file, each with the right answers beside it.

mod accelerators;
mod arm_smmu;
mod dead_gpu;
mod driver_flavours;
mod four_below_switch;
mod guest;
mod hgx_h100;
mod high_domains;
mod intel_pair;
mod iommu_soft;
pub mod kpro6;
mod narrow_link;
mod one_group;
mod single;
mod small_bar;
mod sme;
mod snp_eras;
mod snp_identity;
mod switch_levels;
mod thunderbolt;
mod two_sockets;

use peerway_core::address::PciAddress;

use crate::build::function::{Function, Port, PortModel};
use crate::build::{BuildError, HostBuilder, to_host_file};
use crate::expect::ExpectedHost;

/// Every host with its expectations.
pub fn all() -> Vec<ExpectedHost> {
    [
        kpro6::expected(),
        intel_pair::expected(),
        four_below_switch::expected(),
        switch_levels::expected(),
        hgx_h100::expected(),
        two_sockets::expected(),
        one_group::expected(),
        snp_eras::expected(),
        snp_identity::expected(),
        sme::expected(),
        thunderbolt::expected(),
        iommu_soft::expected(),
        guest::expected(),
        driver_flavours::expected(),
        small_bar::expected(),
        dead_gpu::expected(),
        narrow_link::expected(),
        high_domains::expected(),
        arm_smmu::expected(),
        accelerators::expected(),
        single::expected(),
    ]
    .concat()
}

/// Names and texts of the host files that are checked in.
pub fn fixture_files() -> Result<Vec<(&'static str, String)>, BuildError> {
    let comment = "The reference host: eight RTX PRO 6000 Blackwell on an EPYC with SEV-SNP in use.\n\
                   Four GPUs serve a model in container 129, four belong to the confidential guest 132.\n\
                   Written by write-fixtures of peerway-sim; do not edit by hand.";
    Ok(vec![("kpro6.host", to_host_file(comment, &kpro6::kpro6().tree()?))])
}

/// One function on each of these root buses, behind a root port of its own: device 1, the bus
/// behind it numbered one higher.
fn on_root_ports(
    host: &mut HostBuilder,
    port: PortModel,
    buses: &[u8],
    function: &Function,
) -> Vec<PciAddress> {
    let place = |bus: &u8| {
        let root = host.root_bus(0, *bus, 0);
        let behind = host.port(root, Port::root(port, 1, bus + 1));
        host.device(behind, function.clone())
    };
    buses.iter().map(place).collect()
}
