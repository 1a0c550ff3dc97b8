//! The `.host` format: a recorded host as one text file that a person can review.
//!
//! ```text
//! peerway-host 1
//! # what this host is
//! //- /sys/kernel/iommu_groups/42/type
//! DMA-FQ
//! //- /sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:00:01.1/0000:01:00.0
//! //- /sys/firmware/acpi/tables/IVRS !EACCES
//! //- /sys/devices/x/config hex 4096 64
//! 0: de10b52b
//! 34: 60
//! //- /dev/vfio/
//! //- end 5
//! ```
//!
//! In paths and link targets a blank, a line's end and a backslash that could be taken for one of
//! these are written as in `/proc/mounts`: `\040`, `\012`, `\015`, `\134`.
//!
//! A text entry's content is every line up to the next `//- `; a content line that begins with
//! `//- ` or `\` is written with `\` before it. `no-newline` after the path says that the last
//! line has no newline. The last line counts the entries, so that a cut file is noticed.

mod escape;

use std::fmt::Write as _;

use rustix::io::Errno;
use thiserror::Error;

use crate::error::shown;
use crate::tree::{AddError, Node, Tree};
use escape::{escaped, unescaped};

/// Number of the format that this program writes and the newest that it reads.
pub const FORMAT: u32 = 1;

/// Files above this size are refused: the largest real capture is a hundredth of it.
pub const MOST_BYTES: usize = 64 << 20;

/// Nodes of one file: three times what a host of 10,000 functions has with all its files.
const MOST_NODES: usize = 1 << 20;

/// Longest path (`PATH_MAX` of the kernel).
const LONGEST_PATH: usize = 4096;

/// Why a `.host` file was refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HostFileError {
    /// The first line is not the format's.
    #[error("not a .host file: its first line must be \"peerway-host {FORMAT}\"")]
    NotOne,
    /// Written by a newer program.
    #[error("a .host file of format {found}; this program reads formats up to {FORMAT}: update it")]
    Newer {
        /// Its number.
        found: u32,
    },
    /// A line that does not belong there.
    #[error("line {line} of the .host file: {what}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// The count at the end is missing or wrong.
    #[error("the .host file is cut: {0}")]
    Cut(String),
    /// Larger than [`MOST_BYTES`].
    #[error("the .host file is larger than {MOST_BYTES} bytes")]
    TooLarge,
}

/// Reads a `.host` file.
pub fn parse(text: &str) -> Result<Tree, HostFileError> {
    if text.len() > MOST_BYTES {
        return Err(HostFileError::TooLarge);
    }
    let mut lines = text.split_inclusive('\n').enumerate();
    check_first_line(lines.next().map(|(_, line)| line))?;
    let mut state = State::default();
    for (index, line) in lines {
        let number = index + 1;
        if let Some(head) = line.strip_prefix("//- ") {
            state.close(number)?;
            if state.end.is_some() {
                return Err(line_error(number, "an entry after the end"));
            }
            let head = head.trim_end_matches(['\n', '\r']);
            match head.strip_prefix("end ") {
                Some(count) => {
                    let count = count
                        .trim()
                        .parse()
                        .map_err(|_| line_error(number, "the end needs the number of entries"))?;
                    state.end = Some(count);
                }
                None => state.open = Some(Open { line: number, head: parse_head(head, number)? }),
            }
        } else {
            state.content_line(line, number)?;
        }
    }
    state.close(usize::MAX)?;
    match state.end {
        Some(count) if count == state.count => Ok(state.tree),
        Some(count) => {
            Err(HostFileError::Cut(format!("{count} entries announced, {} there", state.count)))
        }
        None => Err(HostFileError::Cut("its last line, \"//- end N\", is missing".to_owned())),
    }
}

fn check_first_line(line: Option<&str>) -> Result<(), HostFileError> {
    let number = line
        .and_then(|line| line.trim_end().strip_prefix("peerway-host "))
        .ok_or(HostFileError::NotOne)?;
    match number.parse::<u32>() {
        Ok(FORMAT) => Ok(()),
        Ok(found) if found > FORMAT => Err(HostFileError::Newer { found }),
        Ok(_) | Err(_) => Err(HostFileError::NotOne),
    }
}

fn line_error(line: usize, what: impl Into<String>) -> HostFileError {
    HostFileError::Line { line, what: what.into() }
}

/// The heading of an entry.
enum Head {
    Directory(String),
    Link(String, String),
    Fails(String, Errno),
    Hangs(String),
    Text { path: String, newline: bool },
    Hex { path: String, size: u64, readable: u64 },
}

struct Open {
    line: usize,
    head: Head,
}

#[derive(Default)]
struct State {
    tree: Tree,
    count: usize,
    end: Option<usize>,
    open: Option<Open>,
    text: String,
    parts: Vec<(u64, Vec<u8>)>,
}

impl State {
    fn content_line(&mut self, line: &str, number: usize) -> Result<(), HostFileError> {
        match &self.open {
            Some(Open { head: Head::Text { .. }, .. }) => {
                self.text.push_str(line.strip_prefix('\\').unwrap_or(line));
                Ok(())
            }
            Some(Open { head: Head::Hex { size, .. }, .. }) => {
                if line.trim().is_empty() {
                    return Ok(());
                }
                let part =
                    hex_line(line.trim_end(), *size).map_err(|what| line_error(number, what))?;
                push_part(&mut self.parts, part).map_err(|what| line_error(number, what))
            }
            _ if line.trim().is_empty() || line.starts_with('#') => Ok(()),
            _ => Err(line_error(number, "content that belongs to no entry")),
        }
    }

    fn close(&mut self, _next: usize) -> Result<(), HostFileError> {
        let Some(Open { line, head }) = self.open.take() else { return Ok(()) };
        let text = std::mem::take(&mut self.text);
        let parts = std::mem::take(&mut self.parts);
        let (path, node) = match head {
            Head::Directory(path) => (path, Node::Directory(std::collections::BTreeMap::new())),
            Head::Link(path, target) => (path, Node::Link(target)),
            Head::Fails(path, errno) => (path, Node::Fails(errno)),
            Head::Hangs(path) => (path, Node::Hangs),
            Head::Text { path, newline } => {
                let text = if newline { text.as_str() } else { text.trim_end_matches('\n') };
                (path, Node::File(text.as_bytes().to_vec()))
            }
            Head::Hex { path, size, readable } => (path, hex_node(size, readable, parts)),
        };
        self.count += 1;
        if path.len() >= LONGEST_PATH {
            return Err(line_error(line, format!("the path {} is too long", shown(&path))));
        }
        if self.tree.size() >= MOST_NODES {
            return Err(line_error(line, "more files than any host has"));
        }
        self.tree.add(&path, node).map_err(|error| {
            line_error(
                line,
                match error {
                    AddError::BadPath => format!("{} is no plain absolute path", shown(&path)),
                    AddError::NotADirectory => {
                        format!("{path:?} lies below something that is no directory")
                    }
                    AddError::Twice => format!("{path:?} stands there twice"),
                },
            )
        })
    }
}

/// A hex entry that holds all its bytes is an ordinary file.
fn hex_node(size: u64, readable: u64, mut parts: Vec<(u64, Vec<u8>)>) -> Node {
    let whole = match parts.as_slice() {
        [] => size == 0,
        [(0, bytes)] => u64::try_from(bytes.len()) == Ok(size),
        _ => false,
    };
    if whole && readable == size {
        Node::File(parts.pop().map(|(_, bytes)| bytes).unwrap_or_default())
    } else {
        Node::Sparse { size, readable, parts }
    }
}

fn parse_head(head: &str, line: usize) -> Result<Head, HostFileError> {
    Ok(match parse_raw_head(head, line)? {
        Head::Directory(path) => Head::Directory(unescaped(path)),
        Head::Link(path, target) => Head::Link(unescaped(path), unescaped(target)),
        Head::Fails(path, errno) => Head::Fails(unescaped(path), errno),
        Head::Hangs(path) => Head::Hangs(unescaped(path)),
        Head::Text { path, newline } => Head::Text { path: unescaped(path), newline },
        Head::Hex { path, size, readable } => Head::Hex { path: unescaped(path), size, readable },
    })
}

fn parse_raw_head(head: &str, line: usize) -> Result<Head, HostFileError> {
    if let Some((path, target)) = head.split_once(" -> ") {
        return Ok(Head::Link(path.to_owned(), target.to_owned()));
    }
    if let Some((path, failure)) = head.rsplit_once(" !") {
        if failure == "HANG" {
            return Ok(Head::Hangs(path.to_owned()));
        }
        let errno = errno_by_name(failure)
            .ok_or_else(|| line_error(line, format!("{} is no error name", shown(failure))))?;
        return Ok(Head::Fails(path.to_owned(), errno));
    }
    if let Some((path, sizes)) = head.rsplit_once(" hex ") {
        let bad = || line_error(line, "hex needs a size, and perhaps how much is readable");
        let mut numbers = sizes.split(' ').map(str::parse::<u64>);
        let size = numbers.next().ok_or_else(bad)?.map_err(|_| bad())?;
        let readable = numbers.next().transpose().map_err(|_| bad())?.unwrap_or(size).min(size);
        return Ok(Head::Hex { path: path.to_owned(), size, readable });
    }
    if let Some(path) = head.strip_suffix(" no-newline") {
        return Ok(Head::Text { path: path.to_owned(), newline: false });
    }
    if let Some(path) = head.strip_suffix('/') {
        return Ok(Head::Directory(path.to_owned()));
    }
    Ok(Head::Text { path: head.to_owned(), newline: true })
}

/// `OFFSET: BYTES`, both hexadecimal, blanks between bytes allowed.
fn hex_line(line: &str, size: u64) -> Result<(u64, Vec<u8>), String> {
    let (offset, bytes) = line.split_once(':').ok_or("hex lines read OFFSET: BYTES")?;
    let offset =
        u64::from_str_radix(offset.trim(), 16).map_err(|_| "the offset is no hex number")?;
    let digits: Vec<u8> = bytes
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()
        .ok_or("a character that is no hex digit")?;
    if !digits.len().is_multiple_of(2) {
        return Err("an odd number of hex digits".to_owned());
    }
    let bytes: Vec<u8> =
        digits.chunks_exact(2).filter_map(|pair| Some(pair.first()? << 4 | pair.get(1)?)).collect();
    let end = u64::try_from(bytes.len()).ok().and_then(|length| offset.checked_add(length));
    if end.is_none_or(|end| end > size) {
        return Err("bytes beyond the size of the file".to_owned());
    }
    Ok((offset, bytes))
}

/// Adds a part, joining it to the one before where they touch.
fn push_part(
    parts: &mut Vec<(u64, Vec<u8>)>,
    (offset, bytes): (u64, Vec<u8>),
) -> Result<(), String> {
    if bytes.is_empty() {
        return Ok(());
    }
    if let Some((start, last)) = parts.last_mut() {
        let end = start.saturating_add(u64::try_from(last.len()).unwrap_or(u64::MAX));
        if offset < end {
            return Err("hex lines must go upwards and must not overlap".to_owned());
        }
        if offset == end {
            last.extend_from_slice(&bytes);
            return Ok(());
        }
    }
    parts.push((offset, bytes));
    Ok(())
}

const ERRNO_NAMES: [(&str, Errno); 14] = [
    ("EACCES", Errno::ACCESS),
    ("EPERM", Errno::PERM),
    ("ENOENT", Errno::NOENT),
    ("ENODEV", Errno::NODEV),
    ("ENXIO", Errno::NXIO),
    ("EIO", Errno::IO),
    ("EBUSY", Errno::BUSY),
    ("EINVAL", Errno::INVAL),
    ("ENOTDIR", Errno::NOTDIR),
    ("EISDIR", Errno::ISDIR),
    ("ELOOP", Errno::LOOP),
    ("ENOMEM", Errno::NOMEM),
    ("ENOTCONN", Errno::NOTCONN),
    ("EOPNOTSUPP", Errno::OPNOTSUPP),
];

fn errno_by_name(name: &str) -> Option<Errno> {
    ERRNO_NAMES.iter().find(|(known, _)| *known == name).map(|(_, errno)| *errno)
}

/// Name of an error number, for writing; unusual ones are recorded as `EIO`.
fn errno_name(errno: Errno) -> &'static str {
    ERRNO_NAMES.iter().find(|(_, known)| *known == errno).map_or("EIO", |(name, _)| name)
}

/// Writes a `.host` file.
#[derive(Debug)]
pub struct Writer {
    out: String,
    count: usize,
}

impl Writer {
    /// Starts a file with a comment of one or more lines.
    pub fn new(comment: &str) -> Self {
        let mut out = format!("peerway-host {FORMAT}\n");
        for line in comment.lines() {
            out.push_str("# ");
            out.push_str(line);
            out.push('\n');
        }
        Self { out, count: 0 }
    }

    /// Adds one node.
    pub fn entry(&mut self, path: &str, node: &Node) {
        self.count += 1;
        self.out.push_str("//- ");
        self.out.push_str(&escaped(path, true));
        match node {
            Node::Directory(_) => self.out.push_str("/\n"),
            Node::Link(target) => {
                self.out.push_str(" -> ");
                self.out.push_str(&escaped(target, false));
                self.out.push('\n');
            }
            Node::Fails(errno) => {
                self.out.push_str(" !");
                self.out.push_str(errno_name(*errno));
                self.out.push('\n');
            }
            Node::Hangs => self.out.push_str(" !HANG\n"),
            Node::File(bytes) => self.file(bytes),
            Node::Sparse { size, readable, parts } => {
                self.append(format_args!(" hex {size} {readable}\n"));
                for (offset, bytes) in parts {
                    self.hex(*offset, bytes);
                }
            }
        }
    }

    fn file(&mut self, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains(['\0', '\r']) => {
                let newline = text.ends_with('\n') || text.is_empty();
                self.out.push_str(if newline { "\n" } else { " no-newline\n" });
                for line in text.split_inclusive('\n') {
                    if line.starts_with("//- ") || line.starts_with('\\') {
                        self.out.push('\\');
                    }
                    self.out.push_str(line);
                }
                if !newline {
                    self.out.push('\n');
                }
            }
            _ => {
                self.append(format_args!(" hex {}\n", bytes.len()));
                self.hex(0, bytes);
            }
        }
    }

    fn hex(&mut self, offset: u64, bytes: &[u8]) {
        for (chunk, at) in bytes.chunks(32).zip((offset..).step_by(32)) {
            self.append(format_args!("{at:x}: "));
            for byte in chunk {
                self.append(format_args!("{byte:02x}"));
            }
            self.out.push('\n');
        }
    }

    fn append(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        if self.out.write_fmt(text).is_err() {
            self.out.push('?');
        }
    }

    /// Closes the file.
    pub fn finish(mut self) -> String {
        let count = self.count;
        self.append(format_args!("//- end {count}\n"));
        self.out
    }
}

#[cfg(test)]
mod tests;
