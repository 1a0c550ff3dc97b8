//! From files to verdicts: every host is scanned by the real reader and judged by the real rules,
//! and the outcome is held against what is right.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use peerway_core::diagnose::pairs::{PairScope, judge_all};
use peerway_core::judge::{Confidence, Pair, Verdict as Judged};
use peerway_core::snapshot::OriginKind;
use peerway_read::host::{Request, collect};
use peerway_read::root::Root;
use peerway_sim::expect::{ExpectedHost, Verdict};
use peerway_sim::hosts;

/// Every pair of a host, judged.
fn judged(host: &ExpectedHost) -> Vec<Pair> {
    let root = Root::recorded(Arc::new(host.builder.tree().unwrap()));
    let request = Request {
        host: format!("sim:{}", host.name),
        kind: OriginKind::Simulated,
        privileged: true,
        ..Request::default()
    };
    judge_all(&collect(&root, request), &PairScope::default())
}

/// One line for each pair that came out otherwise than it should.
fn differences(host: &ExpectedHost) -> Vec<String> {
    let pairs = judged(host);
    let mut lines = Vec::new();
    if pairs.len() != host.expectations.len() {
        lines.push(format!("{} pairs for {}", pairs.len(), host.expectations.len()));
    }
    for expected in &host.expectations {
        let pair = pairs.iter().find(|pair| (pair.from, pair.to) == (expected.from, expected.to));
        let Some(pair) = pair else {
            lines.push(format!("{} -> {}: not judged", expected.from, expected.to));
            continue;
        };
        let verdict = match pair.verdict {
            Judged::Works => Verdict::Works,
            Judged::Broken => Verdict::Broken,
            Judged::Impaired => Verdict::Impaired,
            Judged::Unknown => Verdict::Unknown,
        };
        let codes: Vec<&str> = pair.codes.iter().map(|code| code.text()).collect();
        let code_missing = expected.code.is_some_and(|code| !codes.contains(&code));
        if verdict != expected.verdict || code_missing {
            lines.push(format!(
                "{} -> {}: {} {codes:?} ({}), expected {} {:?}",
                pair.from,
                pair.to,
                verdict.word(),
                pair.reason,
                expected.verdict.word(),
                expected.code
            ));
        }
    }
    lines
}

#[test]
fn every_host_gets_the_verdicts_that_are_right() {
    let mut wrong = Vec::new();
    for host in hosts::all() {
        wrong.extend(differences(&host).into_iter().map(|line| (host.name, line)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The same two slots under the same domains: only what is known of the board differs.
#[test]
fn a_board_that_no_list_has_gets_no_verdict() {
    let of = |name: &str| {
        let host = hosts::all().into_iter().find(|host| host.name == name).unwrap();
        judged(&host)
    };
    let (listed, unlisted) = (of("intel-identity"), of("intel-unlisted"));
    assert_eq!((listed.len(), unlisted.len()), (2, 2));
    for pair in listed {
        assert_eq!((pair.verdict, pair.confidence), (Judged::Works, Confidence::Probable));
    }
    for pair in unlisted {
        assert_eq!(pair.verdict, Judged::Unknown);
        assert!(pair.reason.contains("10de:3fff) is not known"), "{}", pair.reason);
    }
}
