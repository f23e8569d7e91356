//! The overlay's table, `inet tweed`: which chains, rules and sets it has, and what its
//! sets hold, as pure functions of a [`Ruleset`]; and [`OverlayTable`], which keeps it in
//! the kernel.

mod inner;
mod rules;
mod sets;
mod table;

use std::collections::BTreeSet;

use tweed_component::drops::Owner;
use tweed_planner::overlay::desired::{Ruleset, RulesetDelta};

use crate::drops;
use crate::element::{Change, Contents};
use crate::schema;
use crate::table::{Set, Skeleton};
use crate::tables::TABLE;
use inner::InnerPrefix;
pub use table::OverlayTable;

/// Version of the table's meaning: see [`Skeleton::new`].
const FORMAT: u32 = 3;

/// The table's skeleton for `ruleset`; of the elements of its sets only those of VXLAN
/// sources matter, by the length of their prefixes ([`inner`]). With `log` packets are logged
/// before they are dropped.
fn skeleton(ruleset: &Ruleset, log: bool) -> Skeleton {
    let prefixes = inner::prefixes(ruleset);
    let chains = rules::chains(ruleset, &prefixes, log);
    let counters = drops::counters(Owner::Overlay);
    Skeleton::new(TABLE, FORMAT, declarations(&prefixes), counters, chains)
}

/// All sets of a table with these prefixes of sources inside of VXLAN.
fn declarations(prefixes: &BTreeSet<InnerPrefix>) -> Vec<Set> {
    schema::declarations::<Ruleset>()
        .chain(inner::sets(prefixes))
        .collect()
}

/// What all sets of a table with these prefixes should hold.
fn contents(prefixes: &BTreeSet<InnerPrefix>, ruleset: &Ruleset) -> Contents {
    let mut contents = sets::contents(ruleset);
    contents.extend(inner::contents(prefixes, ruleset));
    contents
}

/// What `delta` changes of the sets of a table with these prefixes. No CIDR of a change lies
/// in another one.
fn changes(prefixes: &BTreeSet<InnerPrefix>, delta: &RulesetDelta) -> Vec<Change> {
    let mut changes = schema::changes::<Ruleset>(delta);
    changes.extend(inner::changes(prefixes, delta).filter(|change| !change.delta.is_empty()));
    changes
}

#[cfg(test)]
mod tests;
