//! Writes a host as a directory that stands for `/`: `write-tree NAME DIRECTORY`, where NAME is a
//! named host, one of the hosts with expectations, or `benchmark:DEVICES`. Programs read it with
//! `--host DIRECTORY`, and `lspci` with `-O sysfs.path=DIRECTORY/sys/bus/pci`.

use std::path::Path;

use anyhow::{Context as _, bail};
use peerway_read::tree::Tree;
use peerway_sim::build::write_tree;
use peerway_sim::{benchmark, hosts};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, directory] = arguments.as_slice() else {
        bail!("usage: write-tree NAME DIRECTORY (NAME may be benchmark:DEVICES)");
    };
    let tree = find(name)?;
    write_tree(&tree, Path::new(directory))
        .with_context(|| format!("cannot write the host {name} to {directory}"))
}

fn find(name: &str) -> anyhow::Result<Tree> {
    if let Some(devices) = name.strip_prefix("benchmark:") {
        let devices = devices.parse().context("the number of devices is no number")?;
        return Ok(benchmark::host(devices).tree()?);
    }
    if let Some(tree) = peerway_sim::host(name) {
        return Ok(tree?);
    }
    match hosts::all().into_iter().find(|host| host.name == name) {
        Some(host) => Ok(host.builder.tree()?),
        None => bail!("no host is called {name:?}"),
    }
}
