//! The rare byte strings that a line must hold to be worth parsing.

use std::sync::LazyLock;

use aho_corasick::packed::{Config, MatchKind, Searcher};
use aho_corasick::{AhoCorasick, Span};

/// What an anchor leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// `AMD-Vi`.
    Amd,
    /// Part of an AMD event that lost its front.
    AmdBody,
    /// `DMAR`.
    Dmar,
    /// `Request device [`.
    Request,
    /// `fault reason`, or Xen's ` reason `.
    Reason,
    /// `arm-smmu`.
    Smmu,
    /// ` callbacks suppressed`.
    Suppressed,
    /// ` 000`, the front of a PCI address with its domain.
    Device,
    /// `NVRM`.
    Nvidia,
    /// `SXid (PCI`.
    Sxid,
    /// `iommu`.
    Iommu,
    /// `SEV-`, `SEV supported`, `SEV enabled`, `kvm_amd`, `ncryption`.
    Encryption,
    /// `ommand line: `.
    CommandLine,
    /// `Linux version `.
    Version,
    /// `-- Boot ` or `-- Reboot`, which the journal prints between boots.
    BootMark,
    /// `ACS overrides`.
    AcsOverride,
    /// `GART`.
    Gart,
    /// `: probe of `.
    Probe,
    /// `peer-to-peer transactions`.
    Qemu,
    /// `"time":`, of `dmesg --json`.
    JsonTime,
    /// `"MESSAGE":[`, a message that the journal printed as numbers.
    JsonBytes,
}

/// At least four bytes each: the search compares as many at once, so that hardly any other text is
/// looked at twice. The search puts every eighth into one bucket, and a bucket's anchors are told
/// apart only by that second look: in this order those share one that ordinary log text rarely
/// takes for each other (a fifth as often as in the order of the families).
const ANCHORS: [(&str, Family); 27] = [
    ("\"MESSAGE\":[", Family::JsonBytes),
    ("ACS overrides", Family::AcsOverride),
    ("iommu", Family::Iommu),
    (" 000", Family::Device),
    ("SEV-", Family::Encryption),
    ("fault reason", Family::Reason),
    ("NVRM:", Family::Nvidia),
    ("peer-to-peer transactions", Family::Qemu),
    ("RMP_", Family::AmdBody),
    ("SEV enabled", Family::Encryption),
    ("GART", Family::Gart),
    (" callbacks suppressed", Family::Suppressed),
    ("SXid (PCI", Family::Sxid),
    ("ncryption", Family::Encryption),
    ("arm-smmu", Family::Smmu),
    ("Linux version ", Family::Version),
    ("\"time\":", Family::JsonTime),
    ("Request device [", Family::Request),
    ("address=0x", Family::AmdBody),
    ("SEV supported", Family::Encryption),
    ("DMAR", Family::Dmar),
    (": probe of ", Family::Probe),
    ("AMD-Vi", Family::Amd),
    ("-- Reboot", Family::BootMark),
    ("ommand line: ", Family::CommandLine),
    ("-- Boot ", Family::BootMark),
    ("kvm_amd", Family::Encryption),
];

/// An anchor and where it stands.
pub(crate) type Hit = (Family, usize);

/// Finds anchors.
#[derive(Debug)]
pub(crate) struct Anchors {
    /// SIMD search, where the processor has it.
    packed: Option<Searcher>,
    /// For short texts, and where there is no SIMD.
    automaton: Option<AhoCorasick>,
    shortest: usize,
}

/// Built once: the tables take longer to build than a small log takes to read.
static SHARED: LazyLock<Anchors> = LazyLock::new(Anchors::new);

impl Anchors {
    /// The one that everybody uses.
    pub(crate) fn shared() -> &'static Self {
        &SHARED
    }

    fn new() -> Self {
        let texts = ANCHORS.iter().map(|(text, _)| text);
        let packed = Config::new()
            .match_kind(MatchKind::LeftmostFirst)
            .builder()
            .extend(texts.clone())
            .build();
        let automaton = AhoCorasick::builder()
            .match_kind(aho_corasick::MatchKind::LeftmostFirst)
            .kind(Some(aho_corasick::AhoCorasickKind::DFA))
            .prefilter(false)
            .build(texts)
            .ok();
        let shortest = packed.as_ref().map_or(usize::MAX, Searcher::minimum_len);
        Self { packed, automaton, shortest }
    }

    /// The first anchor in `text` at or after `from`.
    #[inline]
    pub(crate) fn find(&self, text: &[u8], from: usize) -> Option<Hit> {
        let span = Span { start: from, end: text.len() };
        if span.start >= span.end {
            return None;
        }
        let found = match &self.packed {
            Some(packed) if span.end - span.start >= self.shortest => packed.find_in(text, span),
            _ => self.automaton.as_ref()?.find(aho_corasick::Input::new(text).span(span)),
        }?;
        let (_, family) = ANCHORS.get(found.pattern().as_usize())?;
        Some((*family, found.start()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_texts_give_the_same() {
        let anchors = Anchors::new();
        for (text, family) in ANCHORS {
            let short = anchors.find(text.as_bytes(), 0);
            let long = format!("{:100}{text}{:100}", "", "");
            let far = anchors.find(long.as_bytes(), 0);
            assert_eq!(short, Some((family, 0)));
            assert_eq!(far, Some((family, 100)), "{text}");
            assert_eq!(anchors.find(long.as_bytes(), 101), None, "{text}");
        }
    }
}
