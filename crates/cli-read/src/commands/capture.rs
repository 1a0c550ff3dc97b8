//! `capture`: the host as one redacted `.host` file.

use std::collections::BTreeMap;
use std::path::Path;

use peerway_read::host_file::Writer;
use peerway_read::tree::Node;

use crate::args::Global;
use crate::error::CliError;
use crate::exit::Exit;
use crate::host;
use crate::output::Output;
use crate::redact::Redaction;
use crate::result_file::ResultFile;

/// Runs the command.
pub fn run(global: &Global, file: Option<&Path>, output: &mut Output) -> Result<Exit, CliError> {
    // Opened before the host is: afterwards nothing may be opened for writing.
    let result = file.map(ResultFile::create).transpose()?;
    let looked = host::look_recording(global, result.as_ref().map(ResultFile::descriptor))?;
    let nodes = settle(looked.recording.nodes());
    let redaction = Redaction::new(&looked.snapshot);
    let mut writer = Writer::new(&format!(
        "captured by peerway {}\nnames, identifiers and configuration of tenants are replaced by \
         stand-ins",
        env!("CARGO_PKG_VERSION"),
    ));
    for (path, node) in &nodes {
        writer.entry(&redaction.path(path), &redaction.node(path, node));
    }
    let text = writer.finish();
    match result {
        Some(result) => result.write(text.as_bytes())?,
        None => output.push(&text),
    }
    Ok(Exit::Fine)
}

/// Replaces the part of a path that is a recorded link by where it leads, so that each file stands
/// where it really is, and leaves out directories that have something below them.
fn settle(nodes: &BTreeMap<String, Node>) -> BTreeMap<String, Node> {
    let mut settled = BTreeMap::new();
    for (path, node) in nodes {
        settled.entry(real_path(nodes, path)).or_insert_with(|| node.clone());
    }
    let full: Vec<String> = settled
        .iter()
        .filter(|(path, node)| {
            matches!(node, Node::Directory(_))
                && settled
                    .range::<String, _>(format!("{path}/")..)
                    .next()
                    .is_some_and(|(next, _)| next.starts_with(&format!("{path}/")))
        })
        .map(|(path, _)| path.clone())
        .collect();
    for path in full {
        settled.remove(&path);
    }
    settled
}

/// Follows recorded links in all parts of a path but the last.
fn real_path(nodes: &BTreeMap<String, Node>, path: &str) -> String {
    let mut real = path.to_owned();
    // Each round settles one link; sysfs needs two or three.
    for _ in 0..16 {
        let Some(next) = follow_first_link(nodes, &real) else { return real };
        real = next;
    }
    real
}

fn follow_first_link(nodes: &BTreeMap<String, Node>, path: &str) -> Option<String> {
    for (at, _) in path.match_indices('/').skip(1) {
        let (head, tail) = path.split_at(at);
        if let Some(Node::Link(target)) = nodes.get(head) {
            let base = head.rsplit_once('/').map_or("", |(base, _)| base);
            let joined =
                if target.starts_with('/') { target.clone() } else { format!("{base}/{target}") };
            return Some(format!("{}{tail}", without_dots(&joined)));
        }
    }
    None
}

fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
