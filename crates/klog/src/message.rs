//! From a message to what it says: each anchor leads to the parser of its dialect.

use std::ops::Range;

use crate::amd::{self, Amd};
use crate::anchors::{Anchors, Family, Hit};
use crate::assemble::Assembler;
use crate::envelope;
use crate::event::{Event, Iommu, Kind, When};
use crate::held::Place;
use crate::notice::{Fact, Notice};
use crate::scan::Sink;
use crate::stamp::Stamp;
use crate::vtd::{self, Vtd};
use crate::{device_line, host_line, nvidia, smmu, text};

/// Reads lines, one after the other.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) anchors: &'static Anchors,
    assembler: Assembler,
    boot: u32,
    /// The input began with the first line of a log, and no boot line came yet.
    at_start: bool,
    /// The journal's mark between two boots came, and the kernel's first line did not yet.
    boot_marked: bool,
    /// So many of the next lines are looked at whether or not they hold an anchor.
    attentive: u8,
}

/// A message and where it stands.
#[derive(Clone, Copy, Debug)]
struct Context<'a> {
    message: &'a [u8],
    stamp: Stamp,
    place: Place,
    boot: u32,
    of_hypervisor: bool,
}

impl<'a> Context<'a> {
    fn notice(&self, fact: Fact<'a>) -> Notice<'a> {
        Notice {
            line: self.place.line,
            boot: self.boot,
            when: When::known(self.stamp),
            text: self.message,
            driver: None,
            fact,
        }
    }

    fn event(&self, event: &Event<'a>) -> Event<'a> {
        Event {
            line: self.place.line,
            boot: self.boot,
            when: When::known(self.stamp),
            text: self.message,
            ..*event
        }
    }
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self {
            anchors: Anchors::shared(),
            assembler: Assembler::default(),
            boot: 0,
            at_start: true,
            boot_marked: false,
            attentive: 0,
        }
    }

    /// Whether the next line has to be looked at, anchor or not.
    #[inline]
    pub(crate) const fn wants_next_line(&self) -> bool {
        self.attentive > 0
    }

    #[inline]
    pub(crate) const fn boot(&self) -> u32 {
        self.boot
    }

    pub(crate) fn flush(&mut self, sink: &mut impl Sink) {
        self.attentive = 0;
        self.assembler.flush(sink);
    }

    /// Hands out what has waited too long and forgets the rest.
    pub(crate) fn end_part(&mut self, lines: u64, bytes: u64, sink: &mut impl Sink) {
        self.assembler.expire(Place { line: lines, byte: bytes }, sink);
        self.assembler.clear();
    }

    /// Drops what has waited too long; counts lines, bytes and boots from here on.
    pub(crate) fn begin_part(&mut self, lines: u64, bytes: u64) {
        let place = Place { line: lines, byte: bytes };
        self.assembler.expire(place, &mut ());
        self.assembler.rebase(place, self.boot);
        self.boot = 0;
        self.at_start = false;
    }

    /// Whether nothing that came before bears on the next line.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.attentive == 0 && self.assembler.is_empty()
    }

    /// Looks at a line in its envelope. `stamp` is the time that is known otherwise.
    pub(crate) fn line(
        &mut self,
        line: &[u8],
        stamp: Stamp,
        hit: Option<Hit>,
        place: Place,
        sink: &mut impl Sink,
    ) {
        let unwrapped = envelope::strip(line);
        let stamp = Stamp {
            monotonic_us: unwrapped.stamp.monotonic_us.or(stamp.monotonic_us),
            wall: unwrapped.stamp.wall.or(stamp.wall),
            since_previous_us: unwrapped.stamp.since_previous_us.or(stamp.since_previous_us),
        };
        let context = Context {
            message: unwrapped.message,
            stamp,
            place,
            boot: self.boot,
            of_hypervisor: unwrapped.of_hypervisor,
        };
        if unwrapped.of_user_space {
            return;
        }
        // The anchor that the caller found, unless it stands in the envelope.
        let front = line.len() - unwrapped.message.len();
        let hit = hit.and_then(|(family, at)| Some((family, at.checked_sub(front)?)));
        self.message(context, 0..unwrapped.message.len(), hit, sink);
    }

    /// Looks at a piece of a line that is too long, for messages that begin within `range`.
    /// Returns how far the last one reaches.
    pub(crate) fn piece(
        &mut self,
        piece: &[u8],
        range: Range<usize>,
        place: Place,
        sink: &mut impl Sink,
    ) -> usize {
        let context = Context {
            message: piece,
            stamp: Stamp::default(),
            place,
            boot: self.boot,
            of_hypervisor: false,
        };
        self.message(context, range, None, sink)
    }

    fn message(
        &mut self,
        context: Context<'_>,
        range: Range<usize>,
        hit: Option<Hit>,
        sink: &mut impl Sink,
    ) -> usize {
        if !self.assembler.is_empty() {
            self.assembler.expire(context.place, sink);
        }
        if self.attentive > 0 {
            self.attentive -= 1;
            if self.continuation(&context, sink) {
                return context.message.len();
            }
        }
        let mut at = range.start;
        let mut next = hit.or_else(|| self.anchors.find(context.message, at));
        while let Some((family, start)) = next
            && start < range.end
        {
            at = match self.anchor(family, start, &context, sink) {
                Some(end) => end.max(start + 1),
                None => start + 1,
            };
            next = self.anchors.find(context.message, at);
        }
        at
    }

    /// A line after a cut one: perhaps its rest.
    fn continuation(&mut self, context: &Context<'_>, sink: &mut impl Sink) -> bool {
        let text = text::trim_start(context.message);
        self.assembler.amd_fields(sink, |event| amd::resume(text, event))
    }

    /// Reads the message around an anchor. Returns where it ends, `None` if it is not what the
    /// anchor promised.
    fn anchor(
        &mut self,
        family: Family,
        at: usize,
        context: &Context<'_>,
        sink: &mut impl Sink,
    ) -> Option<usize> {
        let message = context.message;
        let fact = match family {
            Family::Amd => return self.amd(&amd::parse(message, at), at, context, sink),
            Family::AmdBody => {
                let parsed = amd::parse_body(message);
                return self.amd(&parsed, at, context, sink);
            }
            Family::Request => return self.vtd(&vtd::parse_request(message, at), context, sink),
            Family::Reason => return self.vtd(&vtd::parse_rest(message), context, sink),
            Family::Smmu => return self.smmu(at, context, sink),
            Family::Device => return self.device(at, context, sink),
            Family::Dmar => {
                if let Some(request) = vtd::request_after(message, at) {
                    return self.vtd(&vtd::parse_request(message, request), context, sink);
                }
                if let Some(event) = vtd::parse_queue(message) {
                    sink.event(&context.event(&event));
                    return Some(message.len());
                }
                if context.of_hypervisor && text::contains(message, b"DMAR: reason ") {
                    return self.vtd(&vtd::parse_rest(message), context, sink);
                }
                host_line::dmar(message)
            }
            Family::Suppressed => {
                sink.notice(&context.notice(host_line::suppressed(message, at)?));
                return Some(at + " callbacks suppressed".len());
            }
            Family::Nvidia => {
                let notice = context.notice(nvidia::parse(message, at)?);
                sink.notice(&Notice { driver: Some("nvidia"), ..notice });
                return Some(next_message(message, at));
            }
            Family::Sxid => {
                let notice = context.notice(nvidia::parse_sxid(message, at)?);
                sink.notice(&Notice { driver: Some("nvidia-nvswitch"), ..notice });
                return Some(message.len());
            }
            Family::Iommu => match host_line::iommu(message) {
                Some(fact) => Some(fact),
                // A device outside domain 0 joins a group.
                None => return self.device(at, context, sink),
            },
            Family::Encryption => host_line::encryption(message),
            Family::CommandLine if context.of_hypervisor => None,
            Family::CommandLine => host_line::command_line(message),
            Family::Version => return self.boots(context, sink),
            Family::BootMark => {
                if at == 0 {
                    self.begin_boot(context, sink);
                    self.boot_marked = true;
                }
                return Some(message.len());
            }
            Family::AcsOverride => host_line::acs_override(message),
            Family::Gart => host_line::gart(message),
            Family::Probe => {
                let (driver, fact) = device_line::old_probe(message)?;
                sink.notice(&Notice { driver: Some(driver), ..context.notice(fact) });
                return Some(message.len());
            }
            Family::Qemu => host_line::qemu(message),
            Family::JsonTime | Family::JsonBytes => None,
        };
        sink.notice(&context.notice(fact?));
        Some(next_message(message, at))
    }

    fn amd(
        &mut self,
        parsed: &Amd<'_>,
        at: usize,
        context: &Context<'_>,
        sink: &mut impl Sink,
    ) -> Option<usize> {
        let end = context.message.len();
        match *parsed {
            Amd::Event(ref event, end) => {
                // The rest of a line that was cut or wrapped may follow.
                self.attentive = if event.cut { 2 } else { 0 };
                self.assembler.amd(&context.event(event), context.place, sink);
                Some(end)
            }
            Amd::Head => {
                self.attentive = 2;
                self.assembler.end_amd(sink);
                Some(end)
            }
            Amd::Detached => {
                let event = Event::new(Iommu::AmdVi, Kind::DeviceNotAttached);
                self.assembler.detached(&context.event(&event), context.place, sink);
                Some(end)
            }
            Amd::DetachedDevice(device, domain) => {
                self.assembler.detached_device(device, domain, sink);
                Some(end)
            }
            Amd::Dump { index, value } => {
                self.assembler.dump(index, value, sink);
                Some(end)
            }
            Amd::Control => Some(end),
            Amd::Other => {
                let fact = host_line::amd(context.message, at)?;
                sink.notice(&context.notice(fact));
                Some(end)
            }
        }
    }

    fn vtd(
        &mut self,
        parsed: &Vtd<'_>,
        context: &Context<'_>,
        sink: &mut impl Sink,
    ) -> Option<usize> {
        match *parsed {
            Vtd::Event(ref event, end) => {
                sink.event(&context.event(event));
                Some(end)
            }
            Vtd::Open { ref event, end, address_may_be_cut } => {
                let event = context.event(event);
                self.assembler.vtd(&event, address_may_be_cut, context.place, sink);
                Some(end)
            }
            Vtd::Rest(ref rest) => {
                self.assembler.vtd_rest(rest, sink);
                Some(context.message.len())
            }
            Vtd::Other => None,
        }
    }

    fn smmu(&mut self, at: usize, context: &Context<'_>, sink: &mut impl Sink) -> Option<usize> {
        let parsed = smmu::parse(context.message, at);
        if parsed == smmu::Smmu::Other {
            let fact = smmu::notice(context.message, at)?;
            sink.notice(&context.notice(fact));
            return Some(context.message.len());
        }
        let blank = context.event(&Event::new(Iommu::SmmuV3, Kind::SmmuOther));
        self.assembler.smmu(&parsed, &blank, context.place, sink);
        Some(context.message.len())
    }

    /// A message about a device: `driver 0000:bb:dd.f: …`, perhaps with other text before it.
    fn device(&mut self, at: usize, context: &Context<'_>, sink: &mut impl Sink) -> Option<usize> {
        let message = context.message;
        let (_, driver) = text::last_word(message.get(..at)?);
        let mut start = at - driver.len();
        // Behind the address instead of in front of it: the message begins with the driver.
        if device_line::front(message.get(start..)?).is_none() {
            start = 0;
        }
        let front = device_line::front(message.get(start..)?)?;
        if front.body.starts_with(b"AMD-Vi: ") {
            let body = message.len() - front.body.len();
            return self.amd(&amd::parse(message, body), body, context, sink);
        }
        let fact = device_line::parse(&front);
        // A word in the middle of a sentence is no driver.
        if start > 0 && matches!(fact, Fact::DriverSeen { .. }) {
            return None;
        }
        let driver = Some(device_line::driver(&front));
        sink.notice(&Notice { driver, ..context.notice(fact) });
        Some(next_message(message, at))
    }

    fn boots(&mut self, context: &Context<'_>, sink: &mut impl Sink) -> Option<usize> {
        let fact = host_line::version(context.message)?;
        if !std::mem::take(&mut self.boot_marked) {
            self.begin_boot(context, sink);
        }
        sink.notice(&Notice { boot: self.boot, ..context.notice(fact) });
        Some(context.message.len())
    }

    /// At the very start of a log it begins boot 0; anywhere else something of an older boot came
    /// before it. (The journal may print a line about itself first.)
    fn begin_boot(&mut self, context: &Context<'_>, sink: &mut impl Sink) {
        self.assembler.flush(sink);
        if !self.at_start || context.place.line > 2 {
            self.boot = self.boot.saturating_add(1);
        }
        self.at_start = false;
    }
}

/// Where the next message may begin that was printed without a line feed before it.
fn next_message(message: &[u8], at: usize) -> usize {
    let from = at + 4;
    let rest = message.get(from..).unwrap_or_default();
    from + text::nearest(rest, &[b"NVRM: ", b"AMD-Vi: Event logged [", b"Request device ["])
}
