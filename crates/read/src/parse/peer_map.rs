//! The list that the peer-map module gives (`kmod/peerway_map.c`, `map_show`).

use peerway_core::address::BusAddress;
use peerway_core::snapshot::peer_map::{Entry, PeerMap};

/// The interface that this reader knows.
const INTERFACE: u32 = 1;

/// Reads the list.
///
/// # Errors
/// A line that is not what the module writes, or another interface: half a list would hide entries.
pub fn list(text: &str) -> Result<PeerMap, String> {
    let mut map = PeerMap::default();
    let mut counted = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let wrong = || format!("the list has the line {line:?}");
        match words.as_slice() {
            ["peerway-map", interface] => {
                map.interface = interface.parse().map_err(|_| wrong())?;
                if map.interface != INTERFACE {
                    return Err(format!(
                        "the module's interface is {}, this program knows {INTERFACE}",
                        map.interface
                    ));
                }
            }
            ["entries", count, "dropped", dropped, "lost", lost] => {
                counted = Some(count.parse::<usize>().map_err(|_| wrong())?);
                map.dropped = dropped.parse().map_err(|_| wrong())?;
                map.lost = lost.parse().map_err(|_| wrong())?;
            }
            // What the last command came to.
            ["last", ..] => {}
            ["entry", rest @ ..] => map.entries.push(entry(rest).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        }
    }
    match counted {
        _ if map.interface == 0 => Err("it does not begin as the module's list does".to_owned()),
        Some(count) if count == map.entries.len() => Ok(map),
        Some(count) => Err(format!("it counts {count} entries and lists {}", map.entries.len())),
        None => Err("it does not count its entries".to_owned()),
    }
}

fn entry(words: &[&str]) -> Option<Entry> {
    let [requester, target, bar, offset, length, "at", start, state, ..] = words else {
        return None;
    };
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    Some(Entry {
        requester: requester.parse().ok()?,
        target: target.parse().ok()?,
        bar: bar.parse().ok()?,
        offset: number(offset)?,
        length: number(length)?,
        start: BusAddress(number(start)?),
        state: (*state).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "peerway-map 1\nentries 1 dropped 0 lost 2\nlast 1 mapped 0 it was made\n";

    #[test]
    fn a_list_of_one() {
        let text = format!(
            "{HEAD}entry 0000:01:00.0 0000:11:00.1 2 0x0 0x80000000 at 0x400000000 ok held ats\n"
        );
        let map = list(&text).unwrap();
        assert_eq!((map.dropped, map.lost, map.entries.len()), (0, 2, 1));
        let entry = &map.entries[0];
        assert_eq!(entry.requester.to_string(), "0000:01:00.0");
        assert_eq!(entry.target.to_string(), "0000:11:00.1");
        assert_eq!((entry.bar, entry.offset, entry.length), (2, 0, 0x8000_0000));
        assert_eq!(entry.start, BusAddress(0x4_0000_0000));
        assert!(entry.is_ok());
    }

    fn refused(text: &str, says: &str) {
        let error = list(text).unwrap_err();
        assert!(error.contains(says), "{text:?}: {error}");
    }

    #[test]
    fn half_a_list_is_none() {
        refused("", "does not begin");
        refused("peerway-map 2\nentries 0 dropped 0 lost 0\n", "interface is 2");
        refused("peerway-map 1\n", "does not count");
        refused(HEAD, "counts 1 entries and lists 0");
        refused(&format!("{HEAD}entry 0000:01:00.0 0000:11"), "has the line");
        refused(&format!("{HEAD}strange\n"), "has the line");
    }
}
