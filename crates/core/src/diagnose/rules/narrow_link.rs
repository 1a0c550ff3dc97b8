//! PW0220: a link of the route is far below what it should be.

use std::collections::BTreeSet;

use super::support;
use crate::code::NARROW_LINK;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;

pub(super) const RULE: Rule = Rule {
    code: NARROW_LINK,
    title: "a link of the route runs with less than half its lanes",
    page: "\
Data arrives, but a link on the way runs with less than half of the lanes that the device or port
has. Peer bandwidth cannot exceed the narrowest link: a x16 board on four lanes gives a quarter.

How it was seen: `current_link_width` against `max_link_width` in sysfs, of both devices and of the
ports between them. Width is fixed when the link trains and does not change with load.

What is not judged: speed. Idle GPUs lower their link to 2.5 GT/s and raise it under load, so that a
low `current_link_speed` on a quiet machine says nothing. Measure under load instead.

Usual reasons: a board in a slot that is wired for fewer lanes; a slot whose lanes firmware splits
between several devices (bifurcation) while one board sits in it; a riser or a cable that lost
lanes; a board not fully seated; dirt on the contacts. Links also retrain to fewer lanes after
errors: look for corrected-error messages (AER) of that port in the kernel log.

Why it matters: for tensor parallelism the slowest pair sets the pace of all.

What helps: another slot, a reseated board, another riser; in firmware look for the bifurcation of
that slot (`PCIe Slot N Bifurcation`, or the like). All of it needs the host down, and so stops
every tenant.

What not to believe: bandwidth tables of the vendor for a link that is not the one you have.

Sources: PCI Express Base Specification 7.5.3.8; `drivers/pci/pci-sysfs.c`,
`current_link_width_show`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let mut places = BTreeSet::new();
    for pair in &affected.pairs {
        places.extend([pair.from, pair.to]);
        places.extend(pair.route.up.iter().chain(&pair.route.down).map(|port| port.address));
    }
    let narrow: Vec<_> = places
        .into_iter()
        .filter_map(|address| Some((address, *snapshot.device(address)?.link.known()?)))
        .filter(|(_, link)| link.width.saturating_mul(2) < link.max_width)
        .collect();
    let Some((first, link)) = narrow.first() else { return Vec::new() };
    let mut finding = Finding::new(
        RULE.code,
        Severity::Warning,
        Confidence::Certain,
        format!(
            "the link of {first} runs with {} of {} lanes, which slows {}",
            link.width,
            link.max_width,
            affected.counted()
        ),
    )
    .about_all(narrow.iter().map(|(address, _)| address));
    for (address, link) in &narrow {
        finding = finding.seen(
            device_file(*address, "current_link_width"),
            format!("{} of {}", link.width, link.max_width),
        );
    }
    vec![finding.remedy(
        "look at the slot, the riser and the bifurcation of that slot in firmware; the host has \
         to be down for it",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, Host, fires, silent, value};
    use crate::observed::Observed;
    use crate::snapshot::pci::LinkState;

    fn with_link(speed: u32, width: u32) -> Host {
        Host::amd().identity().device(A, |gpu| {
            gpu.link = Observed::Known(LinkState { speed, width, max_speed: 320, max_width: 16 });
        })
    }

    #[test]
    fn four_lanes_of_sixteen() {
        let finding = fires(&RULE, &with_link(320, 4));
        assert_eq!(finding.subjects, [A]);
        assert_eq!(value(&finding, "current_link_width"), "4 of 16");
    }

    #[test]
    fn half_the_lanes_or_an_idle_speed() {
        silent(&RULE, &with_link(320, 8));
        silent(&RULE, &with_link(25, 16));
    }
}
