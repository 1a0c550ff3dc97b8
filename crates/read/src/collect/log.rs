//! Lines of this boot's kernel log that state facts about SNP, SME and the IOMMU.

use peerway_core::observed::Observed;

use crate::root::{KMSG, Root};

/// Most of the log that is looked at: the kernel's own ring is a few MiB at most.
const MOST: usize = 64 << 20;

/// Words of which a line must have one to be kept: the vocabulary of boot facts.
const WORDS: [&str; 11] = [
    "Linux version ",
    "AMD-Vi: ",
    "DMAR: ",
    "DMAR-IR: ",
    "iommu: ",
    "SEV",
    "SNP",
    "Memory Encryption",
    "AMD SME",
    "TSME",
    "x2apic",
];

/// Faults and other events are read by the fault parser and are no boot facts.
const EVENTS: [&str; 3] = ["Event logged", "[DMA ", "[INTR-REMAP"];

/// Longest record (`CONSOLE_EXT_LOG_MAX`, `PRINTKRB_RECORD_MAX`); longer lines are none.
const LONGEST: usize = 8 << 10;

/// Most lines kept.
const MOST_LINES: usize = 512;

/// The log of this boot, in records of `/dev/kmsg`; unreadable where it may not be read.
pub fn read(root: &Root) -> Observed<Vec<u8>> {
    match root.kernel_log(MOST) {
        Ok(bytes) => Observed::Known(bytes),
        Err(error) => error.observed(),
    }
}

/// The lines of a log that state facts about the boot.
pub fn facts(log: &Observed<Vec<u8>>) -> Observed<Vec<String>> {
    log.as_ref().map(|bytes| boot_facts(bytes))
}

fn boot_facts(log: &[u8]) -> Vec<String> {
    log.split(|byte| *byte == b'\n')
        .filter(|record| record.len() <= LONGEST)
        .filter_map(|record| {
            // A record reads `priority,sequence,microseconds,flags;text`
            // (`Documentation/ABI/testing/dev-kmsg`); its continuation lines begin with a blank.
            let record = String::from_utf8_lossy(record);
            let record = record.trim_end_matches('\r');
            let text = record.split_once(';').map_or(record, |(_, text)| text);
            let relevant = !record.starts_with(' ')
                && WORDS.iter().any(|word| text.contains(word))
                && !EVENTS.iter().any(|word| text.contains(word));
            relevant.then(|| text.to_owned())
        })
        .take(MOST_LINES)
        .collect()
}

/// Where the log is read from, for evidence.
pub fn source() -> &'static str {
    KMSG
}
