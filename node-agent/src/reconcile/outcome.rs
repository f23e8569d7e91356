//! What a pass finds on its way, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Instant;

use tweed_netlink::Error;

use crate::reconcile::kernel::Refusal;
use crate::reconcile::kernel::change::{Change, Kind};
use tweed_core::problem::{Effect, Problem};

/// What is found on the way.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// What is wrong.
    pub(crate) problems: Vec<Problem>,
    /// Whether a full pass has to follow soon.
    pub(crate) failed: bool,
    /// Writes that came through, by kind.
    pub(crate) written: BTreeMap<Kind, u64>,
    /// Objects that the kernel refused.
    pub(crate) refused: BTreeSet<String>,
    /// When to look again at what has no notification, if that is soon.
    pub(crate) look_at: Option<Instant>,
}

impl Findings {
    /// Something failed.
    pub(crate) fn fail(&mut self, problem: Problem) {
        self.failed = true;
        self.problems.push(problem);
    }

    /// `count` writes of this kind came through.
    pub(crate) fn wrote(&mut self, kind: Kind, count: u64) {
        if count > 0 {
            *self.written.entry(kind).or_default() += count;
        }
    }

    /// The kernel refused these.
    pub(crate) fn refuse(&mut self, refusals: &[Refusal]) {
        for refusal in refusals {
            self.refused.insert(refusal.error.object.clone());
            self.fail(refusal_problem(refusal));
        }
    }
}

/// The kernel cannot be asked.
pub(crate) fn unreadable(error: &Error) -> Problem {
    Problem::new(
        "kernel-unreadable",
        "rtnetlink",
        Effect::NewPods,
        error.to_string(),
        "the agent tries again by itself; if it stays, see what else the kernel's log says",
    )
}

fn refusal_problem(refusal: &Refusal) -> Problem {
    let Refusal { change, error } = refusal;
    match change {
        Change::AddRoute(route) if error.is_present() => {
            let destination = route.destination;
            Problem::new(
                "route-taken",
                destination.to_string(),
                Effect::Warning,
                "somebody else has a route to this destination, and tweed does not replace it",
                format!(
                    "`ip route show exact {destination}` shows it: once it is removed, tweed adds its own"
                ),
            )
        }
        _ => Problem::new(
            "write-refused",
            &error.object,
            Effect::RunningPods,
            error.to_string(),
            "mend what the kernel names; the agent tries again by itself",
        ),
    }
}

/// The table could not be read or written.
pub(crate) fn table_problem(error: &tweed_nft::Error) -> Problem {
    Problem::new(
        "nftables",
        "inet tweed",
        Effect::NewPods,
        error.to_string(),
        "mend what it names; the agent tries again by itself",
    )
}

/// Other tables could not be read. What they drop is not known, but the own
/// table stands.
pub(crate) fn others_problem(whose: &str, error: &dyn Display) -> Problem {
    Problem::new(
        "other-tables-unreadable",
        whose,
        Effect::Warning,
        format!("whether other tables drop what pods send is not known: {error}"),
        "mend what it names; the agent tries again by itself",
    )
}
