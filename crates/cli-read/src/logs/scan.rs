//! Scanning inputs: one after the other, a large one on several processors.

use std::io::Read as _;

use peerway_faults::collect::{Collector, Filter};
use peerway_klog::{Region, Scanner, Sink};

use super::input::Input;
use super::unpack;

/// Bytes a read: what was copied is still near when it is searched.
const CHUNK: usize = 128 << 10;
/// A part that is worth a thread.
const PART: u64 = 32 << 20;
/// Most threads: memory stays bounded, and a disk has enough of four readers.
const THREADS: u64 = 4;
/// How far ahead the start of a line is looked for; longer lines are one part.
const LONGEST: usize = 1 << 20;

/// What reading an input gave.
#[derive(Debug)]
pub struct Read {
    /// Its name.
    pub name: String,
    /// Its beginning, as much as was asked for.
    pub head: Vec<u8>,
    /// Lines.
    pub lines: u64,
    /// Boots: how many numbers the input's events can have.
    pub boots: u32,
    /// Why it could not be read to its end; what came before counts.
    pub incomplete: Option<String>,
}

/// What to read for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Regions that events are counted by.
    pub regions: Vec<Region>,
    /// Which part of the log counts.
    pub filter: Filter,
    /// Bytes of the beginning to keep.
    pub head: usize,
}

/// Reads an input to its end into a collector of its own. `boots_before` are those of the inputs
/// before it.
pub fn read(input: Input, wanted: &Wanted, boots_before: u32) -> (Read, Collector) {
    let whole = wanted.filter == Filter::default();
    if let Some(size) = input.size()
        && whole
        && size >= 2 * PART
        && !is_packed(&input)
    {
        return in_parts(&input, size, wanted);
    }
    let mut collector = collector(wanted).after(boots_before);
    let read = read_each(input, wanted.head, &mut collector);
    (read, collector)
}

fn collector(wanted: &Wanted) -> Collector {
    Collector::new(wanted.regions.clone(), wanted.filter)
}

/// Reads an input to its end; every event and notice goes to the sink as it is found.
pub fn read_each(input: Input, head: usize, sink: &mut impl Sink) -> Read {
    let name = input.name.clone();
    let mut scanner = Scanner::new();
    let mut read = Read { name, head: Vec::new(), lines: 0, boots: 0, incomplete: None };
    match unpack::open(input) {
        Ok(mut stream) => {
            let mut buffer = vec![0; CHUNK];
            loop {
                match stream.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => {
                        let chunk = buffer.get(..count).unwrap_or_default();
                        let room = head.saturating_sub(read.head.len());
                        read.head.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
                        scanner.feed(chunk, sink);
                    }
                    Err(error) => {
                        read.incomplete = Some(error.to_string());
                        break;
                    }
                }
            }
        }
        Err(error) => read.incomplete = Some(error.to_string()),
    }
    scanner.finish(sink);
    read.lines = scanner.lines();
    read.boots = scanner.boot() + 1;
    read
}

fn is_packed(input: &Input) -> bool {
    let mut magic = [0; 6];
    let count = input.read_at(&mut magic, 0).unwrap_or(0);
    let start = magic.get(..count).unwrap_or_default();
    !matches!(unpack::open(start), Ok(unpack::Stream::Plain(_)))
}

/// One part of a large file.
struct Part {
    collector: Collector,
    lines: u64,
    boots: u32,
    incomplete: Option<String>,
}

/// Shares a large file among threads: each part is scanned with the same result as if one had
/// read all.
fn in_parts(input: &Input, size: u64, wanted: &Wanted) -> (Read, Collector) {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let parts = u64::try_from(processors).unwrap_or(1).min(THREADS).min(size / PART).max(1);
    let mut cuts = vec![0];
    for part in 1..parts {
        cuts.extend(line_start(input, size / parts * part));
    }
    cuts.push(u64::MAX);
    cuts.dedup();
    let parts: Vec<Part> = std::thread::scope(|scope| {
        let mut ranges = cuts.iter().zip(cuts.iter().skip(1));
        // The first part is this thread's own, so that one processor needs no other.
        let first = ranges.next();
        let others: Vec<_> = ranges
            .map(|(from, upto)| scope.spawn(move || part(input, wanted, *from, *upto)))
            .collect();
        let mut parts: Vec<Part> =
            first.map(|(from, upto)| part(input, wanted, *from, *upto)).into_iter().collect();
        for other in others {
            parts.push(other.join().unwrap_or_else(|_| Part {
                collector: collector(wanted),
                lines: 0,
                boots: 0,
                incomplete: Some("a part of it could not be scanned".to_owned()),
            }));
        }
        parts
    });
    let mut head = vec![0; wanted.head];
    let count = input.read_at(&mut head, 0).unwrap_or(0);
    head.truncate(count);
    let mut read = Read { name: input.name.clone(), head, lines: 0, boots: 0, incomplete: None };
    let mut all = None;
    for part in parts {
        match &mut all {
            // The first part is what the others are added to.
            None => all = Some(part.collector),
            Some(all) => all.append(&part.collector, read.lines, read.boots),
        }
        read.lines += part.lines;
        read.boots += part.boots;
        read.incomplete = read.incomplete.or(part.incomplete);
    }
    read.boots += 1;
    (read, all.unwrap_or_else(|| collector(wanted)))
}

fn part(input: &Input, wanted: &Wanted, from: u64, upto: u64) -> Part {
    let mut collector = collector(wanted);
    let before = from.min(Scanner::CONTEXT);
    let mut context = vec![0; usize::try_from(before).unwrap_or(0)];
    let filled = fill(input, &mut context, from - before);
    context.truncate(filled);
    let mut scanner = Scanner::resuming_after(&context);
    drop(context);
    let mut buffer = vec![0; CHUNK];
    let mut at = from;
    let mut incomplete = None;
    while at < upto {
        let left = usize::try_from(upto - at).unwrap_or(CHUNK).min(CHUNK);
        let space = buffer.get_mut(..left).unwrap_or_default();
        match input.read_at(space, at) {
            Ok(0) => break,
            Ok(count) => {
                scanner.feed(space.get(..count).unwrap_or_default(), &mut collector);
                at += u64::try_from(count).unwrap_or(0);
            }
            Err(error) => {
                incomplete = Some(error.to_string());
                break;
            }
        }
    }
    if upto == u64::MAX || at < upto {
        scanner.finish(&mut collector);
    } else {
        // What is still open here goes on in the next part, which has read this far back.
        scanner.finish_part(&mut collector);
    }
    collector.settle();
    Part { collector, lines: scanner.lines(), boots: scanner.boot(), incomplete }
}

/// Reads as much as there is.
fn fill(input: &Input, buffer: &mut [u8], offset: u64) -> usize {
    let mut filled = 0;
    while let Some(space) = buffer.get_mut(filled..)
        && !space.is_empty()
    {
        match input.read_at(space, offset + u64::try_from(filled).unwrap_or(0)) {
            Ok(0) | Err(_) => break,
            Ok(count) => filled += count,
        }
    }
    filled
}

/// The first start of a line at or after an offset, if one is near.
fn line_start(input: &Input, from: u64) -> Option<u64> {
    let mut near = vec![0; LONGEST];
    let filled = fill(input, &mut near, from);
    let feed = near.get(..filled)?.iter().position(|byte| *byte == b'\n')?;
    Some(from + u64::try_from(feed).ok()? + 1)
}
