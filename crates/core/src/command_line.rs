//! The kernel command line, word by word, and what each word does to peer access, translation and
//! memory encryption.
//!
//! Meanings stand in one static table (`table`). Words that exist nowhere but in guides are in
//! it too: they are named as what they are.

mod table;

use serde::{Deserialize, Serialize};

/// One word of the command line; lists such as `amd_iommu=a,b` give one word an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// As written, or as the item would stand alone: `iommu=pt`.
    pub text: String,
    /// Name of the parameter, as written.
    pub key: String,
    /// Its value, or the item; absent without `=`.
    pub value: Option<String>,
    /// What it does.
    pub meaning: Meaning,
}

/// What a word does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Classes of its effect; empty if it has none here.
    pub effects: &'static [Effect],
    /// One sentence for the operator; empty for words that do not bear on this program.
    pub text: &'static str,
    /// First kernel that is known to have it, major and minor number; absent for "all that matter
    /// here".
    pub since: Option<(u32, u32)>,
}

impl Meaning {
    /// Whether a class is among its effects.
    pub fn has(&self, effect: Effect) -> bool {
        self.effects.contains(&effect)
    }

    /// Whether the word bears on this program at all.
    pub fn is_relevant(&self) -> bool {
        !self.effects.is_empty()
    }
}

/// Class of what a word does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// No kernel has such an option; it is ignored, with or without a line in the log.
    NoSuchOption,
    /// It exists, and changes nothing for translation or peer access.
    NoEffect,
    /// No IOMMU is driven at all.
    IommuOff,
    /// Default domains become `identity`: addresses pass untranslated.
    PassThrough,
    /// Default domains translate.
    Translates,
    /// When old translations are flushed.
    Flush,
    /// Form of page tables or of remapping.
    TableForm,
    /// SNP cannot be on.
    DisablesSnp,
    /// Has to do with SNP, without ruling it out.
    Snp,
    /// Encrypted guests of any kind are switched.
    Sev,
    /// Memory encryption of the host on.
    Sme,
    /// Memory encryption of the host off.
    SmeOff,
    /// Groups look isolated that are not.
    PretendsIsolation,
    /// ACS redirect bits are cleared on some ports.
    ClearsRedirect,
    /// ACS bits are set as given.
    SetsAcs,
    /// Address translation services of devices off.
    AtsOff,
    /// Where and how large BARs and windows are.
    Addresses,
    /// Payload, power and speed of links.
    Link,
    /// Interrupt remapping and APIC modes.
    Interrupts,
    /// A parameter of NVIDIA's driver.
    NvidiaParameter,
    /// Which driver takes a device, or a parameter of VFIO.
    Binding,
    /// Who drives the display.
    Display,
    /// Firmware's part in booting.
    Firmware,
    /// More in the kernel log.
    Log,
    /// Which processors run.
    Processors,
    /// What root may still do.
    Lockdown,
}

/// Every word of a command line with its meaning, in the order in which they stand.
pub fn parse(command_line: &str) -> Vec<Word> {
    let mut words = Vec::new();
    for (key, value) in split(command_line) {
        let Some(value) = value else {
            let meaning = table::meaning(&key, None);
            words.push(Word { text: key.clone(), key, value: None, meaning });
            continue;
        };
        if !table::is_list(&key) {
            let meaning = table::meaning(&key, Some(&value));
            words.push(Word { text: format!("{key}={value}"), key, value: Some(value), meaning });
            continue;
        }
        let mut before = None;
        for item in value.split(',').filter(|item| !item.is_empty()) {
            let meaning = table::item_meaning(&key, item, before);
            before = Some(item);
            words.push(Word {
                text: format!("{key}={item}"),
                key: key.clone(),
                value: Some(item.to_owned()),
                meaning,
            });
        }
    }
    words
}

/// One parameter as the kernel splits it (`lib/cmdline.c`, `next_arg`): blanks separate, double
/// quotes keep blanks, quotes around a value are taken off. What follows `--` is the init
/// program's and no parameter.
pub fn split(command_line: &str) -> Vec<(String, Option<String>)> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for one in command_line.chars().chain([' ']) {
        match one {
            '"' => quoted = !quoted,
            blank if blank.is_ascii_whitespace() && !quoted => {
                if word == "--" {
                    return words;
                }
                if !word.is_empty() {
                    words.push(pair(&word));
                    word.clear();
                }
            }
            other => word.push(other),
        }
    }
    // An open quote reaches to the end of the line.
    let rest = word.trim_end();
    if !rest.is_empty() {
        words.push(pair(rest));
    }
    words
}

fn pair(word: &str) -> (String, Option<String>) {
    match word.split_once('=') {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (word.to_owned(), None),
    }
}

/// Whether two parameter names are one to the kernel, which takes `-` for `_`
/// (`kernel/params.c`, `parameq`).
pub fn same_key(a: &str, b: &str) -> bool {
    let plain = |byte: u8| if byte == b'-' { b'_' } else { byte };
    a.len() == b.len() && a.bytes().map(plain).eq(b.bytes().map(plain))
}

/// The value of a parameter; the last one counts where it stands several times.
pub fn last_value(command_line: &str, key: &str) -> Option<String> {
    split(command_line)
        .into_iter()
        .rev()
        .find_map(|(name, value)| same_key(&name, key).then_some(value).flatten())
}

/// A switch as the kernel reads it (`lib/kstrtox.c`, `kstrtobool`).
pub fn switch(value: &str) -> Option<bool> {
    let mut bytes = value.bytes().map(|byte| byte.to_ascii_lowercase());
    match (bytes.next()?, bytes.next()) {
        (b'y' | b't' | b'1', _) | (b'o', Some(b'n')) => Some(true),
        (b'n' | b'f' | b'0', _) | (b'o', Some(b'f')) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
