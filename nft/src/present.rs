//! What there is of a table, to replace its rules around its sets.
//!
//! Replacing a whole table needs the elements of all its sets in one text and in one
//! transaction: with hundreds of thousands of them it takes seconds. Where the sets that
//! are there are known to be as they should be declared, only rules, chains and the other
//! sets have to be replaced, and the elements stay where they are.
//!
//! The elements of the provided sets fit each other and nothing else. If one of these
//! sets is missing, or is not known to be untouched, another version may have filled the others:
//! they are replaced, in the same transaction. Lists of networks mean the same whatever is in the others, and stay: the
//! kernel shows new elements of sets of ranges only some time after the rules.

use std::collections::{BTreeMap, BTreeSet};

use tweed_netlink::Error;
use tweed_netlink::nf::attributes::number;
use tweed_netlink::nf::object::{
    CHAIN_NAME, DATA_TYPE_VERDICT, OBJECT_NAME, SET_DATA_TYPE, SET_FLAG_ANONYMOUS, SET_FLAG_MAP,
    SET_FLAGS, SET_NAME, TABLE_NAME, TABLE_USE, chains,
};
use tweed_netlink::nf::{Message, Socket};

use crate::baseline::KnownSet;
use crate::observe::digests;
use crate::table::{Present, Set, Skeleton, Stale};

/// Looks at the table of this skeleton, in which the rules of the chains in `unchanged` are as
/// the skeleton has them. None if it cannot be told what there is: somebody has put an object of
/// another kind into the table.
pub(super) fn look(
    socket: &mut Socket,
    skeleton: &Skeleton,
    known: &BTreeMap<String, KnownSet>,
    unchanged: &BTreeSet<String>,
) -> Result<Option<Present>, Error> {
    let key = skeleton.table;
    let Some(table) = key.get(socket)? else {
        return Ok(None);
    };
    // A set without a name goes with the rule that has it, and is not counted.
    let mut sets = key.sets(socket)?;
    sets.retain(|set| flags(set) & SET_FLAG_ANONYMOUS == 0);
    let mut chains = chains(socket)?;
    chains.retain(|chain| chain.family == key.family && chain.text(TABLE_NAME) == Some(key.name));
    let used = table.attribute(TABLE_USE).and_then(number);
    let counters = key.counters(socket)?;
    let counted = sets.len() + chains.len() + counters.len();
    if used.and_then(|used| usize::try_from(used).ok()) != Some(counted) {
        return Ok(None);
    }
    let mut present = sort(skeleton, known, unchanged, &sets, &chains);
    if let Some(present) = &mut present {
        let names = counters.iter().filter_map(|one| one.text(OBJECT_NAME));
        let stale = names.filter(|name| !skeleton.counters.contains(name));
        present.stale_counters = stale.map(str::to_owned).collect();
    }
    Ok(present)
}

fn is_list_of_networks(set: &Set) -> bool {
    set.interval && set.data.is_none() && set.key.len() == 1
}

/// A set that goes.
fn stale(name: String, set: &Message) -> Stale {
    let data_type = set.attribute(SET_DATA_TYPE).and_then(number);
    Stale {
        name,
        is_map: flags(set) & SET_FLAG_MAP != 0,
        has_verdicts: data_type == Some(DATA_TYPE_VERDICT),
    }
}

fn flags(set: &Message) -> u32 {
    let flags = set.attribute(SET_FLAGS).and_then(number);
    flags.unwrap_or_default()
}

/// Tells what is kept from what goes.
fn sort(
    skeleton: &Skeleton,
    known: &BTreeMap<String, KnownSet>,
    unchanged: &BTreeSet<String>,
    sets: &[Message],
    chains: &[Message],
) -> Option<Present> {
    let digests = digests(sets);
    let mut present = Present::default();
    for set in sets {
        let name = set.text(SET_NAME)?.to_owned();
        let Some(declared) = skeleton.sets.iter().find(|set| set.name == name) else {
            present.stale_sets.push(stale(name, set));
            continue;
        };
        let is_untouched = known.get(&name).is_some_and(|known| {
            known.version == declared.version() && digests.get(&name) == Some(&known.digest)
        });
        if is_untouched {
            present.sets.insert(name);
        } else {
            present.stale_sets.push(stale(name, set));
        }
    }
    let mut provided = skeleton.sets.iter().filter(|set| set.is_provided());
    let is_torn = provided.any(|set| !present.sets.contains(&set.name));
    for set in sets {
        let name = set.text(SET_NAME)?;
        let declared = skeleton.sets.iter().find(|set| set.name == name);
        let depends = |set: &Set| set.is_provided() && !is_list_of_networks(set);
        // One that is not known goes already.
        if is_torn && declared.is_some_and(depends) && present.sets.remove(name) {
            present.stale_sets.push(stale(name.to_owned(), set));
        }
    }
    let is_made_again = |stale: &Stale| skeleton.sets.iter().any(|set| set.name == stale.name);
    if !present.stale_sets.iter().any(is_made_again) {
        // Otherwise rules name sets that are made again.
        let is_there = |name: &&String| chains.iter().any(|chain| name_of(chain) == Some(*name));
        present.kept_chains = unchanged.iter().filter(is_there).cloned().collect();
    }
    let names = |chain: &Message| name_of(chain).map(str::to_owned);
    present.chains = chains.iter().filter_map(names).collect();
    let stale = chains.iter().filter(|chain| !stays(skeleton, chain));
    present.stale_chains = stale.filter_map(names).collect();
    Some(present)
}

fn name_of(chain: &Message) -> Option<&str> {
    chain.text(CHAIN_NAME)
}

/// Whether the skeleton has a chain, at the same place: the kernel moves none (`EOPNOTSUPP`).
fn stays(skeleton: &Skeleton, chain: &Message) -> bool {
    let mut chains = skeleton.chains.iter();
    let wanted = chains.find(|wanted| name_of(chain) == Some(&wanted.name));
    wanted.is_some_and(|wanted| {
        let place = wanted.hook.map(|hook| (hook.number(), hook.priority));
        place == chain.hook().zip(chain.priority())
    })
}
