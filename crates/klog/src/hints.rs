//! What a log says about the host that wrote it, for a diagnosis without a snapshot.
//!
//! Logs that people attach to reports come alone. These functions draw from a [`Report`] what can
//! be known of the devices, the IOMMU, SNP and failed initialisations, with how sure it is.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::notice::{Banner, Platform};
use crate::nvidia::Stage;
use crate::report::{DeviceFacts, Report};
use crate::row::Row;
use crate::xid::{self, Weight};

mod class;
mod init;

pub use class::DeviceClass;

/// How sure a hint is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// One reading among others.
    Possible,
    /// The usual meaning of what was seen.
    Probable,
    /// Said by the log itself.
    Certain,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hints {
    /// Class of every device that the log names.
    pub devices: BTreeMap<PciAddress, DeviceHint>,
    /// Whether an IOMMU translates at all.
    pub iommu: IommuState,
    /// What a boot line says about the default domain. A device may differ from it.
    pub default_passthrough: Option<bool>,
    /// Whether SNP rules the IOMMU, so that identity domains are out.
    pub snp: Tristate,
    /// The lines that say so.
    pub snp_evidence: Vec<Platform>,
    /// Whether the kernel encrypts memory itself (SME), so that peer MMIO may be mapped wrongly.
    pub sme: Tristate,
    /// Failed initialisations of NVIDIA GPUs.
    pub init_failures: Vec<InitFailure>,
    /// Xids with their meaning; causes first, consequences and advice after.
    pub xids: Vec<XidHint>,
    /// How the addresses of each row of the report lie, in the order of its rows.
    pub patterns: Vec<Pattern>,
}

/// Yes, no, or not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tristate {
    /// Yes.
    Yes,
    /// No.
    No,
    /// Not said.
    Unknown,
}

/// Whether an IOMMU translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IommuState {
    /// It logged events, or devices joined groups, or its driver started.
    On,
    /// The log says that it is off and nothing contradicts.
    Off,
    /// Not said. The default domain's banner proves nothing: it is printed with the IOMMU off.
    Unknown,
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceHint {
    /// Its class.
    pub class: DeviceClass,
    /// How sure.
    pub confidence: Confidence,
    /// From what.
    pub why: String,
    /// The log shows it with a driver that gives devices to guests.
    pub given_away: bool,
}

/// A GPU that could not be initialised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InitFailure {
    /// The GPU, where any line names it.
    pub device: Option<PciAddress>,
    /// The stage that failed first in the log and is no mere summary or follow-up.
    pub stage: Option<Stage>,
    /// Every stage that was named, in the order of the log.
    pub stages: Vec<Stage>,
    /// A failed assertion or check of the driver that came before the first of them: the cause
    /// stands there.
    pub assertion: Option<String>,
    /// The summary's stage and status numbers.
    pub codes: Vec<(u32, u32)>,
    /// IOMMU events of the same device.
    pub iommu_events: u64,
    /// Seconds between those events and the failure; 0 where they overlap. `None` without events
    /// or without comparable times.
    pub seconds_to_events: Option<u64>,
    /// The platform gave an address that the GPU cannot reach.
    pub unreachable_address: bool,
}

/// An Xid and its weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct XidHint {
    /// The number.
    pub number: u32,
    /// The GPU.
    pub device: Option<PciAddress>,
    /// How often.
    pub count: u64,
    /// What it means.
    pub meaning: String,
    /// What it weighs.
    pub weight: Weight,
}

/// How the addresses of a row lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pattern {
    /// All events at one address.
    pub constant: bool,
    /// All addresses are below 4 GiB.
    pub below_4g: bool,
    /// Trailing zero bits that all addresses share, 64 for address 0 alone.
    pub alignment_bits: u32,
    /// The median distance between neighbouring addresses, where there are three or more.
    pub median_step: Option<u64>,
}

/// Draws the hints.
pub fn hints(report: &Report) -> Hints {
    let snp_evidence = snp_evidence(report);
    let snp = if snp_evidence.iter().any(|state| is_snp_on(*state)) {
        Tristate::Yes
    } else if snp_evidence.iter().any(|state| is_snp_off(*state)) {
        Tristate::No
    } else {
        Tristate::Unknown
    };
    let sme_off = report.platform.contains_key(&Platform::SmeOffInFirmware);
    let sme = if report.platform.contains_key(&Platform::SmeActive) {
        Tristate::Yes
    } else if sme_off {
        Tristate::No
    } else {
        Tristate::Unknown
    };
    Hints {
        devices: devices(report),
        iommu: iommu(report),
        default_passthrough: default_passthrough(report),
        snp,
        snp_evidence,
        sme,
        init_failures: init::failures(report),
        xids: xids(report),
        patterns: report.requesters.iter().map(pattern).collect(),
    }
}

/// The states of SNP in the last boot that says anything about it.
fn snp_evidence(report: &Report) -> Vec<Platform> {
    let about = |state: &Platform| is_snp_on(*state) || is_snp_off(*state);
    let said = || report.platform.iter().filter(|(state, _)| about(state));
    let boot = said().map(|(_, seen)| seen.last.boot).max();
    said().filter(|(_, seen)| Some(seen.last.boot) == boot).map(|(state, _)| *state).collect()
}

const fn is_snp_on(state: Platform) -> bool {
    matches!(state, Platform::SnpIommuEnabled | Platform::KvmSnpEnabled)
}

const fn is_snp_off(state: Platform) -> bool {
    matches!(
        state,
        Platform::SnpOffPassthrough
            | Platform::SnpOffIommuOff
            | Platform::SnpOffPageTables
            | Platform::SnpOffFeature
            | Platform::SnpOffRmp
            | Platform::SnpOffOther
            | Platform::RmpNotReserved
            | Platform::RmpTooSmall
            | Platform::RmpInvalid
            | Platform::RmpUnmapped
            | Platform::KvmSnpDisabled
    )
}

fn iommu(report: &Report) -> IommuState {
    let banner = |banner: Banner| report.banners.contains_key(&banner);
    let grouped = report.devices.values().any(|facts| facts.group.is_some());
    if report.events > 0
        || grouped
        || banner(Banner::VtdActive)
        || banner(Banner::AmdActive)
        || banner(Banner::AmdPassthrough)
    {
        return IommuState::On;
    }
    let asked_off =
        report.boots.iter().filter_map(|boot| boot.command_line.as_deref()).any(|line| {
            line.split_whitespace()
                .any(|word| matches!(word, "iommu=off" | "intel_iommu=off" | "amd_iommu=off"))
        });
    if asked_off || banner(Banner::VtdDisabled) || banner(Banner::VtdForcedOff) {
        return IommuState::Off;
    }
    IommuState::Unknown
}

fn default_passthrough(report: &Report) -> Option<bool> {
    let last = |banners: &[Banner]| {
        banners
            .iter()
            .filter_map(|banner| report.banners.get(banner))
            .map(|seen| seen.last.line)
            .max()
    };
    let on = last(&[
        Banner::DefaultPassthrough,
        Banner::DefaultPassthroughByCommandLine,
        Banner::AmdPassthrough,
    ]);
    let off = last(&[Banner::DefaultTranslated, Banner::DefaultTranslatedByCommandLine]);
    match (on, off) {
        (None, None) => None,
        (on, off) => Some(on > off),
    }
}

fn devices(report: &Report) -> BTreeMap<PciAddress, DeviceHint> {
    let mut drivers: BTreeMap<PciAddress, BTreeSet<&str>> = BTreeMap::new();
    let mut facts: BTreeMap<PciAddress, &DeviceFacts> = BTreeMap::new();
    for (device, known) in &report.devices {
        facts.insert(*device, known);
        drivers.entry(*device).or_default().extend(known.drivers.iter().map(String::as_str));
    }
    for row in &report.requesters {
        if let Some(device) = row.requester.pci() {
            drivers.entry(device).or_default().extend(row.drivers.iter().map(String::as_str));
        }
    }
    for event in &report.driver_events {
        for device in [event.device, event.other].into_iter().flatten() {
            drivers.entry(device).or_default();
        }
    }
    let has_nic = drivers.values().flatten().any(|name| class::of_driver(name) == DeviceClass::Nic);
    drivers
        .into_iter()
        .map(|(device, names)| {
            (device, class::guess(device, facts.get(&device).copied(), &names, has_nic))
        })
        .collect()
}

fn xids(report: &Report) -> Vec<XidHint> {
    let mut all: Vec<(u64, XidHint)> = report
        .driver_events
        .iter()
        .filter(|event| event.kind == "xid")
        .filter_map(|event| {
            let number = event.code.as_deref()?.parse().ok()?;
            let known = xid::lookup(number);
            let hint = XidHint {
                number,
                device: event.device,
                count: event.count,
                meaning: known.map_or("not listed", |xid| xid.meaning).to_owned(),
                weight: known.map_or(Weight::Medium, |xid| xid.weight),
            };
            Some((event.first.line, hint))
        })
        .collect();
    all.sort_by_key(|(line, hint)| {
        (hint.weight == Weight::Advice || hint.weight == Weight::Low, *line)
    });
    all.into_iter().map(|(_, hint)| hint).collect()
}

fn pattern(row: &Row) -> Pattern {
    let all: Vec<u64> = row.addresses.iter().map(|address| address.0).collect();
    let mut steps: Vec<u64> =
        all.iter().zip(all.iter().skip(1)).map(|(low, high)| high - low).collect();
    steps.sort_unstable();
    Pattern {
        constant: all.len() == 1 && !row.addresses_truncated,
        below_4g: row.highest.is_some_and(|highest| highest.0 < 1 << 32),
        alignment_bits: all.iter().fold(0, |bits, address| bits | address).trailing_zeros(),
        median_step: steps.get(steps.len() / 2).copied().filter(|_| steps.len() > 1),
    }
}
