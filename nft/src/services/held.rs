//! What the kernel holds of a part of the plan: for people who ask where a destination
//! leads to. Each element is read by itself, so it costs nothing of the size of the maps.

use std::collections::BTreeMap;

use tweed_netlink::nf::Socket;
use tweed_netlink::nf::object::SET_NAME;
use tweed_planner::services::desired::{Desired, Tracked};

use super::sets::{FRONTEND, NODE_PORT, PARTS};
use crate::element::{Data, Key};
use crate::error::Error;
use crate::observe;
use crate::schema::{PlannedSet, Schema};
use crate::tables::SERVICES_TABLE;

/// Maximum number of elements that are read: some milliseconds.
const MAX_READ: usize = 1024;

/// What the kernel holds, next to what was planned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// How many elements were read.
    pub read: usize,
    /// How many more there are.
    pub unread: usize,
    /// What is not as planned.
    pub differences: Vec<Difference>,
}

/// An element that is not as planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The set or map.
    pub set: String,
    /// The key, as `nft` reads it.
    pub key: String,
    /// What a map should give for it; none if there should be no such element.
    pub planned: Option<String>,
    /// What the kernel has; none if it has no such element.
    pub held: Option<String>,
}

/// Reads what the table of the calling thread's network namespace holds of `part` and of
/// these frontends. None if there is no table with Services. Networks and source ranges
/// are not read: the kernel cannot be asked for one of them.
///
/// # Errors
/// The kernel cannot be asked.
pub fn held(part: &Desired, frontends: &[Tracked]) -> Result<Option<Held>, Error> {
    let mut socket = Socket::open()?;
    let sets = SERVICES_TABLE.sets(&mut socket)?;
    let parts = PARTS.of(None).name();
    if !sets.iter().any(|set| set.text(SET_NAME) == Some(&parts)) {
        return Ok(None);
    }
    let mut held = Held::default();
    // From where a flow begins, so that what is left unread is at the end of its way.
    let sets: Vec<PlannedSet<Desired>> = Desired::sets().collect();
    for set in sets.into_iter().rev() {
        let declaration = set.declaration();
        if declaration.interval {
            continue;
        }
        let planned = set.elements(part);
        let mut wanted: BTreeMap<Key, Option<Option<Box<Data>>>> =
            planned.map(|(key, data)| (key, Some(data))).collect();
        for key in frontends.iter().filter_map(|at| key_of(&set, at)) {
            wanted.entry(key).or_default();
        }
        for (key, planned) in wanted {
            if held.read == MAX_READ {
                held.unread += 1;
                continue;
            }
            held.read += 1;
            let found = observe::element(&mut socket, SERVICES_TABLE, &declaration, &key)?;
            if found != planned {
                held.differences.push(Difference {
                    set: declaration.name.clone(),
                    key: key.to_string(),
                    planned: planned.map(text),
                    held: found.map(text),
                });
            }
        }
    }
    Ok(Some(held))
}

/// The key of a frontend in one of the sets and maps that have such keys.
fn key_of(set: &PlannedSet<Desired>, at: &Tracked) -> Option<Key> {
    match at {
        Tracked::Address(at) => set.key_of(&FRONTEND, at),
        Tracked::NodePort(at) => set.key_of(&NODE_PORT, at),
    }
}

fn text(data: Option<Box<Data>>) -> String {
    data.map_or_else(|| "an element".to_owned(), |data| data.to_string())
}
