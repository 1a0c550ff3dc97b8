//! What earlier transactions of this host came to, from the journal that the changing commands
//! keep. Only the outcomes are taken; whether the journal is whole is for those to check.

use peerway_core::observed::Observed;
use peerway_read::error::observe;
use peerway_read::root::Root;
use peerway_roads::Outcome;
use serde::Deserialize;

/// The journal of a running host.
pub const JOURNAL: &str = "/var/lib/peerway/journal.jsonl";
/// A transaction takes some hundred kilobytes.
const MOST: usize = 64 << 20;

/// One line, as far as it matters here.
#[derive(Deserialize)]
struct Line {
    entry: Entry,
}

#[derive(Deserialize)]
struct Entry {
    record: String,
    #[serde(default)]
    outcome: Option<Outcome>,
}

/// Reads the outcomes; absent where nothing was ever done.
pub fn read(root: &Root) -> Observed<Vec<Outcome>> {
    observe(root.text(JOURNAL, MOST)).and_then(|text| match outcomes(&text) {
        Ok(outcomes) => Observed::Known(outcomes),
        Err(why) => Observed::Unreadable(why),
    })
}

fn outcomes(text: &str) -> Result<Vec<Outcome>, String> {
    let mut all = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        match serde_json::from_str::<Line>(line) {
            Ok(Line { entry: Entry { record, outcome: Some(outcome) } }) if record == "end" => {
                all.push(outcome);
            }
            Ok(_) => {}
            // A crash tears the last line, and nothing was done on its account.
            Err(_) if lines.peek().is_none() => {}
            Err(error) => return Err(format!("line {} of the journal: {error}", index + 1)),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = r#"{"sum":"00","entry":{"record":"end","end":"taken_back","ended":"x","outcome":{"road":"identity-groups","board":null,"driver":"580.1","kernel":"6.8","result":"failed","reason":"the board did not start"}}}"#;

    fn check(text: &str, expected: Result<usize, &str>) {
        let found = outcomes(text).map(|all| all.len());
        match expected {
            Ok(count) => assert_eq!(found, Ok(count), "{text}"),
            Err(says) => assert!(found.unwrap_err().contains(says), "{text}"),
        }
    }

    #[test]
    fn outcomes_of_ended_transactions() {
        check("", Ok(0));
        check(END, Ok(1));
        check(&format!("{{\"sum\":\"1\",\"entry\":{{\"record\":\"confirmed\"}}}}\n{END}\n"), Ok(1));
        check(&format!("{END}\n{{\"sum\":\"1\",\"ent"), Ok(1));
        check(&format!("{{\"sum\n{END}\n"), Err("line 1"));
    }
}
