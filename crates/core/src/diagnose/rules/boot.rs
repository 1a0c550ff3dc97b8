//! The kernel command line as rules ask for it.

use crate::command_line::{self, Effect, Word};
use crate::diagnose::finding::Finding;
use crate::snapshot::Snapshot;

/// Where the command line is read.
pub(super) const COMMAND_LINE: &str = "/proc/cmdline";

/// All words; none where the command line could not be read.
pub(super) fn words(snapshot: &Snapshot) -> Vec<Word> {
    snapshot.kernel.command_line.known().map(|line| command_line::parse(line)).unwrap_or_default()
}

/// The word that decides about the default domain of all devices, with whether it passes them
/// through. The last one counts: both are early parameters, read in order
/// (`drivers/iommu/iommu.c`, `iommu_set_def_domain_type`; `arch/x86/kernel/pci-dma.c`,
/// `iommu_setup`).
pub(super) fn default_domain(snapshot: &Snapshot) -> Option<(Word, bool)> {
    words(snapshot).into_iter().rev().find_map(|word| {
        let general =
            ["iommu", "iommu.passthrough"].iter().any(|key| command_line::same_key(&word.key, key));
        if !general {
            return None;
        }
        if word.meaning.has(Effect::PassThrough) {
            Some((word, true))
        } else if word.meaning.has(Effect::Translates) {
            Some((word, false))
        } else {
            None
        }
    })
}

/// The word that passes every device through, where it is in force.
pub(super) fn passthrough(snapshot: &Snapshot) -> Option<Word> {
    default_domain(snapshot).filter(|(_, passes)| *passes).map(|(word, _)| word)
}

/// Words that have one of these effects.
pub(super) fn with_effect(snapshot: &Snapshot, effects: &[Effect]) -> Vec<Word> {
    words(snapshot)
        .into_iter()
        .filter(|word| effects.iter().any(|effect| word.meaning.has(*effect)))
        .collect()
}

/// Adds words as evidence.
pub(super) fn with_words(finding: Finding, words: &[Word]) -> Finding {
    words
        .iter()
        .fold(finding, |finding, word| finding.seen(COMMAND_LINE, super::support::cut(&word.text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<&str>) {
        let mut snapshot = Snapshot::default();
        snapshot.kernel.command_line = crate::observed::Observed::Known(line.to_owned());
        assert_eq!(passthrough(&snapshot).map(|word| word.text).as_deref(), expected);
    }

    #[test]
    fn the_last_word_decides() {
        check("quiet iommu=pt", Some("iommu=pt"));
        check("iommu.passthrough=1", Some("iommu.passthrough=1"));
        check("iommu=pt iommu.passthrough=0", None);
        check("iommu=nopt,pt", Some("iommu=pt"));
        check("iommu=pt iommu=nopt", None);
        check("intel_iommu=on,igfx_off", None);
        check("quiet -- iommu=pt", None);
    }
}
