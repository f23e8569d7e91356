//! Anything in the tables is emptied: whichever sets, maps and chains a node has, also those
//! that no list of damages names.

use std::collections::BTreeMap;

use tweed_lab::{LabError, Netns};

use super::{Kind, Run};
use crate::checks::{objects, text};
use crate::random::pick;
use crate::world::{Target, World};

pub const KINDS: &[Kind] = &[Kind {
    name: "any set, map or chain of the table emptied",
    weight: 8,
    run: Run::Code(flush_any),
}];

/// The lines that empty each set, map and chain of a node's tables, by table and group. Those whose names differ
/// in a last number only, as the chains of as many endpoints, are one group.
///
/// # Errors
/// There is no table, or nft fails.
pub fn flushes(netns: &Netns) -> Result<BTreeMap<(String, String), Vec<String>>, LabError> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for object in objects(netns, "nft -j -t")? {
        for kind in ["set", "map", "chain"] {
            if let Some(object) = object.get(kind) {
                let (table, name) = (text(object, "table"), text(object, "name"));
                let key = (table.to_owned(), group(name).to_owned());
                let line = format!("flush {kind} inet {table} {name}");
                groups.entry(key).or_default().push(line);
            }
        }
    }
    Ok(groups)
}

/// A name without the number that it ends in; that of a family of addresses belongs to it.
fn group(name: &str) -> &str {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match stem.strip_suffix('_') {
        Some(stem) => stem,
        None => name,
    }
}

/// Two of them at a time.
fn flush_any(world: &mut World, target: Target) -> Result<(), LabError> {
    // An earlier action may have deleted the table.
    let Ok(by_name) = flushes(world.node(target.node)?.node.netns()) else {
        return Ok(());
    };
    let groups: Vec<Vec<String>> = by_name.into_values().collect();
    for place in [0, 24] {
        let number = target.number.rotate_right(place);
        let group = groups.get(pick(number, groups.len()));
        let line = group.and_then(|group| group.get(pick(number >> 16, group.len())));
        if let Some(line) = line {
            world.note(line);
            world.in_node(target.node, &[format!("nft {line}")]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_in_a_number_is_one_group() {
        assert_eq!(group("service_split_58"), "service_split");
        assert_eq!(group("policy_3"), "policy");
        assert_eq!(group("policy_in4"), "policy_in4");
        assert_eq!(group("forward"), "forward");
    }
}
