//! Processes that compute on GPUs, and the switches of their environment.

use crate::snapshot::Snapshot;
use crate::snapshot::tenant::Holder;

/// Programs that hold GPUs without computing on them, as `comm` shows them (15 bytes).
const BYSTANDERS: [&str; 10] = [
    "nvidia-persiste",
    "nv-hostengine",
    "nvidia-smi",
    "nv-fabricmanage",
    "dcgm-exporter",
    "nvtop",
    "Xorg",
    "Xwayland",
    "gnome-shell",
    "peerway",
];

/// Processes that hold GPUs of NVIDIA's driver and may compute on them.
pub(super) fn computing(snapshot: &Snapshot) -> Vec<&Holder> {
    let Some(holders) = snapshot.holders.known() else { return Vec::new() };
    holders
        .iter()
        .filter(|holder| holder.nodes.iter().any(|node| node.contains("/dev/nvidia")))
        .filter(|holder| !BYSTANDERS.contains(&holder.command.as_str()))
        .collect()
}

/// The value of a switch.
pub(super) fn switch<'h>(holder: &'h Holder, name: &str) -> Option<&'h str> {
    holder.switches.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// Whether NCCL leaves peer access alone in this process: only the value 1 acts, or the level that
/// admits no path.
pub(super) fn nccl_is_off(holder: &Holder) -> bool {
    switch(holder, "NCCL_P2P_DISABLE") == Some("1")
        || matches!(switch(holder, "NCCL_P2P_LEVEL"), Some("LOC" | "0"))
}

/// Where a process's environment is read.
pub(super) fn environment(holder: &Holder) -> String {
    format!("/proc/{}/environ ({})", holder.pid, holder.command)
}
