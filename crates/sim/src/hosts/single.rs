//! Hosts without a pair.
//!
//! | host | pairs |
//! |---|---|
//! | `one-gpu` | none: one L40S |
//! | `no-gpu` | none: a network adapter and the display function of a management controller |

use super::on_root_ports;
use crate::build::function::{EPYC_ROOT_PORT, Function, XEON_ROOT_PORT};
use crate::build::model::{AST_VGA, CONNECTX7, L40S};
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::ExpectedHost;

pub(super) fn expected() -> Vec<ExpectedHost> {
    let mut one = HostBuilder::new("one-gpu", kernels::DEBIAN_12, cpu::EPYC_9334);
    one.iommu(Iommu::AMD, "DMA-FQ").nvidia("570.195.03", NvidiaFlavour::Open);
    let gpu = Function::of(&L40S).driver("nvidia");
    on_root_ports(&mut one, EPYC_ROOT_PORT, &[0x20], &gpu);
    let mut none = HostBuilder::new("no-gpu", kernels::DEBIAN_11, cpu::XEON_8480);
    none.iommu(Iommu::INTEL, "DMA");
    on_root_ports(&mut none, XEON_ROOT_PORT, &[0x15], &Function::of(&AST_VGA).driver("ast"));
    let nic = Function::of(&CONNECTX7).driver("mlx5_core");
    on_root_ports(&mut none, XEON_ROOT_PORT, &[0x97], &nic);
    vec![ExpectedHost::new("one-gpu", one), ExpectedHost::new("no-gpu", none)]
}
