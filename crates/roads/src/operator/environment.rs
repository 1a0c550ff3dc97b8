//! Environments: without peer access, completely, and with it once it is proved.

use std::collections::BTreeSet;

use crate::guide::Guide;
use crate::id::RoadId;
use crate::scene::Scene;

/// Peer access off for what reads an environment. Each line has its reader.
pub(crate) const SAFE: [(&str, &str); 6] = [
    ("NCCL_P2P_DISABLE", "1"),
    ("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "0"),
    ("VLLM_ALLREDUCE_USE_SYMM_MEM", "0"),
    ("VLLM_ALLREDUCE_USE_FLASHINFER", "0"),
    ("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC", "0"),
    ("VLLM_USE_NCCL_SYMM_MEM", "0"),
];

/// The safe environment as a file: no blanks, no quotes, comments in the first column.
pub(crate) fn safe_file() -> String {
    let lines = SAFE.iter().map(|(name, value)| format!("{name}={value}\n"));
    format!(
        "# Written by Peerway: peer access is not proved on this boot.\n{}",
        lines.collect::<String>()
    )
}

/// The environment once peer access is proved: the narrowest level that covers the pairs.
pub(crate) fn lifted_file(scene: &Scene<'_>, road: RoadId) -> String {
    let level = match road {
        // Only pairs below a common switch were opened.
        RoadId::AcsDirect => "PXB",
        _ => level(scene),
    };
    lifted(level)
}

fn lifted(level: &str) -> String {
    format!("# Written by Peerway: peer access is proved on this boot.\nNCCL_P2P_LEVEL={level}\n")
}

/// Whether a text is one that [`lifted_file`] gives.
pub(crate) fn is_lifted(text: &str) -> bool {
    ["PXB", "PHB", "SYS"].iter().any(|level| text == lifted(level))
}

/// The level that covers all pairs of the goal: within one NUMA node, or across.
pub(super) fn level(scene: &Scene<'_>) -> &'static str {
    let nodes: BTreeSet<Option<u32>> =
        scene.devices().iter().map(|device| device.numa_node.known().copied()).collect();
    if nodes.len() == 1 && !nodes.contains(&None) { "PHB" } else { "SYS" }
}

/// The safe settings of today, complete.
pub(crate) fn safe(scene: &Scene<'_>) -> Vec<Guide> {
    let mut environment = Guide::new(
        "environment, for a unit (EnvironmentFile=/run/peerway/p2p.env, without a leading -) or a \
         container",
        &[],
    );
    for (name, value) in SAFE {
        environment = environment.line(format!("{name}={value}"));
    }
    let nvidia = crate::gates::driver::nvidia(scene).next().is_some();
    let mut guides = vec![
        environment.line(
            "# and not at all: VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC=1, \
             SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1, NCCL_P2P_LEVEL above LOC",
        ),
        Guide::new(
            "switches of the engine, which no environment covers",
            &[
                "# SGLang",
                "--disable-custom-all-reduce",
                "# and without --enable-symm-mem, --enable-torch-symm-mem, --enable-mscclpp",
                "# vLLM",
                "--disable-custom-all-reduce",
                "# vLLM keeps its own peer test in gpu_p2p_access_cache_for_*.json: delete it after \
                 every change of kernel, driver, firmware or GPUs",
            ],
        ),
    ];
    if nvidia {
        let mut keys = super::parameters::keys(scene);
        keys.retain(|key| !key.to_ascii_lowercase().starts_with("forcep2p"));
        keys.push("ForceP2P=0x0".to_owned());
        guides.push(
            Guide::new(
                "copies by frameworks (tensor.to(\"cuda:1\"), cudaMemcpyPeer), which have no switch",
                &["# only the driver can refuse them to every program; it needs a reload"],
            )
            .line(format!("options nvidia NVreg_RegistryDwords=\"{}\"", keys.join(";"))),
        );
    }
    guides.push(Guide::new(
        "NCCL through shared memory",
        &[
            "# /dev/shm of 1 GiB or more, shared by the ranks (docker run --shm-size, LXC: a mount \
             of tmpfs); with separate ones NCCL falls back to sockets",
            "# never NCCL_SHM_DISABLE=1 beside NCCL_P2P_DISABLE=1: that leaves sockets",
            "# never NCCL_PROTO=LL128 on PCIe: it relies on an order that PCIe does not give",
            "# ranks on the NUMA node of their GPU (--numa-node of the engine, or numactl)",
        ],
    ));
    guides
}
