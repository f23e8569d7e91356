//! Which writes put back what something else has changed. Pure.
//!
//! What is written for a plan that had been written before is drift. A plan counts as
//! written also where the kernel refuses the same objects as in the reconcile before: a
//! foreign route that stays for weeks must not hide what happens to everything else.

use std::collections::BTreeMap;

use tweed_core::version::Version;

use super::outcome::{ObjectKind, Outcome};

/// What is known to be written.
#[derive(Debug, Default)]
pub struct Written {
    /// The plan that was last written, but for what `refused` names.
    version: Option<Version>,
    /// The objects that the kernel refused, until it takes them.
    refused: BTreeMap<String, ObjectKind>,
}

impl Written {
    /// Takes what a reconcile of the plan `version` has done. Gives the number of objects
    /// that it put back, by kind: not those that the kernel had refused until now.
    pub fn record(&mut self, version: Version, outcome: &Outcome) -> BTreeMap<ObjectKind, u64> {
        let is_old = self.version == Some(version);
        let mut drift = if is_old {
            outcome.written.clone()
        } else {
            BTreeMap::new()
        };
        let writes = outcome.refused.iter();
        let objects = writes.map(|write| (write.error.object.clone(), write.kind));
        let refused: BTreeMap<String, ObjectKind> = objects.collect();
        if outcome.retry.resync {
            // It may have ended before the writes that were refused until now.
            self.refused.extend(refused);
            return drift;
        }
        for (_, kind) in self
            .refused
            .iter()
            .filter(|(object, _)| !refused.contains_key(*object))
        {
            if let Some(count) = drift.get_mut(kind) {
                *count = count.saturating_sub(1);
            }
        }
        drift.retain(|_, count| *count > 0);
        // What is refused for the first time may have kept other writes from being made.
        if refused
            .keys()
            .all(|object| self.refused.contains_key(object))
        {
            self.version = Some(version);
        }
        self.refused = refused;
        drift
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use tweed_core::problem::{Problem, ProblemKind};

    use super::*;
    use crate::reconcile::outcome::RefusedWrite;

    fn version(number: u32) -> Version {
        let mut version = Version::default();
        (0..number).for_each(|_| version.bump());
        version
    }

    /// A reconcile that wrote so many routes, and was refused these.
    fn outcome(written: u64, refused: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.wrote(ObjectKind::Route, written, "route 10.244.2.0/24");
        let writes = refused.iter().map(|object| RefusedWrite {
            error: tweed_netlink::Error {
                operation: "add",
                object: (*object).to_owned(),
                cause: Errno::EEXIST.into(),
            },
            kind: ObjectKind::Route,
            problem: Problem::new(ProblemKind::RouteTaken, *object, "taken"),
            way: None,
        });
        outcome.refused = writes.collect();
        outcome
    }

    fn failed(written: u64, refused: &[&str]) -> Outcome {
        let mut outcome = outcome(written, refused);
        let problem = Problem::new(ProblemKind::KernelUnreadable, "rtnetlink", "no answer");
        outcome.fail(problem);
        outcome
    }

    /// The drift of each reconcile: the plan's version, and what it did.
    fn drift(reconciles: impl IntoIterator<Item = (u32, Outcome)>) -> Vec<u64> {
        let mut written = Written::default();
        let record = |(number, outcome)| {
            let drift = written.record(version(number), &outcome);
            drift.get(&ObjectKind::Route).copied().unwrap_or_default()
        };
        reconciles.into_iter().map(record).collect()
    }

    #[test]
    fn what_is_written_for_a_plan_that_was_written_is_drift() {
        let reconciles = [(1, 5), (1, 0), (1, 2), (2, 1), (2, 3)]
            .map(|(version, count)| (version, outcome(count, &[])));
        assert_eq!(drift(reconciles), [0, 0, 2, 0, 3]);
    }

    #[test]
    fn a_write_that_is_refused_again_and_again_hides_no_drift() {
        let taken: &[&str] = &["10.0.2.0/24"];
        let reconciles = [(1, 5), (1, 0), (1, 2), (2, 1), (2, 3)]
            .map(|(version, count)| (version, outcome(count, taken)));
        assert_eq!(drift(reconciles), [0, 0, 2, 0, 3]);
    }

    #[test]
    fn what_the_kernel_takes_at_last_is_no_drift() {
        let both: &[&str] = &["10.0.2.0/24", "10.0.3.0/24"];
        let reconciles = [(5, both), (0, both), (1, &both[1..]), (2, &[]), (1, &[])]
            .map(|(count, refused)| (1, outcome(count, refused)));
        assert_eq!(drift(reconciles), [0, 0, 0, 1, 1]);
    }

    #[test]
    fn a_plan_of_which_something_else_is_refused_is_not_written_yet() {
        let reconciles = [
            (1, outcome(5, &["10.0.2.0/24"])),
            (1, outcome(1, &["10.0.3.0/24"])),
            (1, outcome(2, &["10.0.3.0/24"])),
            (1, outcome(1, &["10.0.3.0/24"])),
        ];
        assert_eq!(drift(reconciles), [0, 0, 0, 1]);
    }

    #[test]
    fn a_plan_is_not_written_by_a_reconcile_that_failed() {
        let taken: &[&str] = &["10.0.2.0/24"];
        let reconciles = [
            (1, failed(5, &[])),
            (1, failed(1, taken)),
            (1, outcome(4, taken)),
            (1, failed(1, &[])),
            (1, outcome(1, &[])),
            (1, outcome(1, &[])),
        ];
        assert_eq!(drift(reconciles), [0, 0, 0, 1, 0, 1]);
    }
}
