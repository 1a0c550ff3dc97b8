//! Gates on the kernel: what it can do, what it lets root do, what failed on it before.

use peerway_core::command_line::{self, Effect};
use peerway_core::observed::Observed;
use peerway_core::snapshot::iommu::IommuVendor;
use peerway_core::snapshot::kernel::Tristate;

use super::some_of;
use crate::gate::{Gate, GateCode};
use crate::id::RoadId;
use crate::knowledge::{OutcomeResult, Situation};
use crate::scene::Scene;

/// The kernel can change the type of every group of the goal.
pub(crate) fn kernel_era(scene: &Scene<'_>) -> Gate {
    let kernel = scene.kernel_text();
    let groups = scene.groups();
    if let Some(device) =
        scene.devices().iter().find(|device| scene.snapshot().group_of(device).is_none())
    {
        return Gate::unknown(
            GateCode::KernelEra,
            format!("iommu_group of {} = {}", device.address, device.group),
            "a readable iommu_group link",
        );
    }
    let many = groups.values().any(|(group, _)| group.devices.len() != 1);
    let (state, text) = if many {
        (scene.fact("type-file-many"), "a group has several functions, which needs 6.4 or later")
    } else {
        (scene.fact("type-file"), "each group has one function, which needs 5.11 or later")
    };
    let read = format!("{kernel}; {text}");
    match state {
        Tristate::Yes => Gate::pass(GateCode::KernelEra, read),
        Tristate::No => Gate::fail(GateCode::KernelEra, read, "a kernel of 6.4 or later"),
        Tristate::Unknown => {
            Gate::unknown(GateCode::KernelEra, read, "a kernel whose release tells its version")
        }
    }
}

/// The module is made for this kernel. Whether it is built and installed is asked when it is used.
pub(crate) fn module(scene: &Scene<'_>) -> Gate {
    let read = match scene.knowledge().fact("peer-map-module") {
        Some(fact) => format!("{}; the module: {}", scene.kernel_text(), fact.kernels),
        None => scene.kernel_text(),
    };
    match scene.fact("peer-map-module") {
        Tristate::Yes => Gate::pass(GateCode::Module, read),
        Tristate::No => Gate::fail(
            GateCode::Module,
            read,
            "a kernel in that range, or a module that was tested on this one",
        ),
        Tristate::Unknown => {
            Gate::unknown(GateCode::Module, read, "a kernel whose release tells its version")
        }
    }
}

/// Lockdown does not stand in the way; `module` says whether signing the module would help.
pub(crate) fn secure_boot(scene: &Scene<'_>, module: bool) -> Gate {
    const SOURCE: &str = "/sys/kernel/security/lockdown";
    let read = format!("{SOURCE} = {}", scene.snapshot().kernel.lockdown);
    match &scene.snapshot().kernel.lockdown {
        Observed::Known(word) if word == "none" => Gate::pass(GateCode::SecureBoot, read),
        Observed::Known(_) if module && scene.constraints().accepted.module_signed => Gate::pass(
            GateCode::SecureBoot,
            format!("{read}; the operator says that the module is signed with a trusted key"),
        ),
        Observed::Known(_) if module => Gate::fail(
            GateCode::SecureBoot,
            read,
            "signing the module with a key that is enrolled (mokutil --import), then \
             --module-signed",
        ),
        Observed::Known(_) => Gate::fail(
            GateCode::SecureBoot,
            format!("{read}: configuration space cannot be written"),
            "booting without lockdown",
        ),
        Observed::Absent | Observed::Unreadable(_) => Gate::unknown(
            GateCode::SecureBoot,
            read,
            "mount -t securityfs securityfs /sys/kernel/security",
        ),
    }
}

/// Nothing of the kind failed before, here or where it is known.
pub(crate) fn known_failure(scene: &Scene<'_>, road: RoadId) -> Gate {
    let here = scene.situation();
    let knowledge = scene.knowledge();
    let what = format!(
        "driver {}, kernel {}",
        here.driver.unwrap_or("unknown"),
        here.kernel.unwrap_or("unknown")
    );
    // What was remembered without a driver's version is about this host too where it has no such driver.
    let driver = match &scene.snapshot().nvidia.version {
        Observed::Absent => Some(""),
        _ => here.driver,
    };
    match knowledge.outcome(road, &Situation { driver, ..scene.situation() }) {
        Some((outcome, Tristate::Unknown | Tristate::No)) => {
            return Gate::unknown(
                GateCode::KnownFailure,
                format!(
                    "remembered on this host for driver {}, kernel {}: {}; here {what}",
                    outcome.driver, outcome.kernel, outcome.reason
                ),
                "readable versions of driver and kernel, and the boards",
            );
        }
        Some((outcome, Tristate::Yes)) if outcome.result == OutcomeResult::Succeeded => {
            return Gate::pass(
                GateCode::KnownFailure,
                format!("remembered on this host, {what}: it worked ({})", outcome.reason),
            );
        }
        Some((outcome, Tristate::Yes)) => {
            let how = match outcome.result {
                OutcomeResult::ControlFailed => "not even a rebind without any change worked",
                OutcomeResult::Failed | OutcomeResult::Succeeded => "it failed and was taken back",
            };
            return Gate::fail(
                GateCode::KnownFailure,
                format!("remembered on this host, {what}: {how} ({})", outcome.reason),
                "another board, driver or kernel; peerway history shows the transaction",
            );
        }
        None => {}
    }
    let mut near = Vec::new();
    for (fact, state) in knowledge.failures(road, &here) {
        match state {
            Tristate::Yes => {
                return Gate::fail(
                    GateCode::KnownFailure,
                    format!("{} ({})", fact.text, fact.source),
                    "another board, driver or kernel",
                );
            }
            Tristate::Unknown => {
                return Gate::unknown(
                    GateCode::KnownFailure,
                    format!("perhaps: {} ({})", fact.text, fact.source),
                    "what could not be read of board, driver, kernel or SNP",
                );
            }
            Tristate::No => near.push(format!("{} ({})", fact.text, fact.source)),
        }
    }
    if let Some(why) = knowledge.unread() {
        return Gate::unknown(
            GateCode::KnownFailure,
            format!("what earlier changes of this host came to could not be read ({why})"),
            "root, and a journal that can be read (peerway history)",
        );
    }
    let read = if near.is_empty() {
        format!("no failure is known for {what}")
    } else {
        format!("no failure is known for {what}. Known elsewhere: {}", some_of(&near))
    };
    Gate::pass(GateCode::KnownFailure, read)
}

/// Identity really passes addresses through (VT-d: ecap bit 6).
pub(crate) fn pass_through_mode(scene: &Scene<'_>) -> Gate {
    let snapshot = scene.snapshot();
    match snapshot.iommu_vendor() {
        Some(IommuVendor::Amd) => {
            Gate::pass(GateCode::PassThroughMode, "IOMMU = AMD-Vi, which always has it")
        }
        Some(IommuVendor::Intel) => {
            let units = snapshot.iommu.units.known().map_or(&[][..], Vec::as_slice);
            let states: Vec<Tristate> =
                units.iter().map(|unit| unit.hardware_pass_through().into()).collect();
            let read = format!("ecap bit 6 of {} units", units.len());
            if states.contains(&Tristate::No) {
                Gate::fail(
                    GateCode::PassThroughMode,
                    format!("{read} = not all set: identity would map memory and no peers"),
                    "nothing on this hardware",
                )
            } else if states.is_empty() || states.contains(&Tristate::Unknown) {
                Gate::unknown(
                    GateCode::PassThroughMode,
                    format!("{read} = could not be read"),
                    "a readable /sys/class/iommu/dmar*/intel-iommu/ecap",
                )
            } else {
                Gate::pass(GateCode::PassThroughMode, format!("{read} = set"))
            }
        }
        Some(vendor @ (IommuVendor::Arm | IommuVendor::Other)) => Gate::unknown(
            GateCode::PassThroughMode,
            format!("IOMMU = {vendor}: not looked into"),
            "peerway test under an identity domain",
        ),
        None => Gate::unknown(
            GateCode::PassThroughMode,
            "the IOMMU's units could not be read",
            "a readable /sys/class/iommu",
        ),
    }
}

/// Groups are what they say: nothing pretends isolation.
pub(crate) fn real_groups(scene: &Scene<'_>) -> Gate {
    match &scene.snapshot().kernel.command_line {
        Observed::Known(line) => {
            let pretending = command_line::parse(line)
                .into_iter()
                .find(|word| word.meaning.has(Effect::PretendsIsolation));
            match pretending {
                Some(word) => Gate::fail(
                    GateCode::RealGroups,
                    format!(
                        "/proc/cmdline = {}: groups may share what they seem not to",
                        word.text
                    ),
                    "booting without that word",
                ),
                None => Gate::pass(
                    GateCode::RealGroups,
                    "/proc/cmdline has no word that pretends isolation",
                ),
            }
        }
        other => Gate::unknown(
            GateCode::RealGroups,
            format!("/proc/cmdline = {other}"),
            "a readable /proc/cmdline",
        ),
    }
}
