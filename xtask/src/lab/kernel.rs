//! Kernels of the matrix: Debian's own images and modules, unpacked below `target/lab/kernels`.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::apt::PrivateApt;
use super::paths;
use super::platform::{Iommu, Platform};

/// A series of kernels and the Debian suites that carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    /// Name on the command line: `6.12`.
    pub name: &'static str,
    /// Beginning of the release, after which a dot follows.
    prefix: &'static str,
    /// Where its packages are; the first names the Debian release whose compiler built it.
    pub(super) suites: &'static [&'static str],
}

/// Every series of the matrix, oldest first.
pub const SERIES: [Series; 4] = [
    Series { name: "5.10", prefix: "5.10", suites: &["bullseye", "bullseye-security"] },
    Series { name: "6.1", prefix: "6.1", suites: &["bookworm", "bookworm-security"] },
    Series { name: "6.12", prefix: "6.12", suites: &["bookworm", "bookworm-security"] },
    Series { name: "7.x", prefix: "7", suites: &["trixie-backports"] },
];

/// Modules that the guests use; a kernel that has one built in, or does not know it, goes without.
const MODULES: [&str; 9] = [
    "iommufd",
    "vfio",
    "vfio_iommu_type1",
    "vfio-pci",
    "pci-stub",
    "uio_pci_generic",
    "nvme",
    "e1000e",
    "vfio_virqfd",
];

/// Modules of a disk with a file system, for the guests that have one. The file system asks for its
/// checksum by name, which no `depends=` entry says.
const STORAGE: [&str; 4] = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"];

/// A kernel that is ready to boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Name of its series.
    pub series: String,
    /// Its release, as `uname -r` says it.
    pub release: String,
    /// Debian package and version that it came from.
    pub package: String,
    /// Names of its modules, each after those that it needs; the file is `modules/NAME.ko`.
    pub modules: Vec<String>,
    /// Those of a disk with a file system, in the same order.
    #[serde(default)]
    pub storage: Vec<String>,
    /// What it is booted on.
    #[serde(skip)]
    pub platform: Platform,
    /// The build directory of one that was built here.
    #[serde(skip)]
    pub(super) built: Option<PathBuf>,
}

impl Series {
    /// The series of a name.
    ///
    /// # Errors
    /// Lists the names that there are.
    pub fn named(name: &str) -> Result<Self> {
        SERIES.into_iter().find(|series| series.name == name).with_context(|| {
            let names: Vec<&str> = SERIES.iter().map(|series| series.name).collect();
            format!("no kernel series {name:?}; there are {}", names.join(", "))
        })
    }

    /// Whether a source package, such as `linux-source-6.12`, is of this series.
    pub(super) fn has_source(self, package: &str) -> bool {
        let version = package.strip_prefix("linux-source-").unwrap_or_default();
        version == self.prefix || version.split('.').next() == Some(self.prefix)
    }

    /// The Debian release of its first suite, whose compiler built its kernels.
    pub(super) fn release(self) -> Result<&'static str> {
        let suite = self.suites.first().context("a series without a suite")?;
        Ok(suite.split('-').next().unwrap_or(suite))
    }

    fn directory(self) -> PathBuf {
        paths::cache().join("kernels").join(self.name)
    }

    /// The kernel as it was fetched.
    ///
    /// # Errors
    /// Gives the command that fetches it, where it was not.
    pub fn fetched(self) -> Result<Kernel> {
        let file = self.directory().join("kernel.json");
        let text = fs::read_to_string(&file).with_context(|| {
            format!("no kernel {0} here; run: cargo xtask lab fetch --kernel {0}", self.name)
        })?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged; remove and fetch again", file.display()))
    }

    /// The kernel, fetched if it is not here yet; with `refresh`, the newest there is.
    ///
    /// # Errors
    /// Where no package of the series is found, or one cannot be downloaded or unpacked.
    pub fn fetch(self, refresh: bool) -> Result<Kernel> {
        // One that was fetched before guests had disks is fetched once more.
        if !refresh
            && let Ok(kernel) = self.fetched()
            && !kernel.storage.is_empty()
        {
            return Ok(kernel);
        }
        let apt = PrivateApt::open(self.name, self.suites)?;
        let image = newest_image(&apt.names(&format!("linux-image-{}", self.prefix))?, self.prefix)
            .with_context(|| format!("no kernel image {} in {:?}", self.name, self.suites))?;
        let package = format!("{image} {}", apt.version(&image)?);
        // From 7.x on the image package only depends on those that hold the image and the modules.
        let mut packages: Vec<String> = apt
            .depends(&image)?
            .into_iter()
            .filter(|name| name.starts_with("linux-binary-") || name.starts_with("linux-modules-"))
            .collect();
        packages.push(image);
        eprintln!("lab: fetching {package}");
        let directory = self.directory();
        let beside = |name: &str| directory.with_file_name(format!("{}.{name}", self.name));
        let (fresh, old) = (beside("new"), beside("old"));
        for left in [&fresh, &old].into_iter().filter(|left| left.is_dir()) {
            fs::remove_dir_all(left)?;
        }
        let unpacked = fresh.join("unpacked");
        apt.unpack(&packages, &unpacked)?;
        let kernel = self.keep_what_is_used(&fresh, &unpacked, package)?;
        fs::remove_dir_all(&unpacked)?;
        fs::write(fresh.join("kernel.json"), serde_json::to_string_pretty(&kernel)?)?;
        // Whole when it appears: another machine may be about to boot with it.
        if directory.is_dir() {
            fs::rename(&directory, &old)?;
        }
        fs::rename(&fresh, &directory)?;
        if old.is_dir() {
            fs::remove_dir_all(&old)?;
        }
        Ok(kernel)
    }

    fn keep_what_is_used(
        self,
        directory: &Path,
        unpacked: &Path,
        package: String,
    ) -> Result<Kernel> {
        let all = ["lib/modules", "usr/lib/modules"]
            .iter()
            .find_map(|place| fs::read_dir(unpacked.join(place)).ok())
            .context("the packages hold no modules")?
            .next()
            .context("the packages hold no modules")??
            .path();
        let release = file_name(&all);
        let image = [unpacked.join("boot").join(format!("vmlinuz-{release}")), all.join("vmlinuz")]
            .into_iter()
            .find(|path| path.is_file())
            .context("the packages hold no kernel image")?;
        fs::copy(image, directory.join("vmlinuz"))?;
        let into = directory.join("modules");
        fs::create_dir_all(&into)?;
        let mut found = BTreeMap::new();
        collect_modules(&all.join("kernel"), &mut found)?;
        let mut modules = Vec::new();
        for name in MODULES {
            keep_module(&found, name, &into, &mut modules)?;
        }
        let mut storage = Vec::new();
        for name in STORAGE {
            keep_module(&found, name, &into, &mut storage)?;
        }
        storage.retain(|name| !modules.contains(name));
        let platform = Platform::default();
        let series = self.name.to_owned();
        Ok(Kernel { series, release, package, modules, storage, platform, built: None })
    }
}

impl Kernel {
    /// The same kernel on another platform.
    #[must_use]
    pub fn on(mut self, platform: Platform) -> Self {
        self.platform = platform;
        self
    }

    /// How much longer than usual everything on it may take; `PEERWAY_LAB_PATIENCE` says it for a busy
    /// build machine.
    pub(super) fn patience(&self) -> u32 {
        let named = std::env::var("PEERWAY_LAB_PATIENCE").ok().and_then(|text| text.parse().ok());
        let machine: u32 = named.unwrap_or(1).max(1);
        machine.saturating_mul(if self.built.is_some() { 8 } else { 1 })
    }

    /// Its release, and its platform where that is not the usual one.
    pub(super) fn title(&self) -> String {
        match self.platform.iommu {
            Iommu::Intel => self.release.clone(),
            Iommu::Amd => format!("{} with AMD's IOMMU", self.release),
        }
    }

    /// The bootable image.
    ///
    /// # Errors
    /// Where the series' name is none of ours.
    pub fn image(&self) -> Result<PathBuf> {
        if let Some(built) = &self.built {
            return Ok(built.join("arch/x86/boot/bzImage"));
        }
        Ok(Series::named(&self.series)?.directory().join("vmlinuz"))
    }

    /// The file of one of its modules.
    ///
    /// # Errors
    /// Where the series' name is none of ours.
    pub fn module(&self, name: &str) -> Result<PathBuf> {
        Ok(Series::named(&self.series)?.directory().join("modules").join(format!("{name}.ko")))
    }
}

/// The newest plain image package: signed, not for clouds, real time or debugging.
fn newest_image(names: &[String], prefix: &str) -> Option<String> {
    let start = format!("linux-image-{prefix}.");
    names
        .iter()
        .filter(|name| {
            name.strip_prefix(&start).and_then(|rest| rest.strip_suffix("-amd64")).is_some_and(
                |middle| {
                    // "deb" marks a build for another release; any other word is a flavour.
                    middle.chars().all(|c| !c.is_ascii_lowercase() || "deb".contains(c))
                },
            )
        })
        .max_by(|a, b| by_version(a, b))
        .cloned()
}

/// Compares texts with their digit runs as numbers.
fn by_version(a: &str, b: &str) -> Ordering {
    numbers(a).cmp(&numbers(b))
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Module names, with `_` for `-` as the kernel has them, and their files.
fn collect_modules(directory: &Path, found: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect_modules(&path, found)?;
        } else if let Some((stem, _)) = file_name(&path).split_once(".ko") {
            found.insert(kernel_name(stem), path.clone());
        }
    }
    Ok(())
}

fn kernel_name(name: &str) -> String {
    name.replace('-', "_")
}

/// Copies a module after all that it needs; a name without a file is built in or unknown.
fn keep_module(
    found: &BTreeMap<String, PathBuf>,
    name: &str,
    into: &Path,
    kept: &mut Vec<String>,
) -> Result<()> {
    let name = kernel_name(name);
    let Some(source) = found.get(&name) else { return Ok(()) };
    if kept.contains(&name) {
        return Ok(());
    }
    let target = into.join(format!("{name}.ko"));
    if source.extension().is_some_and(|end| end == "xz") {
        let packed = fs::File::open(source)?;
        let plain = fs::File::create(&target)?;
        let status = Command::new("xz").arg("-dc").stdin(packed).stdout(plain).status()?;
        if !status.success() {
            bail!("cannot unpack {} ({status})", source.display());
        }
    } else if source.extension().is_some_and(|end| end == "ko") {
        fs::copy(source, &target)?;
    } else {
        bail!("{} is packed in a way the lab does not know", source.display());
    }
    let needs = dependencies(&fs::read(&target)?);
    for need in needs {
        keep_module(found, &need, into, kept)?;
    }
    kept.push(name);
    Ok(())
}

/// Names in the `depends=` entry of a module's `.modinfo`, a section of zero-terminated strings.
fn dependencies(module: &[u8]) -> BTreeSet<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return BTreeSet::new();
    };
    let value: Vec<u8> =
        module.iter().skip(at + KEY.len()).copied().take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&value)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(kernel_name)
        .collect()
}

/// Fetches the kernels of some series.
pub(super) fn fetch_all(series: &[Series], refresh: bool) -> Result<()> {
    for one in series {
        let kernel = one.fetch(refresh)?;
        println!("{}: {} from {}", kernel.series, kernel.release, kernel.package);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], prefix: &str, expected: Option<&str>) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(newest_image(&names, prefix).as_deref(), expected);
    }

    #[test]
    fn the_newest_plain_image_is_chosen() {
        check(
            &[
                "linux-image-6.1.0-9-amd64",
                "linux-image-6.1.0-57-amd64",
                "linux-image-6.1.0-58-amd64-unsigned",
                "linux-image-6.1.0-58-rt-amd64",
                "linux-image-6.1.0-58-cloud-amd64",
                "linux-image-6.1.0-58-amd64-dbg",
                "linux-image-6.12.9+deb12-amd64",
                "linux-image-6.1-amd64",
            ],
            "6.1",
            Some("linux-image-6.1.0-57-amd64"),
        );
        check(
            &["linux-image-7.2.12+deb13-amd64", "linux-image-7.3.4+deb13-amd64"],
            "7",
            Some("linux-image-7.3.4+deb13-amd64"),
        );
        check(&["linux-image-amd64"], "7", None);
    }

    #[test]
    fn dependencies_are_read_from_the_module_itself() {
        let module = b"\x7fELF..license=GPL\0depends=vfio-pci-core,irqbypass\0retpoline=Y\0";
        assert_eq!(
            dependencies(module),
            BTreeSet::from(["irqbypass".to_owned(), "vfio_pci_core".to_owned()])
        );
        assert!(dependencies(b"\0depends=\0name=vfio\0").is_empty());
        assert!(dependencies(b"no such entry").is_empty());
    }
}
