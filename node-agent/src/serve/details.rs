//! What people are told of the agent and metrics have no labels for: which objects were put
//! back, and how full the ranges are.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tweed_component::message::{Drift, RangeUse};

/// Maximum number of objects that are counted by name.
const MAX_OBJECTS: usize = 256;
/// The name under which the others are counted, each kind for itself.
const OTHERS: &str = "others";

/// Shared by who knows and who tells.
#[derive(Debug, Default)]
pub struct Details {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    drift: BTreeMap<(&'static str, String), u64>,
    ranges: Vec<RangeUse>,
}

impl Details {
    /// Counts `count` objects of `kind` that were put back, of which these names are known.
    pub fn put_back(&self, kind: &'static str, names: &BTreeMap<String, u64>, count: u64) {
        let mut inner = self.inner();
        let mut left = count;
        for (name, times) in names {
            let has_room = inner.drift.len() < MAX_OBJECTS;
            let key = (kind, name.clone());
            // Writes that the kernel had refused before are named, and are no drift.
            let times = left.min(*times);
            if times > 0 && (has_room || inner.drift.contains_key(&key)) {
                *inner.drift.entry(key).or_default() += times;
                left -= times;
            }
        }
        if left > 0 {
            *inner.drift.entry((kind, OTHERS.to_owned())).or_default() += left;
        }
    }

    /// Replaces how full the ranges are.
    pub fn set_ranges(&self, ranges: Vec<RangeUse>) {
        self.inner().ranges = ranges;
    }

    /// How full the ranges are.
    pub fn ranges(&self) -> Vec<RangeUse> {
        self.inner().ranges.clone()
    }

    /// What was put back since the agent started, the most often first.
    pub fn drift(&self) -> Vec<Drift> {
        let inner = self.inner();
        let counted = inner.drift.iter().map(|((kind, object), count)| Drift {
            kind: (*kind).to_owned(),
            object: object.clone(),
            count: *count,
        });
        let mut drift: Vec<Drift> = counted.collect();
        drift.sort_by_key(|one| std::cmp::Reverse(one.count));
        drift
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A writer that panicked has at worst not counted one.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drift(details: &Details) -> Vec<(String, u64)> {
        let drift = details.drift().into_iter();
        drift
            .map(|one| (format!("{} {}", one.kind, one.object), one.count))
            .collect()
    }

    #[test]
    fn objects_are_counted_by_name_and_those_without_one_by_kind() {
        let details = Details::default();
        let names = |names: &[(&str, u64)]| {
            let owned = names
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            owned.collect::<BTreeMap<_, _>>()
        };
        details.put_back(
            "route",
            &names(&[("10.0.1.0/24", 1), ("10.0.2.0/24", 1)]),
            2,
        );
        details.put_back("route", &names(&[("10.0.2.0/24", 1)]), 1);
        details.put_back("nftables", &names(&[]), 5);
        // Of three writes two were refused before.
        details.put_back("fdb", &names(&[("a", 1), ("b", 2)]), 1);
        let expected = [
            ("nftables others", 5),
            ("route 10.0.2.0/24", 2),
            ("fdb a", 1),
            ("route 10.0.1.0/24", 1),
        ]
        .map(|(object, count)| (object.to_owned(), count));
        assert_eq!(drift(&details), expected);
    }

    #[test]
    fn their_number_is_bounded() {
        let details = Details::default();
        for number in 0..2 * MAX_OBJECTS {
            details.put_back("link", &[(format!("tw{number}"), 1)].into(), 1);
        }
        let drift = drift(&details);
        assert_eq!(drift.len(), MAX_OBJECTS + 1);
        assert_eq!(drift[0], ("link others".to_owned(), MAX_OBJECTS as u64));
    }
}
