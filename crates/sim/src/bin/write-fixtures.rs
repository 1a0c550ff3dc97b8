//! Writes the checked-in host files; run it from the root of the repository after a change to
//! the builder or to a host.

use std::path::Path;

use anyhow::{Context as _, ensure};
use peerway_sim::hosts;

#[expect(clippy::disallowed_methods, reason = "a chore that writes into the repository")]
fn main() -> anyhow::Result<()> {
    let directory = Path::new("fixtures/hosts");
    ensure!(directory.is_dir(), "no fixtures/hosts here: run this from the repository's root");
    for (name, text) in hosts::fixture_files()? {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
