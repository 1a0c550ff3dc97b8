//! The peer-map module (`kmod/`) and the lab's own two (`lab/kmod-test/`): built for a kernel of the
//! matrix with Debian's headers and the compiler of the Debian release that built that kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;

use super::apt::PrivateApt;
use super::facts::{self, Facts};
use super::kernel::{Kernel, Series};
use super::scenario::peer_map;
use super::system::System;
use super::{paths, process, tools};

/// The modules, and the directory of the repository that each is built in.
const MODULES: [(&str, &str); 3] =
    [("peerway_map", "kmod"), ("lab_walk", "lab/kmod-test"), ("lab_dma", "lab/kmod-test")];
/// The kernel's object tool reads object files with it; the package has the same name in every release.
const LIBRARY: (&str, &str) = ("/usr/lib/x86_64-linux-gnu/libelf.so.1", "libelf-dev");
/// Endings of the files that a build needs.
const SOURCES: [&str; 3] = ["c", "h", "Kbuild"];

/// Modules that were built.
#[derive(Debug)]
pub struct Modules {
    /// Name and file, in the order in which they are loaded.
    pub files: Vec<(String, PathBuf)>,
}

/// Builds them for a kernel.
///
/// # Errors
/// Where the headers cannot be had, or what the compiler said.
pub fn build(kernel: &Kernel) -> Result<Modules> {
    let place = Place::for_kernel(kernel)?;
    let file = |(name, sources): (&str, &str)| Ok((name.to_owned(), place.module(name, sources)?));
    Ok(Modules { files: MODULES.into_iter().map(file).collect::<Result<_>>()? })
}

/// Builds the driver whose boards fail under an identity domain (`lab/kmod-board`), and gives its file.
///
/// # Errors
/// As [`build`].
pub(super) fn build_board(kernel: &Kernel) -> Result<PathBuf> {
    Place::for_kernel(kernel)?.module("lab_board", "lab/kmod-board")
}

/// Where a kernel's headers lie and its modules are built.
#[derive(Debug)]
struct Place {
    /// The headers' packages are unpacked below it; a whole system where `release` is set.
    root: PathBuf,
    /// The Debian release of that system, which is not this machine's.
    release: Option<String>,
    /// What modules are built against, below the root.
    headers: String,
}

impl Place {
    fn for_kernel(kernel: &Kernel) -> Result<Self> {
        match &kernel.built {
            Some(built) => Self::beside(built),
            None => Self::with_headers(kernel),
        }
    }

    /// Builds a module from a directory of the repository, and gives its file.
    fn module(&self, name: &str, sources: &str) -> Result<PathBuf> {
        let directory = format!("modules/{}", sources.replace('/', "-"));
        self.copy_sources(&paths::repository().join(sources), &directory)?;
        self.make(&directory)?;
        let file = self.root.join(&directory).join(format!("{name}.ko"));
        if !file.is_file() {
            bail!("the build made no {}", file.display());
        }
        Ok(file)
    }

    /// For a kernel that was built here.
    fn beside(built: &Path) -> Result<Self> {
        let root = built.parent().context("a build directory without a parent")?.to_path_buf();
        let headers = built.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { root, release: None, headers })
    }

    /// For a kernel of a package: on this machine where it is of the right Debian release, else in a
    /// system of that release.
    fn with_headers(kernel: &Kernel) -> Result<Self> {
        let series = Series::named(&kernel.series)?;
        let headers = format!("usr/src/linux-headers-{}", kernel.release);
        let place = Self::of(series, series.release()?, headers)?;
        let compiler = place.headers(kernel, series)?;
        place.ensure_compiler(&compiler)?;
        Ok(place)
    }

    fn of(series: Series, release: &str, headers: String) -> Result<Self> {
        let kmod = paths::cache().join("kmod");
        let here = fs::read_to_string("/etc/os-release").unwrap_or_default();
        if here.lines().any(|line| line == format!("VERSION_CODENAME={release}")) {
            return Ok(Self { root: kmod.join(series.name), release: None, headers });
        }
        let system = System::ensure(release)?;
        Ok(Self { root: system.root().to_path_buf(), release: Some(release.to_owned()), headers })
    }

    /// Fetches the headers if they are not here, and gives the name of the compiler that they want.
    fn headers(&self, kernel: &Kernel, series: Series) -> Result<String> {
        let headers = self.root.join(&self.headers);
        let variables = headers.join(".kernelvariables");
        if !headers.join("Makefile.ready").is_file() {
            let package = format!("linux-headers-{}", kernel.release);
            eprintln!("lab: fetching {package}");
            let apt = PrivateApt::open(series.name, series.suites)?;
            let depends = apt.depends(&package).with_context(|| {
                format!(
                    "the archive has no {package}; run: cargo xtask lab fetch --refresh --kernel {}",
                    series.name
                )
            })?;
            let wanted = ["linux-headers-", "linux-kbuild-"];
            let mut packages: Vec<String> = depends
                .into_iter()
                .filter(|name| wanted.iter().any(|start| name.starts_with(start)))
                .collect();
            packages.push(package);
            apt.unpack(&packages, &self.root)?;
            if self.release.is_none() {
                self.relocate(&headers)?;
            }
            fs::write(headers.join("Makefile.ready"), "")?;
        }
        let text = fs::read_to_string(&variables)
            .with_context(|| format!("cannot read {}", variables.display()))?;
        let compiler = text.split_whitespace().find_map(|word| {
            word.strip_prefix("$(CROSS_COMPILE)").filter(|w| w.starts_with("gcc-"))
        });
        Ok(compiler
            .with_context(|| format!("{} names no compiler", variables.display()))?
            .to_owned())
    }

    /// The headers' makefile includes another package's by its installed path.
    fn relocate(&self, headers: &Path) -> Result<()> {
        let makefile = headers.join("Makefile");
        let text = fs::read_to_string(&makefile)
            .with_context(|| format!("cannot read {}", makefile.display()))?;
        let base = format!("{}/", self.root.join("usr/src").display());
        fs::write(&makefile, text.replace("/usr/src/", &base))?;
        Ok(())
    }

    fn ensure_compiler(&self, compiler: &str) -> Result<()> {
        let Some(release) = &self.release else {
            return tools::ensure_each(&[
                (compiler, compiler),
                ("x86_64-linux-gnu-ld", "binutils-x86-64-linux-gnu"),
                ("make", "make"),
                LIBRARY,
            ]);
        };
        let has = |path: &str| self.root.join(path.trim_start_matches('/')).exists();
        if has(&format!("usr/bin/{compiler}")) && has(LIBRARY.0) {
            return Ok(());
        }
        System::at(release).install(&[compiler, LIBRARY.1])
    }

    /// Copies what changed, so that only that is built again.
    fn copy_sources(&self, from: &Path, directory: &str) -> Result<()> {
        let into = self.root.join(directory);
        fs::create_dir_all(&into).with_context(|| format!("cannot create {}", into.display()))?;
        let entries =
            fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))?;
        for entry in entries {
            let source = entry?.path();
            let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let ending = name.rsplit('.').next().unwrap_or_default();
            if !SOURCES.contains(&ending) {
                continue;
            }
            let content = fs::read(&source)?;
            let target = into.join(&name);
            if fs::read(&target).ok().as_ref() != Some(&content) {
                fs::write(&target, content)?;
            }
        }
        Ok(())
    }

    fn make(&self, directory: &str) -> Result<()> {
        let headers = &self.headers;
        let mut command = if let Some(release) = &self.release {
            // The kernel's object tool reads /proc.
            let mut command = System::at(release).command_with_proc();
            command.args(["make", "-C", &format!("/{headers}"), &format!("M=/{directory}")]);
            command
        } else {
            let mut command = Command::new("make");
            command.arg("-C").arg(self.root.join(headers));
            command.arg(format!("M={}", self.root.join(directory).display()));
            command
        };
        // Type information is not needed, and the tool that makes it may be missing.
        command.args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "W=1", "KCFLAGS=-Werror", "modules"]);
        process::output(&mut command)?;
        Ok(())
    }
}

/// Builds, proves, and writes `docs/lab/peer-map-SERIES.md`.
///
/// # Errors
/// Where anything could not be done, or was not as expected; the file is written only if all was.
pub(super) fn write(kernel: &Kernel) -> Result<()> {
    let modules = build(kernel)?;
    let facts = peer_map::prove(kernel, &modules)?;
    print!("{}", facts.text());
    if !facts.differences().is_empty() {
        bail!(
            "{} differs from what is expected:\n  {}",
            kernel.release,
            facts.differences().join("\n  ")
        );
    }
    let option = kernel.platform.option();
    let command = format!("kmod --kernel {}{option}", kernel.series);
    let head = header(kernel, &modules, "What the peer-map module did", &command)?;
    facts::publish("peer-map", kernel, &format!("{head}{}", facts.text()))
}

/// Measures memories of many sizes, and writes `docs/lab/peer-map-sizes-SERIES.md`.
///
/// # Errors
/// As [`write`].
pub(super) fn write_sizes(kernel: &Kernel) -> Result<()> {
    let modules = build(kernel)?;
    let facts = peer_map::measure(kernel, &modules)?;
    print!("{}", facts.text());
    if !facts.differences().is_empty() {
        bail!("{} differs:\n  {}", kernel.release, facts.differences().join("\n  "));
    }
    let option = kernel.platform.option();
    let command = format!("kmod --sizes --kernel {}{option}", kernel.series);
    let head = header(kernel, &modules, "Time and tables of peer maps of many sizes", &command)?;
    facts::publish("peer-map-sizes", kernel, &format!("{head}{}", facts.text()))
}

/// Brings a kernel's headers and their compiler into a system.
///
/// # Errors
/// Where they cannot be had.
pub(super) fn bring_headers(system: &System, kernel: &Kernel) -> Result<()> {
    let series = Series::named(&kernel.series)?;
    let place = Place {
        root: system.root().to_path_buf(),
        release: Some(series.release()?.to_owned()),
        headers: format!("usr/src/linux-headers-{}", kernel.release),
    };
    let compiler = place.headers(kernel, series)?;
    place.ensure_compiler(&compiler)
}

/// The beginning of a page: its title, the command that writes it, and what ran.
pub(super) fn header(
    kernel: &Kernel,
    modules: &Modules,
    title: &str,
    command: &str,
) -> Result<String> {
    let mut facts = Facts::default();
    let mut rows = vec![
        vec!["kernel".to_owned(), format!("{} ({})", kernel.release, kernel.package)],
        vec!["emulator".to_owned(), kernel.platform.emulator.version()?],
        vec!["date".to_owned(), Timestamp::now().strftime("%Y-%m-%d").to_string()],
    ];
    for source in ["kmod/peerway_map.c", "lab/kmod-test/lab_walk.c", "lab/kmod-test/lab_dma.c"] {
        rows.push(vec![
            format!("SHA-256 of `{source}`"),
            facts::digest(&paths::repository().join(source))?,
        ]);
    }
    for (name, file) in &modules.files {
        rows.push(vec![format!("SHA-256 of `{name}.ko`"), facts::digest(file)?]);
    }
    facts.table(&["what ran", ""], &rows);
    Ok(format!(
        "# {title} on kernel {}\n\n\
         Generated by `cargo xtask lab {command}`; do not edit.\n\n{}",
        kernel.title(),
        facts.text()
    ))
}
