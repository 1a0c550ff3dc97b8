//! Configuration of LXC containers (`lxc.container.conf(5)`): which device nodes a container gets.

/// Something that gives a container a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The line that gives it.
    pub text: String,
    /// What it gives.
    pub what: Granted,
}

/// What a line gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granted {
    /// A device node, or a directory of nodes.
    Node(String),
    /// Character device numbers; `None` for all.
    Numbers {
        /// Major number.
        major: Option<u32>,
        /// Minor number.
        minor: Option<u32>,
    },
    /// `NVIDIA_VISIBLE_DEVICES` for NVIDIA's container toolkit.
    Visible(String),
}

/// The part of a container's configuration that bears on devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Its own name.
    pub name: Option<String>,
    /// What gives it devices, in the order of the file.
    pub grants: Vec<Grant>,
}

/// A plain LXC configuration: `key = value` lines.
pub fn config(text: &str) -> Container {
    let mut container = Container::default();
    for line in text.lines().map(str::trim) {
        let Some((key, value)) = raw_line(line) else { continue };
        if matches!(key, "lxc.uts.name" | "lxc.utsname") {
            container.name = Some(value.to_owned());
        } else if let Some(what) = raw(key, value) {
            container.grants.push(Grant { text: line.to_owned(), what });
        }
    }
    container
}

/// Key and value of a raw line: `=` in LXC's own files, `:` in Proxmox's.
pub fn raw_line(line: &str) -> Option<(&str, &str)> {
    if !line.starts_with("lxc.") {
        return None;
    }
    let (key, value) = line.split_once(['=', ':'])?;
    Some((key.trim(), value.trim()))
}

/// What a raw key gives, if it gives a device.
pub fn raw(key: &str, value: &str) -> Option<Granted> {
    match key {
        "lxc.cgroup2.devices.allow" | "lxc.cgroup.devices.allow" => device_rule(value),
        "lxc.mount.entry" => {
            let source = value.split_ascii_whitespace().next()?;
            names_devices(source).then(|| Granted::Node(source.to_owned()))
        }
        "lxc.environment" => {
            let devices = value.trim_matches('"').strip_prefix("NVIDIA_VISIBLE_DEVICES=")?;
            let none = matches!(devices, "" | "none" | "void");
            (!none).then(|| Granted::Visible(devices.to_owned()))
        }
        _ => None,
    }
}

/// Nodes that may belong to an accelerator.
fn names_devices(path: &str) -> bool {
    ["/dev/nvidia", "/dev/dri", "/dev/vfio", "/dev/accel"].iter().any(|one| path.starts_with(one))
}

/// `c 195:* rwm`, or `a` for everything. Rules that only let nodes be made (`m`) give no access.
fn device_rule(value: &str) -> Option<Granted> {
    let mut words = value.split_ascii_whitespace();
    let kind = words.next()?;
    let numbers = words.next();
    let access = words.next().unwrap_or("rwm");
    if !access.contains(['r', 'w']) {
        return None;
    }
    match (kind, numbers) {
        ("a", None) => Some(Granted::Numbers { major: None, minor: None }),
        ("a" | "c", Some(numbers)) => {
            let (major, minor) = numbers.split_once(':')?;
            Some(Granted::Numbers { major: number(major)?, minor: number(minor)? })
        }
        _ => None,
    }
}

/// A number, or `*` for all: the outer `None` says that it is neither.
#[expect(clippy::option_option, reason = "\"any number\" and \"no number\" are different answers")]
fn number(text: &str) -> Option<Option<u32>> {
    if text == "*" { Some(None) } else { text.parse().ok().map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(line: &str, expected: &[Granted]) {
        let seen: Vec<Granted> = config(line).grants.into_iter().map(|grant| grant.what).collect();
        assert_eq!(seen, expected);
    }

    fn numbers(major: Option<u32>, minor: Option<u32>) -> [Granted; 1] {
        [Granted::Numbers { major, minor }]
    }

    fn node(path: &str) -> [Granted; 1] {
        [Granted::Node(path.to_owned())]
    }

    #[test]
    fn lines_that_give_devices() {
        check("lxc.cgroup2.devices.allow = c 195:* rwm", &numbers(Some(195), None));
        check("lxc.cgroup2.devices.allow: c 195:2 rw", &numbers(Some(195), Some(2)));
        check("lxc.cgroup.devices.allow = c 226:128 rwm", &numbers(Some(226), Some(128)));
        check("lxc.cgroup2.devices.allow = a", &numbers(None, None));
        check("lxc.cgroup2.devices.allow = a *:* rwm", &numbers(None, None));
        check(
            "lxc.mount.entry = /dev/nvidia3 dev/nvidia3 none bind,optional",
            &node("/dev/nvidia3"),
        );
        check("lxc.mount.entry: /dev/dri dev/dri none bind", &node("/dev/dri"));
        check(
            "lxc.environment = NVIDIA_VISIBLE_DEVICES=all",
            &[Granted::Visible("all".to_owned())],
        );
    }

    #[test]
    fn lines_that_do_not() {
        check("lxc.cgroup2.devices.allow = c *:* m", &[]);
        check("lxc.cgroup2.devices.allow = b 8:* rwm", &[]);
        check("lxc.cgroup2.devices.allow = c x:* rwm", &[]);
        check("lxc.cgroup2.devices.allow =", &[]);
        check("lxc.cgroup2.devices.deny = a", &[]);
        check("lxc.mount.entry = /srv/data srv/data none bind", &[]);
        check("lxc.environment = NVIDIA_VISIBLE_DEVICES=void", &[]);
        check("# lxc.cgroup2.devices.allow = c 195:* rwm", &[]);
        assert_eq!(config("lxc.uts.name = web\n").name.as_deref(), Some("web"));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(lxc\\.|cgroup2\\.devices\\.allow|mount\\.entry|[=:*]|c | a|/dev/nvidia|[0-9]{0,12}|\n| |é){0,40}") {
            prop_assert!(config(&text).grants.len() <= text.lines().count());
        }
    }
}
