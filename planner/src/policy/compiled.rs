//! The policies in force here, compiled into the elements of the kernel's sets.
//!
//! [`Compiled::select`] decides which policies apply to which local pods, and needs only
//! what is known of this node's pods; [`Compiled::update`] brings the elements up to
//! date, in proportion to what has changed. Of policies whose peers are not all known
//! [`waiting`] says what is in force.

mod classify;
mod identify;
mod overlaps;
mod pairs;
mod problems;
mod revocation;
mod select;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;
use tweed_core::problem::Problem;

use super::desired::{Delta, Desired, Direction, Number, PerDirection, Tables};
use super::identities::Identities;
use super::index::Index;
use super::labels::Kind;
use super::local::{Local, LocalPod, LocalPods, PolicyKey};
use super::peer_sets::{Fingerprints, Networks, PeerSets};
use super::pods::PodScope;
use super::profiles::Profiles;
use super::rules::{Peers as RulePeers, Rules};
use super::wants::Peers;
use crate::addresses::spans_of;
use crate::tables::{put, put_into, replace};
use classify::Unlisted;
use overlaps::{MaxCost, WithoutNetworks};

/// A policy that applies to a local pod.
#[derive(Debug)]
struct InForce {
    rules: Rules,
    /// What its rules would be if their networks could be told apart; none if `rules` are
    /// all.
    whole: Option<Rules>,
    /// The numbers of the lists of peers of each rule; none for everybody.
    peers: PerDirection<Vec<Option<Number>>>,
}

impl InForce {
    /// Its rules, with networks that may overlap too much.
    fn whole(&self) -> &Rules {
        self.whole.as_ref().unwrap_or(&self.rules)
    }
}

/// The compiled state.
#[derive(Debug, Default)]
pub struct Compiled {
    max_cost: MaxCost,
    without_networks: WithoutNetworks,
    fingerprints: Fingerprints,
    /// Whether everything was looked at once.
    started: bool,
    /// Whether a plan was made of it.
    planned: bool,
    /// Whether there is a plan that nothing was looked at for.
    open: bool,
    /// The pods that had the local addresses in the last plan.
    judged_for: BTreeMap<IpAddr, Option<LocalPod>>,
    /// This node's own addresses in the last plan.
    own: BTreeSet<IpAddr>,
    locals: BTreeMap<IpAddr, Local>,
    in_force: BTreeMap<PolicyKey, InForce>,
    peers: Peers,
    /// Scopes of pods that have been listed and are watched until those of `peers` are.
    kept: BTreeSet<PodScope>,
    /// The lists of peers of which pods are not known yet.
    unlisted: Unlisted,
    /// Whether a policy that waits selects any local pod.
    holds: bool,
    /// The lists of peers that are in use by the rules before of pods that are held.
    retained: BTreeSet<Number>,
    problems: Vec<Problem>,
    peer_sets: PeerSets,
    /// The lists of peers that pods of each kind are in.
    kind_sets: HashMap<Arc<Kind>, Arc<[Number]>>,
    networks: [Networks; 2],
    /// The names of ports that rules of egress use.
    port_names: BTreeSet<String>,
    identities: Identities,
    profiles: Profiles,
    tables: Tables,
    pending: Pending,
}

/// What the next update has to look at.
#[derive(Debug, Default)]
struct Pending {
    /// Local addresses whose rules may be others.
    locals: BTreeSet<IpAddr>,
    /// Local addresses that may be judged otherwise, or for another pod.
    judged: BTreeSet<IpAddr>,
    /// Addresses whose identity may be another one.
    addresses: BTreeSet<IpAddr>,
    /// Namespaces whose labels may be others; none means all.
    namespaces: Option<BTreeSet<String>>,
    /// Local addresses that are gone.
    gone: BTreeSet<IpAddr>,
}

impl Compiled {
    /// The state in which nothing was compiled yet.
    pub fn anew(&self) -> Self {
        Self {
            max_cost: self.max_cost,
            ..Self::default()
        }
    }

    /// For tests that cannot have so many networks.
    #[cfg(test)]
    pub fn limit_cost(&mut self, own: usize, joint: usize) {
        let cheap = self.max_cost.cheap.min(own);
        self.max_cost = MaxCost { own, joint, cheap };
    }

    /// What should be.
    pub fn desired(&self) -> &Desired {
        &self.tables.desired
    }

    /// What of the policies in force cannot be represented.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Which pods of other nodes the policies in force are about.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Scopes of pods that have been listed and are watched until those of
    /// [`Compiled::peers`] are.
    pub fn kept(&self) -> &BTreeSet<PodScope> {
        &self.kept
    }

    /// Whether a plan was made, an open one included.
    pub fn has_plan(&self) -> bool {
        self.planned || self.open
    }

    /// Makes an open plan: of the local addresses only those are judged, and no policy is about
    /// them, that belong to one of these pods, or to this node itself.
    pub fn open(&mut self, local: &LocalPods, mut pods: BTreeMap<IpAddr, Option<LocalPod>>) {
        pods.retain(|address, pod| local.pods.get(address) == Some(pod));
        let judged = pods.keys().chain(&local.own);
        self.tables.desired.judged = judged.copied().collect();
        self.tables.desired.local_cidrs = spans_of(&local.cidrs, &[]);
        self.tables.desired.active = true;
        self.judged_for = pods;
        self.own.clone_from(&local.own);
        self.open = true;
    }

    /// Whether the plan lets a flow between a local address and another one pass.
    pub fn allows(
        &self,
        (local, other): (IpAddr, IpAddr),
        direction: Direction,
        (protocol, port): (u8, u16),
    ) -> bool {
        let desired = &self.tables.desired;
        if !desired.judged.contains(&local) {
            return false;
        }
        let number = desired.identity(local, other);
        let profile = desired.pairs.get(direction).get(&(local, number));
        !desired.policed.get(direction).contains(&local)
            || self.profiles.set(profile.copied()).contains(protocol, port)
    }

    /// The policies in force.
    pub fn in_force(&self) -> BTreeSet<PolicyKey> {
        self.in_force.keys().cloned().collect()
    }

    /// The policies in force whose networks match nothing, because they overlap too much.
    pub fn without_networks(&self) -> BTreeSet<PolicyKey> {
        let in_force = self.in_force.iter();
        let without = in_force.filter(|(_, one)| one.whole.is_some());
        without.map(|(key, _)| key.clone()).collect()
    }

    /// Brings the elements up to date. None if all of them are new.
    pub fn update(&mut self, index: &mut Index) -> Option<Delta> {
        let first = !std::mem::replace(&mut self.planned, true);
        let is_all_new = first && !std::mem::replace(&mut self.open, false);
        self.tables.desired.active = true;
        self.tables.delta = (!is_all_new).then(Delta::default);
        let identified = self.identify(index, first);
        self.judge(index);
        self.pair(&identified);
        if let Some(mut delta) = self.tables.delta.take() {
            delta.takes_away = self.takes_away(&delta, &identified);
            self.settle();
            return Some(delta);
        }
        self.settle();
        None
    }

    /// Isolates local addresses that the last plan judged for another pod than the one that
    /// has them now, for a time in which there can be no new plan. An open plan follows this
    /// node's own addresses besides. None if nothing changes.
    pub fn withdraw(&mut self, index: &Index) -> Option<Delta> {
        let local = index.local.as_ref().filter(|_| self.has_plan())?;
        let Desired { judged, .. } = &mut self.tables.desired;
        let mut delta = Delta::default();
        self.judged_for.retain(|address, pod| {
            let stays = local.pods.get(address) == Some(pod);
            if !stays && !local.own.contains(address) {
                put_into(judged, Some(&mut delta.judged), *address, None);
                self.pending.judged.insert(*address);
            }
            stays
        });
        if self.open {
            for address in local.own.difference(&self.own) {
                put_into(judged, Some(&mut delta.judged), *address, Some(()));
            }
            self.own.extend(&local.own);
        }
        delta.takes_away = !delta.judged.removed.is_empty();
        (!delta.judged.is_empty()).then_some(delta)
    }

    /// Numbers that became free in this change may be given out in the next one.
    fn settle(&mut self) {
        self.identities.settle();
        self.profiles.settle();
        self.pending = Pending {
            namespaces: Some(BTreeSet::new()),
            ..Pending::default()
        };
    }

    /// Which local addresses have been judged.
    fn judge(&mut self, index: &Index) {
        let Some(local) = &index.local else {
            return;
        };
        replace!(self.tables, local_cidrs, spans_of(&local.cidrs, &[]));
        for address in std::mem::take(&mut self.pending.judged) {
            let known = self.locals.get(&address);
            let judged = known.is_some_and(Local::is_judged) || local.own.contains(&address);
            put!(self.tables, judged, address, judged.then_some(()));
            match local.pods.get(&address) {
                Some(pod) => drop(self.judged_for.insert(address, pod.clone())),
                None => drop(self.judged_for.remove(&address)),
            }
        }
        if self.own != local.own {
            self.own.clone_from(&local.own);
        }
    }

    fn networks(&self, address: IpAddr) -> &[Number] {
        self.networks[Family::of(address) as usize].at(address)
    }
}

/// The list of peers of a rule; none for everybody.
fn atoms(peers: &RulePeers) -> Option<&BTreeSet<super::rules::Atom>> {
    match peers {
        RulePeers::All => None,
        RulePeers::Any(atoms) => Some(atoms),
    }
}
