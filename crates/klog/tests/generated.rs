//! Made-up logs with known contents: every dialect in every envelope, cut anywhere, shared out,
//! interleaved, and hostile.

#![expect(clippy::indexing_slicing, reason = "on texts and lists made here")]

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use peerway_klog::generate::{
    Addresses, Clock, Dialect, Envelope, Generator, Random, Recipe, Spec, Truth,
};
use peerway_klog::{Event, Notice, Report, Requester, Scanner, Sink, Summary};
use proptest::prelude::*;

fn scan(log: &[u8]) -> Report {
    let mut scanner = Scanner::new();
    let mut summary = Summary::new();
    scanner.feed(log, &mut summary);
    scanner.finish(&mut summary);
    summary.report()
}

fn generate(recipe: Recipe, records: u32) -> (Vec<u8>, Truth) {
    let mut generator = Generator::new(recipe);
    let mut log = Vec::new();
    for _ in 0..records {
        generator.record(&mut log);
    }
    (log, generator.truth().clone())
}

/// Every event in a form that can be compared and kept.
#[derive(Debug, Default, PartialEq, Eq)]
struct Collected {
    events: Vec<String>,
    notices: Vec<String>,
}

impl Sink for Collected {
    fn event(&mut self, event: &Event<'_>) {
        self.events.push(format!(
            "{} {} {} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {} | {}",
            event.line,
            event.iommu,
            event.kind,
            event.requester,
            event.driver,
            event.unit,
            event.address,
            event.access,
            event.flags,
            event.pasid,
            event.domain,
            event.reason,
            event.words,
            event.when.stamp(),
            event.cut,
            String::from_utf8_lossy(event.text).trim_start(),
        ));
    }

    fn notice(&mut self, notice: &Notice<'_>) {
        self.notices.push(format!("{} {:?}", notice.line, notice.fact));
    }
}

fn collect(chunks: &[&[u8]]) -> Collected {
    let mut scanner = Scanner::new();
    let mut collected = Collected::default();
    for chunk in chunks {
        scanner.feed(chunk, &mut collected);
    }
    scanner.finish(&mut collected);
    collected
}

#[test]
fn every_dialect_in_every_envelope() {
    let mut random = Random::new(7);
    for dialect in Dialect::ALL {
        for envelope in Envelope::ALL {
            for _ in 0..4 {
                let spec = Spec::random(&mut random, 200);
                check_one(*dialect, *envelope, &spec);
            }
        }
    }
}

fn check_one(dialect: Dialect, envelope: Envelope, spec: &Spec) {
    let mut messages = Vec::new();
    dialect.render(spec, &mut messages);
    let mut log = Vec::new();
    let mut clock = Clock::default();
    for message in &messages {
        envelope.wrap(message, &mut clock, &mut log);
    }
    let text = String::from_utf8_lossy(&log).into_owned();
    let report = scan(&log);
    let expected = dialect.expected(spec);
    let place = format!("{dialect:?} in {envelope:?}:\n{text}{report:#?}");
    assert_eq!(report.events, 1, "{place}");
    let row = &report.requesters[0];
    assert_eq!((row.iommu, row.kind), (expected.iommu, expected.kind), "{place}");
    assert_eq!(row.requester.pci(), expected.requester, "{place}");
    let address = row.addresses.first().map(|address| address.0);
    assert_eq!(address, expected.address, "{place}");
    assert_eq!(row.access.word(), expected.direction.as_str(), "{place}");
    assert_eq!(row.cut, 0, "{place}");
    let has_no_clock =
        matches!(envelope, Envelope::Bare | Envelope::Tag | Envelope::JournalJsonBytes);
    assert_eq!(row.first.stamp.is_none(), has_no_clock, "{place}");
}

#[track_caller]
fn check_truth(report: &Report, truth: &Truth) {
    assert_eq!(report.events, truth.events);
    assert_eq!(report.suppressed, truth.suppressed);
    let mut counts: BTreeMap<Option<PciAddress>, u64> = BTreeMap::new();
    let mut addresses = Addresses::new();
    for row in &report.requesters {
        let requester = row.requester.pci();
        *counts.entry(requester).or_default() += row.count;
        if !row.addresses.is_empty() {
            let seen = addresses.entry(requester).or_default();
            seen.extend(row.addresses.iter().map(|address| address.0));
        }
    }
    assert_eq!(&counts, &truth.by_requester);
    let mut wrong = Vec::new();
    for (requester, expected) in &truth.addresses {
        let seen = addresses.remove(requester).unwrap_or_default();
        wrong.extend(expected.symmetric_difference(&seen).map(|address| format!("{address:#x}")));
    }
    assert!(wrong.is_empty() && addresses.is_empty(), "{wrong:?} {addresses:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mixed_log_gives_what_was_put_in(seed: u64) {
        let (log, truth) = generate(Recipe::everything(seed), 400);
        let mut scanner = Scanner::new();
        let mut summary = Summary::new();
        scanner.feed(&log, &mut summary);
        scanner.finish(&mut summary);
        prop_assert_eq!(scanner.lines(), truth.lines);
        check_truth(&summary.report(), &truth);
        let (log, truth) = generate(Recipe::benchmark(seed), 2_000);
        check_truth(&scan(&log), &truth);
    }

    #[test]
    fn it_does_not_matter_where_the_input_is_cut(seed: u64, cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20)) {
        let (log, _) = generate(Recipe::everything(seed), 60);
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(log.len() + 1)).collect();
        places.extend([0, log.len()]);
        places.sort_unstable();
        let chunks: Vec<&[u8]> = places.windows(2).map(|pair| &log[pair[0]..pair[1]]).collect();
        prop_assert_eq!(collect(&chunks), collect(&[&log]));
    }

    #[test]
    fn parts_together_give_the_whole(seed: u64, cut: prop::sample::Index) {
        let (log, _) = generate(Recipe::everything(seed), 120);
        let starts: Vec<usize> =
            memchr_positions(&log).into_iter().map(|at| at + 1).filter(|at| *at < log.len()).collect();
        let cut = starts[cut.index(starts.len())];
        let (front, back) = log.split_at(cut);
        let mut first = Scanner::new();
        let mut whole = Summary::new();
        first.feed(front, &mut whole);
        first.finish_part(&mut whole);
        let mut second = Scanner::resuming_after(front);
        let mut part = Summary::new();
        second.feed(back, &mut part);
        second.finish(&mut part);
        whole.append(&part, first.lines(), first.boot());
        prop_assert_eq!(first.lines() + second.lines(), u64::try_from(memchr_positions(&log).len()).unwrap());
        prop_assert_eq!(sorted(whole.report()), sorted(scan(&log)));
    }

    #[test]
    fn other_lines_may_come_between_the_lines_of_an_event(seed: u64, noise in prop::collection::vec(0_usize..4, 1..40)) {
        let recipe = Recipe { event_percent: 100, ..Recipe::everything(seed) };
        let (log, truth) = generate(recipe, 60);
        let mut mixed = Vec::new();
        let mut record = false;
        for (number, line) in log.split_inclusive(|byte| *byte == b'\n').enumerate() {
            mixed.extend_from_slice(line);
            // A record of `dmesg --json` is not interrupted.
            record = line.starts_with(b"      {") || (record && !line.starts_with(b"      }"));
            for _ in 0..if record { 0 } else { noise[number % noise.len()] } {
                mixed.extend_from_slice(b"[    7.000000] usb 1-2: new device found, idVendor=1d6b\n");
            }
        }
        check_truth(&scan(&mixed), &truth);
    }

    #[test]
    fn junk_is_no_event_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
        prop_assert_eq!(scan(&bytes).events, 0);
    }

    #[test]
    fn fragments_of_messages_never_panic(pieces in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..80), cut: prop::sample::Index) {
        let text = pieces.concat();
        let cut = cut.index(text.len() + 1);
        let (front, back) = text.as_bytes().split_at(cut);
        prop_assert_eq!(collect(&[front, back]), collect(&[text.as_bytes()]));
    }
}

const FRAGMENTS: &[&str] = &[
    "AMD-Vi: ",
    "Event logged [",
    "IO_PAGE_FAULT",
    " device=",
    "01:00.0",
    "0000:41:00.0",
    " domain=0x0018",
    " address=0x",
    "24000000000",
    " flags=0x0020",
    "]",
    "\n",
    "\r\n",
    " ",
    "[    1.000000] ",
    "nvidia ",
    ": ",
    "DMAR: ",
    "[DMA Write NO_PASID] ",
    "Request device [",
    "fault addr ",
    "0x1000",
    " [fault reason ",
    "0x05",
    "06",
    "] ",
    "PTE Write access is not set",
    "arm-smmu-v3 fc900000.iommu: ",
    "event 0x10 received:",
    "\t0x0000210000000010",
    "event: F_TRANSLATION client: ",
    " sid: 0x2100",
    " ssid: 0x0",
    " iova: 0x100",
    "unpriv data write s1",
    " callbacks suppressed",
    "dmar_fault: 7",
    "{\"MESSAGE\":\"",
    "\"}",
    "\\n",
    "\\u00",
    "\u{1b}[31m",
    "\\x09",
    "#011",
    "3,1,2,-;",
    "NVRM: ",
    "Xid (PCI:0000:02:00): ",
    "79, ",
    "BAR1 is 0M @ 0x0",
    "iommu: Default domain type: ",
    "Adding to iommu group 7",
    "RMP_PAGE_FAULT",
    "vmg_tag=0x0000, gpa=0x1, ",
    "DTE[0]: 6000000000000003",
    "Linux version 6.8.0",
    "\"time\": 1.5,",
    "\"msg\": \"",
    "(XEN) ",
    "\0",
    "é",
];

fn memchr_positions(log: &[u8]) -> Vec<usize> {
    log.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect()
}

/// Rows of the same count may come in any order.
fn sorted(mut report: Report) -> Report {
    report.requesters.sort_by(|a, b| (&a.requester, a.kind).cmp(&(&b.requester, b.kind)));
    report
}

/// Lines that are read in place and the same lines on the general way give the same events.
#[test]
fn both_ways_of_reading_agree() {
    let (log, truth) = generate(Recipe::benchmark(3), 3_000);
    let mut indented = Vec::new();
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        indented.push(b' ');
        indented.extend_from_slice(line);
    }
    let plain = collect(&[&log]);
    assert_eq!(u64::try_from(plain.events.len()).unwrap(), truth.events);
    assert_eq!(plain, collect(&[&indented]));
}

#[test]
fn memory_is_bounded_and_what_is_left_out_is_counted() {
    let mut log = Vec::new();
    for number in 0..20_000_u32 {
        let device =
            PciAddress::from_requester_id(number >> 16, u16::try_from(number & 0xffff).unwrap());
        let text = format!(
            "nvidia {device}: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0001 address=0x{number:x}000 flags=0x0000]\n\
             NVRM: Xid (PCI:{:04x}:{:02x}:{:02x}): {}, x\n{number}: 7 callbacks suppressed\n",
            device.domain(),
            device.bus(),
            device.device(),
            number % 300,
        );
        log.extend_from_slice(text.as_bytes());
    }
    let report = scan(&log);
    assert_eq!(report.events, 20_000);
    assert_eq!(report.requesters.len(), peerway_klog::MAX_ROWS);
    let listed: u64 = report.requesters.iter().map(|row| row.count).sum();
    assert_eq!(listed + report.unlisted_events, 20_000);
    let driver: u64 = report.driver_events.iter().map(|event| event.count).sum();
    assert_eq!(driver + report.unlisted_driver_events, 20_000);
    assert!(report.driver_events.len() < 5_000 && report.unlisted_driver_events > 0);
    assert!(report.suppressed_by.len() <= 64);
}

/// A sink that only counts, with the largest address to keep the optimiser honest.
#[derive(Default)]
struct Count {
    events: u64,
    requesters: BTreeSet<PciAddress>,
}

impl Sink for Count {
    fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        if let Requester::Pci(address) = event.requester {
            self.requesters.insert(address);
        }
    }

    fn notice(&mut self, _: &Notice<'_>) {}
}

#[test]
fn a_line_without_end_is_searched_piece_by_piece() {
    let message = "nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0018 \
                   address=0x24000000000 flags=0x0020] ";
    // Faults at distances that fall on every part of a piece, in three megabytes of one line.
    let mut log = Vec::new();
    let mut expected = 0;
    let mut step = 1_000;
    while log.len() < 3_000_000 {
        log.resize(log.len() + step, b'x');
        log.push(b' ');
        log.extend_from_slice(message.as_bytes());
        expected += 1;
        step = step * 7 % 9_973 + 100;
    }
    log.extend_from_slice(b"\nnvidia 0000:42:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT ");
    log.extend_from_slice(b"domain=0x0018 address=0x1000 flags=0x0020]\n");
    for size in [log.len(), 1_000_000, 65_536, 4_099, 333] {
        let mut scanner = Scanner::new();
        let mut count = Count::default();
        for chunk in log.chunks(size) {
            scanner.feed(chunk, &mut count);
        }
        scanner.finish(&mut count);
        assert_eq!(count.events, expected + 1, "chunks of {size}");
        assert_eq!(count.requesters.len(), 2);
        assert_eq!(scanner.lines(), 2);
    }
}
