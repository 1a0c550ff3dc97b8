//! A launch line: variables, flags and their values.

use std::collections::BTreeMap;

/// A line, taken apart as far as the rules need it. Nothing is expanded or run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Variables.
    pub environment: BTreeMap<String, String>,
    /// Flags by their canonical name, with the value where one follows.
    pub flags: BTreeMap<String, Option<String>>,
}

/// Other spellings of a flag.
const ALIASES: &[(&str, &str)] = &[
    ("--tp", "--tp-size"),
    ("--tensor-parallel-size", "--tp-size"),
    ("-tp", "--tp-size"),
    ("--pipeline-parallel-size", "--pp-size"),
    ("-pp", "--pp-size"),
    ("--data-parallel-size", "--dp-size"),
    ("--dp", "--dp-size"),
    ("--ep", "--ep-size"),
    ("--expert-parallel-size", "--ep-size"),
];

impl Line {
    /// From words as a shell would split them; quotes only keep blanks together.
    pub fn parse(text: &str) -> Self {
        Self::of_words(&split(text))
    }

    /// From words.
    pub fn of_words<T: AsRef<str>>(words: &[T]) -> Self {
        let mut line = Self::default();
        let mut words = words.iter().map(AsRef::as_ref).peekable();
        while let Some(word) = words.next() {
            if word.starts_with('-') {
                let (name, value) = if let Some((name, value)) = word.split_once('=') {
                    (name, Some(value.to_owned()))
                } else {
                    let next = words.next_if(|next| !next.starts_with('-') || is_number(next));
                    (word, next.map(str::to_owned))
                };
                line.flags.insert(canonical(name).to_owned(), value);
            } else if let Some((name, value)) = word.split_once('=')
                && line.flags.is_empty()
                && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            {
                line.environment.insert(name.to_owned(), value.to_owned());
            }
        }
        line
    }

    /// Whether a flag is there.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains_key(flag)
    }

    /// The value of a flag.
    pub fn value(&self, flag: &str) -> Option<&str> {
        self.flags.get(flag).and_then(Option::as_deref)
    }

    /// The value of a flag as a number.
    pub fn number(&self, flag: &str) -> Option<u32> {
        self.value(flag)?.parse().ok()
    }

    /// Whether a variable is set to something that switches on.
    pub fn on(&self, variable: &str) -> bool {
        self.environment.get(variable).is_some_and(|value| {
            matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
        })
    }
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

fn canonical(flag: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == flag).map_or(flag, |(_, name)| name)
}

fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote: Option<char> = None;
    let mut open = false;
    let mut escaped = false;
    for character in text.chars() {
        if std::mem::take(&mut escaped) {
            // A line that goes on ends no word and is none.
            if character != '\n' {
                word.push(character);
                open = true;
            }
            continue;
        }
        match (quote, character) {
            (Some(mark), _) if mark == character => quote = None,
            (Some(_), _) => word.push(character),
            (None, '\'' | '"') => {
                quote = Some(character);
                open = true;
            }
            (None, '\\') => escaped = true,
            (None, blank) if blank.is_whitespace() => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (None, _) => word.push(character),
        }
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_taken_apart() {
        let line = Line::parse(
            "NCCL_P2P_DISABLE=1 python -m sglang.launch_server --tp 4 --x=y \\\n --flag --n -1 \
             --json '{\"a\": 1}'",
        );
        assert!(line.on("NCCL_P2P_DISABLE"));
        assert_eq!(line.number("--tp-size"), Some(4));
        assert_eq!(line.value("--x"), Some("y"));
        assert!(line.has("--flag") && line.value("--flag").is_none());
        assert_eq!(line.value("--n"), Some("-1"));
        assert_eq!(line.value("--json"), Some("{\"a\": 1}"));
        let quoted = Line::parse(r"serve --path 'it'\''s' --tp 2");
        assert_eq!((quoted.value("--path"), quoted.number("--tp-size")), (Some("it's"), Some(2)));
        assert_eq!(Line::parse("'open"), Line::default());
    }
}
