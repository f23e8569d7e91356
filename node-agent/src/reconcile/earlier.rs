//! How long a plan has waited while the rules of another version stay in force
//! (`tweed_nft::Table::keeps_earlier`), and when that is a problem.

use std::time::{Duration, Instant};

use tweed_core::problem::{Effect, Problem, ProblemKind};

/// How long a plan may wait without anybody being told: in a large cluster agents ask for lists
/// up to 20 s after each other (`crate::policy::watches`).
const LIMIT: Duration = Duration::from_secs(60);

/// A component that has been planned, and comes into force with the own rules only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Policies, until it is known which Services there are.
    Policies,
    /// Services, until it is known which policies there are.
    Services,
}

/// Since when a component waits.
#[derive(Debug, Default)]
pub struct EarlierWait {
    since: Option<Instant>,
}

impl EarlierWait {
    /// Takes note of what waits now, and returns what is wrong if something has waited for
    /// long.
    pub fn report(&mut self, waiting: Option<Waiting>, now: Instant) -> Option<Problem> {
        let Some(waiting) = waiting else {
            self.since = None;
            return None;
        };
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) < LIMIT {
            return None;
        }
        let (what, effect) = match waiting {
            Waiting::Policies => ("policies wait for Services", Effect::NewPods),
            Waiting::Services => ("Services wait for policies", Effect::Warning),
        };
        let text = format!(
            "the rules of another version stay in force until it is known what they serve: {what}"
        );
        let problem = Problem::new(ProblemKind::Nftables, "inet tweed", text);
        let cure = "mend what keeps them from being listed, which another problem names";
        Some(problem.with_effect(effect).with_cure(cure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_minute_is_reported_until_it_waits_no_more() {
        let mut wait = EarlierWait::default();
        let start = Instant::now();
        let mut at = |seconds, waiting| {
            let now = start + Duration::from_secs(seconds);
            wait.report(waiting, now).map(|problem| problem.to_string())
        };
        let policies = Some(Waiting::Policies);
        assert_eq!(at(0, policies), None);
        assert_eq!(at(59, policies), None);
        let text = at(60, policies).unwrap();
        assert!(text.contains("policies wait for Services"), "{text}");
        assert_eq!(at(70, policies).unwrap(), text);
        // It came into force: what waits later has not waited for long.
        assert_eq!(at(71, None), None);
        assert_eq!(at(72, Some(Waiting::Services)), None);
        let text = at(132, Some(Waiting::Services)).unwrap();
        assert!(text.contains("Services wait for policies"), "{text}");
    }

    #[test]
    fn new_pods_are_served_while_services_wait_and_not_while_policies_do() {
        let effect = |waiting| {
            let mut wait = EarlierWait::default();
            let start = Instant::now();
            wait.report(Some(waiting), start);
            wait.report(Some(waiting), start + LIMIT).unwrap().effect
        };
        assert_eq!(effect(Waiting::Policies), Effect::NewPods);
        assert_eq!(effect(Waiting::Services), Effect::Warning);
    }
}
