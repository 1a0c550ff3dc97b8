//! The table of words (`Documentation/admin-guide/kernel-parameters.txt`; `drivers/iommu/amd/init.c`,
//! `parse_amd_iommu_options`; `drivers/iommu/intel/iommu.c`, `intel_iommu_setup`;
//! `arch/x86/kernel/pci-dma.c`, `iommu_setup`; `drivers/pci/pci.c`, `pci_setup`).

mod devices;
mod iommu;

use super::Effect::{self, NoSuchOption};
use super::{Meaning, same_key, switch};

/// Which values of a parameter an entry is about.
enum Value {
    /// Every value, and none.
    Any,
    /// This one.
    Is(&'static str),
    /// All that begin so.
    Begins(&'static str),
    /// On, in any spelling of the kernel's.
    On,
    /// Off, in any spelling of the kernel's.
    Off,
}

struct Entry {
    key: &'static str,
    value: Value,
    meaning: Meaning,
}

const fn entry(
    key: &'static str,
    value: Value,
    effects: &'static [Effect],
    text: &'static str,
) -> Entry {
    Entry { key, value, meaning: Meaning { effects, text, since: None } }
}

const fn since(entry: Entry, major: u32, minor: u32) -> Entry {
    let Entry { key, value, meaning: Meaning { effects, text, .. } } = entry;
    Entry { key, value, meaning: Meaning { effects, text, since: Some((major, minor)) } }
}

/// A word that does not bear on this program.
const UNRELATED: Meaning = Meaning { effects: &[], text: "", since: None };

/// An item of a list whose words are all in the table.
const NO_SUCH_ITEM: Meaning = Meaning {
    effects: &[NoSuchOption],
    text: "no option: the kernel knows no such word here and ignores it",
    since: None,
};

/// What follows a list of devices that was written with commas.
const CUT_LIST: Meaning = Meaning {
    effects: &[NoSuchOption],
    text: "no option: a comma ends the list of devices before it; the kernel separates them with ;",
    since: None,
};

/// Parameters whose value is a list of words.
const LISTS: [&str; 7] = ["amd_iommu", "iommu", "intel_iommu", "pci", "sev", "efi", "intremap"];

/// Lists of which every word is in the table.
const CLOSED: [&str; 4] = ["amd_iommu", "iommu", "intel_iommu", "sev"];

pub(super) fn is_list(key: &str) -> bool {
    LISTS.iter().any(|list| same_key(list, key))
}

/// What a parameter with this value does.
pub(super) fn meaning(key: &str, value: Option<&str>) -> Meaning {
    let text = value.unwrap_or_default();
    let found = iommu::ENTRIES.iter().chain(devices::ENTRIES).find(|entry| {
        let same = match entry.key.strip_suffix('*') {
            Some(stem) => key.get(..stem.len()).is_some_and(|front| same_key(front, stem)),
            None => same_key(entry.key, key),
        };
        same && match entry.value {
            Value::Any => true,
            Value::Is(word) => text == word,
            Value::Begins(word) => text.starts_with(word),
            Value::On => switch(text) == Some(true),
            Value::Off => switch(text) == Some(false),
        }
    });
    found.map_or(UNRELATED, |entry| entry.meaning)
}

/// What an item of a list does; `before` is the item that it follows.
pub(super) fn item_meaning(key: &str, item: &str, before: Option<&str>) -> Meaning {
    let meaning = meaning(key, Some(item));
    if meaning.is_relevant() {
        return meaning;
    }
    let is_device = item.contains(':') && item.contains('.');
    let after_list = before.is_some_and(|before| {
        before.starts_with("disable_acs_redir=")
            || before.starts_with("config_acs=")
            || before.contains(':')
    });
    if is_device && after_list {
        CUT_LIST
    } else if CLOSED.iter().any(|list| same_key(list, key)) {
        NO_SUCH_ITEM
    } else {
        UNRELATED
    }
}
