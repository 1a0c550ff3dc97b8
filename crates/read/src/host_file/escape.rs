//! Blanks and ends of lines in paths and targets.

/// What is escaped in paths and targets, and how.
const ESCAPES: [(char, &str); 4] =
    [(' ', "\\040"), ('\n', "\\012"), ('\r', "\\015"), ('\\', "\\134")];

pub(super) fn unescaped(text: String) -> String {
    if !text.contains('\\') {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(one) = rest.chars().next() {
        let escape = ESCAPES
            .iter()
            .find_map(|(one, escape)| rest.strip_prefix(escape).map(|rest| (*one, rest)));
        let (one, after) =
            escape.unwrap_or_else(|| (one, rest.get(one.len_utf8()..).unwrap_or("")));
        plain.push(one);
        rest = after;
    }
    plain
}

/// A path, or a target, in which blanks have no meaning.
pub(super) fn escaped(text: &str, blanks: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, one) in text.char_indices() {
        let needed = match one {
            ' ' => blanks,
            '\n' | '\r' => true,
            // Only where it would be read as an escape: unit names are full of backslashes.
            '\\' => ESCAPES
                .iter()
                .any(|(_, escape)| text.get(at..).is_some_and(|rest| rest.starts_with(escape))),
            _ => false,
        };
        match ESCAPES.iter().find(|(escaped, _)| needed && *escaped == one) {
            Some((_, escape)) => out.push_str(escape),
            None => out.push(one),
        }
    }
    out
}
