//! Warnings when packages change: a new kernel or driver may close a road that is in force.

use super::units::Says;
use crate::plan::Plan;

/// The devices of a plan, as an option takes them.
pub(super) fn devices(plan: &Plan) -> String {
    let all: Vec<String> = plan.goal.devices.iter().map(ToString::to_string).collect();
    all.join(",")
}

/// Called by the kernel's package with the release of the kernel that it installed.
pub(super) fn kernel(says: &Says<'_>) -> String {
    let (file, program, devices) = (&says.how.program, says.program(), devices(says.plan));
    format!(
        "#!/bin/sh\n\
         # Written by Peerway: warns when the kernel that was just installed would close a road to \
         peer access\n\
         # that is in force. It changes nothing, and never fails the installation.\n\
         if [ -n \"$1\" ] && [ -x {file} ]; then\n\
         \t{program} roads --device {devices} --if-kernel \"$1\" --warn || true\n\
         fi\n"
    )
}

/// Called by dpkg after each run: the driver's version is that of the module that would be loaded.
/// The line has no quotes of its own, which apt's configuration cannot hold: it keeps the backslash
/// before one and drops the quote.
pub(super) fn package(says: &Says<'_>) -> String {
    let (file, program, devices) = (&says.how.program, says.program(), devices(says.plan));
    format!(
        "// Written by Peerway: warns when the driver that is installed would close a road to peer \
         access that is in force.\n\
         DPkg::Post-Invoke {{ \"if [ -x {file} ]; then version=$(modinfo -F version nvidia \
         2>/dev/null); case $version in ?*) {program} roads --device {devices} --if-driver $version \
         --warn || true;; esac; fi\"; }};\n"
    )
}
