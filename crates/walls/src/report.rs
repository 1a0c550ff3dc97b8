//! Which walls stand.

use serde::{Deserialize, Serialize};

use crate::Capability;

/// One mechanism of the kernel that keeps a reading command from changing anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wall {
    /// `PR_SET_NO_NEW_PRIVS`: no program that is executed gains rights.
    NoNewPrivileges,
    /// A private mount namespace in which every mount is read-only.
    Mounts,
    /// Capabilities reduced to the ones that reading needs.
    Capabilities,
    /// Landlock rules: reading beneath named trees, and nothing else.
    Landlock,
    /// A seccomp filter: a list of allowed system calls.
    SystemCalls,
}

impl Wall {
    /// The name in sentences for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::NoNewPrivileges => "no new privileges",
            Self::Mounts => "read-only mounts",
            Self::Capabilities => "capabilities",
            Self::Landlock => "Landlock",
            Self::SystemCalls => "system call filter",
        }
    }
}

impl std::fmt::Display for Wall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.title())
    }
}

/// Whether a wall stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Standing {
    /// It stands, whole.
    Raised,
    /// It stands, but the kernel lacks parts of it, or parts of the host are outside.
    Partial {
        /// What it does not cover, one phrase each.
        missing: Vec<String>,
    },
    /// It does not stand, because there is no such mechanism here.
    Missing {
        /// Why, as a phrase.
        reason: String,
    },
    /// It was not asked for, since it would hinder this process or others hold alone.
    LeftOut {
        /// Why, as a phrase.
        reason: String,
    },
}

/// One wall and how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallReport {
    /// Which wall.
    pub wall: Wall,
    /// How it stands.
    pub standing: Standing,
    /// What is worth knowing about it, such as the Landlock ABI; one phrase each.
    pub notes: Vec<String>,
}

/// A capability that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Which.
    pub capability: Capability,
    /// What it is needed for.
    pub reason: String,
}

/// What [`crate::Plan::raise`] achieved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Every wall, in the order in which they were raised.
    pub walls: Vec<WallReport>,
    /// Capabilities that the process still holds.
    pub kept: Vec<Kept>,
    /// Capabilities that were asked for and are not held: what they are for cannot be read.
    pub lacking: Vec<Kept>,
}

impl Report {
    /// How one wall stands; `None` for a wall that this report does not know.
    pub fn standing(&self, wall: Wall) -> Option<&Standing> {
        self.walls.iter().find(|w| w.wall == wall).map(|w| &w.standing)
    }

    /// Whether every wall that was wanted stands whole.
    pub fn is_whole(&self) -> bool {
        self.walls.iter().all(|w| matches!(w.standing, Standing::Raised | Standing::LeftOut { .. }))
    }

    /// One sentence for each wall that is missing or has a gap, and for each capability that was
    /// wanted and is not held; empty where nothing is to be said.
    pub fn gaps(&self) -> Vec<String> {
        let walls = self.walls.iter().filter_map(|w| match &w.standing {
            Standing::Raised | Standing::LeftOut { .. } => None,
            Standing::Partial { missing } => {
                Some(format!("the wall \"{}\" has gaps: {}", w.wall.title(), missing.join(", ")))
            }
            Standing::Missing { reason } => {
                Some(format!("the wall \"{}\" is missing: {reason}", w.wall.title()))
            }
        });
        let lacking =
            self.lacking.iter().map(|k| format!("without {}: {}", k.capability.name(), k.reason));
        walls.chain(lacking).collect()
    }
}
