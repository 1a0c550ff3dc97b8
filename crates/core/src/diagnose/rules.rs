//! All rules, one a file.

mod across_tenants;
mod acs_redirect;
mod addressing_unknown;
mod beyond_address_width;
mod blocked_domain;
mod board_offers_none;
mod decided_in_guest;
mod encryption_bit;
mod forked_driver;
mod forwarding_unknown;
mod host_not_visible;
mod identity_under_snp;
mod mapped_by_driver;
mod narrow_link;
mod nvlink;
mod nvlink_not_visible;
mod raw_under_translation;
mod route_unknown;
mod software_identity;
mod support;
mod target_unreachable;
#[cfg(test)]
mod testing;
mod turns_in_switch;
mod untranslated;

use super::Rule;

/// Every rule, by code.
pub const RULES: &[Rule] = &[
    raw_under_translation::RULE,
    acs_redirect::RULE,
    forwarding_unknown::RULE,
    mapped_by_driver::RULE,
    identity_under_snp::RULE,
    encryption_bit::RULE,
    decided_in_guest::RULE,
    host_not_visible::RULE,
    board_offers_none::RULE,
    target_unreachable::RULE,
    beyond_address_width::RULE,
    turns_in_switch::RULE,
    blocked_domain::RULE,
    route_unknown::RULE,
    addressing_unknown::RULE,
    untranslated::RULE,
    nvlink::RULE,
    nvlink_not_visible::RULE,
    software_identity::RULE,
    narrow_link::RULE,
    forked_driver::RULE,
    across_tenants::RULE,
];
