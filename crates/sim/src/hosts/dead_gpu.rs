//! Four L40S with identity groups on a Xeon; the second fell off the bus and reads as ones.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `dead-gpu` | among the healthy three | works |
//! | | to and from the dead one | broken: it does not answer |

use super::on_root_ports;
use crate::build::function::{Condition, Function, XEON_ROOT_PORT};
use crate::build::kmsg::ERROR;
use crate::build::model::L40S;
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    let mut host = HostBuilder::new("dead-gpu", kernels::DEBIAN_6_12, cpu::XEON_8480);
    host.iommu(Iommu::INTEL, "identity")
        .command_line("root=/dev/md0 ro intel_iommu=on iommu=pt")
        .nvidia("570.195.03", NvidiaFlavour::Open);
    let gpu = Function::of(&L40S).driver("nvidia");
    let mut healthy = on_root_ports(&mut host, XEON_ROOT_PORT, &[0x15], &gpu);
    let fallen = gpu.clone().condition(Condition::Dead);
    let dead = on_root_ports(&mut host, XEON_ROOT_PORT, &[0x26], &fallen);
    healthy.extend(on_root_ports(&mut host, XEON_ROOT_PORT, &[0x97, 0xa7], &gpu));
    for gpu in &dead {
        let id = format!("{:04x}:{:02x}:00", gpu.domain(), gpu.bus());
        let text = format!(
            "NVRM: Xid (PCI:{id}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
        );
        host.log().at(86_400_000_000).line(ERROR, text);
    }
    vec![ExpectedHost::new("dead-gpu", host).all(&healthy, Verdict::Works, None).between(
        &healthy,
        &dead,
        Verdict::Broken,
        "PW0801",
    )]
}
