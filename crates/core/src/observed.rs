//! What a look at one place gave: a value, nothing there, or no way to tell.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One observation. "Could not look" is a state of its own and never read as "nothing there".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "state", content = "value")]
pub enum Observed<T> {
    /// It was read.
    Known(T),
    /// The place was looked at, and there is no such thing (`ENOENT`, `ENODEV`, an empty link).
    Absent,
    /// The place could not be looked at: why, in words for the operator.
    Unreadable(String),
}

impl<T> Observed<T> {
    /// The value, if it was read.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Absent | Self::Unreadable(_) => None,
        }
    }

    /// Whether the place was looked at and is empty.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Why it could not be looked at.
    pub fn unreadable(&self) -> Option<&str> {
        match self {
            Self::Unreadable(why) => Some(why),
            Self::Known(_) | Self::Absent => None,
        }
    }

    /// The same observation of something made from the value.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Observed<U> {
        match self {
            Self::Known(value) => Observed::Known(make(value)),
            Self::Absent => Observed::Absent,
            Self::Unreadable(why) => Observed::Unreadable(why),
        }
    }

    /// Continues with a second look that may fail in its own way.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Observed<U>) -> Observed<U> {
        match self {
            Self::Known(value) => next(value),
            Self::Absent => Observed::Absent,
            Self::Unreadable(why) => Observed::Unreadable(why),
        }
    }

    /// By reference.
    pub fn as_ref(&self) -> Observed<&T> {
        match self {
            Self::Known(value) => Observed::Known(value),
            Self::Absent => Observed::Absent,
            Self::Unreadable(why) => Observed::Unreadable(why.clone()),
        }
    }
}

impl<T> Default for Observed<T> {
    /// Nobody looked.
    fn default() -> Self {
        Self::Unreadable("not looked at".to_owned())
    }
}

impl<T: fmt::Display> fmt::Display for Observed<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(value) => value.fmt(out),
            Self::Absent => out.pad("none"),
            Self::Unreadable(why) => out.pad(&format!("unknown ({why})")),
        }
    }
}
