//! A kernel that watches its own memory, locks and objects, built from Debian's source package, and the
//! peer map's whole proof on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::apt::PrivateApt;
use super::facts::{self, Facts};
use super::kernel::{Kernel, Series};
use super::scenario::peer_map;
use super::{kmod, paths, process, tools};

/// What building a kernel takes.
const TOOLS: [(&str, &str); 6] = [
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("make", "make"),
    ("xz", "xz-utils"),
    // Its object tool reads object files with this library.
    ("/usr/include/gelf.h", "libelf-dev"),
];
/// What is kept low, for others on this machine.
const NICE: [&str; 2] = ["-n", "19"];

/// Builds the kernel, proves the peer map on it, and writes `docs/lab/peer-map-sanitizers-SERIES.md`.
///
/// # Errors
/// Where anything could not be done, or was not as expected; the file is written only if all was.
pub(super) fn write(series: Series) -> Result<()> {
    let kernel = build(series)?;
    let modules = kmod::build(&kernel)?;
    let mut facts = peer_map::watched(&kernel, &modules)?;
    let proof = peer_map::prove(&kernel, &modules)?;
    facts.append(&proof);
    print!("{}", facts.text());
    if !facts.differences().is_empty() {
        bail!("{} differs:\n  {}", kernel.release, facts.differences().join("\n  "));
    }
    let head = kmod::header(
        &kernel,
        &modules,
        "What the peer-map module did on a kernel that watches itself,",
        &format!("sanitizers --kernel {}", series.name),
    )?;
    facts::publish("peer-map-sanitizers", &kernel, &format!("{head}{}{}", style()?, facts.text()))
}

/// The kernel, built if its source or its configuration changed.
fn build(series: Series) -> Result<Kernel> {
    tools::ensure()?;
    tools::ensure_each(&TOOLS)?;
    let place = directory(series);
    let package = source(series, &place)?;
    let into = place.join("build");
    fs::create_dir_all(&into).with_context(|| format!("cannot create {}", into.display()))?;
    let wanted = paths::sources().join("kernel/sanitizers.config");
    let old = fs::read_to_string(into.join("wanted.config")).unwrap_or_default();
    let text =
        fs::read_to_string(&wanted).with_context(|| format!("cannot read {}", wanted.display()))?;
    if old != text {
        let option = format!("KCONFIG_ALLCONFIG={}", wanted.display());
        process::output(make(&place).args([&option, "allnoconfig"]))?;
        let config = fs::read_to_string(into.join(".config"))?;
        let lost = lost(&text, &config);
        if !lost.is_empty() {
            bail!("the configuration does not hold {}", lost.join(", "));
        }
        fs::write(into.join("wanted.config"), &text)?;
    }
    eprintln!("lab: building a kernel; this takes half an hour of two processors");
    process::output(make(&place).args(["bzImage", "modules"]))?;
    let release = fs::read_to_string(into.join("include/config/kernel.release"))?;
    Ok(Kernel {
        series: series.name.to_owned(),
        release: release.trim().to_owned(),
        package: format!("built from {package} with `lab/kernel/sanitizers.config`"),
        modules: Vec::new(),
        storage: Vec::new(),
        platform: super::platform::Platform::default(),
        built: Some(into),
    })
}

fn directory(series: Series) -> PathBuf {
    paths::cache().join("sanitizers").join(series.name)
}

/// Fetches and unpacks the source package, and gives its name and version.
fn source(series: Series, place: &Path) -> Result<String> {
    let note = place.join("source.txt");
    if let Ok(text) = fs::read_to_string(&note) {
        return Ok(text.trim().to_owned());
    }
    let apt = PrivateApt::open(series.name, series.suites)?;
    // The newest of the series: 7.x has several, each with a version in its name.
    let names = apt.names("linux-source-")?;
    let name = names.into_iter().filter(|name| series.has_source(name)).max();
    let name = name.with_context(|| format!("no source package of {}", series.name))?;
    let text = format!("{name} {}", apt.version(&name)?);
    eprintln!("lab: fetching {text}");
    apt.unpack(std::slice::from_ref(&name), place)?;
    let into = place.join("source");
    fs::create_dir_all(&into).with_context(|| format!("cannot create {}", into.display()))?;
    process::output(
        Command::new("tar")
            .arg("-xf")
            .arg(place.join("usr/src").join(format!("{name}.tar.xz")))
            .args(["--strip-components=1", "-C"])
            .arg(&into),
    )?;
    fs::write(&note, &text).with_context(|| format!("cannot write {}", note.display()))?;
    Ok(text)
}

fn make(place: &Path) -> Command {
    let mut command = Command::new("nice");
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    command
        .args(NICE)
        .args(["make", "-s", &format!("-j{jobs}"), "-C"])
        .arg(place.join("source"))
        .arg(format!("O={}", place.join("build").display()));
    command
}

/// Settings that were asked for and are otherwise in a configuration.
fn lost(wanted: &str, config: &str) -> Vec<String> {
    let holds = |line: &str| match line.strip_suffix("=n") {
        Some(name) => !config.lines().any(|one| one.starts_with(&format!("{name}="))),
        None => config.lines().any(|one| one == line),
    };
    let settings = wanted.lines().filter(|line| line.starts_with("CONFIG_"));
    settings.filter(|line| !holds(line)).map(str::to_owned).collect()
}

/// What the kernel's own style checker says of the module.
fn style() -> Result<String> {
    let series = Series::named("6.12")?;
    let checker = directory(series).join("source/scripts/checkpatch.pl");
    let mut facts = Facts::default();
    facts.say("## What `checkpatch.pl --strict` of the same source package says of the module");
    let file = paths::repository().join("kmod/peerway_map.c");
    // It ends with 1 where it says anything.
    let done = Command::new("perl")
        .arg(&checker)
        .args(["--no-tree", "--strict", "--terse", "-f"])
        .arg(&file)
        .output()
        .with_context(|| format!("cannot run {}", checker.display()))?;
    let text = String::from_utf8_lossy(&done.stdout)
        .replace(&format!("{}/", paths::repository().display()), "");
    facts.quote(text.lines());
    facts.say("A module that is built for several kernels has to ask for their version.");
    Ok(facts.text().to_owned())
}

#[cfg(test)]
mod tests {
    use super::lost;

    #[test]
    fn what_the_kernel_s_tool_dropped_is_named() {
        let config = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=y\n";
        let wanted = "# words\nCONFIG_A=y\nCONFIG_B=n\nCONFIG_C=n\nCONFIG_D=y\n";
        assert_eq!(lost(wanted, config), ["CONFIG_C=n", "CONFIG_D=y"]);
    }
}
