//! All rules, one a file, in the order of their codes.
//!
//! No rules, but what rules share: `boot` (words of the command line in effect), `registry` (keys of
//! NVIDIA's driver), `processes`, `firmware_menu` and `support`, `fault_support` for those of the log;
//! `testing` and `fault_testing` build the hosts of the tests, `tests` holds all pages to their form.

mod across_tenants;
mod acs_override;
mod acs_redirect;
mod addressing_unknown;
mod asleep;
mod beyond_address_width;
mod blocked_domain;
mod board_offers_none;
mod boot;
mod closed_driver;
mod contested;
mod could_not_look;
mod dead_device;
mod decided_in_guest;
mod device_faults;
pub mod device_state;
mod encryption_bit;
mod external_device;
mod fault_support;
#[cfg(test)]
mod fault_testing;
mod firmware_menu;
mod firmware_settings;
mod firmware_state;
mod forced_capability;
mod forked_driver;
mod forwarding_unknown;
mod gpu_faults;
mod gpu_own_errors;
mod host_not_visible;
mod identity_under_snp;
mod idle_vfio;
mod imported;
mod init_failed;
mod iommu_events;
mod iommu_off;
mod iommu_soft;
mod kernel_unknown;
mod log_lost_events;
mod log_not_read;
mod loud_lines;
mod mapped_by_driver;
mod narrow_link;
mod no_acs_on_root_ports;
mod no_driver;
mod no_op_word;
mod not_covered;
mod nvlink;
mod nvlink_not_visible;
pub mod p2p_mechanism;
mod passthrough_boot;
mod peer_faults;
mod peer_map;
mod peer_map_spoiled;
mod peer_refused;
mod processes;
mod protected_tenant;
mod raw_under_translation;
mod registry;
mod remap_parameter;
mod route_unknown;
mod shared_group;
mod small_bar;
mod sme_active;
pub mod snp_active;
mod snp_off;
mod snp_unknown;
mod software_identity;
mod support;
mod switch_without_effect;
mod target_unreachable;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tools_say_ok;
mod translates_despite_passthrough;
mod turns_in_switch;
mod unassigned_bar;
mod unity_mapping;
mod untranslated;
mod workaround;
mod xid;

use super::Rule;

/// Every rule, by code.
pub const RULES: &[Rule] = &[
    no_op_word::RULE,
    passthrough_boot::RULE,
    translates_despite_passthrough::RULE,
    iommu_soft::RULE,
    iommu_off::RULE,
    acs_override::RULE,
    kernel_unknown::RULE,
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
    peer_map::RULE,
    peer_map_spoiled::RULE,
    forced_capability::RULE,
    remap_parameter::RULE,
    p2p_mechanism::RULE,
    workaround::RULE,
    switch_without_effect::RULE,
    closed_driver::RULE,
    tools_say_ok::RULE,
    no_driver::RULE,
    snp_active::RULE,
    sme_active::RULE,
    snp_off::RULE,
    snp_unknown::RULE,
    firmware_settings::RULE,
    not_covered::RULE,
    no_acs_on_root_ports::RULE,
    unity_mapping::RULE,
    protected_tenant::RULE,
    contested::RULE,
    shared_group::RULE,
    idle_vfio::RULE,
    peer_faults::RULE,
    gpu_faults::RULE,
    device_faults::RULE,
    log_lost_events::RULE,
    init_failed::RULE,
    xid::RULE,
    iommu_events::RULE,
    gpu_own_errors::RULE,
    device_state::RULE,
    peer_refused::RULE,
    loud_lines::RULE,
    could_not_look::RULE,
    log_not_read::RULE,
    asleep::RULE,
    imported::RULE,
    dead_device::RULE,
    small_bar::RULE,
    unassigned_bar::RULE,
    external_device::RULE,
];
