//! What the host records while something is measured: the kernel log, error counters, links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use peerway_core::address::{BusAddress, PciAddress};
use peerway_core::snapshot::pci::LinkState;
use peerway_gpu::{
    BusErrors, Evidence, LineSeen, LinkSeen, RefusedRequests, Severity, Watch, XidSeen,
};
use peerway_klog::{Event, Fact, Notice, Scanner, Sink, xid};
use peerway_read::parse::sysfs;
use peerway_read::root::Root;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

/// An IOMMU reports through an interrupt and a thread, which may come after the child has ended.
const SETTLE: Duration = Duration::from_millis(20);

/// Most of the log that one span is read from.
const MOST_LOG: usize = 16 << 20;

/// A GPU as a look at the host showed it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) address: PciAddress,
    /// Bridges above it.
    pub(super) upstream: Vec<PciAddress>,
    /// Its memory: first address and size.
    pub(super) bars: Vec<(BusAddress, u64)>,
    /// Nothing but PCIe carries what it sends.
    pub(super) pcie_only: bool,
}

/// Watches a host.
pub(super) struct HostWatch {
    /// Where its files are.
    place: PathBuf,
    known: Vec<Known>,
    log: Result<OwnedFd, String>,
    span: Option<Span>,
    /// What came before the present span, and after the last one.
    before: Evidence,
    /// Links of the last span.
    last: BTreeMap<PciAddress, LinkEnd>,
}

/// One end of a link, by what its device says: bytes per second one way.
#[derive(Clone, Copy, Debug, Default)]
struct LinkEnd {
    /// The best that it was seen at.
    seen: u64,
    /// The best that it can.
    most: u64,
}

/// A span in progress.
struct Span {
    gpus: Vec<PciAddress>,
    counters: BTreeMap<(PciAddress, Severity), u64>,
    links: BTreeMap<PciAddress, LinkSeen>,
    ends: BTreeMap<PciAddress, LinkEnd>,
    gaps: Vec<String>,
}

impl HostWatch {
    /// Watches the host whose files are below `place`.
    pub(super) fn new(place: PathBuf, known: Vec<Known>) -> Self {
        let path = place.join("dev/kmsg");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Only what comes from now on; all of that is read, one span after the other.
        let opened = rustix::fs::open(&path, flags, Mode::empty())
            .and_then(|log| rustix::fs::seek(&log, SeekFrom::End(0)).map(|_| log));
        let log = opened.map_err(|errno| {
            let why = std::io::Error::from(errno);
            format!("the kernel log was not watched: {}: {why}", path.display())
        });
        let (before, last) = (Evidence::default(), BTreeMap::new());
        Self { place, known, log, span: None, before, last }
    }

    /// The GPUs and the bridges above them.
    fn with_bridges(&self, gpus: &[PciAddress]) -> BTreeSet<PciAddress> {
        let mut devices: BTreeSet<PciAddress> = gpus.iter().copied().collect();
        for known in self.known.iter().filter(|known| gpus.contains(&known.address)) {
            devices.extend(&known.upstream);
        }
        devices
    }

    /// What the log says now about these GPUs.
    fn look_at_log(&self, gpus: &[PciAddress], mut gaps: Vec<String>) -> Evidence {
        let (log, lost) = self.read_log(&mut gaps);
        let evidence = Evidence { lost, gaps, ..Evidence::default() };
        let mut found = Found { evidence, watch: self, gpus };
        let mut scanner = Scanner::new();
        scanner.feed(&log, &mut found);
        scanner.finish(&mut found);
        found.evidence
    }

    /// A root for this span alone: what one may read in all is limited.
    fn root(&self) -> Option<Root> {
        Root::open(&self.place).ok()
    }

    fn counters(&self, root: &Root, gpus: &[PciAddress]) -> BTreeMap<(PciAddress, Severity), u64> {
        let mut counters = BTreeMap::new();
        for device in self.with_bridges(gpus) {
            for (file, severity) in [
                ("aer_dev_correctable", Severity::Correctable),
                ("aer_dev_nonfatal", Severity::NonFatal),
                ("aer_dev_fatal", Severity::Fatal),
            ] {
                // Devices without error reporting have no such file.
                let text = root.observe(&format!("/sys/bus/pci/devices/{device}/{file}"));
                if let Some(count) = text.known().and_then(|text| total(text)) {
                    counters.insert((device, severity), count);
                }
            }
        }
        counters
    }

    /// Where an address lies.
    fn target(&self, address: BusAddress) -> Option<PciAddress> {
        let lies_in = |known: &&Known| {
            known
                .bars
                .iter()
                .any(|(start, size)| address.0.checked_sub(start.0).is_some_and(|at| at < *size))
        };
        self.known.iter().find(lies_in).map(|known| known.address)
    }

    /// What came since the last look at the log.
    fn read_log(&self, gaps: &mut Vec<String>) -> (Vec<u8>, u64) {
        let mut bytes = Vec::new();
        let mut lost = 0;
        let log = match &self.log {
            Ok(log) => log,
            Err(why) => {
                gaps.push(why.clone());
                return (bytes, lost);
            }
        };
        let mut record = vec![0; 8 << 10];
        while bytes.len() < MOST_LOG {
            match rustix::io::read(log, &mut *record) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(count) => bytes.extend(record.iter().take(count)),
                Err(Errno::INTR) => {}
                // Records were overwritten before they were read; how many does not show.
                Err(Errno::PIPE) => lost += 1,
                Err(errno) => {
                    gaps.push(format!("the kernel log: {}", std::io::Error::from(errno)));
                    break;
                }
            }
        }
        (bytes, lost)
    }
}

/// The last line of a counter's file: `TOTAL_ERR_COR 3` (`drivers/pci/pcie/aer.c`).
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("TOTAL_ERR"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn link(root: &Root, gpu: PciAddress) -> Option<LinkSeen> {
    let read = |name: &str| {
        let text = root.observe(&format!("/sys/bus/pci/devices/{gpu}/{name}"));
        text.known().cloned()
    };
    let rate = |name: &str| {
        let tenths = sysfs::link_speed(&read(name)?)?;
        Some(u64::from(tenths) * 100_000_000)
    };
    let lanes = sysfs::link_width(&read("current_link_width")?)?;
    Some(LinkSeen {
        gpu,
        lanes_before: lanes,
        lanes_least: lanes,
        transfers_per_second: rate("current_link_speed")?,
        max_transfers_per_second: rate("max_link_speed")?,
    })
}

/// A device's end of its link; none where it does not say.
fn link_end(root: &Root, device: PciAddress) -> Option<LinkEnd> {
    let read = |name: &str| {
        let text = root.observe(&format!("/sys/bus/pci/devices/{device}/{name}"));
        text.known().cloned()
    };
    let rate = |speed: &str, lanes: &str| {
        let speed = sysfs::link_speed(&read(speed)?)?;
        Some(LinkState::rate(speed, sysfs::link_width(&read(lanes)?)?))
    };
    Some(LinkEnd {
        seen: rate("current_link_speed", "current_link_width")?,
        most: rate("max_link_speed", "max_link_width")?,
    })
}

impl Watch for HostWatch {
    fn begin(&mut self, gpus: &[PciAddress]) {
        let gpus: Vec<PciAddress> = match gpus {
            [] => self.known.iter().map(|known| known.address).collect(),
            some => some.to_vec(),
        };
        let all: Vec<PciAddress> = self.known.iter().map(|known| known.address).collect();
        self.before = self.look_at_log(&all, Vec::new());
        let mut span = Span {
            gpus,
            counters: BTreeMap::new(),
            links: BTreeMap::new(),
            ends: BTreeMap::new(),
            gaps: Vec::new(),
        };
        if let Some(root) = self.root() {
            span.counters = self.counters(&root, &span.gpus);
            let links = span.gpus.iter().filter_map(|gpu| Some((*gpu, link(&root, *gpu)?)));
            span.links = links.collect();
        }
        self.span = Some(span);
    }

    fn sample(&mut self) {
        let root = self.root();
        let gpus = self.span.as_ref().map(|span| span.gpus.clone()).unwrap_or_default();
        let devices = self.with_bridges(&gpus);
        let (Some(span), Some(root)) = (&mut self.span, root) else { return };
        for device in devices {
            if let Some(now) = link_end(&root, device) {
                let had = span.ends.entry(device).or_default();
                *had = LinkEnd { seen: had.seen.max(now.seen), most: had.most.max(now.most) };
            }
        }
        for (gpu, seen) in &mut span.links {
            if let Some(now) = link(&root, *gpu) {
                seen.lanes_least = seen.lanes_least.min(now.lanes_least);
                seen.transfers_per_second = seen.transfers_per_second.max(now.transfers_per_second);
            }
        }
    }

    fn end(&mut self) -> Evidence {
        self.sample();
        let Some(span) = self.span.take() else { return Evidence::default() };
        if self.log.is_ok() {
            std::thread::sleep(SETTLE);
        }
        let mut evidence = self.look_at_log(&span.gpus, span.gaps);
        self.last = span.ends;
        evidence.links = span.links.into_values().collect();
        if let Some(root) = self.root() {
            for ((device, severity), now) in self.counters(&root, &span.gpus) {
                let before = span.counters.get(&(device, severity)).copied();
                let count = now.saturating_sub(before.unwrap_or(now));
                if count > 0 {
                    evidence.bus_errors.push(BusErrors { device, severity, count });
                }
            }
        }
        evidence
    }

    fn between(&mut self) -> Evidence {
        std::mem::take(&mut self.before)
    }

    fn line(&self, from: PciAddress, to: PciAddress) -> Option<LineSeen> {
        let known = |gpu| self.known.iter().find(|known| known.address == gpu);
        let (one, other) = (known(from)?, known(to)?);
        if !one.pcie_only || !other.pcie_only {
            return None;
        }
        // Bridges above both are not on the way, or pass it on without a link between.
        let alone =
            |bridge: &&PciAddress| one.upstream.contains(bridge) != other.upstream.contains(bridge);
        let bridges = one.upstream.iter().chain(&other.upstream).filter(alone);
        // Both GPUs have to be known; a bridge without a link of its own says nothing.
        let gpus = [self.last.get(&from)?, self.last.get(&to)?];
        let ends = bridges.filter_map(|bridge| self.last.get(bridge)).chain(gpus);
        let least = |of: fn(&LinkEnd) -> u64| {
            let thousands = u32::try_from(ends.clone().map(of).min()? / 1_000).ok()?;
            (thousands > 0).then(|| f64::from(thousands) * 1_000.0)
        };
        Some(LineSeen { seen: least(|end| end.seen)?, most: least(|end| end.most)? })
    }
}

/// Takes what the log of a span says.
struct Found<'a> {
    evidence: Evidence,
    watch: &'a HostWatch,
    gpus: &'a [PciAddress],
}

impl Found<'_> {
    /// Whether a line is about one of the GPUs: any function of it, since logs name any.
    fn own(&self, device: PciAddress) -> Option<PciAddress> {
        self.gpus.iter().copied().find(|gpu| gpu.same_device(device))
    }

    fn add(&mut self, evidence: Evidence) {
        self.evidence.add(evidence);
    }
}

impl Sink for Found<'_> {
    fn event(&mut self, event: &Event<'_>) {
        let Some(requester) = event.requester.pci().and_then(|device| self.own(device)) else {
            self.evidence.elsewhere += 1;
            return;
        };
        let fault = RefusedRequests {
            requester,
            kind: event.kind.as_str().to_owned(),
            target: event.address.and_then(|address| self.watch.target(address)),
            first_address: event.address,
            count: 1,
        };
        self.add(Evidence { faults: vec![fault], ..Evidence::default() });
    }

    fn notice(&mut self, notice: &Notice<'_>) {
        match notice.fact {
            Fact::Xid { device, number, .. } => match self.own(device) {
                Some(gpu) => {
                    let meaning = xid::lookup(number).map(|xid| xid.meaning.to_owned());
                    let xid = XidSeen { gpu, number, meaning, count: 1 };
                    self.add(Evidence { xids: vec![xid], ..Evidence::default() });
                }
                None => self.evidence.elsewhere += 1,
            },
            Fact::Suppressed { count, iommu_events: true, .. } => self.evidence.lost += count,
            Fact::RecordsLost { count } => self.evidence.lost += count,
            Fact::EventsLost(_) => self.evidence.lost += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "fixtures on disk")]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;

    fn gpu(bus: &str) -> PciAddress {
        format!("0000:{bus}:00.0").parse().unwrap()
    }

    struct Fixture {
        place: tempfile::TempDir,
        watch: HostWatch,
    }

    impl Fixture {
        /// Two GPUs below one bridge each.
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            fs::create_dir_all(place.path().join("dev")).unwrap();
            fs::write(place.path().join("dev/kmsg"), "6,1,10,-;old line\n").unwrap();
            let known = |bus: &str, bridge: &str, start: u64| Known {
                address: gpu(bus),
                upstream: vec![bridge.parse().unwrap()],
                bars: vec![(BusAddress(start), 1 << 35)],
                pcie_only: true,
            };
            let known = vec![
                known("21", "0000:20:01.1", 0x100_0000_0000),
                known("41", "0000:40:01.1", 0x200_0000_0000),
            ];
            let fixture = Self { watch: HostWatch::new(place.path().to_owned(), known), place };
            for bus in ["21", "41"] {
                fixture.file(gpu(bus), "current_link_width", "16\n");
                fixture.file(gpu(bus), "current_link_speed", "2.5 GT/s PCIe\n");
                fixture.file(gpu(bus), "max_link_speed", "32.0 GT/s PCIe\n");
                fixture.file(gpu(bus), "max_link_width", "16\n");
            }
            fixture.errors(0);
            fixture
        }

        fn file(&self, device: PciAddress, name: &str, text: &str) {
            let folder = self.place.path().join(format!("sys/bus/pci/devices/{device}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), text).unwrap();
        }

        fn errors(&self, count: u32) {
            let text = format!("RxErr 0\nBadTLP {count}\nTOTAL_ERR_COR {count}\n");
            self.file("0000:40:01.1".parse().unwrap(), "aer_dev_correctable", &text);
        }

        fn log(&self, line: &str) {
            let path = self.place.path().join("dev/kmsg");
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
    }

    #[test]
    fn a_quiet_span_is_quiet() {
        let mut fixture = Fixture::new();
        fixture.watch.begin(&[gpu("21"), gpu("41")]);
        let seen = fixture.watch.end();
        assert!(seen.is_quiet() && seen.gaps.is_empty(), "{seen:?}");
        assert_eq!(seen.links.len(), 2);
    }

    #[test]
    fn records_of_the_span_are_taken_and_others_are_not() {
        let mut fixture = Fixture::new();
        let fault = |bus: &str, address: &str| {
            format!(
                "3,9,2000,-;nvidia 0000:{bus}:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT \
                 domain=0x0011 address={address} flags=0x0020]"
            )
        };
        // Before the span: another pair's.
        fixture.log(&fault("21", "0x20000001000"));
        fixture.watch.begin(&[gpu("21"), gpu("41")]);
        fixture.log(&fault("21", "0x20000001000"));
        fixture.log(&fault("21", "0x20000002000"));
        fixture.log(&fault("61", "0x20000002000"));
        fixture.log("4,10,2001,-;NVRM: Xid (PCI:0000:41:00): 31, pid=7, name=x, MMU Fault");
        fixture.log("4,11,2001,-;NVRM: Xid (PCI:0000:81:00): 79, GPU has fallen off the bus.");
        fixture.log("4,12,2002,-;amd_iommu_report_page_fault: 40 callbacks suppressed");
        fixture.file(gpu("21"), "current_link_speed", "32.0 GT/s PCIe\n");
        fixture.file(gpu("41"), "current_link_width", "8\n");
        fixture.errors(3);
        let seen = fixture.watch.end();
        let [fault] = seen.faults.as_slice() else { unreachable!("{seen:?}") };
        assert_eq!((fault.requester, fault.target, fault.count), (gpu("21"), Some(gpu("41")), 2));
        assert_eq!(fault.kind, "io_page_fault");
        let before = fixture.watch.between();
        assert_eq!(before.faults.first().map(|fault| fault.count), Some(1), "{before:?}");
        assert!(fixture.watch.between().is_quiet(), "told once");
        assert_eq!((seen.xids.len(), seen.xids[0].number), (1, 31));
        assert_eq!((seen.elsewhere, seen.lost), (2, 40));
        let errors = seen.bus_errors.first().map(|one| (one.severity, one.count));
        assert_eq!(errors, Some((Severity::Correctable, 3)));
        assert_eq!(seen.links[0].transfers_per_second, 32_000_000_000);
        assert!(seen.links[1].narrowed() && !seen.links[0].narrowed());
    }

    #[test]
    fn the_line_is_what_the_links_were_seen_at() {
        let mut fixture = Fixture::new();
        let pair = [gpu("21"), gpu("41")];
        // A board for 32 GT/s in a slot for 16, which rests at 2.5.
        let port: PciAddress = "0000:40:01.1".parse().unwrap();
        let slot = |fixture: &Fixture, speed: &str| {
            for (file, text) in [
                ("current_link_speed", speed),
                ("max_link_speed", "16.0 GT/s PCIe\n"),
                ("current_link_width", "16\n"),
                ("max_link_width", "16\n"),
            ] {
                fixture.file(port, file, text);
            }
            fixture.file(gpu("41"), "current_link_speed", speed);
        };
        slot(&fixture, "2.5 GT/s PCIe\n");
        fixture.watch.begin(&pair);
        fixture.watch.sample();
        assert_eq!(fixture.watch.line(pair[0], pair[1]), None, "nothing was measured yet");
        slot(&fixture, "16.0 GT/s PCIe\n");
        fixture.file(gpu("21"), "current_link_speed", "32.0 GT/s PCIe\n");
        fixture.watch.sample();
        slot(&fixture, "2.5 GT/s PCIe\n");
        fixture.watch.end();
        let line = fixture.watch.line(pair[0], pair[1]).unwrap();
        for rate in [line.seen, line.most] {
            assert!((rate / 1e9 - 31.5).abs() < 0.1, "{line:?}");
        }
        assert_eq!(fixture.watch.line(pair[0], gpu("61")), None);
    }

    #[test]
    fn a_log_that_cannot_be_read_is_a_gap() {
        let place = tempfile::tempdir().unwrap();
        let mut watch = HostWatch::new(place.path().to_owned(), Vec::new());
        watch.begin(&[gpu("21")]);
        let seen = watch.end();
        assert!(seen.gaps[0].contains("kmsg"), "{seen:?}");
    }
}
