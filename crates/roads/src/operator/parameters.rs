//! Parameters of NVIDIA's driver that bear on peer access.

use peerway_core::boards;
use peerway_core::judge::addressing;
use peerway_core::snapshot::driver::DriverVersion;

use crate::gates;
use crate::guide::Guide;
use crate::scene::Scene;

/// First branch with `RMPcieP2PType`; before it `RMForceP2PType` has other numbers.
pub(crate) const RENUMBERED_AT: u32 = 575;

/// The driver's registry keys that are set for all GPUs: a new line replaces them all.
pub(super) fn keys(scene: &Scene<'_>) -> Vec<String> {
    let params = scene.snapshot().nvidia.params.known();
    let dwords = params.and_then(|params| params.get("RegistryDwords"));
    let all = dwords.into_iter().flat_map(|text| text.trim_matches('"').split(';'));
    all.map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

/// Whether a key forces the driver's answer: such a line is never written, nor repeated.
fn enables_force(key: &str) -> bool {
    let Some((name, value)) = key.split_once('=') else { return false };
    let name = name.trim().to_ascii_lowercase();
    let off = ["0", "0x0"].contains(&value.trim());
    (name == "forcep2p" || name == "rmforcep2p") && !off
}

/// The way of peer access that can be chosen: says so in a line, and sets the key.
fn way(scene: &Scene<'_>, branch: Option<u32>, keys: &mut Vec<String>) -> String {
    let capable = gates::driver::nvidia(scene).all(|device| {
        device
            .ids
            .known()
            .and_then(|ids| boards::architecture(*ids))
            .is_some_and(boards::Architecture::has_fsp)
    });
    let Some(branch) = branch else {
        return "# the driver's version decides which key is right: RMPcieP2PType=1 from branch 575 \
                on, RMForceP2PType=2 before (the latter means NVLink to newer drivers)"
            .to_owned();
    };
    if !capable {
        return format!(
            "# branch {branch} offers BAR1 peer access on Hopper and Blackwell boards only"
        );
    }
    let (name, key) = if branch >= RENUMBERED_AT {
        ("rmpciep2ptype", "RMPcieP2PType=1")
    } else {
        ("rmforcep2ptype", "RMForceP2PType=2")
    };
    keys.retain(|one| !one.to_ascii_lowercase().starts_with(name));
    if branch < RENUMBERED_AT && gates::driver::linked(scene) {
        return "# RMForceP2PType forces one type for all pairs: with 2, GPUs that have NVLink \
                would lose it"
            .to_owned();
    }
    keys.push(key.to_owned());
    format!("# BAR1 peer access, by the key of branch {branch}: {key}")
}

/// What would be set here, merged with what is set.
pub(crate) fn driver(scene: &Scene<'_>) -> Vec<Guide> {
    let nvidia = &scene.snapshot().nvidia;
    let branch = nvidia.version.known().and_then(DriverVersion::branch);
    let mut keys = keys(scene);
    let mut lines = vec![way(scene, branch, &mut keys)];
    if gates::pairs::boards_refused(scene) {
        lines.push(
            "# ForceP2P=0x11 would make the driver's tools say yes on these boards and makes no \
             data path; it is not proposed"
                .to_owned(),
        );
    }
    keys.retain(|key| !enables_force(key));
    if addressing::told_not_to_map(scene.snapshot()) {
        lines.push(
            "# take NVreg_DmaRemapPeerMmio=0 out, wherever it is set: 1 is the default, and only \
             with it does the driver ask the kernel to map peer memory"
                .to_owned(),
        );
        lines.push("grep -rn DmaRemapPeerMmio /etc/modprobe.d /proc/cmdline".to_owned());
    }
    if keys.is_empty() {
        lines.push("# no registry key is to be set here".to_owned());
    } else {
        lines.push(
            "# in /etc/modprobe.d/peerway-p2p.conf; other lines with this option go".to_owned(),
        );
        lines.push(format!("options nvidia NVreg_RegistryDwords=\"{}\"", keys.join(";")));
    }
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
            &["# the narrowest level that covers the pairs that were measured right: PIX and PXB \
               below switches, PHB on one NUMA node, SYS across; LOC is none. There is no NODE"],
        )
        .line(format!("NCCL_P2P_LEVEL={}", super::environment::level(scene)))
        .line("# in a file read by NCCL: no blanks around = or at the end of the line, no quotes"),
    ]
}
