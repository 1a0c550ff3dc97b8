//! Configuration space: the walk is bounded and stays inside.

use peerway_read::parse::config_space;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut reads = 0;
    let decoded = config_space::decode(&mut |offset, length| {
        reads += 1;
        let start = usize::from(offset);
        assert!(start < 4096 + 64 && length <= 64, "{offset} {length}");
        let end = (start + length).min(bytes.len());
        Ok(bytes.get(start.min(end)..end).unwrap_or_default().to_vec())
    });
    assert!(reads < 1100, "{reads} reads");
    if let Ok(decoded) = decoded {
        assert_eq!(decoded.facts.dead, bytes.iter().take(64).all(|byte| *byte == 0xff));
        if let Some(link) = decoded.link {
            assert!((1..=32).contains(&link.width) && (1..=32).contains(&link.max_width));
        }
    }
}
