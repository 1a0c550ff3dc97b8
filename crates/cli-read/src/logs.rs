//! Files with kernel logs, and whatever else people attach to reports: opened, unpacked and read
//! as streams, in memory that does not grow with them.

pub mod follow;
pub mod input;
pub mod mark;
pub mod scan;
pub mod unpack;

pub use input::Input;
pub use scan::{Read, read, read_each};
