//! The child's side of the slow reader.

use std::os::fd::OwnedFd;
use std::path::Path;

use peerway_walls::{Capability, Plan};
use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::SlowOptions;
use super::protocol::{self, Answer, EntryKind, FRAME_LIMIT, HEADER, Request, SlowEntry};
use crate::child;

/// The child's work: answers until nobody asks any more.
pub(crate) fn main(options: &str) -> Result<(), String> {
    match prepare(options) {
        Ok((server, walls)) => {
            answer(&Answer::Walls(walls)).map_err(|e| e.to_string())?;
            server.serve().map_err(|e| e.to_string())
        }
        Err(why) => {
            answer(&Answer::Failed(why.clone())).map_err(|e| e.to_string())?;
            Err(why)
        }
    }
}

fn prepare(options: &str) -> Result<(Server, Vec<u8>), String> {
    let options: SlowOptions = serde_json::from_str(options).map_err(|e| e.to_string())?;
    let report = walls(&options).raise().map_err(|e| e.to_string())?;
    child::end_when_unheard().map_err(|e| e.to_string())?;
    let walls = serde_json::to_vec(&report).map_err(|e| e.to_string())?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, &options.root, flags, Mode::empty())
        .map_err(|e| format!("cannot open \"{}\": {e}", options.root.display()))?;
    let is_host = options.root == Path::new("/");
    Ok((Server { root, is_host, open_special: options.open_special }, walls))
}

/// The trees' parents are named rather than the trees, since a rule looks at what it names, and
/// that may hang already. `openat2` is what keeps inside the root, so it is let through in any
/// case; where nothing guards it, the report says so.
fn walls(options: &SlowOptions) -> Plan {
    let mut plan = Plan::new()
        .write_to(std::io::stdout())
        .write_to(std::io::stderr())
        .keep(Capability::DacReadSearch, "files that only root may read")
        .unguarded_openat2();
    for tree in &options.trees {
        let tree = options.root.join(tree.strip_prefix("/").unwrap_or(tree));
        plan = plan.read_beneath(tree.parent().unwrap_or(&options.root));
    }
    plan
}

struct Server {
    root: OwnedFd,
    /// Whether the root is `/` itself, so that absolute links lead to where they should anyway.
    is_host: bool,
    open_special: bool,
}

impl Server {
    fn serve(&self) -> Result<(), Errno> {
        loop {
            let mut header = [0_u8; HEADER];
            if !receive(&mut header)? {
                return Ok(());
            }
            let length = protocol::length(&header).map_err(|_| Errno::PROTO)?;
            let mut payload = vec![0_u8; length];
            if !receive(&mut payload)? {
                return Ok(());
            }
            let request = Request::from_bytes(&payload).map_err(|_| Errno::PROTO)?;
            answer(&self.fulfil(&request))?;
        }
    }

    fn fulfil(&self, request: &Request) -> Answer {
        let done = match request {
            Request::Read { path, limit } => self.read(path, *limit),
            Request::List { path } => self.list(path).map(Answer::Entries),
            Request::Link { path } => self.link(path).map(Answer::Content),
        };
        done.unwrap_or_else(|e| Answer::Errno(e.raw_os_error()))
    }

    fn read(&self, path: &str, limit: usize) -> Result<Answer, Errno> {
        if !self.open_special {
            let found = self.open(path, OFlags::PATH)?;
            match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
                FileType::RegularFile => {}
                FileType::Directory => return Err(Errno::ISDIR),
                FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => return Ok(Answer::NotRegular),
            }
        }
        let file = self.open(path, OFlags::RDONLY | OFlags::NOCTTY)?;
        // One byte for the answer's own mark.
        let limit = limit.min(FRAME_LIMIT.saturating_sub(1));
        let mut bytes = Vec::new();
        loop {
            if bytes.len() > limit {
                return Ok(Answer::TooLong);
            }
            bytes.reserve(bytes.len().clamp(4096, 1 << 20));
            match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
                Ok(0) => return Ok(Answer::Content(bytes)),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn list(&self, path: &str) -> Result<Vec<SlowEntry>, Errno> {
        let directory = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut buffer = Vec::with_capacity(16 << 10);
        let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
        let mut found = Vec::new();
        let mut length = 1_usize;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile => EntryKind::File,
                FileType::Directory => EntryKind::Directory,
                FileType::Symlink => EntryKind::Link,
                FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => EntryKind::Other,
            };
            length = length.saturating_add(name.len()).saturating_add(2);
            if length > FRAME_LIMIT {
                return Err(Errno::OVERFLOW);
            }
            found.push(SlowEntry { name, kind });
        }
        found.sort();
        Ok(found)
    }

    fn link(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let found = self.open(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        rustix::fs::readlinkat(&found, "", Vec::new()).map(std::ffi::CString::into_bytes)
    }

    /// Opens below the root. Without `openat2` (Linux before 5.6) only the host's own root can be
    /// read, where nothing has to be kept inside.
    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let below = match path.trim_start_matches('/') {
            "" => ".",
            below => below,
        };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.root, below, flags, Mode::empty(), resolve) {
            Err(Errno::NOSYS) if self.is_host => {
                rustix::fs::openat(&self.root, below, flags, Mode::empty())
            }
            other => other,
        }
    }
}

/// Fills the buffer; `false` where nobody asks any more.
fn receive(buffer: &mut [u8]) -> Result<bool, Errno> {
    let stdin = std::io::stdin();
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(&stdin, rest) {
            Ok(0) => return Ok(false),
            Ok(read) => filled = filled.saturating_add(read),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

fn answer(answer: &Answer) -> Result<(), Errno> {
    let frame = protocol::frame(&answer.to_bytes()).map_err(|_| Errno::PROTO)?;
    child::write_all(std::io::stdout(), &frame)
}
