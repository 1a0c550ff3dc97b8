//! Inference engines and their versions.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

use crate::hardware::Link;

/// An engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EngineName {
    /// SGLang.
    Sglang,
    /// vLLM.
    Vllm,
}

/// Three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Version(pub u32, pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// An engine with its version, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Engine {
    /// Which.
    pub name: EngineName,
    /// Its version; absent where it was not given.
    pub version: Option<Version>,
}

/// A word that names no engine.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{word:?} is no engine; give sglang or vllm, with its version: sglang@0.5.23")]
pub struct EngineError {
    word: String,
}

impl FromStr for Engine {
    type Err = EngineError;

    fn from_str(word: &str) -> Result<Self, EngineError> {
        let error = || EngineError { word: word.chars().take(60).collect() };
        let (name, version) = match word.split_once(['@', '=']) {
            Some((name, version)) => {
                (name, Some(parse_version(version.trim_start_matches('=')).ok_or_else(error)?))
            }
            None => (word, None),
        };
        let name = match name.to_ascii_lowercase().as_str() {
            "sglang" => EngineName::Sglang,
            "vllm" => EngineName::Vllm,
            _ => return Err(error()),
        };
        Ok(Self { name, version })
    }
}

/// `0.5.10.post1` is 0.5.10: post releases change no option.
fn parse_version(text: &str) -> Option<Version> {
    let text = text.trim_start_matches('v');
    let mut parts = text.split('.').map(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    });
    let major = parts.next()??;
    let minor = parts.next()??;
    let patch = parts.next().flatten().unwrap_or(0);
    Some(Version(major, minor, patch))
}

impl fmt::Display for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name.title())?;
        match self.version {
            Some(version) => write!(out, " {version}"),
            None => out.write_str(", version not given"),
        }
    }
}

impl EngineName {
    /// As it spells itself.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sglang => "SGLang",
            Self::Vllm => "vLLM",
        }
    }
}

/// Whether an engine has its own all-reduce kernels for a set of GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind", content = "how")]
pub enum Kernels {
    /// Used as soon as peer access is there.
    ByDefault,
    /// Used when switched on by this variable.
    OptIn(&'static str),
    /// Not for these GPUs, and why.
    No(String),
    /// The version was not given.
    Unknown(String),
}

impl Engine {
    /// Kernels of its own for sums over so many GPUs.
    ///
    /// Above two GPUs both engines ask for NVLink between all of them before they use the kernels
    /// that every version has (`custom_all_reduce.py` of both); kernels for PCIe came with SGLang
    /// 0.5.23 and vLLM 0.33, for 2, 4 and 8 GPUs, and have to be switched on.
    pub fn kernels(&self, link: Link, ranks: u32) -> Kernels {
        if ranks < 2 {
            return Kernels::No("one GPU sums nothing".to_owned());
        }
        let sizes: &[u32] = match self.name {
            EngineName::Sglang => &[2, 4, 6, 8],
            EngineName::Vllm => &[2, 4, 6, 8, 16],
        };
        if (link.is_nvlink() || ranks == 2) && sizes.contains(&ranks) {
            return Kernels::ByDefault;
        }
        if ![2, 4, 8].contains(&ranks) {
            return Kernels::No(format!("no kernel of {} takes {ranks} GPUs", self.name.title()));
        }
        let (since, variable) = match self.name {
            EngineName::Sglang => (Version(0, 5, 23), "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1"),
            EngineName::Vllm => (Version(0, 33, 0), "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC=1"),
        };
        match self.version {
            None => Kernels::Unknown(format!(
                "{variable} from {} {since} on; give the version",
                self.name.title()
            )),
            Some(version) if version >= since => Kernels::OptIn(variable),
            Some(version) => Kernels::No(format!(
                "{} {version} has none for {ranks} GPUs on PCIe; from {since} on: {variable}",
                self.name.title()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, expected: &str) {
        let seen = word.parse::<Engine>().map_or_else(|e| e.to_string(), |e| e.to_string());
        assert_eq!(seen, expected);
    }

    #[test]
    fn engines() {
        check("sglang@0.5.23", "SGLang 0.5.23");
        check("SGLang@v0.5.10.post1", "SGLang 0.5.10");
        check("vllm", "vLLM, version not given");
        check("vllm==0.33.0", "vLLM 0.33.0");
        check(
            "sglang@new",
            "\"sglang@new\" is no engine; give sglang or vllm, with its version: sglang@0.5.23",
        );
    }
}
