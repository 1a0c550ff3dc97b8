//! Kernel logs: from bytes to IOMMU events and the lines around them.
//!
//! [`Scanner`] finds the events of every IOMMU driver (AMD-Vi, VT-d, Arm SMMU, SEV-SNP's reverse
//! map) and the notices that bear on GPU peer-to-peer access, in every envelope that logs are
//! carried in. A [`Sink`] takes them one by one; [`Summary`] is the sink that aggregates them in
//! bounded memory, and [`hints`] draws from it what a diagnosis needs where no snapshot of the
//! host is at hand.
//!
//! Pure: bytes in, values out. No I/O, no clock, no unsafe code.
#![forbid(unsafe_code)]

mod amd;
mod anchors;
mod assemble;
mod clean;
mod device_line;
mod digits;
mod distinct;
mod envelope;
pub mod event;
#[cfg(feature = "generate")]
pub mod generate;
mod held;
pub mod hints;
mod host_line;
mod json;
mod message;
pub mod notice;
pub mod nvidia;
mod plain;
mod report;
mod row;
mod rows;
mod scan;
mod smmu;
pub mod stamp;
mod summary;
mod text;
mod vtd;
mod vtd_reason;
pub mod xid;

pub use distinct::{Distinct, MAX_ADDRESSES};
pub use event::{Access, Class, Direction, Event, Iommu, Kind, Reason, Requester, When};
pub use notice::{Fact, Notice};
pub use report::{BarFacts, Boot, DeviceFacts, DriverEvent, Report, Seen};
pub use row::{AccessCounts, Hits, Occurrence, Region, Row, Source};
pub use rows::MAX_ROWS;
pub use scan::{Scanner, Sink};
pub use stamp::{Stamp, WallClock};
pub use summary::Summary;
