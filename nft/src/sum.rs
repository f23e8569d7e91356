//! A sum over the elements of a set. Equal sets have equal sums, in whatever order their
//! elements come, and what is written to a set changes its sum without the other elements.
//! So a set with hundreds of thousands of elements can be compared without a copy of them.

use std::hash::{BuildHasher, RandomState};

use crate::element::{Data, Element, ElementsDelta, Key};

/// The sum of a set's elements. Two sets that differ have equal sums with a probability of
/// 2⁻⁶⁴.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum(u64);

/// Makes sums. Only those of one such object and its clones can be compared: its hash has a
/// random key, so that nobody can choose elements whose sums are equal.
#[derive(Debug, Clone, Default)]
pub(super) struct Summer(RandomState);

impl Summer {
    /// The sum of these elements.
    pub(super) fn sum<'a>(
        &self,
        elements: impl IntoIterator<Item = (&'a Key, &'a Option<Box<Data>>)>,
    ) -> Sum {
        let mut sum = Sum::default();
        for (key, data) in elements {
            self.add(&mut sum, key, data.as_deref());
        }
        sum
    }

    /// The sum of a set with this sum after a change of it.
    pub(super) fn after(&self, sum: Sum, delta: &ElementsDelta) -> Sum {
        let of = |elements: &[Element]| self.sum(elements.iter().map(|(key, data)| (key, data)));
        let (removed, added) = (of(&delta.removed), of(&delta.added));
        Sum(sum.0.wrapping_sub(removed.0).wrapping_add(added.0))
    }

    /// Adds one element.
    pub(super) fn add(&self, sum: &mut Sum, key: &Key, data: Option<&Data>) {
        sum.0 = sum.0.wrapping_add(self.0.hash_one((key, data)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tweed_core::keyed::diff;

    use super::*;
    use crate::element::{Elements, Field};
    use crate::value::Value;

    fn elements() -> impl Strategy<Value = Elements> {
        let element = (0..20u16, 0..3u32);
        prop::collection::vec(element, 0..20).prop_map(|elements| {
            let element = |(port, mark)| {
                let key = Key::from(Field::from(Value::Port(port)));
                let data = Data::Value(Value::Mark(mark));
                (key, (mark > 0).then(|| Box::new(data)))
            };
            elements.into_iter().map(element).collect()
        })
    }

    proptest! {
        #[test]
        fn sums_are_equal_for_equal_sets_and_follow_changes(old in elements(), new in elements()) {
            let summer = Summer::default();
            let (before, after) = (summer.sum(&old), summer.sum(&new));
            prop_assert_eq!(before == after, old == new);
            prop_assert_eq!(summer.sum(old.iter().rev()), before);
            prop_assert_eq!(summer.after(before, &diff(&old, &new).into()), after);
        }
    }
}
