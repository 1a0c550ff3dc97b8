//! The gates, by what they look at. Each is a function from the scene to one [`Gate`], and each
//! says what it read; none passes on an unknown.
//!
//! [`Gate`]: crate::gate::Gate

pub(crate) mod addresses;
pub(crate) mod driver;
pub(crate) mod encryption;
pub(crate) mod group;
pub(crate) mod kernel;
pub(crate) mod pairs;
pub(crate) mod switch;
pub(crate) mod tenants;

/// The first few of a list, and how many more there are: texts stay readable on large hosts.
pub(crate) fn some_of(items: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<&str> = items.iter().take(SHOWN).map(String::as_str).collect();
    match items.len().checked_sub(SHOWN) {
        None | Some(0) => shown.join("; "),
        Some(more) => format!("{}; and {more} more", shown.join("; ")),
    }
}
