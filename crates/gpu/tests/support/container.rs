//! A container as its manager would make it: namespaces, a root of its own that holds the stand-in
//! for the driver's library, and nothing of it on the host.
#![expect(clippy::disallowed_methods, reason = "tests make containers as their manager would")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

/// The shared library, which cargo builds beside this test since the test depends on its crate.
pub(crate) fn library() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libpeerway_gpu_fake.so")
}

/// Builds the container's root below an empty folder and stays its first process. Arguments: the
/// folder, the script of the stand-in, the libraries and programs to copy.
const FIRST: &str = r#"
set -e
root=$1 script=$2; shift 2
mount --make-rprivate / 2>/dev/null || true
mount -t tmpfs none "$root"
mkdir -p "$root/proc" "$root/dev/shm" "$root/etc" "$root/old" "$root/run"
for file in "$@"; do
    from=${file%%=*} to=${file#*=}
    mkdir -p "$root$(dirname "$to")"
    cp -L "$from" "$root$to"
done
# One file, as the stand-in is one library.
cuda=$(find "$root" -name libcuda.so.1)
[ -z "$cuda" ] || ln "$cuda" "$(dirname "$cuda")/libnccl.so.2"
echo "$script" > "$root/etc/peerway-fake-gpu"
mount -t proc proc "$root/proc"
mount -t tmpfs none "$root/dev/shm"
mkdir "$root/dev/shm/gpu"
cd "$root"
pivot_root . old
umount -l /old
echo ready
exec sleep 1000
"#;

/// A container that ends with this value.
pub(crate) struct Container {
    unshare: Child,
    /// Its first process, by the host's number.
    pub(crate) first: u32,
    /// Its control group, if it has one.
    group: Option<PathBuf>,
    _folder: tempfile::TempDir,
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program or library and the libraries that it loads, by their paths.
fn with_libraries(file: &Path) -> BTreeSet<String> {
    let output = Command::new("ldd").arg(file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

fn on_path(name: &str) -> String {
    let paths = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&paths)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .unwrap()
        .display()
        .to_string()
}

impl Container {
    /// With what `program` needs, and the libraries of the stand-in, if there is a script for it;
    /// with user numbers of its own, or as one of root.
    pub(crate) fn start(program: &str, script: Option<&str>, own_users: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut files = with_libraries(Path::new(program));
        let libc = files.iter().find(|path| path.contains("/libc.so")).unwrap().clone();
        let place = Path::new(&libc).parent().unwrap().display().to_string();
        for name in ["sleep", "umount"] {
            files.extend(with_libraries(Path::new(&on_path(name))));
        }
        let mut copies: Vec<String> = files.iter().map(|path| format!("{path}={path}")).collect();
        copies.push(format!("{}=/bin/sleep", on_path("sleep")));
        copies.push(format!("{}=/bin/umount", on_path("umount")));
        if script.is_some() {
            let library = library().display().to_string();
            copies.push(format!("{library}={place}/libcuda.so.1"));
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]);
        if own_users || !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let mut unshare = command
            .args(["sh", "-c", FIRST, "sh"])
            .arg(folder.path())
            .arg(format!("{} folder=/dev/shm/gpu", script.unwrap_or("gpus=2")))
            .args(&copies)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LD_LIBRARY_PATH", "/opt/nothing")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(unshare.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the container did not start");
        let first = child_of(unshare.id());
        Self { unshare, first, group: None, _folder: folder }
    }

    /// Puts it into a control group of the name that LXC gives; its word for `--in`.
    pub(crate) fn as_lxc(&mut self) -> String {
        let top = ["/sys/fs/cgroup/devices", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let top = top.iter().map(Path::new).find(|top| top.join("cgroup.procs").is_file()).unwrap();
        let id = format!("t{}", self.first);
        let group = top.join("lxc").join(&id);
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("cgroup.procs"), self.first.to_string()).unwrap();
        self.group = Some(group);
        format!("lxc:{id}")
    }

    /// A file of it.
    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/root{path}", self.first)).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let first = Pid::from_raw(self.first.try_into().unwrap()).unwrap();
        // It may be gone; what matters is that it is.
        let killed = rustix::process::kill_process(first, Signal::KILL);
        drop(killed.map_err(std::io::Error::from));
        self.unshare.wait().unwrap();
        if let Some(group) = &self.group {
            // Empty once its last process is reaped.
            for _ in 0..200 {
                if std::fs::remove_dir(group).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

fn child_of(parent: u32) -> u32 {
    let of = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .find(|pid| of(*pid) == Some(parent))
        .unwrap()
}

/// The value of a line of `/proc/PID/status`.
pub(crate) fn field<'t>(status: &'t str, name: &str) -> &'t str {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{name} in {status}")).trim()
}
