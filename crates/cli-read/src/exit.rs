//! Exit codes, the same for every command.

use std::process::ExitCode;

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Nothing wrong.
    Fine,
    /// Findings at or above `--fail-on`.
    Findings,
    /// Wrong use.
    Usage,
    /// Could not decide.
    Undecided,
    /// Refused by a gate, a constraint or a stale plan.
    Refused,
    /// Changed and taken back.
    TakenBack,
    /// Could not be taken back: act now.
    NotTakenBack,
    /// Measured data was wrong.
    WrongData,
    /// A measurement hung.
    Hung,
    /// Internal error.
    Internal,
}

impl Exit {
    /// Its number.
    pub fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Findings => 1,
            Self::Usage => 2,
            Self::Undecided => 3,
            Self::Refused => 4,
            Self::TakenBack => 5,
            Self::NotTakenBack => 6,
            Self::WrongData => 7,
            Self::Hung => 8,
            Self::Internal => 70,
        }
    }

    /// Of two that apply, the one that counts: 70, 6, 5, 7, 8, 4, 1, 3, 0.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        const ORDER: [Exit; 10] = [
            Exit::Internal,
            Exit::NotTakenBack,
            Exit::TakenBack,
            Exit::WrongData,
            Exit::Hung,
            Exit::Refused,
            Exit::Usage,
            Exit::Findings,
            Exit::Undecided,
            Exit::Fine,
        ];
        ORDER.into_iter().find(|exit| *exit == self || *exit == other).unwrap_or(self)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_counts() {
        assert_eq!(Exit::Undecided.and(Exit::Findings), Exit::Findings);
        assert_eq!(Exit::Fine.and(Exit::Undecided), Exit::Undecided);
        assert_eq!(Exit::WrongData.and(Exit::TakenBack), Exit::TakenBack);
        assert_eq!(Exit::NotTakenBack.and(Exit::TakenBack), Exit::NotTakenBack);
    }
}
