//! A private mount namespace in which every mount is read-only.
//!
//! It does what Landlock does against `O_CREAT`, `O_TRUNC` and their like, on kernels without
//! Landlock and for processes that Landlock would blind. It needs `CAP_SYS_ADMIN`, so it is
//! raised before the capabilities go.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;

use crate::capability::{Capability, holds};
use crate::plan::{MountPolicy, WallError};
use crate::report::{Standing, Wall, WallReport};

/// A mount table longer than this is not read to its end: 64 MiB hold some 400,000 mounts.
const TABLE_LIMIT: usize = 64 << 20;

/// At most this many mounts that stayed writable are named.
const NAMED_LIMIT: usize = 8;

/// Makes all mounts read-only for the calling thread and those it will start.
///
/// `landlock_guards`: Landlock will refuse creation and truncation. `devices`: device nodes
/// beneath `/dev` are to stay readable (the kernel log is one).
pub(crate) fn raise(
    policy: MountPolicy,
    landlock_guards: bool,
    devices: bool,
) -> Result<WallReport, WallError> {
    let left_out = |reason: &str| Standing::LeftOut { reason: reason.to_owned() };
    let missing = |reason: String| Standing::Missing { reason };
    match policy {
        MountPolicy::Never => return Ok(report(left_out("not asked for"))),
        MountPolicy::WhereLandlockLacks if landlock_guards => {
            return Ok(report(left_out("Landlock holds alone")));
        }
        MountPolicy::WhereLandlockLacks | MountPolicy::Always => {}
    }
    if !holds(Capability::SysAdmin)? {
        return Ok(report(missing("it takes CAP_SYS_ADMIN to make a mount namespace".to_owned())));
    }
    match unshare_mounts() {
        Ok(()) => {}
        // A container's own filter or the kernel's limit of namespaces; not ours to lift.
        Err(e @ (Errno::NOSYS | Errno::INVAL | Errno::PERM | Errno::NOSPC)) => {
            return Ok(report(missing(format!("no mount namespace can be made here: {e}"))));
        }
        Err(e) => return Err(refused("making a mount namespace")(e)),
    }
    // Ours shall go on hearing of the host's unmounts, else it would keep a file system busy that
    // the host lets go of; the host shall hear nothing of ours.
    let follow = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    match rustix::mount::mount_change("/", follow) {
        // The root of a chroot is no mount. Nothing is mounted here, so nothing could be heard.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(e) => return Err(refused("parting from the host's mounts")(e)),
    }

    let table = read_table().map_err(refused("reading /proc/self/mountinfo"))?;
    let mut writable = Vec::new();
    for mount in table.split(|b| *b == b'\n').filter_map(parse_mount) {
        if mount.automounter {
            continue;
        }
        if let Err(e) = remount(&mount, devices) {
            writable.push(format!("{}: {e}", mount.target.display()));
        }
    }
    Ok(report(standing(writable)))
}

fn standing(mut writable: Vec<String>) -> Standing {
    if writable.is_empty() {
        return Standing::Raised;
    }
    let rest = writable.len().saturating_sub(NAMED_LIMIT);
    writable.truncate(NAMED_LIMIT);
    if rest > 0 {
        writable.push(format!("{rest} more mounts"));
    }
    Standing::Partial { missing: writable }
}

#[expect(
    deprecated,
    reason = "the deprecation is about the flag FILES, which is not passed; the successor is unsafe for its sake"
)]
fn unshare_mounts() -> Result<(), Errno> {
    rustix::thread::unshare(UnshareFlags::NEWNS)
}

/// Flags of the mount alone (`MS_BIND`), so that the file system itself and every other mount of
/// it stay as they are.
fn remount(mount: &Mount, devices: bool) -> Result<(), Errno> {
    let mut flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC;
    if !(devices && mount.target.starts_with("/dev")) {
        flags |= MountFlags::NODEV;
    }
    match rustix::mount::mount_remount(&mount.target, flags, "") {
        // Unmounted since, or hidden beneath another mount: no path leads there.
        Ok(()) | Err(Errno::NOENT | Errno::INVAL | Errno::NOTDIR) => Ok(()),
        Err(e) => Err(e),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    target: PathBuf,
    /// Nothing can be created in an automounter's directory, and touching it may mount.
    automounter: bool,
}

/// One line of `/proc/self/mountinfo`: the fifth field is the target, the first after the
/// separator `-` the type (`fs/proc_namespace.c: show_mountinfo()`).
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let target = PathBuf::from(OsString::from_vec(unescape(fields.nth(4)?)));
    fields.find(|f| *f == b"-")?;
    Some(Mount { target, automounter: fields.next()? == b"autofs" })
}

/// Space, tab, newline and backslash stand as three octal digits (`fs/seq_file.c:
/// mangle_path()`).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = (byte == b'\\').then(|| tail.split_at_checked(3)).flatten().and_then(
            |(digits, after)| {
                let digits = std::str::from_utf8(digits).ok()?;
                Some((u8::from_str_radix(digits, 8).ok()?, after))
            },
        );
        let (decoded, after) = escaped.unwrap_or((byte, tail));
        out.push(decoded);
        rest = after;
    }
    out
}

fn read_table() -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open("/proc/self/mountinfo", flags, Mode::empty())?;
    let mut table = Vec::new();
    let mut buffer = vec![0_u8; 64 << 10];
    while table.len() < TABLE_LIMIT {
        match rustix::io::read(&file, &mut buffer) {
            Ok(0) => return Ok(table),
            Ok(read) => table.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Errno::OVERFLOW)
}

fn report(standing: Standing) -> WallReport {
    WallReport { wall: Wall::Mounts, standing, notes: Vec::new() }
}

fn refused(act: &'static str) -> impl Fn(Errno) -> WallError {
    move |e| WallError::refused(Wall::Mounts, act, e)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, target: &str, automounter: bool) {
        let expected = Mount { target: PathBuf::from(target), automounter };
        assert_eq!(parse_mount(line.as_bytes()), Some(expected), "{line}");
    }

    #[test]
    fn targets_and_types_come_out_of_the_table() {
        check("21 1 8:2 / / rw,noatime shared:1 - xfs /dev/sdb2 rw", "/", false);
        check("40 21 0:30 /sub /srv/two\\040words rw - btrfs /dev/sdc rw", "/srv/two words", false);
        check("41 21 0:31 / /a\\134b rw master:3 propagate_from:1 - tmpfs x rw", "/a\\b", false);
        check("42 21 0:32 / /net rw shared:9 - autofs map rw,fd=7", "/net", true);
    }

    #[test]
    fn lines_that_are_no_mount_give_nothing() {
        for line in ["", "1 2 3", "21 1 8:2 / / rw shared:1 xfs /dev/sdb2 rw", "- - - - - -"] {
            assert_eq!(parse_mount(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_backslash_without_digits_stays() {
        assert_eq!(unescape(b"a\\zz9\\04"), b"a\\zz9\\04");
    }

    #[test]
    fn many_writable_mounts_are_counted_rather_than_named() {
        let all: Vec<String> = (0..10).map(|n| format!("/mnt/{n}")).collect();
        let Standing::Partial { missing } = standing(all) else { panic!("expected gaps") };
        assert_eq!(missing.len(), NAMED_LIMIT + 1);
        assert_eq!(missing.last().map(String::as_str), Some("2 more mounts"));
        assert_eq!(standing(Vec::new()), Standing::Raised);
    }
}
