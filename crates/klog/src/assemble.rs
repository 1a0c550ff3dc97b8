//! Events that arrive in several messages are put together here.
//!
//! Only a few are held at a time, and none for longer than a bounded stretch of input (see
//! [`crate::held`]), so that what is held at any point depends on what came shortly before it.

use peerway_core::address::{BusAddress, PciAddress};

use crate::event::{Access, Event, Iommu, Kind, Reason, Requester};
use crate::held::{Held, Place, Waits};
use crate::scan::Sink;
use crate::{smmu, vtd};

/// Events held at a time; more than this many units or processors do not log at one moment.
const MAX_HELD: usize = 16;

/// The events in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// In the order in which they began.
    held: Vec<Held>,
    /// Slots to use again.
    free: Vec<Held>,
}

impl Assembler {
    /// Whether nothing is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Hands out what has waited too long. Called before a message is looked at.
    pub(crate) fn expire(&mut self, now: Place, sink: &mut impl Sink) {
        while self.held.first().is_some_and(|held| held.is_old(now)) {
            self.release(0, sink);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
    }

    /// Counts from `now` and boot 0 on. What began before gets numbers below zero, wrapped.
    pub(crate) fn rebase(&mut self, now: Place, boot: u32) {
        for held in &mut self.held {
            held.since.line = held.since.line.wrapping_sub(now.line);
            held.since.byte = held.since.byte.wrapping_sub(now.byte);
            if let Some(event) = &mut held.event {
                event.line = event.line.wrapping_sub(now.line);
                event.boot = event.boot.wrapping_sub(boot);
            }
        }
    }

    /// Hands everything out, whole or not.
    pub(crate) fn flush(&mut self, sink: &mut impl Sink) {
        while !self.held.is_empty() {
            self.release(0, sink);
        }
    }

    fn release(&mut self, at: usize, sink: &mut impl Sink) {
        if at < self.held.len() {
            let mut held = self.held.remove(at);
            held.release(sink);
            self.free.push(held);
        }
    }

    fn position(&self, wanted: impl Fn(&Held) -> bool) -> Option<usize> {
        self.held.iter().position(wanted)
    }

    fn begin(&mut self, waits: Waits, since: Place, event: &Event<'_>, sink: &mut impl Sink) {
        if self.held.len() >= MAX_HELD {
            self.release(0, sink);
        }
        let mut held = self.free.pop().unwrap_or_default();
        held.hold(waits, since, event);
        self.held.push(held);
    }

    /// An AMD event: the kinds with a dump, and cut lines, wait for what follows them.
    pub(crate) fn amd(&mut self, event: &Event<'_>, place: Place, sink: &mut impl Sink) {
        self.end_amd(sink);
        let dumped = matches!(event.kind, Kind::IllegalDevTableEntry | Kind::IllegalCommandError);
        if event.cut {
            self.begin(Waits::Fields, place, event, sink);
        } else if dumped {
            self.begin(Waits::Dump, place, event, sink);
        } else {
            sink.event(event);
        }
    }

    /// AMD's driver began another message: what it printed before is over.
    pub(crate) fn end_amd(&mut self, sink: &mut impl Sink) {
        while !self.held.is_empty()
            && let Some(at) = self
                .position(|held| matches!(held.waits, Waits::Dump | Waits::Device | Waits::Fields))
        {
            self.release(at, sink);
        }
    }

    /// The rest of a cut AMD line, if one is held: `read` puts the fields in.
    pub(crate) fn amd_fields(
        &mut self,
        sink: &mut impl Sink,
        read: impl FnOnce(&mut Event<'static>) -> bool,
    ) -> bool {
        let Some(at) = self.position(|held| held.waits == Waits::Fields) else { return false };
        let read = match self.held.get_mut(at).and_then(|held| held.event.as_mut()) {
            Some(event) => read(event),
            None => false,
        };
        if read {
            self.release(at, sink);
        }
        read
    }

    /// AMD's "Device not attached": its device follows.
    pub(crate) fn detached(&mut self, event: &Event<'_>, place: Place, sink: &mut impl Sink) {
        self.end_amd(sink);
        self.begin(Waits::Device, place, event, sink);
    }

    /// That device.
    pub(crate) fn detached_device(
        &mut self,
        device: PciAddress,
        domain: Option<u32>,
        sink: &mut impl Sink,
    ) {
        let Some(at) = self.position(|held| held.waits == Waits::Device) else { return };
        if let Some(held) = self.held.get_mut(at) {
            if let Some(event) = &mut held.event {
                event.requester = Requester::Pci(device);
                event.domain = domain;
            }
            held.waits = Waits::Free;
        }
        self.release(at, sink);
    }

    /// A word of AMD's dump.
    pub(crate) fn dump(&mut self, index: usize, value: u64, sink: &mut impl Sink) {
        let Some(at) = self.position(|held| held.waits == Waits::Dump) else { return };
        if let Some(held) = self.held.get_mut(at)
            && let Some(slot) = held.words.get_mut(index)
        {
            *slot = value;
            held.word_count = held.word_count.max(index + 1);
        }
        if index >= 3 {
            self.release(at, sink);
        }
    }

    /// The front of a VT-d fault.
    pub(crate) fn vtd(
        &mut self,
        event: &Event<'_>,
        address_may_be_cut: bool,
        place: Place,
        sink: &mut impl Sink,
    ) {
        self.begin(Waits::Reason { address_may_be_cut }, place, event, sink);
    }

    /// The rest of the VT-d fault that has waited longest for such a rest: with an address if
    /// its front had none, and without if it had.
    pub(crate) fn vtd_rest(&mut self, rest: &vtd::Rest<'_>, sink: &mut impl Sink) {
        let waiting = self.position(|held| {
            let wants_address = held.event.is_some_and(|event| {
                event.address.is_none() && event.kind != Kind::InterruptRemapFault
            });
            matches!(held.waits, Waits::Reason { .. }) && wants_address == rest.address.is_some()
        });
        let Some(at) = waiting else { return };
        if let Some(held) = self.held.get_mut(at)
            && let Some(event) = &mut held.event
        {
            if event.address.is_none() {
                event.address = rest.address.map(BusAddress);
            }
            if let Some(reason) = rest.reason {
                event.reason = Some(Reason { code: reason.code, text: "" });
                held.reason.clear();
                held.reason.push_str(reason.text);
            }
            if rest.reason.is_none() {
                return;
            }
        }
        self.release(at, sink);
    }

    /// A line of an Arm SMMU.
    pub(crate) fn smmu(
        &mut self,
        line: &smmu::Smmu<'_>,
        context: &Event<'_>,
        place: Place,
        sink: &mut impl Sink,
    ) {
        use smmu::Smmu;
        match line {
            Smmu::Head { unit, id } => {
                self.end_unit(unit, sink);
                let mut event = Event { unit: Some(unit), ..*context };
                event.iommu = Iommu::SmmuV3;
                event.kind = smmu::kind(*id);
                self.begin(Waits::Words { id: *id, decoded: false }, place, &event, sink);
            }
            Smmu::Word { unit, value } => {
                if let Some(held) = self.of_unit(unit)
                    && let Some(slot) = held.words.get_mut(held.word_count)
                {
                    *slot = *value;
                    held.word_count += 1;
                }
            }
            Smmu::Decoded { unit, event, goes_on } => {
                self.decoded(unit, &in_context(event, context), *goes_on, place, sink);
            }
            Smmu::Attributes { unit, access } => self.attributes(unit, *access, sink),
            Smmu::Fault(event) => sink.event(&in_context(event, context)),
            Smmu::GlobalHead { unit, event } => {
                self.end_unit(unit, sink);
                self.begin(Waits::Registers, place, &in_context(event, context), sink);
            }
            Smmu::Registers { unit, status, stream } => {
                let waiting =
                    self.position(|held| held.waits == Waits::Registers && held.unit == **unit);
                let Some(at) = waiting else { return };
                if let Some(event) = self.held.get_mut(at).and_then(|held| held.event.as_mut()) {
                    event.flags = Some(*status);
                    if event.requester == Requester::Unknown {
                        event.requester = Requester::Stream(*stream);
                    }
                }
                self.release(at, sink);
            }
            Smmu::Other => {}
        }
    }

    /// The record of an SMMUv3 that a line of that unit belongs to.
    fn of_unit(&mut self, unit: &str) -> Option<&mut Held> {
        self.held
            .iter_mut()
            .find(|held| matches!(held.waits, Waits::Words { .. }) && held.unit == unit)
    }

    /// The unit began another record.
    fn end_unit(&mut self, unit: &str, sink: &mut impl Sink) {
        let of_unit = |held: &Held| {
            matches!(held.waits, Waits::Words { .. } | Waits::Registers) && held.unit == unit
        };
        while let Some(at) = self.position(of_unit) {
            self.release(at, sink);
        }
    }

    /// The decoded form of the record that the raw words began, or of one that lost them.
    fn decoded(
        &mut self,
        unit: &str,
        event: &Event<'_>,
        goes_on: bool,
        place: Place,
        sink: &mut impl Sink,
    ) {
        let fits = |held: &Held| match held.waits {
            Waits::Words { id, decoded: false } => {
                held.unit == unit && smmu::kind(id) == event.kind
            }
            _ => false,
        };
        let at = self.position(fits);
        if let Some(held) = at.and_then(|at| self.held.get_mut(at)) {
            held.decode(event);
        } else {
            self.end_unit(unit, sink);
            let waits = Waits::Words { id: u32::MAX, decoded: true };
            self.begin(waits, place, event, sink);
        }
        if !goes_on {
            self.release(at.unwrap_or(self.held.len() - 1), sink);
        }
    }

    fn attributes(&mut self, unit: &str, access: Access, sink: &mut impl Sink) {
        let wanted = |held: &Held| {
            matches!(held.waits, Waits::Words { decoded: true, .. }) && held.unit == unit
        };
        let Some(at) = self.position(wanted) else { return };
        if let Some(event) = self.held.get_mut(at).and_then(|held| held.event.as_mut()) {
            event.access = access;
        }
        self.release(at, sink);
    }
}

/// The event with line, boot, stamp and text of where it was read.
fn in_context<'a>(event: &Event<'a>, context: &Event<'a>) -> Event<'a> {
    Event { line: context.line, boot: context.boot, when: context.when, ..*event }
}
