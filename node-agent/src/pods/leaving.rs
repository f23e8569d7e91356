//! Links on their way out that nobody takes away: pure, the clock is an
//! argument.
//!
//! A DEL puts its link aside, and a detached copy of the plugin deletes all that
//! gather in one request and one grace period of the kernel. If the agent
//! deleted each as soon as it sees it, each would cost a grace period. So it
//! waits for longer than that copy does: what is left then has nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The copy waits for 0.3 s, and needs less than that for the deletion.
const PATIENCE: Duration = Duration::from_secs(2);

/// The links that were seen on their way out, by index, and since when.
#[derive(Debug, Default)]
pub struct Leaving(BTreeMap<u32, Instant>);

impl Leaving {
    /// Those of `links`, which are all that are on their way out now, that have
    /// been so for too long.
    pub fn overdue(&mut self, links: &BTreeSet<u32>, now: Instant) -> Vec<u32> {
        self.0.retain(|index, _| links.contains(index));
        for index in links {
            self.0.entry(*index).or_insert(now);
        }
        let is_overdue = |since: &Instant| now.saturating_duration_since(*since) >= PATIENCE;
        let overdue = self.0.iter().filter(|(_, since)| is_overdue(since));
        overdue.map(|(index, _)| *index).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_left_to_the_plugin_at_first() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut leaving = Leaving::default();
        let mut overdue = |links: &[u32], milliseconds| {
            leaving.overdue(&links.iter().copied().collect(), at(milliseconds))
        };
        assert_eq!(overdue(&[7], 0), [0; 0]);
        assert_eq!(overdue(&[7, 9], 1999), [0; 0]);
        assert_eq!(overdue(&[7, 9], 2000), [7]);
        assert_eq!(overdue(&[9], 4000), [9]);
        // Deleted, and its number given to another.
        assert_eq!(overdue(&[], 4001), [0; 0]);
        assert_eq!(overdue(&[9], 4002), [0; 0]);
    }
}
