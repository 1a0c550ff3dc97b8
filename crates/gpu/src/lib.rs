//! Measures GPU peer-to-peer transfers: correctness first, then speed.
//!
//! The parent side ([`measure`], [`run_child`]) never opens a GPU. It starts the program again with
//! a hidden subcommand that calls [`child_main`]; that process loads the driver's library, does one
//! group of tests and ends. Verdicts come from the owner of the memory, never from the writer
//! reading back through its own window.

mod all_reduce;
mod check;
mod child;
#[expect(unsafe_code, reason = "the table of the CUDA library's functions")]
mod driver;
mod enter;
mod evidence;
mod gpu;
mod inventory;
mod kernels;
mod measure;
#[expect(unsafe_code, reason = "the table of NCCL's functions")]
mod nccl;
mod pair;
mod parent;
mod partner;
mod plan;
mod precondition;
mod probe;
mod protocol;
mod report;
mod result;
mod self_check;
mod sibling;
mod speed;
mod status;
mod tag;
mod together;
mod transfer;
mod verdict;

pub use child::main as child_main;
pub use enter::{View, main as enter_main};
pub use evidence::{
    BusErrors, Evidence, LineSeen, LinkSeen, RefusedRequests, Severity, Unwatched, Watch,
    WorkEvidence, XidSeen,
};
pub use measure::{InUse, LineRate, Progress, Settings, measure, measure_watched};
pub use parent::{ChildEnd, Launch, Limits, run_child};
pub use plan::Depth;
pub use precondition::{Precondition, Unmet};
pub use probe::{ProbeQuestion, probe};
pub use result::{
    AllReduceResult, Arm, ChildNote, Claim, Damage, DamageReport, Engine, GpuSeen, HostRates,
    Measurement, Mode, Operation, OperationResult, PageRun, PairResult, Pattern, ProbeAnswer,
    SelfCheck, TogetherDamage, TogetherResult, Verdict,
};
pub use status::{GpuError, cuda_name, nccl_name};
