//! tweed's own table, `inet tweed`: which chains, rules and sets it has, and what
//! its sets hold, as pure functions of a [`Ruleset`]; and [`Table`], which keeps it
//! in the kernel.
//!
//! [`rules`] names sets and never addresses, so that no rule changes with the Nodes.
//! Each set has one writer: nobody else may write its elements, since a writer puts back
//! what others change.

mod components;
mod counters;
mod encode;
mod inner;
mod kept;
mod policy;
mod provided_sets;
mod rules;
mod services;
pub mod sets;
mod table;
mod words;

use std::collections::BTreeSet;

use tweed_netlink::nf::object::DELETE_TABLE;
use tweed_netlink::nf::{Attributes, Socket, Transaction};
use tweed_planner::overlay::desired::Ruleset;

use crate::element::Contents;
use crate::error::Error;
use crate::table::{Set, Skeleton};
pub use components::{Components, Wanted};
use inner::InnerPrefix;
pub use policy::{Dropped, Policy};
pub use services::{Difference, Held, Refused, held};
pub use table::Table;
pub use tweed_netlink::owned::TABLE;

/// Version of the table's meaning: see [`Skeleton::new`].
const FORMAT: u32 = 2;
/// The file in the run folder that remembers how the kernel shows the whole table.
const BASELINE: &str = "nft-skeleton";

/// Where the table's chains stand among those of others at the same hook. All
/// stages are reserved here, those of Services and policies too.
///
/// The numbers are priorities: `linux/netfilter_ipv4.h`, `enum nf_ip_hook_priorities`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Stage {
    /// Before conntrack (−200): what is refused makes no entry there, and what
    /// need not be tracked is taken out.
    Raw = -300,
    /// Destinations are rewritten: Services. One place before the number that everybody
    /// takes for it (−100: portmap for hostPorts, kube-proxy), so that it does not depend
    /// on who has come first that a Service gets what is for its address.
    Dnat = -101,
    /// What may pass, by addresses after DNAT: policies, the VXLAN filter.
    Filter = 0,
    /// Sources are rewritten: masquerading.
    Snat = 100,
}

/// The table's skeleton for `ruleset`; of the elements of its sets only those of VXLAN
/// sources matter, by the length of their prefixes ([`inner`]). What policy adds is there
/// only while it is active; what Services add, if it is said which timeouts of session
/// affinity they have, in seconds.
#[must_use]
pub fn skeleton(
    ruleset: &Ruleset,
    policy: Option<Policy<'_>>,
    affinity_timeouts: Option<&BTreeSet<u32>>,
) -> Skeleton {
    let policy = policy.filter(Policy::is_active);
    let prefixes = inner::prefixes(ruleset);
    let chains = rules::chains(ruleset, &prefixes, policy, affinity_timeouts);
    let mut sets = sets(&prefixes);
    let mut counters = Vec::new();
    if policy.is_some() {
        sets.extend(policy::declarations());
        counters.extend(policy::COUNTERS);
    }
    if affinity_timeouts.is_some() {
        sets.extend(services::declarations());
        counters.extend(services::COUNTERS);
    }
    Skeleton::new(TABLE, FORMAT, sets, counters, chains)
}

/// All sets of a table with these prefixes of sources inside of VXLAN.
fn sets(prefixes: &BTreeSet<InnerPrefix>) -> Vec<Set> {
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

/// Deletes the table, in the calling thread's network namespace, for whoever
/// uninstalls tweed; returns whether there was one. With `only_look` it stays.
///
/// # Errors
/// [`Error::NoNfTables`], [`Error::NotAllowed`], or the kernel's refusal.
pub fn remove(only_look: bool) -> Result<bool, Error> {
    let mut socket = Socket::open().map_err(Error::unavailable)?;
    let exists = TABLE.get(&mut socket)?.is_some();
    if exists && !only_look {
        let mut transaction = Transaction::new(format!("table {TABLE}"));
        transaction.delete(TABLE.message(DELETE_TABLE, Attributes::new()));
        socket.commit(&transaction)?;
    }
    Ok(exists)
}

#[cfg(test)]
mod tests;
