//! What a measurement says, as published: `test --format json` prints these types.

use std::fmt;

use peerway_core::address::PciAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evidence::{Evidence, WorkEvidence};
use crate::precondition::Precondition;

/// How one GPU reaches another's memory.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Peer access between contexts (`cuCtxEnablePeerAccess`).
    Peer,
    /// Virtual memory management (`cuMemSetAccess`), as NCCL maps its buffers.
    Vmm,
    /// A handle opened in a second process, as inference engines' own all-reduce does.
    Ipc,
    /// No access granted: the driver stages through host memory. The control arm.
    Staged,
}

/// What moves the data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// A copy engine.
    Copy,
    /// Loads and stores of a kernel (streaming multiprocessors).
    Sm,
}

/// Which way the data goes, seen from the requesting GPU.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// The requester writes into the target's memory.
    Write,
    /// The requester reads the target's memory.
    Read,
}

/// The verdict on a transfer; later ones outrank earlier ones when several are summed up, but
/// `NotRun` never hides a verdict and `Intact` never hides that something was not run.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All data was right, checked on the owner's side.
    Intact,
    /// Nothing was measured, or not all of it; `detail` says why.
    NotRun,
    /// The driver does not offer this way: it refused before anything moved.
    Refused,
    /// The driver or the process broke down with an error once transfers had begun.
    Broken,
    /// It did not end in its time.
    Hung,
    /// Data was wrong.
    Damaged,
}

impl Verdict {
    /// The verdict on two things together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.max(other)
    }
}

/// What happened to data that is wrong.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// The destination still holds what was there before: the transfer went nowhere.
    Dropped,
    /// Zeros arrived.
    Zeros,
    /// All ones arrived, as from a failed PCIe read.
    Ones,
    /// Right data at the wrong place: addresses wrap or overlap.
    Aliased,
    /// Old data: what an earlier step left, or a flag that overtook its data.
    Stale,
    /// Data of another GPU or meant for another GPU.
    Misrouted,
    /// Anything else: single wrong bits or words.
    Bits,
    /// The writer reads back what it wrote, the owner never sees it.
    Mirrored,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dropped => "dropped",
            Self::Zeros => "zeros",
            Self::Ones => "ones",
            Self::Aliased => "aliased",
            Self::Stale => "stale",
            Self::Misrouted => "misrouted",
            Self::Bits => "bits",
            Self::Mirrored => "mirrored",
        })
    }
}

/// A run of damaged pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageRun {
    /// First byte, from the start of the tested allocation.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Where and how data was damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DamageReport {
    /// The class.
    pub damage: Damage,
    /// First wrong byte, from the start of the tested allocation.
    pub first_bad_offset: u64,
    /// Wrong 16-byte units.
    pub bad_units: u64,
    /// Which pages; at most 64 runs, the first ones.
    pub pages: Vec<PageRun>,
    /// What stood in the first wrong unit, as hexadecimal bytes.
    pub found: String,
    /// What should have stood there.
    pub expected: String,
    /// The step at which it was seen.
    pub step: String,
    /// Whether the owner's kernel and a copy from the owner to the host agree on the damage.
    pub confirmed_by_copy: bool,
}

/// Verdict on one operation of one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperationResult {
    /// Write or read.
    pub operation: Operation,
    /// The verdict.
    pub verdict: Verdict,
    /// Where and how, if damaged.
    pub damage: Option<DamageReport>,
    /// Steps that were checked.
    pub steps: u32,
    /// Bytes that were moved and checked.
    pub bytes: u64,
    /// Bytes of the target's memory over which samples were spread; 0 if none were.
    pub sampled_bytes: u64,
    /// Why it was refused or not run, if it was.
    pub detail: Option<String>,
}

/// One ordered pair of GPUs in one mode by one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairResult {
    /// The requester.
    pub from: PciAddress,
    /// The GPU whose memory is written and read.
    pub to: PciAddress,
    /// How the memory was made reachable.
    pub mode: Mode,
    /// What moved the data.
    pub engine: Engine,
    /// The worst of the operations.
    pub verdict: Verdict,
    /// Class of the damage, if damaged.
    pub damage: Option<Damage>,
    /// One-way rate of writes; only measured where data was right.
    pub bandwidth_bytes_per_second: Option<f64>,
    /// One-way rate of reads.
    pub read_bytes_per_second: Option<f64>,
    /// Sum of both directions when both GPUs write at once.
    pub both_ways_bytes_per_second: Option<f64>,
    /// Time for one small transfer: half a round trip of flags (SM), or a 16-byte copy (copy
    /// engine).
    pub latency_seconds: Option<f64>,
    /// Time of one dependent remote load (SM only).
    pub load_seconds: Option<f64>,
    /// The rate that the link can carry, as given by the caller.
    pub line_rate_bytes_per_second: Option<f64>,
    /// A measured rate is above what the link can carry: writes that vanish look fast.
    pub above_line_rate: bool,
    /// What the host recorded meanwhile.
    #[serde(default)]
    pub evidence: Evidence,
    /// Each operation on its own.
    pub operations: Vec<OperationResult>,
    /// Why it was refused, hung or not run, or what to know about it.
    pub detail: Option<String>,
}

/// Several transfers at once.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Every GPU writes to every other one, and reads from it.
    AllPairs,
    /// All others write to one.
    AllToOne,
    /// One writes to all others.
    OneToAll,
    /// As `AllPairs`, with copies between host and GPUs at the same time.
    AllPairsWithHost,
}

/// Verdict on several transfers at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TogetherResult {
    /// Which transfers ran.
    pub pattern: Pattern,
    /// The one GPU of `AllToOne` and `OneToAll`.
    pub hub: Option<PciAddress>,
    /// What moved the data.
    pub engine: Engine,
    /// The worst of all transfers.
    pub verdict: Verdict,
    /// The ordered pairs that took part; none in measurements of before this was kept.
    #[serde(default)]
    pub pairs: Vec<(PciAddress, PciAddress)>,
    /// The transfers whose data was wrong.
    pub damaged: Vec<TogetherDamage>,
    /// Bytes over time from the common start to the last end.
    pub bandwidth_bytes_per_second: Option<f64>,
    /// Why it was refused, hung or not run.
    pub detail: Option<String>,
}

/// A damaged transfer among several at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TogetherDamage {
    /// The requester.
    pub from: PciAddress,
    /// The target.
    pub to: PciAddress,
    /// Whether the requester wrote or read.
    #[serde(default = "write")]
    pub operation: Operation,
    /// Where and how.
    pub report: DamageReport,
}

/// Rates between a GPU and host memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostRates {
    /// The GPU.
    pub gpu: PciAddress,
    /// Host to GPU.
    pub upload_bytes_per_second: f64,
    /// GPU to host.
    pub download_bytes_per_second: f64,
    /// Within the GPU, by the copy engine: bytes copied, so half of the memory traffic.
    pub local_copy_bytes_per_second: f64,
    /// Where and how data was wrong on the way from or to the host; none where it was right.
    #[serde(default)]
    pub damage: Option<DamageReport>,
}

/// Whether NCCL may use P2P in an all-reduce.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// P2P at any distance, mapped as between processes.
    P2p,
    /// P2P switched off for NCCL: through host memory.
    Host,
}

/// One all-reduce size in one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AllReduceResult {
    /// The ranks.
    pub gpus: Vec<PciAddress>,
    /// With or without P2P.
    pub arm: Arm,
    /// Processes that the ranks ran in: one for all, or one each, as inference engines do.
    #[serde(default = "one")]
    pub processes: u32,
    /// Bytes of each rank's buffer.
    pub bytes: u64,
    /// The verdict; the values were checked on every rank.
    pub verdict: Verdict,
    /// Elements that were wrong, over all ranks.
    pub wrong_elements: u64,
    /// Median time of one all-reduce.
    pub seconds: Option<f64>,
    /// Bytes over time.
    pub algorithm_bytes_per_second: Option<f64>,
    /// The above times 2(n-1)/n: what each link carries.
    pub bus_bytes_per_second: Option<f64>,
    /// What NCCL's log says it used, as in `P2P/CUMEM` or `SHM/direct`, each once.
    pub transports: Vec<String>,
    /// NCCL's version: major * 10000 + minor * 100 + patch.
    pub nccl_version: Option<i32>,
    /// Why it was refused, hung or not run.
    pub detail: Option<String>,
}

/// Measurements of before only wrote at the same time.
fn write() -> Operation {
    Operation::Write
}

/// Children of before were only noted if they hung.
fn yes() -> bool {
    true
}

/// Measurements of before were made in one process.
fn one() -> u32 {
    1
}

/// A GPU as the driver shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuSeen {
    /// Where it is.
    pub address: PciAddress,
    /// The driver's name for it.
    pub name: String,
    /// `GPU-` and 32 hexadecimal digits in groups.
    pub uuid: String,
    /// Compute capability: major * 10 + minor.
    pub compute_capability: i32,
    /// Streaming multiprocessors.
    pub multiprocessors: i32,
    /// Memory in bytes; unknown where the GPU could not be opened.
    pub memory_bytes: Option<u64>,
    /// Memory that was free when it was opened.
    pub free_bytes: Option<u64>,
}

/// What the driver claims about an ordered pair. No evidence that data arrives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// The requester.
    pub from: PciAddress,
    /// The target.
    pub to: PciAddress,
    /// `cuDeviceCanAccessPeer`.
    pub can_access: bool,
    /// The peer attribute that should say the same.
    pub access_supported: Option<bool>,
    /// Performance rank; lower is better. Unknown where the driver does not tell.
    pub performance_rank: Option<i32>,
    /// Whether native atomics work between the two.
    pub native_atomics: Option<bool>,
}

/// A child process that had to be ended or ended by itself in the wrong way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChildNote {
    /// What it was to do.
    pub work: String,
    /// The last step that it began.
    pub step: Option<String>,
    /// Its process id.
    pub pid: u32,
    /// How it ended.
    pub end: String,
    /// It was at a step that did not end; otherwise all of its steps were too many for its time.
    #[serde(default = "yes")]
    pub hung: bool,
    /// It could not be killed: the driver holds it. A reset or reboot is needed to be rid of it.
    pub still_there: bool,
}

/// A whole measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// CUDA version that the driver offers: 1000 * major + 10 * minor.
    pub driver_version: Option<i32>,
    /// The GPUs that were looked at.
    pub gpus: Vec<GpuSeen>,
    /// The driver's claims.
    pub claims: Vec<Claim>,
    /// What kept the measurement, or parts of it, from running.
    pub preconditions: Vec<Precondition>,
    /// What to know about the view that it was made in.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Ordered pairs with P2P.
    pub pairs: Vec<PairResult>,
    /// The same transfers staged through the host. Damage here is no P2P fault.
    pub control: Vec<PairResult>,
    /// The same transfers within one GPU.
    pub loopback: Vec<PairResult>,
    /// Several transfers at once.
    pub together: Vec<TogetherResult>,
    /// Rates between GPUs and host memory.
    pub host: Vec<HostRates>,
    /// All-reduce by NCCL.
    pub all_reduce: Vec<AllReduceResult>,
    /// Whether each GPU's own checking kernel found damage that was planted for it.
    pub self_checks: Vec<SelfCheck>,
    /// Children that did not end as they should.
    pub children: Vec<ChildNote>,
    /// What the host recorded during work that is about no single pair; nothing where it was quiet.
    #[serde(default)]
    pub evidence: Vec<WorkEvidence>,
}

/// Whether the check itself works on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SelfCheck {
    /// The GPU.
    pub gpu: PciAddress,
    /// Planted faults that were found where and as they were planted, and clean fills that passed.
    pub passed: u32,
    /// What was not found, or found where nothing was.
    pub failed: Vec<String>,
}

/// One line of the probe protocol, which other accelerators' test programs speak too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeAnswer {
    /// Version of the protocol: 1.
    pub protocol: u32,
    /// The requester.
    pub from: PciAddress,
    /// The target.
    pub to: PciAddress,
    /// What moved the data, in the program's own words.
    pub engine: String,
    /// How the memory was made reachable, in the program's own words.
    pub mode: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Class of the damage, if damaged.
    pub damage: Option<Damage>,
    /// Bytes that were moved and checked.
    pub bytes: u64,
    /// First wrong byte, if damaged.
    pub first_bad_offset: Option<u64>,
    /// Anything to know beside.
    pub detail: Option<String>,
}
