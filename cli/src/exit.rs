//! How the program ends, as a number that scripts can rely on.

use std::process::ExitCode;

/// How a verb has ended. Of several the worst counts, which stands last here: so findings
/// come before what could not be determined, and that never becomes fine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Exit {
    /// Everything was determined, and there is nothing to complain about.
    #[default]
    Fine,
    /// Something could not be determined.
    Undetermined,
    /// There are findings.
    Findings,
    /// The connection is denied, and `--exit-code` asks for that.
    Denied,
    /// What was typed is wrong.
    Usage,
}

impl Exit {
    /// The number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Findings => 1,
            Self::Usage => 2,
            Self::Denied => 3,
            Self::Undetermined => 4,
        }
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
    fn the_worst_counts_and_undetermined_is_never_fine() {
        for (one, other, both) in [(0, 0, 0), (0, 4, 4), (1, 4, 1), (3, 4, 3), (0, 1, 1)] {
            let all = [
                Exit::Fine,
                Exit::Undetermined,
                Exit::Findings,
                Exit::Denied,
                Exit::Usage,
            ];
            let of = |code| all.into_iter().find(|exit| exit.code() == code).unwrap();
            assert_eq!(of(one).max(of(other)).code(), both);
        }
    }
}
