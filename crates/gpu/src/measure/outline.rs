//! What a measurement would run: a static list, for those who want to see it before.

use super::Settings;
use crate::plan::{SAMPLE_STRIDE, steps};
use crate::result::{Mode, Operation};

impl Settings {
    /// One line for each group of children over `gpus` GPUs, with how many there are and how long
    /// each may take at most.
    pub fn outline(&self, gpus: usize) -> Vec<String> {
        let limit = self.child_limit.as_secs();
        let ordered = gpus * gpus.saturating_sub(1);
        let mut lines = Vec::new();
        let mut children = 0;
        let mut line = |count: usize, text: String| {
            if count > 0 {
                children += count;
                lines.push(format!("{count:4} x at most {limit} s  {text}"));
            }
        };
        line(1, "inventory: names, memory, claims of the driver; reads only".to_owned());
        line(gpus, "self-check: damage is planted and has to be found; 2 MiB".to_owned());
        let counted = |mode: Mode| {
            let mut count = 0;
            for engine in &self.engines {
                for operation in [Operation::Write, Operation::Read] {
                    for large in [false, true] {
                        count += steps(*engine, operation, large, self.largest()).len();
                    }
                }
            }
            if mode == Mode::Staged { count / 4 } else { count }
        };
        let largest = self.largest();
        let samples = if self.sample.unwrap_or_else(|| self.depth.samples()) {
            format!(", then two samples in every {SAMPLE_STRIDE} bytes of all free memory")
        } else {
            String::new()
        };
        for mode in &self.modes {
            let text = format!(
                "{mode:?}: {} transfers up to {largest} bytes, checked on the owner{samples}",
                counted(*mode)
            );
            if self.loopback {
                line(gpus, format!("within a GPU, {text}"));
            }
            line(ordered, text);
        }
        line(ordered, "control arm: the same staged through the host, small".to_owned());
        if self.together && gpus > 1 {
            let count = self.engines.len();
            line(count, format!("all pairs at once, {} bytes each", self.together_bytes));
        }
        if self.speed {
            let bytes = self.speed_bytes;
            line(gpus, format!("rates with the host and within the GPU, {bytes} bytes"));
            line(ordered, format!("rates and latencies of a pair, {bytes} bytes; per sound mode"));
        }
        if let Some(most) = self.all_reduce_sizes.iter().max() {
            line(2, format!("all-reduce by NCCL up to {most} bytes, without and with P2P"));
        }
        lines.push(format!(
            "{children} children one after the other. No clock, power, MIG or persistence setting is \
             touched; NVLink multicast is off (NCCL_NVLS_ENABLE=0)"
        ));
        lines
    }
}
