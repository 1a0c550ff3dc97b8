//! The documents of `faults`: what a log holds and whose it is.

use std::collections::BTreeMap;

use peerway_core::address::{BusAddress, PciAddress};
use peerway_core::diagnose::assessment::Assessment;
use peerway_core::diagnose::finding::Finding;
use peerway_core::document::Document;
use peerway_core::document::diagnose::Diagnose;
use peerway_core::judge::Confidence;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::faults::{DriverEvent, FaultClass, FaultFacts, Moment};
use peerway_klog::{Boot, Distinct, Event, Report};
use schemars::JsonSchema;
use serde::Serialize;

use crate::facts;
use crate::map::AddressMap;
use crate::material::Source;

/// Names of the documents that have a schema.
pub const NAMES: &[&str] = &["faults", "import"];

/// The JSON Schema of a document by name.
pub fn schema(name: &str) -> Option<schemars::Schema> {
    Some(match name {
        "faults" => schemars::schema_for!(Document<Faults>),
        "import" => schemars::schema_for!(Document<Import>),
        _ => return None,
    })
}

/// What imported files come to: the document of `diagnose`, and what the files are.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Import {
    /// Assessments, pairs that were seen to fail, findings.
    #[serde(flatten)]
    pub diagnose: Diagnose,
    /// The files, and what each is.
    pub sources: Vec<Source>,
    /// Why each assessment applies.
    pub explanations: Vec<Explanation>,
    /// Whether the leading assessment concerns peer access between GPUs; `null` where it is about
    /// the state of the host, or nothing could be told.
    pub gpu_p2p_related: Option<bool>,
    /// IOMMU events in the kernel logs among the files.
    pub events: u64,
    /// IOMMU events that rate limits kept out of them.
    pub suppressed: u64,
}

/// Why an assessment applies.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Explanation {
    /// The assessment.
    pub assessment: Assessment,
    /// In one sentence.
    pub why: String,
    /// Devices that it is about.
    pub subjects: Vec<String>,
}

/// What a kernel log holds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Faults {
    /// What was read: `/dev/kmsg`, or files.
    pub source: String,
    /// Lines.
    pub lines: u64,
    /// IOMMU events in the log. An event of several lines is one.
    pub events: u64,
    /// IOMMU events that rate limits kept out of the log, by the kernel's notices.
    pub suppressed: u64,
    /// Time of the first event, as the log has it.
    pub first: Option<String>,
    /// Time of the last event.
    pub last: Option<String>,
    /// Who was refused, by requester and kind of event, the most events first.
    pub requesters: Vec<Requester>,
    /// What drivers and the PCI core logged.
    pub driver_events: Vec<DriverEvent>,
    /// Page faults among the events.
    pub translation_events: u64,
    /// Events about tables, queues, commands and requests.
    pub structure_events: u64,
    /// Events of SEV-SNP's reverse map.
    pub rmp_events: u64,
    /// Rate-limit notices by function: messages, and whether they were IOMMU events.
    pub suppressed_by: BTreeMap<String, (u64, bool)>,
    /// Records that were overwritten before they were read.
    pub records_lost: u64,
    /// Notices that an IOMMU's own event log was full.
    pub overflows: u64,
    /// How often an IOMMU did not complete its commands.
    pub iommu_stuck: u64,
    /// Events of requesters beyond the number that is listed.
    pub unlisted_events: u64,
    /// Boots within the log.
    pub boots: Vec<Boot>,
    /// What follows from it.
    pub findings: Vec<Finding>,
}

/// What one requester did: one kind of event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Requester {
    /// The requester: a PCI address, `stream 0x…`, a name, or `unknown`.
    pub address: String,
    /// Family of the IOMMU: `amd-vi`, `vt-d`, `smmu-v2`, `smmu-v3`.
    pub iommu: String,
    /// Kind of the event.
    pub kind: String,
    /// Events in the log; rate limits drop more.
    pub count: u64,
    /// Direction: `read`, `write`, `read+write`, `interrupt`, `execute`, `mixed`, `unknown`.
    pub access: String,
    /// Whether the hardware vouches for the direction; with AMD and an unmapped address it is a
    /// hint.
    pub access_certain: bool,
    /// Different addresses.
    pub distinct_addresses: Distinct,
    /// The addresses, in order; of more than 4,096 a sample.
    pub addresses: Vec<BusAddress>,
    /// There were more.
    pub addresses_truncated: bool,
    /// Lowest address.
    pub lowest: Option<BusAddress>,
    /// Highest address.
    pub highest: Option<BusAddress>,
    /// Whose memory the addresses lie in.
    pub targets: Vec<Target>,
    /// What it is, in the words of assessments.
    pub class: FaultClass,
    /// How sure that is.
    pub confidence: Confidence,
    /// What it rests on.
    pub why: String,
    /// What kind of device the requester is.
    pub device: String,
    /// Who holds the requester.
    pub tenant: Option<String>,
    /// First event.
    pub first: Moment,
    /// Last event.
    pub last: Moment,
    /// Events a second between the first and the last, where the log has a clock.
    pub per_second: Option<f64>,
    /// Names that stood in front of the device.
    pub drivers: Vec<String>,
    /// IOMMUs that reported.
    pub units: Vec<String>,
    /// Flag words, hexadecimal.
    pub flags: Vec<String>,
    /// The IOMMU's own numbers of domains.
    pub domains: Vec<u32>,
    /// Reasons that the hardware gave.
    pub reasons: Vec<Reason>,
    /// Events whose line was cut.
    pub cut: u64,
    /// The first event's message.
    pub text: String,
}

/// A reason that the hardware gave.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reason {
    /// Its number.
    pub code: u32,
    /// Its meaning.
    pub text: String,
}

/// Events inside one region of a device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Target {
    /// Whose region.
    pub device: PciAddress,
    /// Resource index.
    pub bar: u8,
    /// Lowest offset.
    pub offset_first: u64,
    /// Highest offset.
    pub offset_last: u64,
    /// Events.
    pub count: u64,
    /// Whether every event was counted; else only that many different addresses are known to lie
    /// there.
    pub count_exact: bool,
}

impl Faults {
    /// From a log's report, its facts, and the host that it is from.
    pub fn new(
        report: &Report,
        facts: &FaultFacts,
        snapshot: &Snapshot,
        findings: Vec<Finding>,
    ) -> Self {
        let time = |moment: &Option<Moment>| moment.as_ref().and_then(|at| at.time.clone());
        let requesters = report
            .requesters
            .iter()
            .zip(&facts.requesters)
            .map(|(row, facts)| Requester {
                address: facts.name.clone(),
                iommu: facts.iommu.clone(),
                kind: facts.kind.clone(),
                count: facts.count,
                access: facts.access.clone(),
                access_certain: facts.access_certain,
                distinct_addresses: row.distinct_addresses,
                addresses: row.addresses.clone(),
                addresses_truncated: row.addresses_truncated,
                lowest: facts.lowest,
                highest: facts.highest,
                targets: facts
                    .hits
                    .iter()
                    .map(|hit| Target {
                        device: hit.device,
                        bar: hit.bar,
                        offset_first: hit.offset_first,
                        offset_last: hit.offset_last,
                        count: hit.count,
                        count_exact: hit.count_exact,
                    })
                    .collect(),
                class: facts.class,
                confidence: facts.confidence,
                why: facts.why.clone(),
                device: facts.device.clone(),
                // A log alone does not say who holds a device.
                tenant: facts
                    .address
                    .filter(|_| !snapshot.tenants.is_empty())
                    .and_then(|address| snapshot.device(address))
                    .and_then(|device| snapshot.tenant_of(device))
                    .map(|tenant| tenant.to_string()),
                first: facts.first.clone(),
                last: facts.last.clone(),
                per_second: rate(facts.count, &facts.first, &facts.last),
                drivers: row.drivers.clone(),
                units: row.units.clone(),
                flags: row.flags.iter().map(|flags| format!("{flags:#06x}")).collect(),
                domains: row.domains.clone(),
                reasons: row
                    .reasons
                    .iter()
                    .map(|(code, text)| Reason { code: *code, text: text.clone() })
                    .collect(),
                cut: row.cut,
                text: facts.text.clone(),
            })
            .collect();
        Self {
            source: facts.source.clone(),
            lines: facts.lines,
            events: facts.events,
            suppressed: facts.suppressed,
            first: time(&facts.first),
            last: time(&facts.last),
            requesters,
            driver_events: facts.driver_events.clone(),
            translation_events: report.translation_events,
            structure_events: report.structure_events,
            rmp_events: report.rmp_events,
            suppressed_by: report.suppressed_by.clone(),
            records_lost: facts.records_lost,
            overflows: facts.overflows,
            iommu_stuck: facts.stuck,
            unlisted_events: report.unlisted_events,
            boots: report.boots.clone(),
            findings,
        }
    }
}

/// Events a second between two moments of one boot.
#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "a rate, for people")]
fn rate(count: u64, first: &Moment, last: &Moment) -> Option<f64> {
    let span = last.seconds?.checked_sub(first.seconds?)?;
    (first.boot == last.boot && span > 0 && count > 1).then(|| count as f64 / span as f64)
}

/// One event, as a line of `faults --format jsonl`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LineEvent<'a> {
    /// Time as the log has it.
    pub time: Option<String>,
    /// Family of the IOMMU.
    pub iommu: &'static str,
    /// Kind of the event.
    pub kind: &'static str,
    /// Requester.
    pub requester: String,
    /// Refused address.
    pub address: Option<BusAddress>,
    /// Flag word, hexadecimal.
    pub flags: Option<String>,
    /// Direction.
    pub access: &'static str,
    /// Whether the hardware vouches for the direction.
    pub access_certain: bool,
    /// Whose memory the address lies in.
    pub target: Option<LineTarget>,
    /// Line number.
    pub line: u64,
    /// Boot within the log.
    pub boot: u32,
    /// Driver, bus or class name in front of the device.
    pub driver: Option<&'a str>,
}

/// Where an address lies.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LineTarget {
    /// Whose region.
    pub device: PciAddress,
    /// Resource index.
    pub bar: u8,
    /// Offset into it.
    pub offset: u64,
}

impl<'a> LineEvent<'a> {
    /// From an event.
    pub fn new(event: &Event<'a>, map: &AddressMap) -> Self {
        Self {
            time: facts::time(event.when.stamp()),
            iommu: event.iommu.as_str(),
            kind: event.kind.as_str(),
            requester: event.requester.to_string(),
            address: event.address,
            flags: event.flags.map(|flags| format!("{flags:#06x}")),
            access: event.access.direction.as_str(),
            access_certain: event.access.certain,
            target: event
                .address
                .and_then(|address| map.find(address))
                .map(|(place, offset)| LineTarget { device: place.device, bar: place.bar, offset }),
            line: event.line,
            boot: event.boot,
            driver: event.driver,
        }
    }
}
