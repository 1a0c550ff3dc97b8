//! Peer tests and bandwidth tables.

use peerway_core::diagnose::assessment::Assessment;
use peerway_core::snapshot::faults::FaultClass;

use super::{Assessed, Case, rank};

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let mut found = tests(case);
    found.extend(tables(case));
    found
}

fn tests(case: &Case<'_>) -> Vec<Assessed> {
    let tests = &case.material.peer_tests;
    let mut found = Vec::new();
    let failed = tests.iter().any(|test| test.failed);
    let impossible = tests.iter().any(crate::material::peer_test::PeerTest::is_impossible);
    if failed && case.has_class(FaultClass::GpuOther) && !case.has_class(FaultClass::PeerAccess) {
        // Faults outside every peer's memory and wrong data beside them.
        let why = "a peer test returned wrong data, and GPUs fault at addresses that are no peer's \
                   memory: the driver's way of peer access fails, and a domain without translation \
                   would let its stray writes reach memory";
        found.push(
            Assessed::new(Assessment::GpuP2pDriverError, rank::DRIVER_P2P, why).about(case.gpus()),
        );
    }
    if failed || impossible {
        let why = if failed {
            "a peer test compared the data and found it wrong"
        } else {
            "copies were faster than any PCIe link: they did not reach the peer"
        };
        found.push(Assessed::new(Assessment::P2pVerificationFailure, rank::WRONG_DATA, why));
    } else if tests.iter().any(|test| test.passed) {
        let why = "a peer test compared the data and found it right";
        found.push(Assessed::new(Assessment::P2pOk, rank::MEASURED, why));
    }
    let refused = tests.iter().any(|test| test.waived || test.no > 0 && test.yes == 0);
    if refused && !tests.iter().any(|test| test.passed || test.failed) {
        let why = "the driver offers no peer access between these boards";
        found.push(Assessed::new(Assessment::P2pDriverUnsupported, rank::MEASURED + 1, why));
    }
    found
}

fn tables(case: &Case<'_>) -> Vec<Assessed> {
    let mut found = Vec::new();
    for table in &case.material.matrices {
        if table.can > 0 && table.cannot > 0 {
            let why = format!(
                "{} ordered pairs can reach each other and {} cannot: the place in the tree decides",
                table.can, table.cannot
            );
            found.push(
                Assessed::new(Assessment::P2pTopology, rank::MEASURED + 1, why)
                    .about(table.devices.values()),
            );
        } else {
            let why = match table.means() {
                Some((off, on)) if on < off * 0.8 => format!(
                    "with peer access on, copies are slower ({on:.1} GB/s) than through the host \
                     ({off:.1} GB/s): they do not go the direct way"
                ),
                Some((off, on)) => format!(
                    "copies run at {on:.1} GB/s with peer access and at {off:.1} GB/s without; speed \
                     alone proves nothing"
                ),
                None => "a table of bandwidths".to_owned(),
            };
            found.push(
                Assessed::new(Assessment::BandwidthMatrix, rank::MEASURED + 2, why)
                    .about(table.devices.values()),
            );
        }
    }
    for topology in &case.material.topologies {
        if ["GNS", "NS", "DR"].iter().any(|status| topology.has(status)) {
            let why = "the driver says that it offers no peer access on these boards";
            found.push(Assessed::new(Assessment::P2pDriverUnsupported, rank::MEASURED + 1, why));
        } else if topology.has("CNS") {
            let why = "the driver refuses peer access on this chipset";
            found.push(Assessed::new(Assessment::P2pHostBridge, rank::MEASURED + 1, why));
        } else if topology.has("TNS") {
            let why = "the driver refuses peer access for the place in the tree";
            found.push(Assessed::new(Assessment::P2pTopology, rank::MEASURED + 1, why));
        } else if topology.only_through_host() {
            let why =
                "every pair meets at a host bridge or beyond: no bridge is common to two GPUs";
            found.push(Assessed::new(Assessment::P2pTopology, rank::MEASURED + 1, why));
        } else if topology.has_direct_way() {
            let why =
                "the tree has a direct way between GPUs; whether it is used, no test shows here";
            found.push(Assessed::new(Assessment::P2pExpected, rank::MEASURED + 5, why));
        } else if topology.has("OK") {
            let why = "the driver says OK, which no test has shown and no IOMMU was asked for";
            found.push(Assessed::new(Assessment::P2pExpected, rank::MEASURED + 5, why));
        }
    }
    found
}
