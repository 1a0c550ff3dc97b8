//! Containers, virtual machines and processes of a host.

use peerway_core::address::PciAddress;

/// A tenant with a configuration on the host.
#[derive(Clone, Debug)]
pub enum Tenant {
    /// A Proxmox system container: number, name, and device lines of its configuration.
    Lxc {
        /// Number.
        id: u32,
        /// Host name of the container.
        name: &'static str,
        /// Device nodes in `devN:` lines.
        nodes: Vec<String>,
        /// Raw `lxc.` lines.
        raw: Vec<&'static str>,
    },
    /// A Proxmox virtual machine.
    Vm(Vm),
}

/// A Proxmox virtual machine.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Number.
    pub id: u32,
    /// Name.
    pub name: &'static str,
    /// Devices passed to it.
    pub devices: Vec<PciAddress>,
    /// Memory encrypted with SEV-SNP.
    pub snp: bool,
    /// Process number of its QEMU, if it runs.
    pub pid: Option<u32>,
}

/// A process with open device nodes.
#[derive(Clone, Debug)]
pub struct Process {
    pub(super) pid: u32,
    pub(super) command: &'static str,
    pub(super) command_line: Vec<String>,
    pub(super) start: u64,
    pub(super) uid: u32,
    pub(super) cgroup: String,
    pub(super) nodes: Vec<String>,
    pub(super) environment: Vec<(&'static str, &'static str)>,
}

impl Process {
    /// A process of root in the host's own service group.
    pub fn new(pid: u32, command: &'static str) -> Self {
        Self {
            pid,
            command,
            command_line: vec![command.to_owned()],
            start: 100_000 + u64::from(pid),
            uid: 0,
            cgroup: "/system.slice/init.scope".to_owned(),
            nodes: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Its control group.
    #[must_use]
    pub fn cgroup(mut self, path: &str) -> Self {
        path.clone_into(&mut self.cgroup);
        self
    }

    /// User number on the host.
    #[must_use]
    pub fn uid(mut self, uid: u32) -> Self {
        self.uid = uid;
        self
    }

    /// Words of its command line.
    #[must_use]
    pub fn command_line(mut self, words: &[&str]) -> Self {
        self.command_line = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// An open device node.
    #[must_use]
    pub fn holds(mut self, node: impl Into<String>) -> Self {
        self.nodes.push(node.into());
        self
    }

    /// A variable of its environment.
    #[must_use]
    pub fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }
}
