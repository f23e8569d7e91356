//! Spreads over a time what all nodes would do at the same moment.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// How long the node of this name waits before it does `what`: less than `over`, the
/// same each time, and for most nodes another.
pub fn delay(node: &str, what: &str, over: Duration) -> Duration {
    let hash = Sha256::new()
        .chain_update(node)
        .chain_update([0])
        .chain_update(what)
        .finalize();
    let share = hash
        .iter()
        .take(2)
        .fold(0, |share, byte| share << 8 | u32::from(*byte));
    over.mul_f64(f64::from(share) / 65536.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nodes_are_spread_over_the_whole_time_and_always_alike() {
        let over = Duration::from_secs(60);
        let delays: BTreeSet<Duration> = (0..100)
            .map(|n| delay(&format!("n{n}"), "a", over))
            .collect();
        assert!(delays.len() > 90, "{}", delays.len());
        assert!(delays.iter().all(|delay| *delay < over));
        assert!(delays.first() < Some(&(over / 10)) && delays.last() > Some(&(over * 9 / 10)));
        assert_eq!(delay("n1", "a", over), delay("n1", "a", over));
        assert_ne!(delay("n1", "a", over), delay("n1", "b", over));
        assert_eq!(delay("n1", "a", Duration::ZERO), Duration::ZERO);
    }
}
