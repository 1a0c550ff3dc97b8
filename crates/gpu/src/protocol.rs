//! What parent and child say to each other: one request on the child's standard input, then
//! events, one JSON object a line, on its standard output.

use std::path::PathBuf;

use peerway_core::address::PciAddress;
use serde::{Deserialize, Serialize};

use crate::plan::Depth;
use crate::precondition::Precondition;
use crate::result::{
    AllReduceResult, Arm, Claim, Engine, GpuSeen, HostRates, Mode, Operation, OperationResult,
    SelfCheck, TogetherResult,
};

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Path of the CUDA library; the loader's search where none is named.
    pub(crate) cuda: Option<PathBuf>,
    /// Path of the NCCL library.
    pub(crate) nccl: Option<PathBuf>,
    /// Arguments by which the child's own program starts a second process for IPC.
    pub(crate) arguments: Vec<String>,
    /// The work.
    pub(crate) work: Work,
}

/// The kinds of work; each runs in a child of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Which GPUs there are, and what the driver claims of them.
    Inventory { wanted: Vec<PciAddress>, needed_bytes: u64 },
    /// Whether the check finds damage that is planted for it.
    SelfCheck { gpu: PciAddress },
    /// Correctness of one ordered pair.
    Pair(PairWork),
    /// Correctness of several transfers at once.
    Together(TogetherWork),
    /// Speed of one ordered pair.
    Speed(SpeedWork),
    /// Speed between a GPU and the host.
    Host { gpu: PciAddress, bytes: u64, limit_ms: u64 },
    /// All-reduce by NCCL; the arm's settings are in the child's environment.
    AllReduce(AllReduceWork),
    /// One rank of an all-reduce between processes.
    Rank(RankWork),
    /// The second process of an IPC test.
    Partner { gpu: PciAddress, number: u16 },
}

/// Correctness of one ordered pair in one mode.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PairWork {
    pub(crate) from: PciAddress,
    pub(crate) to: PciAddress,
    pub(crate) mode: Mode,
    /// What is still to be tested, in order.
    pub(crate) cells: Vec<(Engine, Operation)>,
    /// Only the small ranges: something was damaged before.
    pub(crate) small_only: bool,
    /// Only the small ranges in these directions: another mode failed there.
    pub(crate) small_ways: Vec<Operation>,
    /// Other GPUs of the test, in whose memory data may be looked for that went astray.
    pub(crate) witnesses: Vec<PciAddress>,
    pub(crate) depth: Depth,
    /// Spread samples over all memory that can be allocated.
    pub(crate) samples: bool,
    /// The largest range, if smaller than the depth's.
    pub(crate) largest: u64,
    /// Memory that sampling leaves free on the target.
    pub(crate) spare_bytes: u64,
    pub(crate) step_limit_ms: u64,
}

/// Transfers at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TogetherWork {
    pub(crate) gpus: Vec<PciAddress>,
    /// Ordered pairs that were right alone, each with the mode in which it was; only these run.
    pub(crate) pairs: Vec<(PciAddress, PciAddress, Mode)>,
    pub(crate) engines: Vec<Engine>,
    pub(crate) bytes: u64,
    pub(crate) rounds: u32,
    pub(crate) step_limit_ms: u64,
}

/// Speed of one ordered pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpeedWork {
    pub(crate) from: PciAddress,
    pub(crate) to: PciAddress,
    pub(crate) mode: Mode,
    pub(crate) engines: Vec<Engine>,
    pub(crate) bytes: u64,
    pub(crate) step_limit_ms: u64,
}

/// All-reduce over several GPUs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AllReduceWork {
    pub(crate) gpus: Vec<PciAddress>,
    pub(crate) arm: Arm,
    /// A process for each rank, instead of one for all.
    pub(crate) apart: bool,
    /// Bytes of each rank's buffer, rising.
    pub(crate) sizes: Vec<u64>,
    pub(crate) iterations: u32,
    pub(crate) step_limit_ms: u64,
}

/// One rank of an all-reduce between processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RankWork {
    pub(crate) gpu: PciAddress,
    pub(crate) number: u16,
    /// How many ranks there are.
    pub(crate) size: u16,
    /// Bytes of the largest buffer.
    pub(crate) largest: u64,
    pub(crate) iterations: u32,
    pub(crate) step_limit_ms: u64,
}

/// What a child reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// A step begins; whatever hangs next is this.
    Step {
        /// Engine and operation, where the step belongs to one.
        cell: Option<(Engine, Operation)>,
        /// In words.
        text: String,
    },
    /// The driver's version.
    Version(i32),
    /// A GPU that the driver shows.
    Gpu(GpuSeen),
    /// What the driver claims of a pair.
    Claim(Claim),
    /// A condition that was not met.
    Unmet(Precondition),
    /// What to know about the child's view.
    Note(String),
    /// One cell of a pair is done.
    Cell { engine: Engine, result: OperationResult },
    /// The whole pair was refused before any transfer.
    Refused(String),
    /// Transfers at once are done.
    Together(TogetherResult),
    /// A figure of a pair.
    Rate { engine: Engine, rate: Rate, value: f64 },
    /// Rates between a GPU and the host.
    Host(HostRates),
    /// One size of an all-reduce is done.
    AllReduce(AllReduceResult),
    /// The self-check of a GPU.
    SelfCheck(SelfCheck),
    /// Something failed in the driver; the child ends.
    Failed {
        /// The CUDA code, if it is one.
        code: Option<i32>,
        /// It was a step that did not end.
        hung: bool,
        /// In words.
        text: String,
    },
    /// All is done.
    End,
}

/// The figures of [`Event::Rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rate {
    /// Bytes per second, requester to target.
    Write,
    /// Bytes per second, target to requester.
    Read,
    /// Bytes per second of both GPUs writing at once.
    BothWays,
    /// Seconds for one small transfer.
    Latency,
    /// Seconds for one dependent load.
    Load,
}
