//! What a component plans, with one row for each set or map. [`schema!`](crate::schema!) makes
//! of the rows the state that is desired, and the change that leads from one such state to
//! another; [`Sets`] is what can be done with both.

use tweed_core::keyed::{self, Keyed};

/// Sets and maps that change together: one of them, or a struct of several.
pub trait Sets {
    /// How two states differ.
    type Delta: Default;

    /// How many elements there are.
    fn size(&self) -> usize;

    /// The change that turns this state into `new`.
    fn change_to(&self, new: &Self) -> Self::Delta;

    /// Whether `delta` changes nothing.
    fn is_no_change(delta: &Self::Delta) -> bool;

    /// Whether this is a state that `delta` starts from ([`keyed::Delta::starts_from`]).
    fn is_start_of(&self, delta: &Self::Delta) -> bool;

    /// Makes the new state of this one.
    fn apply(&mut self, delta: &Self::Delta);

    /// Appends `next`, which starts from the state that `delta` ends in.
    fn extend(delta: &mut Self::Delta, next: Self::Delta);
}

impl<M: Keyed> Sets for M {
    type Delta = keyed::Delta<M::Key, M::Value>;

    fn size(&self) -> usize {
        self.count()
    }

    fn change_to(&self, new: &Self) -> Self::Delta {
        keyed::diff(self, new)
    }

    fn is_no_change(delta: &Self::Delta) -> bool {
        delta.is_empty()
    }

    fn is_start_of(&self, delta: &Self::Delta) -> bool {
        delta.starts_from(self)
    }

    fn apply(&mut self, delta: &Self::Delta) {
        delta.apply(self);
    }

    fn extend(delta: &mut Self::Delta, next: Self::Delta) {
        delta.extend(next);
    }
}

/// Declares the struct of a state, and that of a change of it with the same fields. What
/// follows a `with` is no set: a change of the state says nothing of it, and [`Sets`] leaves
/// alone what stands beside the sets of a change.
#[macro_export]
macro_rules! schema {
    (
        $(#[$about:meta])*
        pub struct $State:ident $(<$K:ident>)? {
            $($(#[$doc:meta])* pub $set:ident: $type:ty,)*
        } $(with {
            $($(#[$beside_doc:meta])* pub $beside:ident: $beside_type:ty,)*
        })?

        $(#[$delta_about:meta])*
        pub struct $Delta:ident $(with {
            $($(#[$flag_doc:meta])* pub $flag:ident: $flag_type:ty,)*
        })?
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $State $(<$K>)? {
            $($($(#[$beside_doc])* pub $beside: $beside_type,)*)?
            $($(#[$doc])* pub $set: $type,)*
        }

        $(#[$delta_about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $Delta $(<$K: Ord + Clone>)? {
            $(
                #[doc = concat!("Of [`", stringify!($State), "::", stringify!($set), "`].")]
                pub $set: <$type as $crate::schema::Sets>::Delta,
            )*
            $($($(#[$flag_doc])* pub $flag: $flag_type,)*)?
        }

        // A derived one would ask for a default of the keys.
        impl $(<$K>)? Default for $State $(<$K>)? {
            fn default() -> Self {
                Self {
                    $($($beside: Default::default(),)*)?
                    $($set: Default::default(),)*
                }
            }
        }

        impl $(<$K: Ord + Clone>)? Default for $Delta $(<$K>)? {
            fn default() -> Self {
                Self {
                    $($set: Default::default(),)*
                    $($($flag: Default::default(),)*)?
                }
            }
        }

        impl $(<$K: Ord + Clone>)? $Delta $(<$K>)? {
            /// Whether no set changes.
            pub fn is_empty(&self) -> bool {
                <$State $(<$K>)? as $crate::schema::Sets>::is_no_change(self)
            }
        }

        $crate::sets!(
            [$($K: Ord + Clone)?] $State $(<$K>)?, $Delta $(<$K>)?, $($set: $type),*
        );
    };
}

/// Has a struct of several [`Sets`], and one of their changes with the same fields, change
/// together.
#[macro_export]
macro_rules! sets {
    ([$($bounds:tt)*] $State:ty, $Delta:ty, $($set:ident: $type:ty),*) => {
        impl<$($bounds)*> $crate::schema::Sets for $State {
            type Delta = $Delta;

            fn size(&self) -> usize {
                0 $(+ $crate::schema::Sets::size(&self.$set))*
            }

            fn change_to(&self, new: &Self) -> $Delta {
                let mut delta = <$Delta>::default();
                $(delta.$set = $crate::schema::Sets::change_to(&self.$set, &new.$set);)*
                delta
            }

            fn is_no_change(delta: &$Delta) -> bool {
                true $(&& <$type as $crate::schema::Sets>::is_no_change(&delta.$set))*
            }

            fn is_start_of(&self, delta: &$Delta) -> bool {
                true $(&& $crate::schema::Sets::is_start_of(&self.$set, &delta.$set))*
            }

            fn apply(&mut self, delta: &$Delta) {
                $($crate::schema::Sets::apply(&mut self.$set, &delta.$set);)*
            }

            fn extend(delta: &mut $Delta, next: $Delta) {
                $(<$type as $crate::schema::Sets>::extend(&mut delta.$set, next.$set);)*
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::collection::{btree_map, btree_set};
    use proptest::prelude::*;

    use super::*;

    crate::schema! {
        /// A map and a set.
        pub struct Part<K> {
            /// A map.
            pub map: BTreeMap<K, u8>,
            /// A set.
            pub set: BTreeSet<K>,
        }

        /// The change of [`Part`].
        pub struct PartDelta
    }

    crate::schema! {
        /// A set and others.
        pub struct State {
            /// A set.
            pub set: BTreeSet<u8>,
            /// Others.
            pub part: Part<u8>,
        } with {
            /// No set.
            pub name: u8,
        }

        /// The change of [`State`].
        pub struct Delta with {
            /// No change of a set.
            pub flag: bool,
        }
    }

    fn state() -> impl Strategy<Value = State> {
        let set = || btree_set(0..4_u8, 0..4);
        (set(), set(), btree_map(0..4_u8, 0..3_u8, 0..4)).prop_map(|(set, other, map)| State {
            name: 1,
            set,
            part: Part { map, set: other },
        })
    }

    proptest! {
        #[test]
        fn a_change_is_of_all_sets_and_of_nothing_else(a in state(), b in state(), c in state()) {
            let mut delta = a.change_to(&b);
            prop_assert!(a.is_start_of(&delta));
            prop_assert_eq!(delta.part.is_empty(), a.part == b.part);
            prop_assert_eq!(delta.is_empty(), a == b);
            prop_assert_eq!(b.is_start_of(&delta), a == b);
            State::extend(&mut delta, b.change_to(&c));
            prop_assert_eq!(&delta, &a.change_to(&c));
            let mut after = State { name: 2, ..a };
            after.apply(&delta);
            prop_assert_eq!(after, State { name: 2, ..c.clone() });
            let sizes = c.set.len() + c.part.map.len() + c.part.set.len();
            prop_assert_eq!(c.size(), sizes);
            delta = Delta { flag: true, ..Delta::default() };
            prop_assert!(delta.is_empty());
        }
    }
}
