//! Counts the events of a kernel log: `klog-count FILE [THREADS]`. The benchmark's subject, and
//! the model for reading a large file on several processors with plain reads.

#![expect(clippy::disallowed_types, reason = "a benchmark reads its own file, not a host")]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::ExitCode;

use peerway_klog::{Scanner, Summary};

/// Bytes a read; fits the second-level cache.
const CHUNK: usize = 256 * 1024;

struct Part {
    summary: Summary,
    lines: u64,
    boots: u32,
}

fn scan(path: &str, from: u64, upto: u64) -> std::io::Result<Part> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; CHUNK];
    let context = from.min(Scanner::CONTEXT);
    file.seek(SeekFrom::Start(from - context))?;
    let mut before = vec![0; usize::try_from(context).unwrap_or(0)];
    file.read_exact(&mut before)?;
    let mut scanner = Scanner::resuming_after(&before);
    drop(before);
    let mut summary = Summary::new();
    let mut left = upto - from;
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let Some(space) = buffer.get_mut(..wanted) else { break };
        let count = file.read(space)?;
        if count == 0 {
            break;
        }
        scanner.feed(space.get(..count).unwrap_or_default(), &mut summary);
        left -= u64::try_from(count).unwrap_or(left);
    }
    if upto == u64::MAX || left > 0 {
        scanner.finish(&mut summary);
    } else {
        // What is still open here goes on in the next part, which has read this far back.
        scanner.finish_part(&mut summary);
    }
    Ok(Part { summary, lines: scanner.lines(), boots: scanner.boot() })
}

/// The first start of a line at or after `from`, if one is near.
fn line_start(path: &str, from: u64) -> std::io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut near = Vec::new();
    file.take(1 << 20).read_to_end(&mut near)?;
    let feed = memchr::memchr(b'\n', &near).and_then(|at| u64::try_from(at).ok());
    Ok(feed.map(|at| from + at + 1))
}

fn run(path: &str, threads: u64) -> std::io::Result<String> {
    let size = File::open(path)?.metadata()?.len();
    let mut cuts = vec![0];
    for part in 1..threads {
        cuts.extend(line_start(path, size / threads * part)?);
    }
    cuts.push(u64::MAX);
    cuts.dedup();
    let parts: Vec<std::io::Result<Part>> = std::thread::scope(|scope| {
        let running: Vec<_> = cuts
            .iter()
            .zip(cuts.iter().skip(1))
            .map(|(from, upto)| scope.spawn(move || scan(path, *from, *upto)))
            .collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let mut all: Option<(Summary, u64, u32)> = None;
    for part in parts {
        let part = part?;
        all = Some(match all {
            None => (part.summary, part.lines, part.boots),
            Some((mut summary, lines, boots)) => {
                summary.append(&part.summary, lines, boots);
                (summary, lines + part.lines, boots + part.boots)
            }
        });
    }
    let (summary, lines, _) = all.unwrap_or_else(|| (Summary::new(), 0, 0));
    let report = summary.report();
    Ok(format!(
        "lines {lines}, events {}, suppressed {}, rows {}\n",
        report.events,
        report.suppressed,
        report.requesters.len()
    ))
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else { return ExitCode::from(2) };
    let threads = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (text, code) = match run(&path, threads) {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(error) => (format!("cannot read {path:?}: {error}\n"), ExitCode::FAILURE),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}
