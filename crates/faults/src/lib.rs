//! What the events of a kernel log mean: whose memory an address lies in, what kind of device sent
//! the request, which class of trouble that is, and what a body of evidence comes to.
//!
//! [`AddressMap`] knows the memory regions of a host; [`facts()`] joins a log's report with them;
//! [`document::Faults`] is the published form. [`material`] recognises what people attach to bug
//! reports, [`partial`] makes a snapshot of what it says, and [`assess`] names its kind.
//!
//! Pure: values in, values out. No I/O, no clock, no unsafe code.
#![forbid(unsafe_code)]

pub mod assess;
pub mod class;
pub mod collect;
pub mod document;
pub mod facts;
pub mod import;
pub mod map;
pub mod material;
pub mod partial;
pub mod pattern;

pub use collect::{Collected, Collector, Filter, Since};
pub use facts::{Log, facts};
pub use import::import;
pub use map::AddressMap;
pub use material::Material;
