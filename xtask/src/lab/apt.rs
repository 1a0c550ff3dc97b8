//! A package list of the lab's own, beside the machine's: kernels come from several Debian releases, and
//! none of them is to be installed here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{paths, process, tools};

/// Debian's archive key, in the package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Apt with a source list, package lists and cache below `target/lab/apt/NAME`.
#[derive(Debug)]
pub(super) struct PrivateApt {
    directory: PathBuf,
}

impl PrivateApt {
    /// Sets the directory up for some suites and fetches their package lists.
    ///
    /// # Errors
    /// Where this machine has no Debian mirror configured, or the mirror lacks a suite.
    pub(super) fn open(name: &str, suites: &[&str]) -> Result<Self> {
        let directory = paths::cache().join("apt").join(name);
        for part in ["lists/partial", "cache/archives/partial"] {
            let path = directory.join(part);
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
        }
        let list = directory.join("sources.list");
        fs::write(&list, source_list(&Mirrors::of_this_machine()?, suites))
            .with_context(|| format!("cannot write {}", list.display()))?;
        let apt = Self { directory };
        process::output(apt.command("apt-get").args(["--quiet=2", "update"]))
            .with_context(|| format!("cannot fetch the package lists of {}", suites.join(", ")))?;
        Ok(apt)
    }

    /// Names of all packages that begin with some text.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let text = process::output(self.command("apt-cache").args(["pkgnames", prefix]))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The newest version of a package.
    pub(super) fn version(&self, package: &str) -> Result<String> {
        self.field(package, "Version")?.with_context(|| format!("{package} has no version"))
    }

    /// Packages that a package depends on, the first of each alternative.
    pub(super) fn depends(&self, package: &str) -> Result<Vec<String>> {
        let text = self.field(package, "Depends")?.unwrap_or_default();
        let first_word = |part: &str| part.split_whitespace().next().map(str::to_owned);
        Ok(text.split(',').filter_map(first_word).collect())
    }

    /// Downloads packages and unpacks them below a directory; nothing is installed.
    pub(super) fn unpack(&self, packages: &[String], into: &Path) -> Result<()> {
        let store = into.join("debs");
        fs::create_dir_all(&store).with_context(|| format!("cannot create {}", store.display()))?;
        process::output(
            self.command("apt-get")
                .args(["--quiet=2", "download"])
                .args(packages)
                .current_dir(&store),
        )?;
        let entries =
            fs::read_dir(&store).with_context(|| format!("cannot list {}", store.display()))?;
        for entry in entries {
            let package = entry?.path();
            // A package's `lib` must not take the place of a system's link from `lib` to `usr/lib`, as it
            // does with `dpkg-deb -x`.
            let script =
                "dpkg-deb --fsys-tarfile \"$1\" | tar -x --keep-directory-symlink -C \"$2\"";
            process::output(
                Command::new("sh").args(["-ec", script, "sh"]).arg(&package).arg(into),
            )?;
        }
        fs::remove_dir_all(&store).with_context(|| format!("cannot remove {}", store.display()))
    }

    fn field(&self, package: &str, field: &str) -> Result<Option<String>> {
        let text = process::output(self.command("apt-cache").args([
            "show",
            "--no-all-versions",
            package,
        ]))?;
        let prefix = format!("{field}: ");
        Ok(text.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned))
    }

    fn command(&self, program: &str) -> Command {
        let at = |part: &str| self.directory.join(part).display().to_string();
        let mut command = Command::new(program);
        for option in [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=/nonexistent".to_owned(),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::Cache={}", at("cache")),
            // The user that apt drops to cannot enter a build directory below a private home.
            "APT::Sandbox::User=".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command
    }
}

/// Address of the Debian archive that this machine already uses.
///
/// # Errors
/// Where it uses none.
pub(super) fn mirror() -> Result<String> {
    Ok(Mirrors::of_this_machine()?.main)
}

/// The line of a source list for a suite, without the key, which a system of that release has itself.
///
/// # Errors
/// As [`mirror`].
pub(super) fn source_line(suite: &str) -> Result<String> {
    let mirrors = Mirrors::of_this_machine()?;
    Ok(format!("deb {} {suite} main\n", mirrors.of(suite)))
}

/// Base addresses of the Debian archives that this machine already uses.
struct Mirrors {
    main: String,
    security: String,
}

impl Mirrors {
    /// As apt knows them; a machine that never fetched its package lists fetches them first.
    fn of_this_machine() -> Result<Self> {
        if let Ok(mirrors) = Self::configured() {
            return Ok(mirrors);
        }
        tools::update_lists()?;
        Self::configured().context(
            "this machine's apt sources have no Debian archive whose mirror the lab could use",
        )
    }

    fn of(&self, suite: &str) -> &str {
        if suite.ends_with("-security") { &self.security } else { &self.main }
    }

    fn configured() -> Result<Self> {
        let text = process::output(Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(LABEL) $(REPO_URI)",
            "Created-By: Packages",
        ]))?;
        Self::parse(&text)
    }

    /// Reads lines of label and address; the security archive stands beside the main one where it is
    /// not configured.
    fn parse(text: &str) -> Result<Self> {
        let find = |wanted: &str| {
            text.lines()
                .filter_map(|line| line.split_once(' '))
                .find(|(label, _)| *label == wanted)
                .map(|(_, address)| address.trim().trim_end_matches('/').to_owned())
        };
        let Some(main) = find("Debian") else { bail!("no source labelled Debian") };
        let security = find("Debian-Security").unwrap_or_else(|| format!("{main}-security"));
        Ok(Self { main, security })
    }
}

fn source_list(mirrors: &Mirrors, suites: &[&str]) -> String {
    let mut text = String::new();
    for suite in suites {
        let base = mirrors.of(suite);
        text.push_str(&format!("deb [signed-by={KEYRING}] {base} {suite} main\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(targets: &str, suites: &[&str], expected: &Expect) {
        let list = match Mirrors::parse(targets) {
            Ok(mirrors) => source_list(&mirrors, suites),
            Err(error) => format!("error: {error}"),
        };
        expected.assert_eq(&list);
    }

    #[test]
    fn the_security_archive_is_used_for_its_suites() {
        check(
            "Other tools\nDebian http://mirror.example/debian/\nDebian-Security http://safe.example/s/\n",
            &["bullseye", "bullseye-security"],
            &expect![[r"
                deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian bullseye main
                deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://safe.example/s bullseye-security main
            "]],
        );
    }

    #[test]
    fn a_missing_security_archive_is_taken_to_stand_beside_the_main_one() {
        check(
            "Debian http://mirror.example/debian/\n",
            &["x-security"],
            &expect![[r"
                deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian-security x-security main
            "]],
        );
    }

    #[test]
    fn a_machine_without_debian_sources_is_an_error() {
        check(
            "Ubuntu http://mirror.example/ubuntu/\n",
            &["x"],
            &expect!["error: no source labelled Debian"],
        );
    }
}
