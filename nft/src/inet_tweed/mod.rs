//! tweed's own table, `inet tweed`: which chains, rules and sets it has, and what
//! its sets hold, as pure functions of a [`Ruleset`]; and [`Table`], which keeps it
//! in the kernel.
//!
//! [`rules`] names sets and never addresses, so that no rule changes with the Nodes. Each set has one writer: nobody else may write its elements, since
//! a writer puts back what others change.

mod inner;
mod rules;
pub mod sets;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use tokio_util::sync::CancellationToken;
use tweed_netlink::nf::object::DELETE_TABLE;
use tweed_netlink::nf::{Attributes, Socket, Transaction};
use tweed_planner::overlay::desired::Ruleset;

use crate::element::{Contents, diff};
use crate::error::Error;
use crate::reconcile::{Outcome, Reconciler};
use crate::table::{Set, Skeleton};
use inner::InnerPrefix;
pub use tweed_netlink::owned::TABLE;

/// Version of the table's meaning: see [`Skeleton::new`].
const FORMAT: u32 = 1;
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
    /// Destinations are rewritten: Services.
    Dnat = -100,
    /// What may pass, by addresses after DNAT: policies, the VXLAN filter.
    Filter = 0,
    /// Sources are rewritten: masquerading.
    Snat = 100,
}

/// The table's skeleton for `ruleset`; of the elements of its sets only those of VXLAN
/// sources matter, by the length of their prefixes ([`inner`]).
#[must_use]
pub fn skeleton(ruleset: &Ruleset) -> Skeleton {
    let prefixes = inner::prefixes(ruleset);
    let chains = rules::chains(ruleset, &prefixes);
    Skeleton::new(TABLE, FORMAT, sets(&prefixes), chains)
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

/// The table in the kernel, for one thread in one network namespace.
pub struct Table {
    reconciler: Reconciler,
    /// Which sets of sources inside of VXLAN the table was last made with.
    prefixes: BTreeSet<InnerPrefix>,
}

impl Table {
    /// Opens the sockets, in the calling thread's network namespace, and
    /// changes nothing. `run_dir` must exist; `nft` is the program, looked for
    /// in `PATH` if it is a plain name.
    ///
    /// # Errors
    /// [`Error::NoNfTables`], [`Error::NotAllowed`].
    pub fn open(run_dir: &Path, nft: &Path) -> Result<Self, Error> {
        Ok(Self {
            reconciler: Reconciler::open(TABLE, nft, &run_dir.join(BASELINE))?,
            prefixes: BTreeSet::new(),
        })
    }

    /// Does not wait for a program `nft` that hangs when `stop` is cancelled.
    #[must_use]
    pub fn stopped_by(self, stop: CancellationToken) -> Self {
        Self {
            reconciler: self.reconciler.stopped_by(stop),
            ..self
        }
    }

    /// Reads the notifications that are there; never waits. Returns whether
    /// something else has changed the table since [`Self::reconcile`] looked at it.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn drain_notifications(&mut self) -> Result<bool, Error> {
        self.reconciler.drain_notifications()
    }

    /// Makes the table as `ruleset` says: [`Reconciler::reconcile`].
    ///
    /// # Errors
    /// The first failure; the next call then looks at everything again.
    pub fn reconcile(&mut self, ruleset: &Ruleset, force_observe: bool) -> Result<Outcome, Error> {
        self.prefixes = inner::prefixes(ruleset);
        let contents = contents(&self.prefixes, ruleset);
        self.reconciler
            .reconcile(&skeleton(ruleset), contents, force_observe)
    }

    /// Makes the sets follow a change of the Nodes: elements of `removed` that
    /// `added` has not are deleted, those of `added` are added. None if the sets are
    /// not known to hold what was desired before, or one is missing for a prefix that
    /// is new: then [`Self::reconcile`] has to look. A set whose last element goes
    /// stays until then.
    ///
    /// # Errors
    /// The change was refused; the next call then looks at everything again.
    pub fn follow(&mut self, removed: &Ruleset, added: &Ruleset) -> Result<Option<Outcome>, Error> {
        let prefixes = &self.prefixes;
        if !inner::prefixes_of_sources(added).all(|prefix| prefixes.contains(&prefix)) {
            return Ok(None);
        }
        let changes = || diff(&contents(prefixes, removed), &contents(prefixes, added));
        self.reconciler.follow(&sets(prefixes), changes)
    }
}

impl AsFd for Table {
    /// Readable when notifications are there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reconciler.as_fd()
    }
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
mod tests {
    use super::*;
    use tweed_planner::config::Masquerade;
    use tweed_planner::overlay::desired::VxlanMatch;

    fn script(ruleset: &Ruleset) -> String {
        skeleton(ruleset).script(&contents(&inner::prefixes(ruleset), ruleset))
    }

    fn vxlan() -> Option<VxlanMatch> {
        Some(VxlanMatch {
            device: "tweed.1".to_owned(),
            vni: 1,
            port: 8472,
        })
    }

    #[test]
    fn overlay() {
        let ruleset = Ruleset {
            masquerade: Some(Masquerade::RandomFully),
            masquerade_ipv6: true,
            masquerade_nodes: true,
            vxlan: vxlan(),
            local_cidrs: ["10.244.1.0/24", "fd00:0:0:1::/64"]
                .map(|c| c.parse().unwrap())
                .into(),
            cluster_cidrs: ["10.244.1.0/24", "10.244.2.0/24", "fd00::/56"]
                .map(|c| c.parse().unwrap())
                .into(),
            node_addresses: ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
                .map(|a| a.parse().unwrap())
                .into(),
            underlay_addresses: Default::default(),
            vxlan_sources: [
                ("192.0.2.2", "10.244.2.0/24"),
                ("192.0.2.2", "fd00:0:0:2::/64"),
                ("2001:db8::2", "10.244.2.0/24"),
                ("2001:db8::2", "fd00:0:0:2::/64"),
            ]
            .map(|(outer, inner)| (outer.parse().unwrap(), inner.parse().unwrap()))
            .into(),
            pod_links: ["10.244.1.5", "fd00:0:0:1::5"]
                .map(|a| (a.parse().unwrap(), 7))
                .into(),
        };
        insta::assert_snapshot!(script(&ruleset));
    }

    #[test]
    fn direct_routes() {
        let ruleset = Ruleset {
            masquerade: Some(Masquerade::Random),
            masquerade_ipv6: true,
            node_addresses: ["192.0.2.1", "203.0.113.1"]
                .map(|a| a.parse().unwrap())
                .into(),
            underlay_addresses: ["192.0.2.1".parse().unwrap()].into(),
            ..Ruleset::default()
        };
        insta::assert_snapshot!(script(&ruleset));
    }

    #[test]
    fn ipv6_pods_with_their_own_source_but_to_nodes() {
        let ruleset = Ruleset {
            masquerade: Some(Masquerade::Random),
            masquerade_nodes: true,
            vxlan: vxlan(),
            ..Ruleset::default()
        };
        insta::assert_snapshot!(script(&ruleset));
    }

    #[test]
    fn overlay_without_masquerading() {
        let ruleset = Ruleset {
            masquerade: Some(Masquerade::Off),
            vxlan: vxlan(),
            ..Ruleset::default()
        };
        insta::assert_snapshot!(script(&ruleset));
    }

    #[test]
    fn nothing_is_known_yet() {
        let ruleset = Ruleset::default();
        insta::assert_snapshot!(script(&ruleset));
    }

    #[test]
    fn another_length_of_pod_cidrs_is_another_skeleton_and_another_node_is_not() {
        let known = Ruleset {
            vxlan: vxlan(),
            local_cidrs: ["10.244.1.0/24".parse().unwrap()].into(),
            ..Ruleset::default()
        };
        let version = |inner: &[&str]| {
            let pair = |inner: &&str| ("192.0.2.2".parse().unwrap(), inner.parse().unwrap());
            let vxlan_sources = inner.iter().map(pair).collect();
            skeleton(&Ruleset {
                vxlan_sources,
                ..known.clone()
            })
            .version
        };
        assert_eq!(version(&[]), version(&["10.244.2.0/24", "10.244.3.0/24"]));
        assert_ne!(version(&[]), version(&["10.244.2.0/25"]));
        assert_ne!(version(&[]), version(&["fd00::/64"]));
    }

    #[test]
    fn the_version_follows_the_rules_and_not_the_elements() {
        let plain = Ruleset {
            vxlan: vxlan(),
            ..Ruleset::default()
        };
        let version = |ruleset: &Ruleset| skeleton(ruleset).version;
        let fuller = Ruleset {
            node_addresses: ["192.0.2.1".parse().unwrap()].into(),
            ..plain.clone()
        };
        assert_eq!(version(&plain), version(&fuller));
        let other = Ruleset {
            vxlan: vxlan().map(|vxlan| VxlanMatch { vni: 2, ..vxlan }),
            ..plain.clone()
        };
        assert_ne!(version(&plain), version(&other));
    }
}
