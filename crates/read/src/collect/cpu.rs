//! The processor.

use peerway_core::observed::Observed;
use peerway_core::snapshot::kernel::Cpu;

use crate::error::observe;
use crate::parse::cpuinfo;
use crate::root::{LARGE, Root};

/// From `/proc/cpuinfo`.
pub fn collect(root: &Root) -> Cpu {
    match observe(root.text("/proc/cpuinfo", LARGE)) {
        Observed::Known(text) => cpuinfo::parse(&text),
        Observed::Absent => nothing(&Observed::Absent),
        Observed::Unreadable(why) => nothing(&Observed::Unreadable(why)),
    }
}

/// The same failure for every part.
fn nothing(why: &Observed<()>) -> Cpu {
    fn same<T>(why: &Observed<()>) -> Observed<T> {
        why.clone().and_then(|()| Observed::Absent)
    }
    Cpu {
        vendor: same(why),
        family: same(why),
        model: same(why),
        name: same(why),
        flags: same(why),
        physical_bits: same(why),
        threads: same(why),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::host_file;

    #[track_caller]
    fn check(entries: &str, expected: &str) {
        let count = entries.matches("//- ").count();
        let tree =
            host_file::parse(&format!("peerway-host 1\n{entries}//- end {count}\n")).unwrap();
        let cpu = collect(&Root::recorded(Arc::new(tree)));
        assert_eq!(format!("{} / {}", cpu.vendor, cpu.threads), expected);
    }

    #[test]
    fn a_failed_look_is_no_processor_without_flags() {
        check("//- /proc/cpuinfo\nprocessor : 0\nvendor_id : AuthenticAMD\n", "AuthenticAMD / 1");
        check("//- /proc/stat\n", "none / none");
        check(
            "//- /proc/cpuinfo !EACCES\n",
            "unknown (permission denied) / unknown (permission denied)",
        );
    }
}
