//! The walls behind which Peerway reads a host.
//!
//! A reading command promises to change nothing. This crate makes the kernel hold it to that
//! promise: [`Plan`] says what the command needs, [`Plan::raise`] takes away everything else,
//! and [`Report`] says which walls stand and which this kernel, or this user, cannot have.
//!
//! Five walls, raised in this order, each of which holds where another has a gap:
//!
//! 1. **no new privileges**: nothing that is started could gain rights ([`Wall::NoNewPrivileges`]);
//! 2. **read-only mounts**: a private mount namespace in which every mount is read-only, where
//!    Landlock cannot hold alone and `CAP_SYS_ADMIN` is held ([`Wall::Mounts`]);
//! 3. **capabilities**: only those that were asked for, each with its reason
//!    ([`Wall::Capabilities`]);
//! 4. **Landlock**: reading beneath the named trees, and nothing else ([`Wall::Landlock`]);
//! 5. **seccomp**: a list of allowed system calls, `write` only to named descriptors
//!    ([`Wall::SystemCalls`]).
//!
//! What seccomp cannot see is what lies behind a pointer. The flags of `openat2` do, so that call
//! is let through only where Landlock (ABI 3 or later) or read-only mounts refuse to create and
//! truncate; elsewhere it answers `ENOSYS`, as on a kernel that lacks it. `clone3` answers
//! `ENOSYS` everywhere for the same reason: libraries then use `clone`, whose flags can be seen.
//!
//! The walls concern a whole process, are raised once, and cannot be taken down.
//!
//! ```no_run
//! use peerway_walls::{Capability, Plan};
//!
//! let report = Plan::new()
//!     .read_beneath("/sys")
//!     .read_beneath("/proc")
//!     .write_to(std::io::stdout())
//!     .write_to(std::io::stderr())
//!     .keep(Capability::SysAdmin, "configuration space beyond 64 bytes")
//!     .raise()?;
//! for sentence in report.gaps() {
//!     // tell the user
//!     drop(sentence);
//! }
//! # Ok::<(), peerway_walls::WallError>(())
//! ```
#![forbid(unsafe_code)]

mod capability;
mod filter;
mod landlocked;
mod mounts;
mod plan;
mod report;

pub use capability::Capability;
pub use plan::{MountPolicy, Plan, WallError};
pub use report::{Kept, Report, Standing, Wall, WallReport};
