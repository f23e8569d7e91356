//! The overlay's table, `inet tweed`: which chains, rules and sets it has, and what its
//! sets hold, as pure functions of a [`Ruleset`]; and [`OverlayTable`], which keeps it in
//! the kernel.

mod inner;
mod rules;
mod sets;
mod table;

use std::collections::BTreeSet;

use tweed_planner::overlay::desired::Ruleset;

use crate::element::Contents;
use crate::table::{Set, Skeleton};
use crate::tables::TABLE;
use inner::InnerPrefix;
pub use table::OverlayTable;

/// Version of the table's meaning: see [`Skeleton::new`].
const FORMAT: u32 = 3;

/// The table's skeleton for `ruleset`; of the elements of its sets only those of VXLAN
/// sources matter, by the length of their prefixes ([`inner`]).
fn skeleton(ruleset: &Ruleset) -> Skeleton {
    let prefixes = inner::prefixes(ruleset);
    let chains = rules::chains(ruleset, &prefixes);
    Skeleton::new(TABLE, FORMAT, declarations(&prefixes), Vec::new(), chains)
}

/// All sets of a table with these prefixes of sources inside of VXLAN.
fn declarations(prefixes: &BTreeSet<InnerPrefix>) -> Vec<Set> {
    let mut sets = sets::sets();
    sets.extend(inner::sets(prefixes));
    sets
}

/// What all sets of a table with these prefixes should hold.
fn contents(prefixes: &BTreeSet<InnerPrefix>, ruleset: &Ruleset) -> Contents {
    let mut contents = sets::contents(ruleset);
    contents.extend(inner::contents(prefixes, ruleset));
    contents
}

#[cfg(test)]
mod tests;
