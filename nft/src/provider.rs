//! Sets whose desired elements somebody else keeps.
//!
//! Policy has hundreds of thousands of elements, and its planner keeps them as typed
//! maps. A second copy here would double the memory, so the reconciler trusts what it
//! has written, and to compare it reads one set at a time and walks it in step with what
//! the provider says.

use crate::element::Element;

/// Says what the sets should hold that are marked as provided.
pub trait Provider {
    /// The elements of a set, by ascending key; none for a set that it does not know.
    fn elements<'a>(&'a self, set: &str) -> Box<dyn Iterator<Item = Element> + 'a>;
}
