//! Number formats and what a number takes in memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number format, scales included.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32-bit floating point.
    Float32,
    /// bfloat16.
    Bfloat16,
    /// 16-bit floating point.
    Float16,
    /// 8-bit floating point.
    Fp8,
    /// 8-bit integers.
    Int8,
    /// 4-bit integers with a 16-bit scale for each 128 (GPTQ, AWQ and their like).
    Int4,
    /// 4-bit floating point with an 8-bit scale for each 16.
    Nvfp4,
    /// 4-bit floating point with an 8-bit scale for each 32.
    Mxfp4,
}

impl Precision {
    /// Bytes that one number takes, its share of the scales included.
    pub const fn bytes(self) -> f64 {
        match self {
            Self::Float32 => 4.0,
            Self::Bfloat16 | Self::Float16 => 2.0,
            Self::Fp8 | Self::Int8 => 1.0,
            Self::Int4 => 0.515_625,
            Self::Nvfp4 => 0.5625,
            Self::Mxfp4 => 0.531_25,
        }
    }

    /// Its name as people write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
            Self::Float16 => "float16",
            Self::Fp8 => "FP8",
            Self::Int8 => "INT8",
            Self::Int4 => "INT4",
            Self::Nvfp4 => "NVFP4",
            Self::Mxfp4 => "MXFP4",
        }
    }

    /// From the spelling in a configuration: `bfloat16`, `torch.float16`, `fp8`.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word.trim_start_matches("torch.").to_ascii_lowercase().as_str() {
            "float32" | "float" | "fp32" | "f32" => Self::Float32,
            "bfloat16" | "bf16" => Self::Bfloat16,
            "float16" | "half" | "fp16" | "f16" => Self::Float16,
            "fp8" | "float8_e4m3fn" | "fp8_e4m3" | "fp8_e5m2" | "float8_e5m2" => Self::Fp8,
            "int8" => Self::Int8,
            "int4" => Self::Int4,
            "nvfp4" => Self::Nvfp4,
            "mxfp4" => Self::Mxfp4,
            _ => return None,
        })
    }
}
