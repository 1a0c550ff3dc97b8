//! The guest's first process: makes a small system, carries the script out, reports on the second serial
//! port, and switches the machine off.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::Command;

use peerway_lab_protocol::{Record, SCRIPT_PATH, Script};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::kmsg::KernelLog;
use crate::{Context as _, Result, sysfs};

mod steps;
pub mod system;

/// Where the records go; the first port is the kernel's console.
const PORT: &str = "/dev/ttyS1";
const MOUNTS: [(&str, &str); 7] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("securityfs", "/sys/kernel/security"),
    ("debugfs", "/sys/kernel/debug"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
];

/// The script of this guest.
///
/// # Errors
/// Where it is missing or damaged.
pub fn script() -> Result<Script> {
    let text = fs::read_to_string(SCRIPT_PATH).context(|| format!("cannot read {SCRIPT_PATH}"))?;
    serde_json::from_str(&text).context(|| format!("cannot understand {SCRIPT_PATH}"))
}

/// Does everything and switches off; never returns to a kernel that would panic without a first process.
pub fn main() -> Result<()> {
    search_path();
    let result = run();
    if let Err(error) = &result {
        // On the console too: the port itself may be what failed.
        eprintln!("lab-init: {error}");
        if let Ok(mut port) = Port::open() {
            port.failed(error)?;
        }
    }
    rustix::fs::sync();
    Ok(reboot(RebootCommand::PowerOff)?)
}

/// Where programs are. They inherit it: given to each of them instead, the standard library starts them by
/// way of a socket, which a kernel without a network does not have.
fn search_path() {
    for (name, value) in [("PATH", steps::SEARCH_PATH), ("HOME", "/root")] {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(name, value) };
    }
}

fn run() -> Result<()> {
    for (kind, place) in MOUNTS {
        fs::create_dir_all(place).context(|| format!("cannot create {place}"))?;
        // An old kernel may lack one of them; what needs it says so then.
        if let Err(error) = mount(kind, place, kind, MountFlags::empty(), None) {
            eprintln!("lab-init: cannot mount {kind} at {place}: {error}");
        }
    }
    let mut port = Port::open()?;
    let mut log = KernelLog::open()?;
    install_commands()?;
    let script = script()?;
    for module in &script.modules {
        let file = File::open(module).context(|| format!("cannot open {module}"))?;
        finit_module(file.as_fd(), c"", 0).context(|| format!("cannot load {module}"))?;
    }
    for binding in &script.bindings {
        sysfs::bind(&binding.address, &binding.driver)?;
    }
    ready(&mut port)?;
    carry_out(&script, &mut port, &mut log)
}

/// Says that the guest is up.
fn ready(port: &mut Port) -> Result<()> {
    let line = |path: &str| {
        let text = fs::read_to_string(path).context(|| format!("cannot read {path}"))?;
        Ok::<_, crate::Failure>(text.trim_end().to_owned())
    };
    port.say(&Record::Ready {
        release: line("/proc/sys/kernel/osrelease")?,
        command_line: line("/proc/cmdline")?,
    })
}

/// Every step of the script, and then the whole log.
fn carry_out(script: &Script, port: &mut Port, log: &mut KernelLog) -> Result<()> {
    let mut all = log.new_lines()?;
    let mut runner = steps::Runner::default();
    for step in &script.steps {
        let mut outcome = runner.carry_out(step)?;
        outcome.kernel = log.new_lines()?;
        all.extend(outcome.kernel.iter().cloned());
        port.say(&Record::Step(outcome))?;
    }
    port.say(&Record::KernelLog { lines: all })?;
    port.say(&Record::Done)
}

/// Writes a line to the port from another program than the first process.
///
/// # Errors
/// Where the port cannot be written.
pub fn announce(text: &str) -> Result<()> {
    let mut file =
        OpenOptions::new().write(true).open(PORT).context(|| format!("cannot open {PORT}"))?;
    writeln!(file, "{text}").context(|| format!("cannot write to {PORT}"))?;
    rustix::termios::tcdrain(&file).context(|| format!("cannot drain {PORT}"))
}

/// Busybox under all its names.
fn install_commands() -> Result<()> {
    let status = Command::new("/bin/busybox")
        .args(["--install", "-s", "/bin"])
        .status()
        .context(|| "cannot start busybox".to_owned())?;
    if status.success() { Ok(()) } else { Err(format!("busybox --install: {status}").into()) }
}

/// The second serial port, as a plain line of bytes.
struct Port {
    file: File,
}

impl Port {
    fn open() -> Result<Self> {
        let file =
            OpenOptions::new().write(true).open(PORT).context(|| format!("cannot open {PORT}"))?;
        let mut settings = tcgetattr(&file).context(|| format!("cannot set {PORT} up"))?;
        settings.make_raw();
        tcsetattr(&file, OptionalActions::Now, &settings)?;
        Ok(Self { file })
    }

    fn failed(&mut self, error: &crate::Failure) -> Result<()> {
        self.say(&Record::Failed { reason: error.to_string() })
    }

    fn say(&mut self, record: &Record) -> Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.file.write_all(&line).context(|| format!("cannot write to {PORT}"))?;
        rustix::termios::tcdrain(&self.file).context(|| format!("cannot drain {PORT}"))
    }
}
