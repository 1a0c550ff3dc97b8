//! Kernel logs made up on purpose, with known contents: for tests, for the benchmark, and for
//! simulated hosts that fault.
//!
//! Everything follows from a seed. The same dialect and envelope tables serve the property tests.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use peerway_core::address::PciAddress;

mod dialect;
mod envelope;

pub use dialect::{Dialect, Expected, Spec};
pub use envelope::{Clock, Envelope};

/// A stream of numbers that follows from its seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins with a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::distinct::mix(self.0)
    }

    /// A number below `bound`, 0 if that is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T], otherwise: T) -> T {
        let bound = u64::try_from(from.len()).unwrap_or(0);
        let at = usize::try_from(self.below(bound)).unwrap_or(0);
        from.get(at).copied().unwrap_or(otherwise)
    }
}

/// What a generated log shall hold.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Seed.
    pub seed: u64,
    /// Of a hundred lines, how many belong to events.
    pub event_percent: u64,
    /// Dialects to choose from.
    pub dialects: Vec<Dialect>,
    /// Envelopes to choose from.
    pub envelopes: Vec<Envelope>,
    /// Requesters.
    pub requesters: u8,
}

impl Recipe {
    /// The log of the benchmark: three dialects, 64 requesters, random addresses, mixed envelopes,
    /// half of the lines events.
    pub fn benchmark(seed: u64) -> Self {
        Self {
            seed,
            event_percent: 50,
            dialects: vec![Dialect::AmdDevice, Dialect::AmdBare, Dialect::Vtd515],
            envelopes: vec![
                Envelope::Dmesg,
                Envelope::JournalShort,
                Envelope::KernLog,
                Envelope::Rfc3339,
                Envelope::Bare,
            ],
            requesters: 64,
        }
    }

    /// Everything that can be mixed in one file.
    pub fn everything(seed: u64) -> Self {
        Self {
            seed,
            event_percent: 50,
            dialects: Dialect::ALL.to_vec(),
            envelopes: Envelope::ALL.to_vec(),
            requesters: 64,
        }
    }
}

/// Addresses by requester.
pub type Addresses = BTreeMap<Option<PciAddress>, BTreeSet<u64>>;

/// What a generated log holds, to compare a scan with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Lines.
    pub lines: u64,
    /// IOMMU events.
    pub events: u64,
    /// IOMMU events that rate-limit lines say were suppressed.
    pub suppressed: u64,
    /// Events by requester; `None` for those that name none.
    pub by_requester: BTreeMap<Option<PciAddress>, u64>,
    /// Distinct addresses by requester.
    pub addresses: Addresses,
}

/// Writes a log, record by record.
#[derive(Clone, Debug)]
pub struct Generator {
    recipe: Recipe,
    random: Random,
    clock: Clock,
    truth: Truth,
    messages: Vec<String>,
    keep_addresses: bool,
}

/// Lines that mean nothing here, of the kinds that fill real logs.
const NOISE: [&str; 12] = [
    "usb 1-2: new high-speed USB device number 5 using xhci_hcd",
    "audit: type=1400 audit(1796028519.554:45): apparmor=\"DENIED\" operation=\"open\" pid=33",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode. Quota mode: none.",
    "[UFW BLOCK] IN=eth0 OUT= MAC=02:00:5e:00:53:01 SRC=192.0.2.7 DST=192.0.2.9 LEN=40 TTL=243",
    "br-4f1c: port 2(veth1b2c) entered forwarding state",
    "show_signal_msg: 17 callbacks suppressed",
    "TCP: request_sock_TCP: Possible SYN flooding on port 8000. Sending cookies.",
    "perf: interrupt took too long (2503 > 2500), lowering kernel.perf_event_max_sample_rate",
    "workqueue: drm_fb_helper_damage_work hogged CPU for >10000us 4 times",
    "CPU3: Package temperature above threshold, cpu clock throttled (total events = 12)",
    "systemd[1]: Started Session 1234 of user operator.",
    "device vethd00b entered promiscuous mode",
];

impl Generator {
    /// Begins a log.
    pub fn new(recipe: Recipe) -> Self {
        let random = Random::new(recipe.seed);
        Self {
            recipe,
            random,
            clock: Clock::default(),
            truth: Truth::default(),
            messages: Vec::new(),
            keep_addresses: true,
        }
    }

    /// Does not note the addresses: for logs whose truth would not fit in memory.
    #[must_use]
    pub const fn without_addresses(mut self) -> Self {
        self.keep_addresses = false;
        self
    }

    /// What was written so far.
    pub const fn truth(&self) -> &Truth {
        &self.truth
    }

    /// Appends one record, which may be several lines.
    pub fn record(&mut self, out: &mut Vec<u8>) {
        self.clock.advance(1 + self.random.below(20_000));
        self.messages.clear();
        let envelope = self.random.pick(&self.recipe.envelopes, Envelope::Bare);
        if self.random.below(100) < self.recipe.event_percent {
            self.event();
        } else if self.random.below(500) == 0 {
            let count = 1 + self.random.below(10_000);
            self.truth.suppressed += count;
            let text = format!("amd_iommu_report_page_fault: {count} callbacks suppressed");
            self.messages.push(text);
        } else {
            self.messages.push(self.random.pick(&NOISE, "").to_owned());
        }
        for message in &self.messages {
            self.truth.lines += envelope.wrap(message, &mut self.clock, out);
        }
    }

    fn event(&mut self) {
        let dialect = self.random.pick(&self.recipe.dialects, Dialect::AmdDevice);
        let spec = Spec::random(&mut self.random, self.recipe.requesters);
        dialect.render(&spec, &mut self.messages);
        let expected = dialect.expected(&spec);
        self.truth.events += 1;
        *self.truth.by_requester.entry(expected.requester).or_default() += 1;
        if self.keep_addresses
            && let Some(address) = expected.address
        {
            self.truth.addresses.entry(expected.requester).or_default().insert(address);
        }
    }
}
