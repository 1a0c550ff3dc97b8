//! Renders a description: one part of the file system a module.

mod acpi;
mod iommu;
mod kernel;
mod log;
mod nvidia;
mod pci;
mod tenants;

use peerway_read::tree::Tree;

use super::files::Files;
use super::layout::{self, Placed};
use super::{BuildError, HostBuilder};

pub(super) fn render(host: &HostBuilder) -> Result<Tree, BuildError> {
    let placed = layout::place(host)?;
    let mut files = Files::default();
    kernel::render(host, &mut files);
    pci::render(host, &placed, &mut files);
    iommu::render(host, &placed, &mut files);
    nvidia::render(host, &placed, &mut files);
    tenants::render(host, &placed, &mut files);
    if host.firmware_tables {
        acpi::render(host, &placed, &mut files);
    }
    files.text("/dev/kmsg", log::render(host, &placed));
    for (path, node) in &host.extra {
        files.node(path, node.clone());
    }
    files.finish()
}

/// Functions bound to a driver, ordered by address.
fn bound_to<'a>(placed: &'a [Placed], driver: &str) -> impl Iterator<Item = &'a Placed> {
    placed.iter().filter(move |one| one.driver() == Some(driver))
}
