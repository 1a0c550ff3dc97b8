//! What both engines have in common.

use super::{Launch, Mode, Wanted};

/// Why one-shot kernels are not rendered.
pub(super) const NO_KERNELS: &str = "the measurement has no reads and writes by kernels over shared memory (mode ipc, engine sm) for \
     every pair and between all at once, and these kernels wait for ever where one fails";

/// NCCL over peer access, for the GPUs that were measured.
pub(super) fn level(launch: &mut Launch, wanted: &Wanted) {
    launch.variable(
        "NCCL_P2P_LEVEL=SYS",
        "NCCL uses peer access between all GPUs of the set, as measured, across sockets too; without \
         it, it keeps off across root ports of AMD hosts above two GPUs",
    );
    launch.unset.push("NCCL_P2P_DISABLE".to_owned());
    if let Some(proof) = &wanted.proof {
        launch.before.push(format!(
            "the proof is of these GPUs and of no others; give the server these alone \
             (CUDA_VISIBLE_DEVICES): {}",
            proof.gpus.join(" ")
        ));
    }
}

/// Kernels of the engine's own are not covered by a measurement of copies and of NCCL's sums.
pub(super) fn unproved(launch: &mut Launch) {
    launch.argument(
        "--disable-custom-all-reduce",
        "the engine's own sums read and write peers with kernels, which the measurement does not \
         cover",
        "leave it out, once a measurement covers kernels",
    );
}

/// Steps and notes.
pub(super) fn notes(wanted: &Wanted, launch: &mut Launch) {
    launch.before.push(
        "delete gpu_p2p_access_cache_for_*.json in the engine's cache directory after every change \
         of firmware, kernel command line, driver or GPUs: the engine believes it for ever"
            .to_owned(),
    );
    launch.after.push(
        "compare greedy answers with those of the safe mode before believing a speed: worth bench \
         in both, then worth compare"
            .to_owned(),
    );
    if launch.mode == Mode::Restored {
        launch.after.push(
            "signs of damage: one repeated character, acceptance of nothing, GPUs at 100 % with \
             idle power; then go back to the safe mode at once"
                .to_owned(),
        );
    }
    if wanted.layout.replicas > 1 {
        launch.notes.push(format!(
            "{} replicas: this line once for each, with its own GPUs (CUDA_VISIBLE_DEVICES) and \
             port, and a router in front; {} of the {} requests for each",
            wanted.layout.replicas,
            wanted.of_a_replica(),
            wanted.concurrency
        ));
    }
    let weights = wanted.layout.weight_bytes(&wanted.model, wanted.draft_steps > 0);
    let room = wanted.gpu.memory_bytes * wanted.memory_fraction;
    if weights > room {
        launch.notes.push(format!(
            "the weights take {:.1} GB of each GPU, and the engine may fill {:.1} GB: this will not \
             start",
            weights / 1e9,
            room / 1e9
        ));
    }
}
