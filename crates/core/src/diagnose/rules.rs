//! All rules, one a file.

mod acs_redirect;
mod raw_under_translation;

use super::Rule;

/// Every rule, by code.
pub const RULES: &[Rule] = &[raw_under_translation::RULE, acs_redirect::RULE];
