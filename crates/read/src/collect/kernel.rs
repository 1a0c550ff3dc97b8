//! The running kernel: release, command line, lockdown, and which style of DMA mapping it has.

use std::ops::ControlFlow;

use peerway_core::observed::Observed;
use peerway_core::snapshot::kernel::Kernel;

use crate::error::observe;
use crate::root::Root;

/// `/proc/kallsyms` of a large kernel with all modules loaded is a fifth of this.
const MOST_SYMBOLS: usize = 64 << 20;

/// Everything but [`Kernel::log_facts`], which the reader of the kernel log fills.
pub fn collect(root: &Root) -> Kernel {
    Kernel {
        release: root.observe("/proc/sys/kernel/osrelease"),
        command_line: root.observe("/proc/cmdline"),
        iommu_dma_ops: iommu_dma_ops(root),
        lockdown: lockdown(&root.observe("/sys/kernel/security/lockdown")),
        log_facts: Observed::default(),
    }
}

/// `[none] integrity confidentiality`: the word in brackets.
fn lockdown(text: &Observed<String>) -> Observed<String> {
    text.as_ref().and_then(|text| {
        let word = text.split_ascii_whitespace().find_map(|word| word.strip_prefix('['));
        match word.and_then(|word| word.strip_suffix(']')) {
            Some(word) => Observed::Known(word.to_owned()),
            None => Observed::Unreadable(format!("no bracketed word in {text:?}")),
        }
    })
}

fn iommu_dma_ops(root: &Root) -> Observed<bool> {
    let mut search = DmaOps::default();
    let mut each = |line: &[u8]| search.line(line);
    match observe(root.lines("/proc/kallsyms", MOST_SYMBOLS, &mut each)) {
        Observed::Known(()) => search.answer(),
        Observed::Absent => Observed::Absent,
        Observed::Unreadable(why) => Observed::Unreadable(why),
    }
}

/// Whether the list of symbols has the operations table of the old style. Addresses may be zero
/// (`kptr_restrict`); names are listed all the same.
///
/// Up to 6.11 `iommu_dma_map_resource` is a local function behind the table; from 6.12 the core
/// calls it, so that it is global (`drivers/iommu/dma-iommu.c`); 6.18 has `iommu_dma_map_phys` in
/// its place. Without any of them, the table's absence counts only if the list holds data at all
/// (`CONFIG_KALLSYMS_ALL`).
#[derive(Debug, Default)]
struct DmaOps {
    found: Option<bool>,
    lists_data: bool,
}

impl DmaOps {
    /// Looks at one line; breaks off when the answer is known or the kernel's own symbols end.
    fn line(&mut self, line: &[u8]) -> ControlFlow<()> {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(_address), Some(&[kind]), Some(name)) =
            (words.next(), words.next(), words.next())
        else {
            return ControlFlow::Continue(());
        };
        // Modules follow the kernel's own symbols and cannot hold either name.
        if name.contains(&b'\t') {
            return ControlFlow::Break(());
        }
        match (kind, name) {
            (b'd' | b'D' | b'r' | b'R' | b'b' | b'B', b"iommu_dma_ops") => self.found = Some(true),
            (b'T', b"iommu_dma_map_resource" | b"iommu_dma_map_phys") => self.found = Some(false),
            // Without it the list still has marks of sections, but no static datum.
            (b'd' | b'r' | b'b', _) | (b'D', b"init_task") => self.lists_data = true,
            _ => {}
        }
        if self.found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn answer(&self) -> Observed<bool> {
        match self.found {
            Some(found) => Observed::Known(found),
            None if self.lists_data => Observed::Known(false),
            None => Observed::Unreadable("the kernel lists no data symbols".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::host_file;

    fn root(entries: &str) -> Root {
        let count = entries.matches("//- ").count();
        let text = format!("peerway-host 1\n{entries}//- end {count}\n");
        Root::recorded(Arc::new(host_file::parse(&text).unwrap()))
    }

    #[track_caller]
    fn check_symbols(entries: &str, expected: &str) {
        assert_eq!(collect(&root(entries)).iommu_dma_ops.to_string(), expected);
    }

    #[test]
    fn the_style_of_dma_mapping() {
        check_symbols(
            "//- /proc/kallsyms\n0000000000000000 T _text\n0000000000000000 t iommu_dma_map_resource\n\
             0000000000000000 r iommu_dma_ops\n",
            "true",
        );
        check_symbols(
            "//- /proc/kallsyms\nffffffff81000000 T _text\nffffffff819a0000 T iommu_dma_map_resource\n",
            "false",
        );
        check_symbols(
            "//- /proc/kallsyms\n0000000000000000 T _text\n0000000000000000 D init_task\n",
            "false",
        );
        // Functions only: the table would not be listed even if it were there.
        check_symbols(
            "//- /proc/kallsyms\n0000000000000000 T _text\n0000000000000000 t iommu_dma_map_resource\n",
            "unknown (the kernel lists no data symbols)",
        );
        check_symbols(
            "//- /proc/kallsyms\n0000000000000000 T _text\n0000000000000000 D __start_rodata\n",
            "unknown (the kernel lists no data symbols)",
        );
        check_symbols(
            "//- /proc/kallsyms\nffffffff81000000 T _text\nffffffff819a0000 T iommu_dma_map_phys\n",
            "false",
        );
        check_symbols(
            "//- /proc/kallsyms\n0000000000000000 d a\n0000000000000000 d iommu_dma_ops\t[odd]\n",
            "false",
        );
        check_symbols("//- /proc/kallsyms\n", "unknown (the kernel lists no data symbols)");
        check_symbols("//- /proc/kallsyms !EACCES\n", "unknown (permission denied)");
        check_symbols("//- /proc/cmdline\nquiet\n", "none");
    }

    #[track_caller]
    fn check_lockdown(entries: &str, expected: &str) {
        assert_eq!(collect(&root(entries)).lockdown.to_string(), expected);
    }

    #[test]
    fn lockdown_is_the_word_in_brackets() {
        let path = "//- /sys/kernel/security/lockdown";
        check_lockdown(&format!("{path}\n[none] integrity confidentiality\n"), "none");
        check_lockdown(&format!("{path}\nnone [integrity] confidentiality\n"), "integrity");
        check_lockdown(&format!("{path}\nnone\n"), "unknown (no bracketed word in \"none\")");
        check_lockdown(&format!("{path} !EACCES\n"), "unknown (permission denied)");
        let kernel = collect(&root("//- /proc/sys/kernel/osrelease\n6.14.5-2-test\n"));
        assert_eq!(kernel.release, Observed::Known("6.14.5-2-test".to_owned()));
        assert_eq!(kernel.lockdown, Observed::Absent);
        assert_eq!(kernel.command_line, Observed::Absent);
    }
}
