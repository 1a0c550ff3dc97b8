//! Versions of kernels and drivers, and ranges of them.

use std::fmt;
use std::str::FromStr;

use peerway_core::snapshot::kernel::Tristate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Numbers with full stops between; a missing number counts as zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u32>);

/// A text without a number in front.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} does not begin with a version number like 6.14 or 580.95.05")]
pub struct VersionError(String);

impl Version {
    /// The numbers at the front of a release such as `6.14.11-5-bpo12-pve`.
    pub fn of_release(release: &str) -> Option<Self> {
        let end =
            release.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(release.len());
        let parts: Option<Vec<u32>> =
            release.get(..end)?.split('.').map(|part| part.parse().ok()).collect();
        let mut parts = parts.filter(|parts| !parts.is_empty())?;
        while parts.len() > 1 && parts.last() == Some(&0) {
            parts.pop();
        }
        Some(Self(parts))
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        Self::of_release(text).filter(|_| plain).ok_or_else(|| VersionError(text.to_owned()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u32::to_string).collect();
        // A kernel is called 7.0, never 7.
        out.pad(&if parts.len() == 1 { format!("{}.0", parts.concat()) } else { parts.join(".") })
    }
}

/// Versions from one (inclusive) until another (exclusive); either end may be open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// First version that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// First version that does not count any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl Range {
    /// Whether every version counts.
    pub fn is_open(&self) -> bool {
        self.from.is_none() && self.until.is_none()
    }

    /// Whether a release lies inside; unknown where it has no version.
    pub fn contains(&self, release: Option<&str>) -> Tristate {
        if self.is_open() {
            return Tristate::Yes;
        }
        let Some(version) = release.and_then(Version::of_release) else {
            return Tristate::Unknown;
        };
        let bound = |text: &Option<String>| text.as_deref().map(Version::from_str);
        match (bound(&self.from), bound(&self.until)) {
            (Some(Err(_)), _) | (_, Some(Err(_))) => Tristate::Unknown,
            (from, until) => {
                let after = from.and_then(Result::ok).is_none_or(|from| version >= from);
                let before = until.and_then(Result::ok).is_none_or(|until| version < until);
                if after && before { Tristate::Yes } else { Tristate::No }
            }
        }
    }

    /// Whether both ends are versions.
    pub(crate) fn check(&self) -> Result<(), VersionError> {
        for end in [&self.from, &self.until].into_iter().flatten() {
            end.parse::<Version>()?;
        }
        Ok(())
    }
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&match (&self.from, &self.until) {
            (None, None) => "any".to_owned(),
            (Some(from), None) => format!("from {from}"),
            (None, Some(until)) => format!("before {until}"),
            (Some(from), Some(until)) => format!("from {from}, before {until}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: Option<&str>, until: Option<&str>, release: Option<&str>, inside: Tristate) {
        let range = Range { from: from.map(str::to_owned), until: until.map(str::to_owned) };
        assert_eq!(range.contains(release), inside, "{range} {release:?}");
    }

    #[test]
    fn ranges() {
        check(None, None, None, Tristate::Yes);
        check(Some("6.13"), Some("6.19.10"), Some("6.14.11-5-bpo12-pve"), Tristate::Yes);
        check(Some("6.13"), Some("6.19.10"), Some("6.19.9"), Tristate::Yes);
        check(Some("6.13"), Some("6.19.10"), Some("6.19.10-1"), Tristate::No);
        check(Some("6.13"), None, Some("6.13.0"), Tristate::Yes);
        check(Some("6.13.0"), None, Some("6.13"), Tristate::Yes);
        check(Some("7.0"), None, Some("7.0-rc4"), Tristate::Yes);
        check(Some("595"), None, Some("580.95.05"), Tristate::No);
        check(Some("595"), None, Some("595.45.04"), Tristate::Yes);
        check(Some("6.4"), None, None, Tristate::Unknown);
        check(Some("6.4"), None, Some("next-2026"), Tristate::Unknown);
        check(Some("six"), None, Some("6.4"), Tristate::Unknown);
    }
}
