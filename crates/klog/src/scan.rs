//! The scanner: bytes in, events and notices out.

use crate::anchors::{Family, Hit};
use crate::clean;
use crate::envelope;
use crate::event::{Event, Iommu, Kind, When};
use crate::held::Place;
use crate::json::{self, Token, Value};
use crate::message::Reader;
use crate::notice::{Fact, Notice};
use crate::plain;
use crate::stamp::Stamp;
use crate::text;

/// Takes what a [`Scanner`] finds, in the order of the log; an event of several lines comes when
/// it is whole, which may be after later ones ([`Event::line`] tells).
pub trait Sink {
    /// An event of an IOMMU.
    fn event(&mut self, event: &Event<'_>);
    /// Another line that bears on the diagnosis.
    fn notice(&mut self, notice: &Notice<'_>);
}

/// Drops everything.
impl Sink for () {
    fn event(&mut self, _: &Event<'_>) {}
    fn notice(&mut self, _: &Notice<'_>) {}
}

/// A line longer than this is looked at piece by piece. Longer than any message of the kernel
/// (1 KiB) in any envelope, and than the longest line seen in a report (8 KiB).
const MAX_LINE: usize = 64 * 1024;
/// How far the pieces of a long line reach into each other, so that no message between two is
/// lost: the longest message with its envelope.
const OVERLAP: usize = 4 * 1024;

/// Bytes that hold a few lines.
const FEW: usize = 512;

/// Finds IOMMU events and related lines in kernel logs of any dialect and transport, mixed.
///
/// The input may be cut into chunks anywhere; the result is the same. Memory is bounded whatever
/// the input is.
///
/// ```
/// use peerway_klog::{Scanner, Summary};
///
/// let log = b"[    9.000001] nvidia 0000:41:00.0: AMD-Vi: Event logged \
///     [IO_PAGE_FAULT domain=0x0018 address=0x24000000000 flags=0x0020]\n";
/// let mut summary = Summary::new();
/// let mut scanner = Scanner::new();
/// scanner.feed(log, &mut summary);
/// scanner.finish(&mut summary);
/// assert_eq!(summary.events(), 1);
/// ```
#[derive(Debug)]
pub struct Scanner {
    reader: Reader,
    /// The last line of a chunk, while its end is not there.
    carry: Vec<u8>,
    /// Where the current piece of a long line may begin to find messages, in `carry`.
    long_from: Option<usize>,
    /// Holds a line without its escapes.
    scratch: Vec<u8>,
    /// Time of the record that `dmesg --json` spreads over several lines.
    json_stamp: Stamp,
    /// The function whose dropped messages were reported last.
    limited: plain::Limited,
    /// Sequence number of the last `/dev/kmsg` record, while the lines are such records.
    sequence: Option<u64>,
    lines: u64,
    bytes: u64,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// A scanner at the start of its input.
    pub fn new() -> Self {
        Self {
            reader: Reader::new(),
            carry: Vec::new(),
            long_from: None,
            scratch: Vec::new(),
            json_stamp: Stamp::default(),
            limited: plain::Limited::default(),
            sequence: None,
            lines: 0,
            bytes: 0,
        }
    }

    /// How much of a log in front of a part decides how the part is read: more than an event of
    /// several lines can reach, and a longest line.
    pub const CONTEXT: u64 = 128 * 1024;

    /// A scanner for a part of a log that begins after a line feed, so that several processors
    /// can share a large file with the same result as one. `context` is what stands before the
    /// part: at least [`Self::CONTEXT`] bytes, or all. Lines and boots are counted from the part's
    /// start; [`crate::Summary::append`] puts the parts together.
    pub fn resuming_after(context: &[u8]) -> Self {
        let mut scanner = Self::new();
        scanner.feed(context, &mut ());
        scanner.end_carried(&mut ());
        scanner.reader.begin_part(scanner.lines, scanner.bytes);
        scanner.lines = 0;
        scanner.bytes = 0;
        scanner
    }

    /// The part is over, and another begins right behind it: events that are not whole yet are
    /// that part's.
    pub fn finish_part(&mut self, sink: &mut impl Sink) {
        self.end_carried(sink);
        self.reader.end_part(self.lines, self.bytes, sink);
    }

    /// Number of the current boot, from 0: how many boot lines came after the first.
    pub const fn boot(&self) -> u32 {
        self.reader.boot()
    }

    /// Lines seen so far, the unfinished one included.
    pub fn lines(&self) -> u64 {
        self.lines + u64::from(!self.carry.is_empty())
    }

    /// Looks at more of the input.
    pub fn feed(&mut self, chunk: &[u8], sink: &mut impl Sink) {
        let mut chunk = chunk;
        while !self.carry.is_empty() {
            let end = memchr::memchr(b'\n', chunk);
            // Room up to the next piece of a long line.
            let room = (MAX_LINE + OVERLAP).saturating_sub(self.carry.len());
            let take = end.map_or(chunk.len(), |end| end + 1);
            if take > room {
                let (head, tail) = chunk.split_at_checked(room).unwrap_or((chunk, &[]));
                self.carry.extend_from_slice(head);
                chunk = tail;
                self.long_piece(sink);
                continue;
            }
            let (head, tail) = chunk.split_at_checked(take).unwrap_or((chunk, &[]));
            self.carry.extend_from_slice(head);
            chunk = tail;
            if end.is_none() {
                return;
            }
            self.end_carry(sink);
        }
        let whole = memchr::memrchr(b'\n', chunk).map_or(0, |at| at + 1);
        let (whole, rest) = chunk.split_at_checked(whole).unwrap_or((chunk, &[]));
        self.region(whole, sink);
        self.begin_carry(rest, sink);
    }

    /// The input is over: hands out what was waiting for more.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        self.end_carried(sink);
        self.reader.flush(sink);
    }

    fn end_carried(&mut self, sink: &mut impl Sink) {
        if !self.carry.is_empty() {
            self.end_carry(sink);
        }
    }

    /// Hands out events that wait for further lines, as they stand: for a log that is followed,
    /// when nothing more came for a while.
    pub fn flush(&mut self, sink: &mut impl Sink) {
        self.reader.flush(sink);
    }

    /// Keeps an unfinished line, piece by piece if it is long already.
    fn begin_carry(&mut self, rest: &[u8], sink: &mut impl Sink) {
        let mut rest = rest;
        while self.carry.len() + rest.len() > MAX_LINE + OVERLAP {
            let room = MAX_LINE + OVERLAP - self.carry.len();
            let (head, tail) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            self.carry.extend_from_slice(head);
            rest = tail;
            self.long_piece(sink);
        }
        self.carry.extend_from_slice(rest);
    }

    /// `carry` is full: looks at its front and keeps its last part, which the next piece needs.
    fn long_piece(&mut self, sink: &mut impl Sink) {
        let carry = std::mem::take(&mut self.carry);
        let from = self.long_from.unwrap_or(0);
        let upto = carry.len().saturating_sub(OVERLAP);
        let place = Place { line: self.lines + 1, byte: self.bytes };
        let end = self.reader.piece(&carry, from..upto, place, sink);
        // One overlap before the next piece's start, for what stands in front of a message.
        let keep = upto.saturating_sub(OVERLAP);
        self.bytes += u64::try_from(keep).unwrap_or(0);
        self.long_from = Some(end.max(upto) - keep);
        let mut carry = carry;
        carry.drain(..keep);
        self.carry = carry;
    }

    /// `carry` holds a line to its end.
    fn end_carry(&mut self, sink: &mut impl Sink) {
        let carry = std::mem::take(&mut self.carry);
        if let Some(from) = self.long_from.take() {
            self.lines += 1;
            let place = Place { line: self.lines, byte: self.bytes };
            self.reader.piece(&carry, from..carry.len(), place, sink);
            self.bytes += u64::try_from(carry.len()).unwrap_or(0);
        } else {
            self.region(&carry, sink);
        }
        let mut carry = carry;
        carry.clear();
        self.carry = carry;
    }

    /// Looks at whole lines; only the last may lack its line feed.
    ///
    /// Lines of a storm are read where they stand, one behind the other. What is between them is
    /// searched for anchors at once, and only lines with an anchor are looked at.
    fn region(&mut self, region: &[u8], sink: &mut impl Sink) {
        let mut rest = region;
        let mut event = Event::new(Iommu::AmdVi, Kind::IoPageFault);
        let mut in_storm = true;
        while !rest.is_empty() {
            while in_storm && let Some(tail) = self.plain(rest, &mut event, sink) {
                rest = tail;
            }
            let Some((lines, hit)) = self.next_anchored(rest) else { return };
            // What follows a notice of a rate limit may be anything.
            in_storm = !matches!(hit, Some((Family::Suppressed, _)));
            let quick = match hit {
                Some((Family::Suppressed, at)) => self.suppressed(lines, at, sink),
                _ => self.plain(lines, &mut event, sink),
            };
            rest = match quick {
                Some(tail) => tail,
                None => self.first_line(lines, hit, sink),
            };
        }
    }

    /// Reads the first of several lines, if it is one of a storm. Gives those behind it.
    #[inline]
    fn plain<'a>(
        &mut self,
        lines: &'a [u8],
        event: &mut Event<'a>,
        sink: &mut impl Sink,
    ) -> Option<&'a [u8]> {
        if !self.reader.is_clear() || self.sequence.is_some() {
            return None;
        }
        let length = plain::event(lines, event)?;
        self.lines += 1;
        self.bytes += u64::try_from(length).unwrap_or(0);
        event.line = self.lines;
        event.boot = self.reader.boot();
        sink.event(event);
        lines.get(length..)
    }

    /// Reads the first of several lines, if it is a plain notice of a rate limit, of which a log can
    /// be full; `at` is where its anchor stands. Gives those behind it.
    fn suppressed<'a>(
        &mut self,
        lines: &'a [u8],
        at: usize,
        sink: &mut impl Sink,
    ) -> Option<&'a [u8]> {
        if !self.reader.is_clear() || self.sequence.is_some() {
            return None;
        }
        let (length, when, text, fact) = plain::suppressed(lines, at, &mut self.limited)?;
        self.lines += 1;
        self.bytes += u64::try_from(length).unwrap_or(0);
        let (line, boot) = (self.lines, self.reader.boot());
        sink.notice(&Notice { line, boot, when, text, driver: None, fact });
        lines.get(length..)
    }

    /// Skips the lines that do not have to be looked at. Gives the others and the first one's
    /// anchor, where that is known.
    fn next_anchored<'a>(&mut self, lines: &'a [u8]) -> Option<(&'a [u8], Option<Hit>)> {
        if self.reader.wants_next_line() || self.sequence.is_some() {
            return (!lines.is_empty()).then_some((lines, None));
        }
        let Some((family, at)) = self.reader.anchors.find(lines, 0) else {
            self.skip(lines);
            return None;
        };
        let before = lines.get(..at)?;
        let start = if at < FEW {
            // A few lines: counted as they are passed.
            let mut start = 0;
            for feed in memchr::memchr_iter(b'\n', before) {
                self.lines += 1;
                start = feed + 1;
            }
            self.bytes += u64::try_from(start).unwrap_or(0);
            start
        } else {
            let start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
            self.skip(before.get(..start)?);
            start
        };
        Some((lines.get(start..)?, Some((family, at - start))))
    }

    /// Looks at the first of several lines. Gives those behind it.
    fn first_line<'a>(
        &mut self,
        lines: &'a [u8],
        hit: Option<Hit>,
        sink: &mut impl Sink,
    ) -> &'a [u8] {
        let end = memchr::memchr(b'\n', lines).map_or(lines.len(), |at| at + 1);
        let (line, rest) = lines.split_at_checked(end).unwrap_or((lines, &[]));
        self.lines += 1;
        self.line(line, hit, sink);
        self.bytes += u64::try_from(line.len()).unwrap_or(0);
        rest
    }

    fn skip(&mut self, lines: &[u8]) {
        let count = memchr::memchr_iter(b'\n', lines).count();
        self.lines += u64::try_from(count).unwrap_or(0);
        // Only the very last line of the input can lack its line feed.
        if lines.last().is_some_and(|last| *last != b'\n') {
            self.lines += 1;
        }
        self.bytes += u64::try_from(lines.len()).unwrap_or(0);
    }

    /// Looks at one line. `hit` is its first anchor, where that is known.
    fn line(&mut self, line: &[u8], hit: Option<Hit>, sink: &mut impl Sink) {
        if line.len() > MAX_LINE {
            self.long_line(line, sink);
            return;
        }
        let line = text::trim_end(line);
        self.count_records(line, sink);
        let bare = text::trim_start(line);
        if matches!(bare.first(), Some(b'{' | b'"' | b'}')) {
            self.json(bare, sink);
        } else if clean::needs_cleaning(line) {
            let mut scratch = std::mem::take(&mut self.scratch);
            scratch.clear();
            clean::clean(line, &mut scratch);
            self.texts(&scratch, Stamp::default(), sink);
            self.scratch = scratch;
        } else {
            let place = Place { line: self.lines, byte: self.bytes };
            self.reader.line(line, Stamp::default(), hit, place, sink);
        }
    }

    /// A line in one piece that is too long: the same pieces as if it had come in chunks.
    fn long_line(&mut self, line: &[u8], sink: &mut impl Sink) {
        let place = Place { line: self.lines, byte: self.bytes };
        let mut start = 0;
        let mut from = 0;
        while line.len() - start > MAX_LINE + OVERLAP {
            let piece = line.get(start..start + MAX_LINE + OVERLAP).unwrap_or_default();
            let upto = MAX_LINE;
            let end = self.reader.piece(piece, from..upto, place, sink);
            let keep = upto - OVERLAP;
            from = end.max(upto) - keep;
            start += keep;
        }
        let piece = line.get(start..).unwrap_or_default();
        self.reader.piece(piece, from..piece.len(), place, sink);
    }

    /// Several texts, one a line, of one record.
    fn texts(&mut self, texts: &[u8], stamp: Stamp, sink: &mut impl Sink) {
        let mut stamp = stamp;
        for line in texts.split(|byte| *byte == b'\n') {
            let line = text::trim_end(line);
            if stamp.is_none() {
                // The later lines of a record have the time of the first.
                stamp = envelope::strip(line).stamp;
            }
            let place = Place { line: self.lines, byte: self.bytes };
            self.reader.line(line, stamp, None, place, sink);
        }
    }

    /// Notes the sequence number of a `/dev/kmsg` record and reports those that are missing.
    fn count_records(&mut self, line: &[u8], sink: &mut impl Sink) {
        if !line.first().is_some_and(u8::is_ascii_digit) {
            // The fields after a record (" DEVICE=…") belong to it.
            if !line.starts_with(b" ") {
                self.sequence = None;
            }
            return;
        }
        let Some(head) = envelope::kmsg_head(line) else {
            self.sequence = None;
            return;
        };
        if let Some(last) = self.sequence
            && let Some(missing) = head.sequence.checked_sub(last)
            && missing > 1
        {
            let stamp = Stamp { monotonic_us: Some(head.monotonic_us), ..Stamp::default() };
            let fact = Fact::RecordsLost { count: missing - 1 };
            let text = line;
            let (boot, when) = (self.reader.boot(), When::known(stamp));
            sink.notice(&Notice { line: self.lines, boot, when, text, driver: None, fact });
        }
        self.sequence = Some(head.sequence);
    }

    /// A line of JSON: `journalctl -o json`, `dmesg --json`, a container's log.
    fn json(&mut self, line: &[u8], sink: &mut impl Sink) {
        let mut stamp = std::mem::take(&mut self.json_stamp);
        let mut message: Option<Value<'_>> = None;
        let mut of_kernel = true;
        let mut scratch = std::mem::take(&mut self.scratch);
        json::walk(line, |token| match token {
            Token::Pair(key, value) => match (key, value) {
                (b"MESSAGE" | b"msg" | b"message" | b"log" | b"text" | b"line", _) => {
                    message = Some(value);
                }
                (b"_TRANSPORT", Value::Text(transport)) => of_kernel = transport == b"kernel",
                _ => json::time(key, value, &mut stamp),
            },
            Token::End => {
                if let Some(value) = message.take() {
                    json::decode(value, &mut scratch);
                    if of_kernel {
                        self.texts(&scratch, stamp, sink);
                    }
                }
                stamp = Stamp::default();
                of_kernel = true;
            }
        });
        match message {
            Some(value) => {
                json::decode(value, &mut scratch);
                if of_kernel {
                    self.texts(&scratch, stamp, sink);
                }
            }
            // The time of a record whose message stands on a line of its own.
            None => self.json_stamp = stamp,
        }
        self.scratch = scratch;
    }
}
