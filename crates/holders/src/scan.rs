//! The scan: every process, what it holds, and whether that could be seen.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::path::PathBuf;

use memchr::memmem::Finder;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use crate::list::{DeviceNumber, Environment, Held, HolderList, Process, ScanEnd, Unreadable};
use crate::parse::{self, Mapped, Stat, file_system_field};
use crate::pattern::{NodeKind, Patterns, kind_of_driver, region};
use crate::procfs::Directory;
use crate::regions::Regions;

/// Files of `/proc/PID` with a line or a few.
const SMALL: usize = 64 << 10;
/// Mappings beyond this are not read: some 600,000 of them, ten times the default limit of a
/// process (`vm.max_map_count`).
const MAPS_LIMIT: usize = 64 << 20;
/// Environments beyond this are not read; `execve` takes no longer one by default.
const ENVIRONMENT_LIMIT: usize = 2 << 20;
/// Inode number of the initial process namespace (`include/linux/proc_ns.h: PROC_PID_INIT_INO`).
const INITIAL_NAMESPACE: &[u8] = b"pid:[4026531836]";

/// What to scan for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanOptions {
    /// `/proc`, or that directory of a recorded host.
    pub proc_dir: PathBuf,
    /// The files that matter.
    pub patterns: Patterns,
    /// Whether to list processes that hold nothing, too; three more files are read for each.
    pub everyone: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { proc_dir: PathBuf::from("/proc"), patterns: Patterns::default(), everyone: false }
    }
}

/// One process that the scan has something to say about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// It holds something (or all processes were asked for).
    Process(Process),
    /// It may hold anything.
    Unreadable(Unreadable),
}

/// The process directory as a whole could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot list the processes in \"{path}\": {errno}", path = .path.display())]
pub struct ScanError {
    path: PathBuf,
    errno: Errno,
}

/// Scans and collects.
///
/// A process is looked at through one open directory, so that a number that is used again
/// meanwhile is not taken for it; a process that ends meanwhile is counted and is no error.
///
/// A thread that gave up sharing descriptors with its process (`CLONE_FILES`) is not looked at by
/// itself: only the leader's descriptors are, or those of another thread where the leader has
/// ended.
pub fn scan(options: &ScanOptions) -> Result<HolderList, ScanError> {
    let mut list = HolderList::default();
    let end = scan_each(options, |record| {
        match record {
            Record::Process(process) => list.processes.push(process),
            Record::Unreadable(process) => list.unreadable.push(process),
        }
        ControlFlow::Continue(())
    })?;
    list.end = Some(end);
    Ok(list)
}

/// Scans and hands over each process as it is found, by ascending number, until `each` breaks off.
pub fn scan_each(
    options: &ScanOptions,
    mut each: impl FnMut(Record) -> ControlFlow<()>,
) -> Result<ScanEnd, ScanError> {
    let failed = |errno| ScanError { path: options.proc_dir.clone(), errno };
    let proc_dir = Directory::open(&options.proc_dir).map_err(failed)?;
    let mut pids = Vec::new();
    let all = |pid, _: &CStr| {
        pids.push(pid);
        ControlFlow::Continue(())
    };
    proc_dir.each_number(all).map_err(failed)?;
    pids.sort_unstable();

    let regions = proc_dir.is_procfs().then(Regions::of_host).flatten();
    let mut needles = options.patterns.needles();
    let field = regions.as_ref().map(|regions| file_system_field(regions.file_system()));
    needles.extend(field.map(String::into_bytes));
    let mut scanner = Scanner::new(&proc_dir, options, &needles, regions);
    let mut end = scanner.end();
    for pid in pids {
        let mut ended = false;
        let mut hand_over = |record| ended |= each(record).is_break();
        match scanner.visit(pid) {
            Visit::KernelThread => end.kernel_threads = end.kernel_threads.saturating_add(1),
            Visit::Vanished => end.vanished = end.vanished.saturating_add(1),
            Visit::Seen { process, unreadable } => {
                end.processes = end.processes.saturating_add(1);
                if let Some(process) = process {
                    hand_over(Record::Process(process));
                }
                if let Some(unreadable) = unreadable {
                    hand_over(Record::Unreadable(unreadable));
                }
            }
        }
        if ended {
            end.gaps.push("the scan was broken off".to_owned());
            break;
        }
    }
    Ok(end)
}

enum Visit {
    KernelThread,
    Vanished,
    Seen { process: Option<Process>, unreadable: Option<Unreadable> },
}

/// What one process holds, and why it could not be seen.
#[derive(Default)]
struct Look {
    held: BTreeMap<(Vec<u8>, Option<u32>), Held>,
    descriptors: Option<Errno>,
    mappings: Option<Errno>,
}

struct Scanner<'s> {
    proc_dir: &'s Directory,
    options: &'s ScanOptions,
    needles: Vec<Finder<'s>>,
    /// Whether this is the kernel's `/proc`: links can be followed to what they stand for, and a
    /// missing file means that the process is gone.
    is_live: bool,
    /// Drivers that matter, by major number.
    drivers: BTreeMap<u32, NodeKind>,
    /// Memory regions of PCI functions, where this is a running host.
    regions: Option<Regions>,
    text: Vec<u8>,
    link: Vec<u8>,
}

impl<'s> Scanner<'s> {
    fn new(
        proc_dir: &'s Directory,
        options: &'s ScanOptions,
        needles: &'s [Vec<u8>],
        regions: Option<Regions>,
    ) -> Self {
        let devices = proc_dir.read_text("devices", SMALL).unwrap_or_default();
        let drivers = parse::character_drivers(&devices)
            .into_iter()
            .filter_map(|(major, name)| Some((major, kind_of_driver(name)?)))
            .collect();
        Self {
            proc_dir,
            options,
            needles: needles.iter().map(Finder::new).collect(),
            is_live: proc_dir.is_procfs(),
            drivers,
            regions,
            text: Vec::new(),
            link: Vec::new(),
        }
    }

    /// What is known of the scan before it begins.
    fn end(&mut self) -> ScanEnd {
        let mut end = ScanEnd::default();
        if !self.is_live {
            return end;
        }
        let own = self.proc_dir.below("self/ns");
        let namespace = own.and_then(|ns| ns.link(c"pid", &mut self.link).map(<[u8]>::to_vec));
        end.host_wide = namespace.ok().map(|name| name == INITIAL_NAMESPACE);
        let mounts = self.proc_dir.read_text("self/mountinfo", MAPS_LIMIT).unwrap_or_default();
        let target = self.options.proc_dir.to_string_lossy();
        let may_see_all = rustix::thread::capabilities(None)
            .is_ok_and(|c| c.effective.contains(CapabilitySet::SYS_PTRACE));
        if parse::hides_processes(&mounts, &target) && !may_see_all {
            end.gaps.push("/proc hides the processes of other users (hidepid)".to_owned());
        }
        end
    }

    fn visit(&mut self, pid: u32) -> Visit {
        let process_dir = match self.proc_dir.below(&pid.to_string()) {
            Ok(dir) => dir,
            Err(e) => return self.unseen(pid, e),
        };
        let stat = match process_dir.read("stat", SMALL, &mut self.text) {
            Ok(_) => parse::stat(&self.text),
            Err(e) => return self.unseen(pid, e),
        };
        let Some(stat) = stat else { return self.unseen(pid, Errno::INVAL) };
        if stat.is_kernel_thread {
            return Visit::KernelThread;
        }
        let look = self.look(&process_dir, &stat, pid);
        let closed = look.descriptors.is_some() || look.mappings.is_some();
        // Reading from the directory of a process that is gone gives ESRCH or ENOENT.
        let gone = is_gone(look.descriptors) || is_gone(look.mappings);
        if self.is_live && closed && (gone || self.has_ended(&process_dir)) {
            return Visit::Vanished;
        }
        let unreadable = closed.then(|| Unreadable {
            pid,
            comm: stat.comm.clone(),
            start_ticks: stat.start_ticks,
            descriptors: look.descriptors.map(Errno::raw_os_error),
            mappings: look.mappings.map(Errno::raw_os_error),
        });
        let wanted = self.options.everyone || !look.held.is_empty();
        let held = look.held.into_values().collect();
        let process = wanted.then(|| self.describe(&process_dir, pid, stat, held));
        Visit::Seen { process, unreadable }
    }

    fn unseen(&self, pid: u32, errno: Errno) -> Visit {
        if self.is_live && is_gone(Some(errno)) {
            return Visit::Vanished;
        }
        let errno = Some(errno.raw_os_error());
        let unreadable = Unreadable {
            pid,
            comm: String::new(),
            start_ticks: 0,
            descriptors: errno,
            mappings: errno,
        };
        Visit::Seen { process: None, unreadable: Some(unreadable) }
    }

    /// Looks at the descriptors and mappings. A leader that has ended holds nothing itself, but
    /// its other threads may go on with all that the process holds; then one of them is asked.
    fn look(&mut self, process_dir: &Directory, stat: &Stat, pid: u32) -> Look {
        if holds_nothing(stat) {
            return Look::default();
        }
        if !stat.has_ended() {
            return self.look_at(process_dir);
        }
        let mut threads = Vec::new();
        let listed = process_dir.below("task").and_then(|tasks| {
            tasks.each_number(|thread, _| {
                threads.push(thread);
                ControlFlow::Continue(())
            })?;
            Ok(tasks)
        });
        let tasks = match listed {
            Ok(tasks) => tasks,
            Err(e) => {
                return Look { descriptors: Some(e), mappings: Some(e), ..Look::default() };
            }
        };
        for thread in threads.into_iter().filter(|thread| *thread != pid) {
            let Ok(dir) = tasks.below(&thread.to_string()) else { continue };
            let goes_on = dir.read("stat", SMALL, &mut self.text).is_ok()
                && parse::stat(&self.text).is_some_and(|s| !s.has_ended());
            if goes_on {
                return self.look_at(&dir);
            }
        }
        self.look_at(process_dir)
    }

    /// Whether a process has ended since it was first looked at. One that is ending is closed to
    /// its own user, which is no reason to count it among those that cannot be read.
    fn has_ended(&mut self, process_dir: &Directory) -> bool {
        match process_dir.read("stat", SMALL, &mut self.text) {
            Ok(_) => parse::stat(&self.text).is_some_and(|s| holds_nothing(&s)),
            Err(e) => is_gone(Some(e)),
        }
    }

    fn look_at(&mut self, dir: &Directory) -> Look {
        let mut look = Look::default();
        look.descriptors = self.descriptors(dir, &mut look.held).err();
        look.mappings = self.mappings(dir, &mut look.held).err();
        look
    }

    fn descriptors(
        &mut self,
        dir: &Directory,
        held: &mut BTreeMap<(Vec<u8>, Option<u32>), Held>,
    ) -> Result<(), Errno> {
        let descriptors = dir.below("fd")?;
        let mut failed = None;
        descriptors.each_number(|fd, name| {
            match self.descriptor(dir, &descriptors, name) {
                Ok(Some(mut found)) => {
                    // Two devices taken from VFIO groups bear the same name.
                    let alone = (found.kind == NodeKind::VfioDevice).then_some(fd);
                    found.descriptors.push(fd);
                    held.entry((found.path.clone().into_bytes(), alone))
                        .and_modify(|known| known.descriptors.push(fd))
                        .or_insert(found);
                }
                // Closed meanwhile.
                Ok(None) | Err(Errno::NOENT) => {}
                Err(e) => {
                    failed = Some(e);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        for found in held.values_mut() {
            found.descriptors.sort_unstable();
        }
        failed.map_or(Ok(()), Err)
    }

    /// One descriptor, if it matters.
    fn descriptor(
        &mut self,
        dir: &Directory,
        descriptors: &Directory,
        name: &CStr,
    ) -> Result<Option<Held>, Errno> {
        let link = descriptors.link(name, &mut self.link)?;
        let (path, deleted) = parse::without_mark(link);
        let is_path = path.starts_with(b"/");
        // `None`: not looked at.
        let mut node = None;
        if self.is_live && is_path {
            node = match descriptors.behind(name) {
                Ok(behind) => Some(behind),
                Err(e @ (Errno::NOENT | Errno::SRCH)) => return Err(e),
                // A server that is gone, a file system of another user: the name has to do.
                Err(_) => None,
            };
        }
        let device = node.and_then(|behind| behind.device);
        let by_path = self.options.patterns.find(path).filter(|(pattern, _)| {
            // A file that only looks like a node does not count.
            pattern.any_file || node.is_none_or(|behind| behind.device.is_some())
        });
        let kind = by_path.map(|(_, kind)| kind);
        let kind = kind.or_else(|| self.drivers.get(&device?.major).copied());
        let region_of = match (kind, node, &mut self.regions) {
            (None, Some(behind), Some(regions)) => {
                regions.function(behind.file_system, behind.inode)
            }
            _ => None,
        };
        let Some(kind) = kind.or(region_of.is_some().then_some(NodeKind::PciMemory)) else {
            return Ok(None);
        };
        let mut found = new_held(path, deleted, kind, device);
        found.region_of = region_of.or(found.region_of.take());
        if matches!(kind, NodeKind::Vfio | NodeKind::VfioDevice | NodeKind::Dri) {
            let info = format!("fdinfo/{}", name.to_string_lossy());
            if dir.read(&info, SMALL, &mut self.text).is_ok() {
                found.vfio_syspath = parse::fdinfo(&self.text, "vfio-device-syspath");
                found.drm_address = parse::fdinfo(&self.text, "drm-pdev");
            }
        }
        Ok(Some(found))
    }

    fn mappings(
        &mut self,
        dir: &Directory,
        held: &mut BTreeMap<(Vec<u8>, Option<u32>), Held>,
    ) -> Result<(), Errno> {
        let whole = dir.read("maps", MAPS_LIMIT, &mut self.text)?;
        let text = std::mem::take(&mut self.text);
        for mapped in parse::mapped(&text, &self.needles) {
            let Some(found) = self.mapping(dir, &mapped) else { continue };
            let known = held.entry((found.path.clone().into_bytes(), None)).or_insert(found);
            known.mappings = known.mappings.saturating_add(1);
        }
        self.text = text;
        if whole { Ok(()) } else { Err(Errno::OVERFLOW) }
    }

    /// One mapping, if it matters: by its name, by the numbers of the node that it is of, or as a
    /// memory region of a device.
    fn mapping(&mut self, dir: &Directory, mapped: &Mapped<'_>) -> Option<Held> {
        let (path, deleted) = parse::without_mark(mapped.path);
        let mut device = None;
        if self.is_live && !deleted && parse::may_be_node(path) {
            // As its process sees it: a container's nodes have names of their own.
            let place = CString::new([b"root", path].concat()).ok();
            device = place.and_then(|place| dir.behind(&place).ok()?.device);
        }
        let kind = self.options.patterns.find(path).map(|(_, kind)| kind);
        let kind = kind.or_else(|| self.drivers.get(&device?.major).copied());
        if let Some(kind) = kind {
            return Some(new_held(path, deleted, kind, device));
        }
        let function = self.regions.as_mut()?.function(mapped.file_system, mapped.inode)?;
        let mut found = new_held(path, deleted, NodeKind::PciMemory, None);
        found.region_of = Some(function);
        Some(found)
    }

    fn describe(&mut self, dir: &Directory, pid: u32, stat: Stat, held: Vec<Held>) -> Process {
        let status = dir.read("status", SMALL, &mut self.text).is_ok();
        let uid = status.then(|| parse::uid(&self.text)).flatten();
        let cgroup = dir.read_text("cgroup", SMALL).unwrap_or_default().trim_end().to_owned();
        let environment = if held.iter().any(|h| h.kind.is_gpu()) {
            match dir.read("environ", ENVIRONMENT_LIMIT, &mut self.text) {
                Ok(whole) => {
                    Environment::Read { variables: parse::switches(&self.text), truncated: !whole }
                }
                Err(e) => Environment::Unreadable { errno: e.raw_os_error() },
            }
        } else {
            Environment::NotRead
        };
        // What was passed over is not kept in memory either.
        self.text.clear();
        let Stat { comm, start_ticks, .. } = stat;
        Process { pid, comm, start_ticks, uid, cgroup, held, environment }
    }
}

fn new_held(path: &[u8], deleted: bool, kind: NodeKind, device: Option<DeviceNumber>) -> Held {
    // `nvidiactl` and the GPUs share a driver; its minor number 255 is no GPU.
    let is_control = kind == NodeKind::NvidiaGpu && device.is_some_and(|d| d.minor >= 254);
    Held {
        path: String::from_utf8_lossy(path).into_owned(),
        kind: if is_control { NodeKind::NvidiaShared } else { kind },
        descriptors: Vec::new(),
        mappings: 0,
        device,
        deleted,
        vfio_syspath: None,
        drm_address: None,
        region_of: region(path).filter(|_| kind == NodeKind::PciMemory).map(str::to_owned),
    }
}

/// A process whose last thread has ended waits for its parent and has let go of everything
/// (`kernel/exit.c: do_exit()` closes files and memory first).
fn holds_nothing(stat: &Stat) -> bool {
    stat.has_ended() && stat.threads < 2
}

fn is_gone(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::SRCH | Errno::NOENT))
}

#[cfg(test)]
mod tests;
