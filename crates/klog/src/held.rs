//! One event that is not whole yet.

use crate::event::{Class, Event, Reason, Requester, When};
use crate::scan::Sink;
use crate::smmu;

/// Lines that may stand between the first and the last message of an event. The most that an
/// event has is seven; other processors' messages come between.
pub(crate) const MAX_LINES: u64 = 64;
/// The same in bytes.
pub(crate) const MAX_BYTES: u64 = 16 * 1024;

/// Where a message stands in the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u64,
    pub(crate) byte: u64,
}

/// What a held event waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Nothing: the slot is free.
    #[default]
    Free,
    /// The words of AMD's dump after an event.
    Dump,
    /// The device of AMD's "Device not attached".
    Device,
    /// The rest of a cut AMD line.
    Fields,
    /// Address and reason of a VT-d fault.
    Reason { address_may_be_cut: bool },
    /// Raw words of an SMMU record; with the number, and whether the decoded form came.
    Words { id: u32, decoded: bool },
    /// The registers of an SMMU's global fault.
    Registers,
}

/// An event that is not whole yet. Its texts are its own; their memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) waits: Waits,
    pub(crate) since: Place,
    pub(crate) event: Option<Event<'static>>,
    pub(crate) driver: String,
    pub(crate) unit: String,
    pub(crate) requester: String,
    pub(crate) reason: String,
    pub(crate) text: Vec<u8>,
    pub(crate) words: [u64; 4],
    pub(crate) word_count: usize,
}

impl Held {
    pub(crate) fn hold(&mut self, waits: Waits, since: Place, event: &Event<'_>) {
        let keep = |to: &mut String, from: Option<&str>| {
            to.clear();
            to.push_str(from.unwrap_or_default());
        };
        keep(&mut self.driver, event.driver);
        keep(&mut self.unit, event.unit);
        keep(&mut self.reason, event.reason.map(|reason| reason.text));
        self.text.clear();
        self.text.extend_from_slice(event.text);
        let requester = match event.requester {
            Requester::Named(name) => {
                keep(&mut self.requester, Some(name));
                Requester::Unknown
            }
            Requester::Pci(address) => Requester::Pci(address),
            Requester::Stream(id) => Requester::Stream(id),
            Requester::Unknown => Requester::Unknown,
        };
        if !matches!(event.requester, Requester::Named(_)) {
            self.requester.clear();
        }
        let reason = event.reason.map(|reason| Reason { code: reason.code, text: "" });
        self.event = Some(Event {
            line: event.line,
            boot: event.boot,
            when: When::known(event.when.stamp()),
            iommu: event.iommu,
            kind: event.kind,
            requester,
            driver: None,
            unit: None,
            address: event.address,
            access: event.access,
            flags: event.flags,
            rmp_flags: event.rmp_flags,
            pasid: event.pasid,
            domain: event.domain,
            reason,
            words: event.words,
            cut: event.cut,
            text: &[],
        });
        self.waits = waits;
        self.since = since;
        self.words = [0; 4];
        self.word_count = 0;
    }

    /// The decoded form of a record whose raw words are here. Line and time stay the first's.
    pub(crate) fn decode(&mut self, event: &Event<'_>) {
        let Waits::Words { id, .. } = self.waits else { return };
        let Some(first) = self.event else { return };
        let (words, count) = (self.words, self.word_count);
        let event = Event { line: first.line, when: first.when, ..*event };
        self.hold(Waits::Words { id, decoded: true }, self.since, &event);
        self.words = words;
        self.word_count = count;
    }

    /// The event as it stands, with its texts.
    pub(crate) fn view(&self) -> Option<Event<'_>> {
        let event = self.event?;
        let some = |text: &str| if text.is_empty() { None } else { Some(()) };
        Some(Event {
            driver: some(&self.driver).map(|()| self.driver.as_str()),
            unit: some(&self.unit).map(|()| self.unit.as_str()),
            requester: match some(&self.requester) {
                Some(()) => Requester::Named(&self.requester),
                None => event.requester,
            },
            reason: event.reason.map(|reason| Reason { code: reason.code, text: &self.reason }),
            text: &self.text,
            ..event
        })
    }

    /// Hands the event out, whole or not, and frees the slot.
    pub(crate) fn release(&mut self, sink: &mut impl Sink) {
        let waits = std::mem::take(&mut self.waits);
        let Some(mut event) = self.view() else { return };
        match waits {
            Waits::Reason { address_may_be_cut } if event.reason.is_none() => {
                event.cut = true;
                if address_may_be_cut {
                    event.address = None;
                }
            }
            Waits::Words { .. } => {
                smmu::from_words(&mut event, self.words.get(..self.word_count).unwrap_or_default());
                event.cut |= event.class() == Class::Translation && event.address.is_none();
            }
            Waits::Dump if self.word_count > 0 => event.words = Some(self.words),
            Waits::Device => event.cut = true,
            Waits::Free | Waits::Dump | Waits::Fields | Waits::Reason { .. } | Waits::Registers => {
            }
        }
        sink.event(&event);
        self.event = None;
    }

    pub(crate) fn is_old(&self, now: Place) -> bool {
        // Wrapping: see `rebase`.
        now.line.wrapping_sub(self.since.line) > MAX_LINES
            || now.byte.wrapping_sub(self.since.byte) > MAX_BYTES
    }
}
