//! Ranks in processes of their own: they meet through files in the folder that the processes share.
#![expect(clippy::disallowed_methods, reason = "a library for tests, in a folder of the test")]

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{CUDA_ERROR, INVALID, p2p, say_channel};
use crate::calls::current;
use crate::machine::{Machine, lock, machine};
use crate::script::{Engine, Kind};

/// `ncclSystemError`.
const SYSTEM_ERROR: c_int = 2;

/// `ncclUniqueId`.
#[repr(C)]
struct UniqueId([c_char; 128]);

/// What the ranks of one communicator share.
pub(super) struct Spread {
    folder: PathBuf,
    rank: usize,
    size: usize,
    gpu: usize,
    /// Collectives so far.
    count: AtomicU64,
}

static NAMES: Mutex<u64> = Mutex::new(0);

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(out: *mut UniqueId) -> c_int {
    let machine = machine();
    if let Err(code) = machine.called("ncclGetUniqueId") {
        return code;
    }
    if out.is_null() {
        return INVALID;
    }
    let mut names = lock(&NAMES);
    *names += 1;
    let text = format!("{}-{names}", std::process::id());
    let mut name = UniqueId([0; 128]);
    for (slot, byte) in name.0.iter_mut().zip(text.bytes()) {
        *slot = c_char::try_from(byte).unwrap_or(0);
    }
    // SAFETY: by the C contract the pointer is to room for a name.
    unsafe { out.write(name) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRank(
    out: *mut *mut c_void,
    size: c_int,
    name: UniqueId,
    rank: c_int,
) -> c_int {
    let machine = machine();
    if let Err(code) = machine.called("ncclCommInitRank") {
        return code;
    }
    let (Ok(size), Ok(rank), Ok(gpu)) = (usize::try_from(size), usize::try_from(rank), current())
    else {
        return INVALID;
    };
    let Some(folder) = &machine.script.folder else { return SYSTEM_ERROR };
    let bytes = name.0.iter().map_while(|one| u8::try_from(*one).ok().filter(|byte| *byte != 0));
    let name: String = bytes.map(char::from).collect();
    let folder = Path::new(folder).join(format!("nccl-{name}"));
    // Made by whoever comes first.
    drop(std::fs::create_dir_all(&folder));
    let spread = Spread { folder, rank, size, gpu, count: AtomicU64::new(0) };
    let gpus = spread.meet("join", &gpu.to_string());
    let next = (rank + 1) % size;
    let peer = gpus.get(next).and_then(|text| text.parse().ok()).unwrap_or(gpu);
    if p2p() && matches!(machine.fault(gpu, peer, Engine::Sm), Some(Kind::Refuse(_))) {
        return CUDA_ERROR;
    }
    say_channel((rank, gpu), (next, peer), size, "P2P/IPC");
    let number = machine.handle();
    super::admit(number, super::Rank { gpu, size, spread: Some(Arc::new(spread)) });
    // SAFETY: by the C contract there is room for a handle.
    unsafe { out.write(std::ptr::without_provenance_mut(number)) };
    0
}

impl Spread {
    /// Says something under a name and waits until every rank has; what they said, by rank.
    fn meet(&self, name: &str, word: &str) -> Vec<String> {
        let path = |rank: usize| self.folder.join(format!("{name}-{rank}"));
        let fresh = self.folder.join(format!("{name}-{}.new", self.rank));
        let written = std::fs::write(&fresh, word).and_then(|()| {
            // Under its name it is whole.
            std::fs::rename(&fresh, path(self.rank))
        });
        assert!(written.is_ok(), "{written:?}");
        (0..self.size)
            .map(|rank| {
                loop {
                    match std::fs::read_to_string(path(rank)) {
                        Ok(text) => break text,
                        Err(_) => std::thread::sleep(Duration::from_micros(50)),
                    }
                }
            })
            .collect()
    }

    /// Waits until every rank has left.
    pub(super) fn leave(&self) {
        self.meet("leave", "");
    }

    /// This rank's sum; with P2P it loads the others' data over its links.
    pub(super) fn reduce(
        &self,
        machine: &Machine,
        (send, receive): (u64, u64),
        count: usize,
    ) -> Result<(), i32> {
        let turn = self.count.fetch_add(1, Ordering::Relaxed);
        let place = machine.place(self.gpu, send)?;
        let mut sum = vec![0_u32; count];
        for text in self.meet(&format!("{turn}-begin"), &format!("{} {}", place.gpu, place.at)) {
            let mut numbers = text.split(' ').flat_map(str::parse::<u64>);
            let gpu = numbers.next().and_then(|gpu| usize::try_from(gpu).ok()).unwrap_or(0);
            let at = numbers.next().unwrap_or(0);
            let mut data = vec![0; count * 4];
            if p2p() {
                machine.load_mapped(self.gpu, (gpu, at), &mut data)?;
            } else {
                machine.memory_of(gpu)?.read(at, &mut data);
            }
            for (slot, word) in sum.iter_mut().zip(data.as_chunks::<4>().0) {
                *slot = slot.wrapping_add(u32::from_le_bytes(*word));
            }
        }
        // A sum in place must not be seen by those who still add.
        self.meet(&format!("{turn}-end"), "");
        if let Some(before) = turn.checked_sub(1) {
            // All have passed that one.
            for name in ["begin", "end"] {
                drop(std::fs::remove_file(
                    self.folder.join(format!("{before}-{name}-{}", self.rank)),
                ));
            }
        }
        let bytes: Vec<u8> = sum.into_iter().flat_map(u32::to_le_bytes).collect();
        machine.store(self.gpu, Engine::Sm, receive, &bytes)
    }
}
