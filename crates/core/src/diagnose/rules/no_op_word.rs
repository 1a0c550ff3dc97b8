//! PW0101: a word of the command line does nothing.

use std::collections::BTreeSet;

use super::boot::{self, COMMAND_LINE};
use super::support;
use crate::code::NO_OP_WORD;
use crate::command_line::{Effect, Word, same_key};
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;
use crate::snapshot::Snapshot;

pub(super) const RULE: Rule = Rule {
    code: NO_OP_WORD,
    title: "a word of the kernel command line does nothing",
    page: "\
Guides pass words around that no kernel has, and the kernel takes no offence: an unknown word is
ignored, at most with a line in the log. Such a word does no harm, but whoever put it there believes
that something is switched.

The usual ones:

- `amd_iommu=on` is no option. AMD-Vi is on whenever firmware enables it; newer kernels log `AMD-Vi:
  Unknown option - 'on'`.
- `intel_iommu=…` on an AMD processor and `amd_iommu=…` on an Intel one speak to a driver that is
  not there.
- `pci=noacs` is no option. No word switches access control off as a whole; redirect can be cleared
  port by port.
- `iommu=on` is no option on x86.
- `mem_encrypt=on` where firmware did not enable memory encryption, or the processor has none: the
  flag `sme` is then missing, and main memory is not encrypted.

How it was seen: the command line, against a table of the words that kernels know, and the
processor's maker and flags.

Why it matters: time is lost on looking for the effect, and the next reader of the host takes the
word for a decision. A host whose IOMMU is off stays off with `amd_iommu=on`.

What helps: remove the word at the next change of the command line. Nothing changes by it.

Sources: `drivers/iommu/amd/init.c`, `parse_amd_iommu_options`; `arch/x86/kernel/pci-dma.c`,
`iommu_setup`; `drivers/pci/pci.c`, `pci_setup`; `arch/x86/kernel/cpu/amd.c`,
`early_detect_mem_encrypt`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let mut told = BTreeSet::new();
    boot::words(snapshot)
        .into_iter()
        .filter_map(|word| Some((why_nothing(snapshot, &word)?, word)))
        .filter(|(_, word)| told.insert(word.text.clone()))
        .map(|(why, word)| {
            Finding::new(
                RULE.code,
                Severity::Info,
                Confidence::Certain,
                format!("{} on the kernel command line does nothing", shortened(&word.text)),
            )
            .about("host")
            .seen(COMMAND_LINE, support::cut(&word.text))
            .seen("what it means", support::cut(&why))
            .remedy("remove it at the next change of the command line; nothing changes by it")
        })
        .collect()
}

fn shortened(text: &str) -> String {
    let front: String = text.chars().take(40).collect();
    if front.len() < text.len() { format!("{front}…") } else { front }
}

fn why_nothing(snapshot: &Snapshot, word: &Word) -> Option<String> {
    if word.meaning.has(Effect::NoSuchOption) {
        return Some(word.meaning.text.to_owned());
    }
    let maker = snapshot.cpu.vendor.known().map(String::as_str);
    let is = |key| same_key(&word.key, key);
    match maker {
        Some(maker @ "AuthenticAMD") if is("intel_iommu") => {
            Some(format!("for Intel's IOMMU; the processor is {maker}"))
        }
        Some(maker @ "GenuineIntel") if is("amd_iommu") || is("mem_encrypt") => {
            Some(format!("for AMD's processors; this one is {maker}"))
        }
        Some("AuthenticAMD")
            if word.meaning.has(Effect::Sme)
                && snapshot.cpu.has_flag("sme") == Observed::Known(false) =>
        {
            Some(
                "the processor shows no SME (/proc/cpuinfo has no flag sme): firmware did not \
                 enable it, or there is none"
                    .to_owned(),
            )
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, all, fires, silent, value};

    #[track_caller]
    fn check_words(host: &Host, expected: &[&str]) {
        let seen: Vec<String> = all(&RULE, host)
            .iter()
            .map(|finding| value(finding, COMMAND_LINE).to_owned())
            .collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn words_that_no_kernel_has() {
        let finding = fires(&RULE, &Host::amd().boot("quiet amd_iommu=on amd_iommu=on"));
        assert_eq!(finding.title, "amd_iommu=on on the kernel command line does nothing");
        assert_eq!(finding.severity, Severity::Info);
        check_words(&Host::amd().boot("pci=noacs,realloc iommu=on"), &["pci=noacs", "iommu=on"]);
    }

    #[test]
    fn words_for_another_maker() {
        check_words(&Host::amd().boot("intel_iommu=on"), &["intel_iommu=on"]);
        check_words(&Host::intel().boot("intel_iommu=on amd_iommu=off"), &["amd_iommu=off"]);
    }

    #[test]
    fn memory_encryption_that_firmware_did_not_enable() {
        let host = Host::amd().boot("mem_encrypt=on");
        check_words(&host, &[]);
        let off = host.edit(|snapshot| snapshot.cpu.flags = Observed::Known(Vec::new()));
        check_words(&off, &["mem_encrypt=on"]);
    }

    #[test]
    fn words_that_do_something() {
        silent(&RULE, &Host::amd().boot("amd_iommu=pgtbl_v2 iommu=pt pci=noats quiet splash"));
        let unread = Host::amd().edit(|snapshot| {
            snapshot.kernel.command_line = Observed::Unreadable("permission denied".to_owned());
        });
        silent(&RULE, &unread);
    }
}
