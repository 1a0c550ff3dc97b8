//! Options of the workload itself.

use crate::guide::Guide;

/// In the order of what is known of their worth; each depends on the engine's version.
pub(crate) fn options() -> Vec<Guide> {
    vec![
        Guide::new(
            "first, without a change",
            &[
                "# the running batch, the data type and whether graphs are used, as the engine \
                 reports them: a limit there costs more than any link",
                "peerway worth estimate",
            ],
        ),
        Guide::new(
            "speculative decoding (MTP, NEXTN), where the model has such a head",
            &[
                "# 12 to 45 % per request were reported on similar models; it costs memory for \
                 states, and at high concurrency the batch may have to shrink",
                "# SGLang up to 0.5.12: --speculative-algorithm NEXTN with \
                 --mamba-scheduler-strategy extra_buffer and SGLANG_ENABLE_SPEC_V2=1; later \
                 versions spell these differently or refuse them",
                "peerway worth launch",
            ],
        ),
        Guide::new(
            "other layouts and types",
            &[
                "# FP8 weights; replicas on fewer GPUs each, which need no peers across them",
                "# --enable-fused-moe-sum-all-reduce fuses a sum of experts and removes no \
                 communication: a few per cent at most",
                "# a table of kernel settings for this GPU (MoE), tuned offline",
            ],
        ),
    ]
}
