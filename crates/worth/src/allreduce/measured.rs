//! All-reduce times from a measurement of `peerway test`.

use serde_json::Value;
use thiserror::Error;

use super::{Backend, Curve, Times};
use crate::hardware::Link;

/// Why a measurement cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MeasuredError {
    /// Not JSON.
    #[error("the measurement is not JSON: {0}")]
    NotJson(String),
    /// No `all_reduce` list.
    #[error("the measurement has no all_reduce list; peerway test --format json writes one")]
    NoList,
    /// Nothing for that many GPUs.
    #[error(
        "the measurement has no all-reduce of {wanted} GPUs (it has: {found}); measure the GPUs that the model will run on"
    )]
    OtherRanks {
        /// GPUs that the layout needs.
        wanted: u32,
        /// What there is.
        found: String,
    },
    /// Nothing usable.
    #[error(
        "no arm of the measurement has two sizes with right results ({bad} rows were wrong or hung)"
    )]
    NothingIntact {
        /// Rows left out.
        bad: usize,
    },
}

impl Times {
    /// As [`Self::from_test`], for every other number of GPUs that was measured.
    pub fn others_from_test(text: &str, link: Link, ranks: u32) -> Vec<Self> {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let rows = value.get("all_reduce").and_then(Value::as_array);
        let widths: std::collections::BTreeSet<u32> = rows
            .into_iter()
            .flatten()
            .filter_map(|row| u32::try_from(row.get("gpus")?.as_array()?.len()).ok())
            .filter(|width| *width > 1 && *width != ranks)
            .collect();
        // A width without a usable row is assumed, as one that was not measured.
        widths.into_iter().filter_map(|width| Self::from_test(text, link, width).ok()).collect()
    }

    /// From the JSON of `peerway test`, for so many GPUs; what it lacks is assumed.
    ///
    /// # Errors
    /// What is wrong with the measurement.
    pub fn from_test(text: &str, link: Link, ranks: u32) -> Result<Self, MeasuredError> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| MeasuredError::NotJson(error.to_string()))?;
        let rows = value
            .get("all_reduce")
            .and_then(Value::as_array)
            .filter(|rows| !rows.is_empty())
            .ok_or(MeasuredError::NoList)?;
        let width = |row: &Value| row.get("gpus").and_then(Value::as_array).map_or(0, Vec::len);
        let wanted = usize::try_from(ranks).unwrap_or(usize::MAX);
        if !rows.iter().any(|row| width(row) == wanted) {
            let mut found: Vec<usize> = rows.iter().map(width).collect();
            found.sort_unstable();
            found.dedup();
            let found = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(MeasuredError::OtherRanks { wanted: ranks, found });
        }
        let rows: Vec<&Value> = rows.iter().filter(|row| width(row) == wanted).collect();
        let mut times = Self::seeds(link, ranks);
        let (host, bad_host) = curve(&rows, "host");
        let (peer, bad_peer) = curve(&rows, "p2p");
        if host.is_none() && peer.is_none() {
            return Err(MeasuredError::NothingIntact { bad: bad_host + bad_peer });
        }
        let source = |arm: &str| format!("measured: all-reduce of {ranks} GPUs, arm {arm}");
        if let Some(curve) = host {
            times.host = Backend::exact(curve, source("host"));
        } else {
            times
                .notes
                .push("the arm through host memory was not measured right: assumed".to_owned());
        }
        if let Some(curve) = peer {
            times.peer = Backend::exact(curve, source("p2p"));
        } else {
            times.notes.push(
                "peer access was not measured right on these GPUs: its times are assumed, for a \
                 host where it works"
                    .to_owned(),
            );
        }
        if bad_host + bad_peer > 0 {
            times.notes.push(format!(
                "{} measured rows with wrong data or without an end were left out",
                bad_host + bad_peer
            ));
        }
        times.notes.push(
            "measured from one process without CUDA graphs; engines replay graphs, which may be a \
             few microseconds faster a message"
                .to_owned(),
        );
        Ok(times)
    }
}

/// The curve of an arm, and how many of its rows were left out.
fn curve(rows: &[&Value], arm: &str) -> (Option<Curve>, usize) {
    let of_arm = rows.iter().filter(|row| row.get("arm").and_then(Value::as_str) == Some(arm));
    let mut points = Vec::new();
    let mut bad = 0;
    for row in of_arm {
        let number = |name: &str| row.get(name).and_then(Value::as_f64);
        let intact = row.get("verdict").and_then(Value::as_str) == Some("intact");
        match (intact, number("bytes"), number("seconds")) {
            (true, Some(bytes), Some(seconds)) if bytes > 0.0 && seconds > 0.0 => {
                points.push((bytes, seconds));
            }
            _ => bad += 1,
        }
    }
    (Curve::from_points(&points).ok(), bad)
}
