//! What was read of a host, kept for a capture.

use std::collections::BTreeMap;

use crate::tree::Node;

/// What was read, as nodes by path: the material of a capture.
#[derive(Debug, Default)]
pub struct Recording {
    nodes: BTreeMap<String, Node>,
}

impl Recording {
    /// The nodes by path, in order.
    pub fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes
    }

    pub(super) fn note(&mut self, path: &str, node: Node) {
        match (self.nodes.get_mut(path), node) {
            (
                Some(Node::Sparse { parts, readable, .. }),
                Node::Sparse { parts: more, readable: seen, .. },
            ) => {
                // A read that came back short tells how much may be read at all.
                *readable = (*readable).min(seen);
                for part in more {
                    insert_part(parts, part);
                }
            }
            (Some(Node::Directory(_)) | None, node) => {
                self.nodes.insert(path.to_owned(), node);
            }
            (Some(_), _) => {}
        }
    }
}

/// Adds a part that was read, joining it with those it overlaps or touches; where two reads of one
/// byte disagree, the later one counts.
fn insert_part(parts: &mut Vec<(u64, Vec<u8>)>, (start, bytes): (u64, Vec<u8>)) {
    let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let end = start.saturating_add(length(&bytes));
    let mut joined: BTreeMap<u64, u8> = (start..end).zip(bytes).collect();
    let mut apart = Vec::new();
    for (other, content) in parts.drain(..) {
        let other_end = other.saturating_add(length(&content));
        if other_end < start || other > end {
            apart.push((other, content));
        } else {
            for (at, byte) in (other..other_end).zip(content) {
                joined.entry(at).or_insert(byte);
            }
        }
    }
    if let Some(first) = joined.keys().next().copied() {
        apart.push((first, joined.into_values().collect()));
    }
    apart.sort_by_key(|(start, _)| *start);
    *parts = apart;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_parts_join() {
        let mut parts = Vec::new();
        insert_part(&mut parts, (0, vec![1, 2, 3, 4]));
        insert_part(&mut parts, (8, vec![9, 9]));
        insert_part(&mut parts, (2, vec![3, 4, 5, 6]));
        assert_eq!(parts, vec![(0, vec![1, 2, 3, 4, 5, 6]), (8, vec![9, 9])]);
        insert_part(&mut parts, (6, vec![7, 8]));
        assert_eq!(parts, vec![(0, vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 9])]);
    }
}
