//! What was removed by changes that were written, and the frontends that have come by them: each
//! endpoint of a frontend once, with the time of the last of them, so that what comes and goes
//! all the time takes no more room.

use std::collections::BTreeMap;
use std::time::Instant;

use tweed_planner::services::desired::{Endpoint, Tracked};
use tweed_planner::services::stale::PastFrontends;

use super::{MAX_REMEMBERED, SETTLE};

/// What [`PastFrontends`] has of all these changes, at most [`MAX_REMEMBERED`].
#[derive(Debug, Default)]
pub struct Remembered(BTreeMap<(Tracked, Option<Endpoint>), Instant>);

impl Remembered {
    /// Adds what was removed or has come by a change that was written `now`. What is too much,
    /// the oldest first, is forgotten.
    pub fn add(&mut self, past: &PastFrontends, now: Instant) {
        self.0.extend(past.iter().map(|one| (one, now)));
        let excess = self.0.len().saturating_sub(MAX_REMEMBERED);
        if excess > 0 {
            let mut times: Vec<Instant> = self.0.values().copied().collect();
            let (_, newest_forgotten, _) = times.select_nth_unstable(excess - 1);
            let limit = *newest_forgotten;
            let older = self.0.values().filter(|at| **at < limit).count();
            // Of those of one change, any.
            let mut of_limit = excess - older;
            self.0.retain(|_, at| {
                let is_kept = *at > limit || (*at == limit && of_limit == 0);
                of_limit -= usize::from(*at == limit && !is_kept);
                is_kept
            });
        }
    }

    /// Forgets what is cleaned up by a walk that began then.
    pub fn forget_before(&mut self, began: Instant) {
        self.0.retain(|_, at| *at + SETTLE > began);
    }

    /// All of it.
    pub fn past(&self) -> PastFrontends {
        self.0.keys().copied().collect()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
