//! What the steps of a reconcile found, each by itself: where a reconcile ends early,
//! nobody has looked at the rest, and what was wrong with it still is as far as anybody
//! knows. Pure.

use std::collections::BTreeMap;

use tweed_core::problem::Problem;

use super::outcome::Outcome;

/// A part of a reconcile that finds problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The address stores are read.
    Stores,
    /// The plan is made.
    Plan,
    /// Sysctls of the machine.
    Machine,
    /// The overlay's kernel objects.
    Overlay,
    /// Limits and timeouts of conntrack.
    Conntrack,
    /// The links of local pods.
    Pods,
    /// Sysctls of links.
    Links,
    /// The table `inet tweed`.
    Table,
    /// Routing rules of others.
    Routing,
    /// Firewalls of others.
    Firewalls,
    /// Others that serve Services.
    ServiceProxies,
}

/// What a reconcile found.
#[derive(Debug, Default)]
pub struct Findings {
    /// All of it.
    pub outcome: Outcome,
    problems: BTreeMap<Step, Vec<Problem>>,
}

impl Findings {
    /// Adds what `step` did and found.
    pub fn add(&mut self, step: Step, outcome: Outcome) {
        self.problems
            .entry(step)
            .or_default()
            .extend(outcome.all_problems().cloned());
        self.outcome.merge(outcome);
    }
}

/// The problems of every step, as of the last time that it was looked at.
#[derive(Debug, Default)]
pub struct Known(BTreeMap<Step, Vec<Problem>>);

impl Known {
    /// Takes what a reconcile found, which came to its end if `is_complete` says so.
    pub fn take(&mut self, findings: &mut Findings, is_complete: bool) {
        if is_complete {
            self.0.clear();
        }
        self.0.append(&mut findings.problems);
    }

    /// All of them.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.0.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use tweed_core::problem::ProblemKind;

    use super::*;

    fn found<const N: usize>(steps: [(Step, &[&str]); N]) -> Findings {
        let mut findings = Findings::default();
        for (step, objects) in steps {
            let problem = |object: &&str| Problem::new(ProblemKind::RouteTaken, *object, "taken");
            let outcome = Outcome {
                problems: objects.iter().map(problem).collect(),
                ..Outcome::default()
            };
            findings.add(step, outcome);
        }
        findings
    }

    fn objects(known: &Known) -> Vec<&str> {
        known.problems().map(|problem| &*problem.object).collect()
    }

    #[test]
    fn what_a_reconcile_that_ended_early_did_not_look_at_is_as_it_was() {
        let mut known = Known::default();
        let mut all = found([
            (Step::Plan, &["plan"]),
            (Step::Overlay, &["overlay"]),
            (Step::Table, &["table"]),
        ]);
        known.take(&mut all, true);
        assert_eq!(objects(&known), ["plan", "overlay", "table"]);
        known.take(
            &mut found([(Step::Stores, &["stores"]), (Step::Plan, &[])]),
            false,
        );
        assert_eq!(objects(&known), ["stores", "overlay", "table"]);
        known.take(&mut found([]), false);
        assert_eq!(objects(&known), ["stores", "overlay", "table"]);
        known.take(&mut found([(Step::Table, &["table"])]), true);
        assert_eq!(objects(&known), ["table"]);
    }

    #[test]
    fn several_outcomes_of_a_step_are_all_known() {
        let mut known = Known::default();
        let mut twice = found([(Step::Plan, &["a"]), (Step::Plan, &["b"])]);
        known.take(&mut twice, true);
        assert_eq!(objects(&known), ["a", "b"]);
        assert_eq!(twice.outcome.problems.len(), 2);
    }
}
