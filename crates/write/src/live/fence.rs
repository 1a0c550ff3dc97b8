//! The fence: a device node that nobody opens, tested by an open that must fail.

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::files::Files;

/// Permission bits.
const BITS: u32 = 0o7777;

/// Mode of a device node.
pub(super) fn mode(files: &Files, node: &str) -> Result<u32, Errno> {
    let (directory, name) = files.node(node)?;
    let state = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(state.st_mode) != FileType::CharacterDevice {
        return Err(Errno::INVAL);
    }
    Ok(state.st_mode & BITS)
}

/// Sets the mode of a node. One that lets nobody in is tested: an open without the right to pass by
/// permissions has to be refused.
pub(super) fn set(files: &Files, node: &str, wanted: u32) -> Result<(), String> {
    let words = |errno: Errno| std::io::Error::from(errno).to_string();
    // Not a link, and a device: looked at just before.
    mode(files, node).map_err(words)?;
    let (directory, name) = files.node(node).map_err(words)?;
    let bits = Mode::from_raw_mode(wanted & BITS);
    rustix::fs::chmodat(&directory, name, bits, AtFlags::empty()).map_err(words)?;
    if wanted != 0 {
        return Ok(());
    }
    match opened_without_privilege(files, node) {
        Ok(Err(Errno::ACCESS)) => Ok(()),
        Ok(Ok(())) => Err("an open that must fail was let through".to_owned()),
        Ok(Err(errno)) => {
            Err(format!("an open that must be refused ended otherwise: {}", words(errno)))
        }
        Err(why) => Err(format!("the open that must fail could not be tried: {why}")),
    }
}

/// Opens a node from a thread that has given up passing by permissions. A node of mode 0 lets not
/// even its owner in.
fn opened_without_privilege(files: &Files, node: &str) -> Result<Result<(), Errno>, String> {
    let (directory, name) =
        files.node(node).map_err(|errno| std::io::Error::from(errno).to_string())?;
    std::thread::scope(|scope| {
        let open = || {
            let mut sets = rustix::thread::capabilities(None)?;
            let passing = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            sets.effective.remove(passing);
            rustix::thread::set_capabilities(None, sets)?;
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            Ok(rustix::fs::openat(&directory, name, flags, Mode::empty()).map(drop))
        };
        let tried = scope.spawn(open).join();
        let tried = tried.map_err(|_| "the thread ended".to_owned())?;
        tried.map_err(|errno: Errno| std::io::Error::from(errno).to_string())
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the nodes that are fenced")]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    /// A character device that this user owns: the other side of a new terminal. It is locked, so that
    /// an open that permissions let through ends with EIO.
    fn terminal() -> (std::fs::File, String) {
        let master = std::fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx").unwrap();
        let about = format!("/proc/self/fdinfo/{}", master.as_raw_fd());
        let about = std::fs::read_to_string(about).unwrap();
        let number = about.lines().find_map(|line| line.strip_prefix("tty-index:")).unwrap();
        (master, format!("/dev/pts/{}", number.trim()))
    }

    #[test]
    fn nobody_passes_a_fence_until_it_is_down() {
        let files = Files::open(std::path::Path::new("/")).unwrap();
        let (_master, node) = terminal();
        let before = mode(&files, &node).unwrap();
        assert!(before & 0o600 == 0o600, "{before:o}");
        assert_eq!(opened_without_privilege(&files, &node), Ok(Err(Errno::IO)), "before");
        set(&files, &node, 0).unwrap();
        assert_eq!(mode(&files, &node), Ok(0));
        assert_eq!(opened_without_privilege(&files, &node), Ok(Err(Errno::ACCESS)), "fenced");
        set(&files, &node, before).unwrap();
        assert_eq!(mode(&files, &node), Ok(before));
        assert_eq!(opened_without_privilege(&files, &node), Ok(Err(Errno::IO)), "after");
    }

    #[test]
    fn what_is_no_device_node_is_not_fenced() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("dev")).unwrap();
        std::fs::write(place.path().join("dev/file"), "").unwrap();
        std::os::unix::fs::symlink("file", place.path().join("dev/link")).unwrap();
        let files = Files::open(place.path()).unwrap();
        for node in ["/dev/file", "/dev/link", "/dev", "/dev/../dev/file", "/dev/", "/etc/file"] {
            assert!(set(&files, node, 0).is_err(), "{node}");
        }
        let mode = std::fs::metadata(place.path().join("dev/file")).unwrap().permissions();
        assert_ne!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0);
    }
}
