//! The sink that gathers what conclusions are drawn from: the log's aggregate and the few lines
//! that an aggregate does not keep.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;
use peerway_klog::{Event, Fact, Notice, Region, Report, Sink, Stamp, Summary, WallClock};

/// Most boot lines kept as texts.
const MOST_LINES: usize = 64;
/// Longest text kept of one.
const LONGEST: usize = 400;

/// Programs whose purpose is peer access, as the kernel cuts their names (15 characters).
const PEER_PROGRAMS: [&str; 10] = [
    "rocm-bandwidth-",
    "rocm_bandwidth_",
    "p2pBandwidthLat",
    "simpleP2P",
    "nvbandwidth",
    "all_reduce_perf",
    "sendrecv_perf",
    "TransferBench",
    "p2p_perf",
    "xpu-smi",
];

/// Which part of a log counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// What was logged at or after this.
    pub since: Option<Since>,
    /// One boot, by its number within the input.
    pub boot: Option<u32>,
}

/// A point on one of a log's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Microseconds since boot.
    Monotonic(u64),
    /// Date and time of day, in the log's own time zone; where the log has a year or none.
    Wall(WallClock),
}

impl Since {
    /// Whether a line is at or after this; `None` where it has no such clock.
    pub fn admits(self, stamp: Stamp) -> Option<bool> {
        match self {
            Self::Monotonic(since) => stamp.monotonic_us.map(|us| us >= since),
            Self::Wall(since) => stamp.wall.map(|wall| order(wall) >= order_like(since, wall)),
        }
    }
}

type Order = (u16, u8, u8, u8, u8, u8, u32);

fn order(wall: WallClock) -> Order {
    let WallClock { year, month, day, hour, minute, second, microsecond, .. } = wall;
    (year.unwrap_or(0), month, day, hour, minute, second, microsecond)
}

/// For a comparison with a line that may have no year.
fn order_like(since: WallClock, line: WallClock) -> Order {
    order(WallClock { year: line.year.and(since.year), ..since })
}

/// Gathers what a scan finds.
#[derive(Clone, Debug)]
pub struct Collector {
    summary: Summary,
    filter: Filter,
    /// Whether the filter leaves anything out: asked for every event.
    filters: bool,
    /// Boots of the inputs before this one.
    boots_before: u32,
    hints: Hints,
}

/// What an aggregate does not keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Programs for peer access that lines about GPUs name.
    pub peer_programs: BTreeSet<String>,
    /// GPUs whose driver says that its window shows a part of the memory only.
    pub small_windows: BTreeSet<PciAddress>,
    /// The first line of each kind that says something about the boot: SNP, SME, IOMMU.
    pub boot_lines: Vec<String>,
    /// Events that the filter left out.
    pub left_out: u64,
    /// Events without a clock that the filter could compare; they were kept.
    pub without_clock: u64,
}

/// What was gathered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// Lines.
    pub lines: u64,
    /// The aggregate.
    pub report: Report,
    /// What else was kept.
    pub hints: Hints,
}

impl Collector {
    /// For events that are counted by the regions that hold their addresses.
    pub fn new(regions: Vec<Region>, filter: Filter) -> Self {
        Self {
            summary: Summary::with_regions(regions),
            filter,
            filters: filter != Filter::default(),
            boots_before: 0,
            hints: Hints::default(),
        }
    }

    /// The same for the next input, whose boots come after those of the inputs before.
    #[must_use]
    pub const fn after(mut self, boots: u32) -> Self {
        self.boots_before = boots;
        self
    }

    /// A part is over: what was put off is done by the processor that read it.
    pub fn settle(&mut self) {
        self.summary.settle();
    }

    /// Adds what a later part gave, which begins after so many lines and boots.
    pub fn append(&mut self, later: &Self, lines: u64, boots: u32) {
        self.summary.append(&later.summary, lines, boots);
        let Hints { peer_programs, small_windows, boot_lines, left_out, without_clock } =
            &later.hints;
        self.hints.small_windows.extend(small_windows);
        self.hints.peer_programs.extend(peer_programs.iter().cloned());
        for line in boot_lines {
            keep(&mut self.hints.boot_lines, line.clone());
        }
        self.hints.left_out += left_out;
        self.hints.without_clock += without_clock;
    }

    /// IOMMU events so far.
    pub const fn events(&self) -> u64 {
        self.summary.events()
    }

    /// What was gathered from so many lines.
    pub fn finish(self, lines: u64) -> Collected {
        Collected { lines, report: self.summary.report(), hints: self.hints }
    }

    /// Whether a line of this boot and time counts.
    fn admits(&mut self, boot: u32, stamp: impl FnOnce() -> Stamp) -> bool {
        if self.filter.boot.is_some_and(|wanted| wanted != self.boots_before + boot) {
            return false;
        }
        match self.filter.since {
            None => true,
            Some(since) => since.admits(stamp()).unwrap_or_else(|| {
                self.hints.without_clock += 1;
                true
            }),
        }
    }
}

fn keep(lines: &mut Vec<String>, line: String) {
    if lines.len() < MOST_LINES && !lines.contains(&line) {
        lines.push(line);
    }
}

impl Sink for Collector {
    #[inline]
    fn event(&mut self, event: &Event<'_>) {
        if self.filters && !self.admits(event.boot, || event.when.stamp()) {
            self.hints.left_out += 1;
            return;
        }
        self.summary.event(event);
    }

    fn notice(&mut self, notice: &Notice<'_>) {
        // What the host is does not depend on when it was said.
        let of_host = matches!(
            notice.fact,
            Fact::DeviceFound { .. } | Fact::GroupJoined { .. } | Fact::Boot { .. }
        );
        if !of_host && self.filters && !self.admits(notice.boot, || notice.when.stamp()) {
            return;
        }
        match notice.fact {
            Fact::Platform { .. } | Fact::Banner(_) => {
                let text = notice.text.get(..LONGEST).unwrap_or(notice.text);
                keep(&mut self.hints.boot_lines, String::from_utf8_lossy(text).into_owned());
            }
            Fact::Gpu { .. } | Fact::Xid { .. } | Fact::DriverSeen { .. } => {
                for program in PEER_PROGRAMS {
                    if holds(notice.text, program.as_bytes()) {
                        self.hints.peer_programs.insert(program.to_owned());
                    }
                }
            }
            _ => {}
        }
        if let Fact::DriverSeen { device, .. } = notice.fact
            && shows_part(notice.text)
        {
            self.hints.small_windows.insert(device);
        }
        self.summary.notice(notice);
    }
}

/// `Detected VRAM RAM=24560M, BAR=256M` (`amdgpu`): the window is smaller than the memory.
fn shows_part(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let Some((_, rest)) = text.split_once("Detected VRAM RAM=") else { return false };
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    };
    let window = rest.split_once("BAR=").and_then(|(_, window)| number(window));
    matches!((number(rest), window), (Some(memory), Some(window)) if window < memory)
}

fn holds(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use peerway_klog::Scanner;

    const LOG: &str = "\
[    1.000000] AMD-Vi: IOMMU SNP support enabled.
[   10.000000] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0018 address=0x240000000 flags=0x0020]
[   20.000000] nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0018 address=0x240000000 flags=0x0020]
AMD-Vi: Event logged [IO_PAGE_FAULT device=41:00.0 domain=0x0018 address=0x240000000 flags=0x0020]
";

    #[track_caller]
    fn check(filter: Filter, events: u64, left_out: u64, without_clock: u64) {
        let mut collector = Collector::new(Vec::new(), filter);
        let mut scanner = Scanner::new();
        scanner.feed(LOG.as_bytes(), &mut collector);
        scanner.finish(&mut collector);
        let Collected { report, hints, .. } = collector.finish(scanner.lines());
        assert_eq!((report.events, hints.left_out), (events, left_out));
        assert_eq!(hints.without_clock, without_clock);
    }

    #[test]
    fn parts_of_a_log() {
        check(Filter::default(), 3, 0, 0);
        let since = |since| Filter { since: Some(since), boot: None };
        check(since(Since::Monotonic(15_000_000)), 2, 1, 1);
        check(Filter { boot: Some(1), since: None }, 0, 3, 0);
    }

    #[test]
    fn wall_clocks_with_and_without_a_year() {
        let clock = |text: &str| WallClock::try_from(text.to_owned()).unwrap();
        let stamp = |text: &str| Stamp { wall: Some(clock(text)), ..Stamp::default() };
        let since = Since::Wall(clock("2026-11-01T12:00:00"));
        assert_eq!(since.admits(stamp("2026-11-01T12:00:00Z")), Some(true));
        assert_eq!(since.admits(stamp("2025-12-01T12:00:00Z")), Some(false));
        assert_eq!(since.admits(stamp("Nov 01 11:59:59")), Some(false));
        assert_eq!(since.admits(stamp("Nov 02 00:00:00")), Some(true));
        assert_eq!(since.admits(Stamp::default()), None);
    }

    #[test]
    fn what_an_aggregate_forgets_is_kept() {
        let mut collector = Collector::new(Vec::new(), Filter::default());
        let mut scanner = Scanner::new();
        let text = "amdgpu 0000:10:00.0: amdgpu: [sdma0] address:0x48000 for process \
                    rocm-bandwidth- pid 5\n";
        scanner.feed(text.as_bytes(), &mut collector);
        scanner.feed(LOG.as_bytes(), &mut collector);
        scanner.finish(&mut collector);
        let hints = collector.finish(scanner.lines()).hints;
        assert_eq!(hints.peer_programs.len(), 1);
        assert_eq!(hints.boot_lines, ["AMD-Vi: IOMMU SNP support enabled."]);
    }
}
