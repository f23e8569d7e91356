//! What a pass finds on its way, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Instant;

use tweed_netlink::Error;

use crate::kernel::Refusal;
use crate::kernel::change::{Change, Kind};
use tweed_core::problem::{Problem, ProblemKind};

/// What is found on the way.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// What is wrong.
    pub(super) problems: Vec<Problem>,
    /// Whether a full pass has to follow soon.
    pub(super) failed: bool,
    /// Writes that came through, by kind.
    pub(super) written: BTreeMap<Kind, u64>,
    /// Objects that the kernel refused.
    pub(super) refused: BTreeSet<String>,
    /// When to look again at what has no notification, if that is soon.
    pub(super) look_at: Option<Instant>,
}

impl Findings {
    /// Something failed.
    pub(super) fn fail(&mut self, problem: Problem) {
        self.failed = true;
        self.problems.push(problem);
    }

    /// `count` writes of this kind came through.
    pub(super) fn wrote(&mut self, kind: Kind, count: u64) {
        if count > 0 {
            *self.written.entry(kind).or_default() += count;
        }
    }

    /// The kernel refused these.
    pub(super) fn refuse(&mut self, refusals: &[Refusal]) {
        for refusal in refusals {
            self.refused.insert(refusal.error.object.clone());
            self.fail(refusal_problem(refusal));
        }
    }
}

/// The kernel cannot be asked.
pub(super) fn unreadable(error: &Error) -> Problem {
    Problem::new(
        ProblemKind::KernelUnreadable,
        "rtnetlink",
        error.to_string(),
    )
}

fn refusal_problem(refusal: &Refusal) -> Problem {
    let Refusal { change, error } = refusal;
    match change {
        Change::AddRoute(route) if error.is_present() => {
            let destination = route.destination;
            Problem::new(
                ProblemKind::RouteTaken,
                destination.to_string(),
                "somebody else has a route to this destination, and tweed does not replace it",
            )
            .with_cure(format!(
                "`ip route show exact {destination}` shows it: once it is removed, tweed adds its own"
            ))
        }
        _ => Problem::new(ProblemKind::WriteRefused, &error.object, error.to_string()),
    }
}

/// The table could not be read or written.
pub(super) fn table_problem(error: &tweed_nft::Error) -> Problem {
    Problem::new(ProblemKind::Nftables, "inet tweed", error.to_string())
}

/// Other tables could not be read. What they drop is not known, but the own
/// table stands.
pub(super) fn others_problem(whose: &str, error: &dyn Display) -> Problem {
    Problem::new(
        ProblemKind::OtherTablesUnreadable,
        whose,
        format!("whether other tables drop what pods send is not known: {error}"),
    )
}
