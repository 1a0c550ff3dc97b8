//! Parameters of NVIDIA's driver that bear on peer access.

use peerway_core::boards;
use peerway_core::snapshot::driver::DriverVersion;

use crate::gates;
use crate::guide::Guide;
use crate::scene::Scene;

/// First branch with `RMPcieP2PType`; before it `RMForceP2PType` has other numbers.
const RENUMBERED_AT: u32 = 575;

/// The driver's registry keys that are set for all GPUs: a new line replaces them all.
pub(super) fn keys(scene: &Scene<'_>) -> Vec<String> {
    let params = scene.snapshot().nvidia.params.known();
    let dwords = params.and_then(|params| params.get("RegistryDwords"));
    let all = dwords.into_iter().flat_map(|text| text.trim_matches('"').split(';'));
    all.map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

/// What would be set here, merged with what is set.
pub(crate) fn driver(scene: &Scene<'_>) -> Vec<Guide> {
    let nvidia = &scene.snapshot().nvidia;
    let branch = nvidia.version.known().and_then(DriverVersion::branch);
    let mut keys = keys(scene);
    let capable = gates::driver::nvidia(scene).all(|device| {
        device
            .ids
            .known()
            .and_then(|ids| boards::architecture(*ids))
            .is_some_and(boards::Architecture::has_fsp)
    });
    let mut lines = Vec::new();
    match branch {
        Some(branch) if capable => {
            let (name, key) = if branch >= RENUMBERED_AT {
                ("RMPcieP2PType", "RMPcieP2PType=1")
            } else {
                ("RMForceP2PType", "RMForceP2PType=2")
            };
            lines.push(format!("# BAR1 peer access, by the key of branch {branch}: {key}"));
            keys.retain(|one| !one.to_ascii_lowercase().starts_with(&name.to_ascii_lowercase()));
            keys.push(key.to_owned());
        }
        Some(branch) => lines.push(format!(
            "# branch {branch} offers BAR1 peer access on Hopper and Blackwell boards only"
        )),
        None => lines.push(
            "# the driver's version decides which key is right: RMPcieP2PType=1 from branch 575 \
             on, RMForceP2PType=2 before (the latter means NVLink to newer drivers)"
                .to_owned(),
        ),
    }
    if gates::pairs::driver_offers(scene).passed == crate::gate::Passed::No {
        lines.push(
            "# ForceP2P=0x11 makes the driver offer reads and writes on boards that it refuses; \
             what it then reports is no evidence"
                .to_owned(),
        );
        keys.push("ForceP2P=0x11".to_owned());
    }
    lines.push("# in /etc/modprobe.d/peerway-p2p.conf; other lines with this option go".to_owned());
    lines.push(format!("options nvidia NVreg_RegistryDwords=\"{}\"", keys.join(";")));
    lines.push(
        "# update-initramfs -u where the initramfs carries the driver; then reload it with nobody \
         on the GPUs, and see the value that took"
            .to_owned(),
    );
    lines.push("cat /proc/driver/nvidia/params".to_owned());
    let small = scene.devices().iter().any(|device| {
        let resizable = device.config.known().and_then(|config| config.resizable.known());
        resizable.is_some_and(|all| all.iter().any(|entry| entry.current < entry.largest))
    });
    if small {
        lines.push(
            "# a region is smaller than the board allows: firmware's Resizable BAR, or".to_owned(),
        );
        lines.push("options nvidia NVreg_EnableResizableBar=1".to_owned());
    }
    vec![
        Guide { title: "parameters of the driver".to_owned(), lines },
        Guide::new(
            "NCCL, once pairs are proved",
            &[
                "# the narrowest level that covers the pairs that were measured right: PIX and PXB \
                 below switches, PHB on one NUMA node, SYS across; LOC is none. There is no NODE",
                "NCCL_P2P_LEVEL=PHB",
                "# in a file read by NCCL: no blanks around = or at the end of the line, no quotes",
            ],
        ),
    ]
}
