//! The formats of `/proc`, as pure functions over bytes. They take anything and never fail
//! loudly: what is not understood gives nothing.

use memchr::memmem::Finder;

use crate::list::DeviceNumber;

/// The fields of `/proc/PID/stat` that are used (`fs/proc/array.c: do_task_stat()`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) comm: String,
    pub(crate) state: u8,
    pub(crate) is_kernel_thread: bool,
    pub(crate) threads: u64,
    pub(crate) start_ticks: u64,
}

impl Stat {
    /// Whether this thread has ended and only waits to be asked for its exit code.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Reads one line of `stat`. The name stands in parentheses and may hold any byte, parentheses
/// and line breaks too, so the last closing one ends it.
pub(crate) fn stat(line: &[u8]) -> Option<Stat> {
    let open = memchr::memchr(b'(', line)?;
    let close = memchr::memrchr(b')', line)?;
    let comm = line.get(open.checked_add(1)?..close)?;
    let rest = std::str::from_utf8(line.get(close.checked_add(1)?..)?).ok()?;
    // Counted from the third field, which is the state.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field.checked_sub(3)?)?.parse::<u64>().ok();
    Some(Stat {
        comm: String::from_utf8_lossy(comm).into_owned(),
        state: *fields.first()?.as_bytes().first()?,
        is_kernel_thread: number(9)? & KERNEL_THREAD != 0,
        threads: number(20)?,
        start_ticks: number(22)?,
    })
}

/// The real user in `/proc/PID/status`.
pub(crate) fn uid(status: &[u8]) -> Option<u32> {
    let line = status.split(|b| *b == b'\n').find_map(|l| l.strip_prefix(b"Uid:"))?;
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// One line of `fdinfo`, by its key.
pub(crate) fn fdinfo(text: &[u8], key: &str) -> Option<String> {
    let line = text.split(|b| *b == b'\n').find_map(|l| l.strip_prefix(key.as_bytes()))?;
    let value = String::from_utf8_lossy(line.strip_prefix(b":")?);
    Some(value.trim().to_owned()).filter(|v| !v.is_empty())
}

/// What a link or a mapping names, and whether the kernel says that the name is gone.
pub(crate) fn without_mark(path: &[u8]) -> (&[u8], bool) {
    match path.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (path, false),
    }
}

/// One mapping of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapped<'t> {
    /// Numbers of the file system's device.
    pub(crate) file_system: DeviceNumber,
    /// Number of the file in it.
    pub(crate) inode: u64,
    /// Path, with the mark of a removed file.
    pub(crate) path: &'t [u8],
}

/// The mappings whose lines hold one of a few texts, in order.
///
/// The text is long and hits are rare, so it is searched for a few bytes first and only the lines
/// that hold them are taken apart.
pub(crate) fn mapped<'t>(text: &'t [u8], needles: &[Finder<'_>]) -> Vec<Mapped<'t>> {
    let mut found = Vec::new();
    for needle in needles {
        let mut from = 0;
        while let Some(at) = text.get(from..).and_then(|rest| needle.find(rest)) {
            let hit = from.saturating_add(at);
            let line = line_around(text, hit);
            from = line.end.saturating_add(1);
            if let Some(mapping) = text.get(line.clone()).and_then(mapping) {
                found.push((line.start, mapping));
            }
        }
    }
    // Two needles may hit one line.
    found.sort_unstable_by_key(|(start, _)| *start);
    found.dedup_by_key(|(start, _)| *start);
    found.into_iter().map(|(_, mapping)| mapping).collect()
}

/// What stands before the inode of files of one file system.
pub(crate) fn file_system_field(device: DeviceNumber) -> String {
    format!(" {:02x}:{:02x} ", device.major, device.minor)
}

fn line_around(text: &[u8], hit: usize) -> std::ops::Range<usize> {
    let before = text.get(..hit).unwrap_or_default();
    let start = memchr::memrchr(b'\n', before).map_or(0, |at| at.saturating_add(1));
    let rest = text.get(hit..).unwrap_or_default();
    let end = memchr::memchr(b'\n', rest).map_or(text.len(), |at| hit.saturating_add(at));
    start..end
}

/// A line of `maps`: addresses, access, offset, device, inode, path
/// (`fs/proc/task_mmu.c: show_map_vma()`). The path may hold spaces.
fn mapping(line: &[u8]) -> Option<Mapped<'_>> {
    let mut rest = line;
    let mut fields = [line; 5];
    for field in &mut fields {
        let (text, after) = rest.split_at_checked(memchr::memchr(b' ', rest)?)?;
        *field = text;
        rest = after.trim_ascii_start();
    }
    let [_, _, _, device, inode] = fields;
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let file_system = DeviceNumber { major: number(major)?, minor: number(minor)? };
    let inode = std::str::from_utf8(inode).ok()?.parse().ok()?;
    (!rest.is_empty()).then_some(Mapped { file_system, inode, path: rest })
}

/// Whether a mapped path may be a device's node: one is not asked for every piece of shared memory.
pub(crate) fn may_be_node(path: &[u8]) -> bool {
    path.starts_with(b"/dev/") && !path.starts_with(b"/dev/shm/") && path != b"/dev/zero"
}

/// Switches that bear on peer access beside the two families of [`is_switch`].
const SWITCHES: [&str; 6] = [
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "GGML_CUDA_P2P",
    "NVIDIA_VISIBLE_DEVICES",
    "VLLM_DISABLE_CUSTOM_ALL_REDUCE",
    "VLLM_SKIP_P2P_CHECK",
];

fn is_switch(name: &[u8]) -> bool {
    name.starts_with(b"NCCL_")
        || name.starts_with(b"SGLANG_")
        || SWITCHES.iter().any(|s| s.as_bytes() == name)
}

/// The switches in an environment; every other variable is passed over unread.
pub(crate) fn switches(environment: &[u8]) -> Vec<(String, String)> {
    environment
        .split(|b| *b == 0)
        .filter_map(|variable| {
            let (name, value) = variable.split_at_checked(memchr::memchr(b'=', variable)?)?;
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            Some((text(name), text(value.strip_prefix(b"=")?))).filter(|_| is_switch(name))
        })
        .collect()
}

/// The drivers of character devices and their major numbers, from `/proc/devices`.
pub(crate) fn character_drivers(devices: &str) -> Vec<(u32, &str)> {
    devices
        .lines()
        .skip_while(|l| *l != "Character devices:")
        .skip(1)
        .take_while(|l| *l != "Block devices:")
        .filter_map(|l| {
            let (major, name) = l.trim().split_once(' ')?;
            Some((major.parse().ok()?, name.trim()))
        })
        .collect()
}

/// Whether the `/proc` mounted at `target` leaves out processes of other users
/// (`fs/proc/root.c: proc_show_options()`), from `/proc/self/mountinfo`.
pub(crate) fn hides_processes(mountinfo: &str, target: &str) -> bool {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (place, file_system) = line.split_once(" - ")?;
            let mut file_system = file_system.split(' ');
            let is_it = place.split(' ').nth(4)? == target && file_system.next()? == "proc";
            file_system.nth(1).filter(|_| is_it)
        })
        .next_back()
        .is_some_and(|options| {
            let hiding = ["hidepid=2", "hidepid=4", "hidepid=invisible", "hidepid=ptraceable"];
            options.split(',').any(|option| hiding.contains(&option))
        })
}

#[cfg(test)]
mod tests;
