//! Configurations of models that come up often, by name: the figures that their publishers give.

use crate::config::{ConfigError, ModelConfig};

/// Name and configuration.
const KNOWN: &[(&str, &str)] = &[
    ("qwen3.5-122b-a10b", include_str!("known/qwen3.5-122b-a10b.json")),
    ("qwen3.5-397b-a17b", include_str!("known/qwen3.5-397b-a17b.json")),
    ("qwen3.5-35b-a3b", include_str!("known/qwen3.5-35b-a3b.json")),
    ("qwen3.5-27b", include_str!("known/qwen3.5-27b.json")),
    ("qwen3-235b-a22b", include_str!("known/qwen3-235b-a22b.json")),
    ("qwen3-30b-a3b", include_str!("known/qwen3-30b-a3b.json")),
    ("llama-3.1-70b", include_str!("known/llama-3.1-70b.json")),
    ("kimi-k2", include_str!("known/kimi-k2.json")),
    ("deepseek-v3", include_str!("known/deepseek-v3.json")),
];

/// Names of all.
pub fn names() -> String {
    KNOWN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The configuration of a name.
pub fn text(name: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// A known model; absent where the name is not known.
///
/// # Errors
/// A configuration of ours that is wrong.
pub fn model(name: &str) -> Option<Result<ModelConfig, ConfigError>> {
    text(name).map(ModelConfig::parse)
}
