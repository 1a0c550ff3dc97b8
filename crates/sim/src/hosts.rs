//! Hosts that tests run over, one a file.

pub mod kpro6;

use crate::build::{BuildError, to_host_file};

/// Names and texts of the host files that are checked in.
pub fn fixture_files() -> Result<Vec<(&'static str, String)>, BuildError> {
    let comment = "The reference host: eight RTX PRO 6000 Blackwell on an EPYC with SEV-SNP in use.\n\
                   Four GPUs serve a model in container 129, four belong to the confidential guest 132.\n\
                   Written by write-fixtures of peerway-sim; do not edit by hand.";
    Ok(vec![("kpro6.host", to_host_file(comment, &kpro6::kpro6().tree()?))])
}
