//! A whole host: from the text of a `.host` file through every collector to the verdicts.

use std::sync::Arc;

use peerway_core::diagnose::{diagnose, pairs::PairScope};
use peerway_core::judge::Verdict;
use peerway_read::host::{Request, collect};
use peerway_read::host_file;
use peerway_read::root::Root;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(tree) = host_file::parse(text) else { return };
    let snapshot = collect(&Root::recorded(Arc::new(tree)), Request::default());
    // Pairs grow with the square of the GPUs; what is sought here shows with a few.
    if snapshot.accelerated().len() > 16 {
        return;
    }
    for pair in diagnose(&snapshot, &PairScope::default()).pairs {
        if matches!(pair.verdict, Verdict::Works | Verdict::Impaired) {
            // Nothing arrives where it is not known what the target is.
            let target = snapshot.device(pair.to).expect("a pair has devices");
            assert!(snapshot.peer_memory(target).is_some(), "{}", pair.reason);
        }
    }
}
