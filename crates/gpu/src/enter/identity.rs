//! Who a process is, in its own user namespace's numbers, and how to become that and no more.

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::EnterError;

/// User and groups of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl Identity {
    /// From the files of the process as the host shows them; numbers become those of its own user
    /// namespace.
    pub(super) fn parse(status: &str, users: &str, groups: &str) -> Result<Self, EnterError> {
        let line = |name: &str| -> Vec<u32> {
            let found = status.lines().find_map(|line| line.strip_prefix(name));
            found.unwrap_or_default().split_ascii_whitespace().flat_map(str::parse).collect()
        };
        // Real, effective, saved, of the file system: the effective one acts.
        let effective = |name: &str| line(name).get(1).copied();
        let user = effective("Uid:").ok_or(EnterError::Arguments)?;
        let group = effective("Gid:").ok_or(EnterError::Arguments)?;
        Ok(Self {
            user: inside(users, user).ok_or(EnterError::Unmapped { what: "user", id: user })?,
            group: inside(groups, group)
                .ok_or(EnterError::Unmapped { what: "group", id: group })?,
            // A group without a number in there grants nothing in there.
            groups: line("Groups:").into_iter().filter_map(|id| inside(groups, id)).collect(),
        })
    }
}

/// The number that a namespace gives an id of the host: lines of inside, outside, length
/// (`user_namespaces(7)`).
fn inside(map: &str, id: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace().flat_map(str::parse::<u32>);
        let (inside, outside, length) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let at = id.checked_sub(outside)?;
        (at < length).then_some(inside.checked_add(at)?)
    })
}

/// Becomes that user and gives every capability up, for good.
pub(super) fn take(identity: &Identity) -> Result<(), EnterError> {
    let groups: Vec<Gid> = identity.groups.iter().copied().map(Gid::from_raw).collect();
    let (user, group) = (Uid::from_raw(identity.user), Gid::from_raw(identity.group));
    let unchanged = rustix::process::geteuid() == user && rustix::process::getegid() == group;
    match rustix::thread::set_thread_groups(&groups) {
        Ok(()) => {}
        // Without root, or where the namespace forbids it, the groups stay those of the caller.
        Err(Errno::PERM) if unchanged => {}
        Err(errno) => return Err(EnterError::call("take the groups of the process")(errno)),
    }
    rustix::thread::set_thread_res_gid(group, group, group)
        .map_err(EnterError::call("take the group of the process"))?;
    empty_bounding_set()?;
    rustix::thread::set_thread_res_uid(user, user, user)
        .map_err(EnterError::call("take the user of the process"))?;
    match rustix::thread::clear_ambient_capability_set() {
        // Before Linux 4.3 there are none.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return Err(EnterError::call("clear the ambient capabilities")(errno)),
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)
        .map_err(EnterError::call("give the capabilities up"))?;
    rustix::thread::set_no_new_privs(true)
        .map_err(EnterError::call("give the way to new privileges up"))
}

/// By all numbers, since a kernel may know more capabilities than this library; at the first that
/// it does not know it says so. Without the right to do it there is nothing to regain either:
/// no new privileges come after this.
fn empty_bounding_set() -> Result<(), EnterError> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1_u64 << number);
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(errno) => return Err(EnterError::call("empty the bounding set")(errno)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tinit\nUid:\t100000\t100000\t100000\t100000\n\
                          Gid:\t100000\t100005\t100000\t100000\nGroups:\t100044 44 \n";
    const MAP: &str = "         0     100000      65536\n    100000       7000          1\n";

    #[test]
    fn numbers_are_those_of_the_namespace() {
        let identity = Identity::parse(STATUS, MAP, MAP).unwrap();
        assert_eq!(identity, Identity { user: 0, group: 5, groups: vec![44] });
        assert_eq!(inside(MAP, 165_535), Some(65_535));
        assert_eq!(inside(MAP, 165_536), None);
        assert_eq!(inside(MAP, 7_000), Some(100_000));
    }

    #[test]
    fn a_user_without_a_number_is_told() {
        let error = Identity::parse(STATUS, "0 500000 65536\n", MAP).unwrap_err();
        assert!(error.to_string().contains("user 100000"), "{error}");
    }
}
