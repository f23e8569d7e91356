//! tweed's own table, `inet tweed`: which chains, rules and sets it has, and what
//! its sets hold, as pure functions of a [`Ruleset`]; and [`Table`], which keeps it
//! in the kernel.
//!
//! [`rules`] names sets and never addresses, so that no rule changes with the Nodes. Each set has one writer: nobody else may write its elements, since
//! a writer puts back what others change.

mod encode;
mod inner;
mod policy;
mod provided_sets;
mod rules;
pub mod sets;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use tokio_util::sync::CancellationToken;
use tweed_netlink::nf::object::DELETE_TABLE;
use tweed_netlink::nf::{Attributes, Socket, Transaction};
use tweed_planner::overlay::desired::Ruleset;
use tweed_planner::policy::desired::{Delta, Desired};

use crate::element::{Contents, diff};
use crate::error::Error;
use crate::provided::Provider;
use crate::reconcile::{Outcome, Reconciler};
use crate::table::{Set, Skeleton};
use inner::InnerPrefix;
pub use policy::{Dropped, Policy};
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
/// sources matter, by the length of their prefixes ([`inner`]). What policy adds is there
/// only while it is active.
#[must_use]
pub fn skeleton(ruleset: &Ruleset, policy: Option<Policy<'_>>) -> Skeleton {
    let policy = policy.filter(Policy::is_active);
    let prefixes = inner::prefixes(ruleset);
    let chains = rules::chains(ruleset, &prefixes, policy);
    let mut sets = sets(&prefixes);
    let mut counters = Vec::new();
    if policy.is_some() {
        sets.extend(policy::declarations());
        counters.extend(policy::COUNTERS);
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

/// The table in the kernel, for one thread in one network namespace.
pub struct Table {
    reconciler: Reconciler,
    /// Which sets of sources inside of VXLAN the table was last made with.
    prefixes: BTreeSet<InnerPrefix>,
    policy: policy::Writer,
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
            policy: policy::Writer::default(),
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

    /// Makes the table as `ruleset` and `policy` say: [`Reconciler::reconcile`]. Without
    /// policy, or with one that is not active, there are no rules of policy in it.
    ///
    /// The sets of policy are trusted to hold what was last written to them. They are
    /// compared with `policy` when that is not known, one of them in turn with
    /// `force_observe`, and all of them after [`Self::forget_policy`].
    ///
    /// # Errors
    /// The first failure; the next call then looks at everything again.
    pub fn reconcile(
        &mut self,
        ruleset: &Ruleset,
        policy: Option<Policy<'_>>,
        force_observe: bool,
    ) -> Result<Outcome, Error> {
        self.prefixes = inner::prefixes(ruleset);
        let skeleton = skeleton(ruleset, policy);
        let mut contents = contents(&self.prefixes, ruleset);
        let reconciler = &mut self.reconciler;
        let Some(policy) = policy.filter(Policy::is_active) else {
            self.policy.reset();
            return reconciler.reconcile(&skeleton, contents, None, force_observe);
        };
        let is_in_force = self.policy.enter(reconciler, &mut contents)?;
        let provider: Option<&dyn Provider> = match is_in_force {
            true => Some(policy.desired),
            false => None,
        };
        let before = reconciler.replacements();
        let outcome = reconciler.reconcile(&skeleton, contents, provider, force_observe)?;
        let start = policy::Start {
            skeleton: &skeleton,
            desired: policy.desired,
            replaced: reconciler.replacements() != before,
            force_observe,
        };
        Ok(outcome + self.policy.reconcile(reconciler, &start)?)
    }

    /// Makes the table as `ruleset` says, while it is not known what policy desires: what
    /// the table has of policy, from an earlier run too, stays in force as it is. `log` is
    /// [`Policy::log`].
    ///
    /// # Errors
    /// The first failure; the next call then looks at everything again.
    pub fn reconcile_keeping_policy(
        &mut self,
        ruleset: &Ruleset,
        log: bool,
        force_observe: bool,
    ) -> Result<Outcome, Error> {
        self.prefixes = inner::prefixes(ruleset);
        let mut contents = contents(&self.prefixes, ruleset);
        if !self.policy.enter(&mut self.reconciler, &mut contents)? {
            return self.reconcile(ruleset, None, force_observe);
        }
        let desired = Desired {
            active: true,
            ..Desired::default()
        };
        let policy = Policy {
            desired: &desired,
            log,
        };
        let (skeleton, kept) = (skeleton(ruleset, Some(policy)), policy::Kept::default());
        self.reconciler
            .reconcile(&skeleton, contents, Some(&kept), force_observe)
    }

    /// Makes the sets of policy follow a change of the plan, in one transaction. None if
    /// they are not known to hold what was desired before, or policy is not in force:
    /// then [`Self::reconcile`] has to look.
    ///
    /// # Errors
    /// The change was refused; the next call of [`Self::reconcile`] then looks at
    /// everything again.
    pub fn follow_policy(&mut self, delta: &Delta) -> Result<Option<Outcome>, Error> {
        self.policy.follow(&mut self.reconciler, delta)
    }

    /// How many packets policy has dropped since the table was made; none while it has no
    /// rules of policy.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn dropped(&mut self) -> Result<Option<Dropped>, Error> {
        let [ingress, egress, isolated] = policy::COUNTERS;
        let mut counted = |counter| self.reconciler.counted(counter);
        let Some(ingress) = counted(ingress)? else {
            return Ok(None);
        };
        Ok(Some(Dropped {
            ingress,
            egress: counted(egress)?.unwrap_or_default(),
            isolated: counted(isolated)?.unwrap_or_default(),
        }))
    }

    /// Says that what policy desires has changed and it is not known how: the next
    /// [`Self::reconcile`] compares all its sets, and judges all flows anew if one differs.
    pub fn forget_policy(&mut self) {
        self.policy.forget();
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
        skeleton(ruleset, None).script(&contents(&inner::prefixes(ruleset), ruleset), None)
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
            let ruleset = Ruleset {
                vxlan_sources,
                ..known.clone()
            };
            skeleton(&ruleset, None).version
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
        let version = |ruleset: &Ruleset| skeleton(ruleset, None).version;
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
