//! The kernel command line, word by word.

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
