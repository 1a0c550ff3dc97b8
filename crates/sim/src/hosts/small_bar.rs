//! Two `GeForce` RTX 4090 with a peer-to-peer fork of the driver and identity groups, one with its
//! memory window left at 256 MiB: peer access of the fork needs the whole memory of both there.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `small-bar` | both ways | broken: the memory of one does not fit its window |

use super::on_root_ports;
use crate::build::function::{EPYC_ROOT_PORT, Function};
use crate::build::model::{RTX_4090, RTX_4090_SMALL_BAR};
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    let mut host = HostBuilder::new("small-bar", kernels::DEBIAN_6_12, cpu::EPYC_9334);
    host.iommu(Iommu::AMD, "identity")
        .command_line("root=/dev/md0 ro iommu=pt")
        .nvidia("570.148.08", NvidiaFlavour::Fork);
    let full = Function::of(&RTX_4090).driver("nvidia");
    let small = Function::of(&RTX_4090_SMALL_BAR).driver("nvidia");
    let full = on_root_ports(&mut host, EPYC_ROOT_PORT, &[0x20], &full);
    let small = on_root_ports(&mut host, EPYC_ROOT_PORT, &[0xa0], &small);
    vec![ExpectedHost::new("small-bar", host).between(&full, &small, Verdict::Broken, "PW0802")]
}
