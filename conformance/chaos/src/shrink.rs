//! Makes a failing list shorter: delta debugging (Zeller's `ddmin`) over any items.

/// The shortest list that `fails`, found by leaving out parts of `items`, which fails as
/// a whole. `fails` returns `None` when no more time is left; the shortest list so far is
/// the result then.
pub fn shrink<T: Clone>(items: &[T], mut fails: impl FnMut(&[T]) -> Option<bool>) -> Vec<T> {
    let mut failing = items.to_vec();
    let mut parts = 2;
    while failing.len() > 1 {
        match without_a_part(&failing, parts, &mut fails) {
            Search::OutOfTime => break,
            Search::Shorter(shorter) => {
                failing = shorter;
                parts = parts.saturating_sub(1).max(2);
            }
            Search::Nothing if parts >= failing.len() => break,
            Search::Nothing => parts = (parts * 2).min(failing.len()),
        }
    }
    failing
}

enum Search<T> {
    Shorter(Vec<T>),
    Nothing,
    OutOfTime,
}

/// Looks for a part without which the rest fails too. The earliest items are left out
/// first: what fails is more often caused by what happened last.
fn without_a_part<T: Clone>(
    failing: &[T],
    parts: usize,
    fails: &mut impl FnMut(&[T]) -> Option<bool>,
) -> Search<T> {
    let size = failing.len().div_ceil(parts);
    let mut start = 0;
    while start < failing.len() {
        let end = (start + size).min(failing.len());
        let rest = [&failing[..start], &failing[end..]].concat();
        if !rest.is_empty() {
            match fails(&rest) {
                None => return Search::OutOfTime,
                Some(true) => return Search::Shorter(rest),
                Some(false) => {}
            }
        }
        start = end;
    }
    Search::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shrunk(count: u32, culprits: &[u32], tries: usize) -> (Vec<u32>, usize) {
        let items: Vec<u32> = (0..count).collect();
        let mut used = 0;
        let shortest = shrink(&items, |list| {
            used += 1;
            (used <= tries).then(|| culprits.iter().all(|culprit| list.contains(culprit)))
        });
        (shortest, used)
    }

    #[test]
    fn one_culprit_is_found_in_few_tries() {
        let (shortest, used) = shrunk(64, &[63], 1000);
        assert_eq!(shortest, [63]);
        assert!(used <= 8, "{used}");
        assert_eq!(shrunk(64, &[0], 1000).0, [0]);
    }

    #[test]
    fn two_culprits_are_kept_in_their_order() {
        assert_eq!(shrunk(40, &[3, 31], 1000).0, [3, 31]);
        assert_eq!(shrunk(2, &[0, 1], 1000).0, [0, 1]);
    }

    #[test]
    fn without_time_the_shortest_so_far_is_the_result() {
        let (shortest, _) = shrunk(64, &[63], 1);
        assert_eq!(shortest.len(), 32);
        assert!(shortest.contains(&63));
        assert_eq!(shrunk(64, &[1], 0).0.len(), 64);
    }
}
