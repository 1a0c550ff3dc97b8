//! The page of each gate, for `peerway explain GATE`.

mod host;
mod pairs;
mod tenants;

use crate::gate::GateCode;

/// A manual page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The gate.
    pub code: GateCode,
    /// One line: what holds where the gate passes.
    pub title: &'static str,
    /// The page, in Markdown, without the heading.
    pub text: &'static str,
    /// Where it is from.
    pub sources: &'static str,
}

/// All pages, in the order of the gates.
pub fn pages() -> impl Iterator<Item = &'static Page> {
    GateCode::ALL.iter().filter_map(|code| page(*code))
}

/// The page of a gate.
pub fn page(code: GateCode) -> Option<&'static Page> {
    [pairs::PAGES, host::PAGES, tenants::PAGES].into_iter().flatten().find(|page| page.code == code)
}

/// The page of a word such as `sme-mmio`, in either case.
pub fn explain(word: &str) -> Option<&'static Page> {
    let code = GateCode::ALL.iter().find(|code| code.word().eq_ignore_ascii_case(word))?;
    page(*code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_has_a_page() {
        for code in GateCode::ALL {
            let page = page(*code).unwrap_or_else(|| panic!("no page for {code}"));
            assert!(page.text.len() > 100, "{code}");
            assert!(!page.title.is_empty() && !page.sources.is_empty(), "{code}");
            assert_eq!(explain(code.word()), Some(page));
        }
        assert_eq!(pages().count(), GateCode::ALL.len());
        assert_eq!(explain("no-such-gate"), None);
    }
}
