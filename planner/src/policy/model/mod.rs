//! What policies mean for the pods of this node: typed, and without a set of nftables.
//!
//! ```text
//! events ─▶ index ─▶ rules ─▶ the rules of each local pod ─┐
//!             │                                            ├─▶ Verdicts, VerdictsDelta
//!             └─▶ identities of addresses and networks ────┘
//! ```
//!
//! - [`index`] keeps what the planner has been told: policies, Namespaces, [`pods`],
//!   [`nodes`], [`local`] addresses.
//! - [`rules`] reads a policy as rules over lists of peers ([`peer_sets`]) and [`ports`].
//! - [`Model::select`] decides which policies apply to which local pods, and needs only what
//!   is known of this node's pods: [`queue`] says which changed policies it takes up, [`class`]
//!   has the rules of one pod, [`waiting`] says what is in force of policies whose peers are
//!   not all known, [`cost`] whose cost too much, [`wants`] what has to be watched.
//! - [`Model::update`] brings the [`verdicts`] up to date, in proportion to what has changed:
//!   [`identities`] are what rules can tell of an address, [`profiles`] what a local address is
//!   allowed with one.
//!
//! Whoever writes the verdicts down, for nftables or otherwise, follows their changes.

pub mod class;
mod classify;
pub mod cost;
pub mod end_addresses;
mod identify;
mod identities;
pub mod index;
pub mod labels;
pub mod local;
pub mod nodes;
mod pairs;
pub mod peer_sets;
pub mod pods;
pub mod ports;
mod problems;
mod profiles;
mod queue;
mod revocation;
pub mod rules;
mod select;
mod selection;
pub mod uid;
pub mod verdicts;
mod waiting;
pub mod wants;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;
use tweed_core::problem::Problem;

use crate::addresses::spans_of;
use crate::tables::{put, replace};
use classify::Unlisted;
use cost::Costs;
use identities::Identities;
use index::Index;
use labels::Kind;
use local::{Local, LocalPod, LocalPods, PolicyKey};
use peer_sets::{Fingerprints, Networks, PeerSets};
use pods::PodScope;
use profiles::Profiles;
use queue::Queue;
use rules::{Atom, Peers, Rule, Rules};
use verdicts::{Changing, DIRECTIONS, Direction, Number, PerDirection, Verdicts, VerdictsDelta};

/// The numbers of the lists of peers of each rule; none for everybody.
type PeerNumbers = PerDirection<Vec<Option<Number>>>;

/// A policy that applies to a local pod.
#[derive(Debug)]
struct InForce {
    rules: Rules,
    /// The different lists of peers by their fingerprints, each with one of the rules that
    /// have it.
    lists: BTreeMap<u128, (Direction, usize)>,
    /// None if they are not looked up, as its owner is refused for them, or was.
    peers: Option<PeerNumbers>,
    /// Whether its rules count: not if its owner is refused, or was and it waits for its turn.
    counts: bool,
}

impl InForce {
    fn new(rules: Rules, fingerprints: &Fingerprints) -> Self {
        let mut lists = BTreeMap::new();
        for direction in DIRECTIONS {
            let numbered = rules.rules.get(direction).iter().flatten().enumerate();
            let peers = numbered.filter_map(|(at, rule)| Some((at, atoms(&rule.peers)?)));
            lists.extend(peers.map(|(at, atoms)| (fingerprints.of(atoms), (direction, at))));
        }
        Self {
            rules,
            lists,
            peers: None,
            counts: false,
        }
    }

    /// Its different lists of peers, by their fingerprints.
    fn lists(&self) -> impl Iterator<Item = (u128, &[Atom])> {
        self.lists
            .iter()
            .filter_map(|(fingerprint, (direction, at))| {
                let rule = self.rules.rules.get(*direction).as_ref()?.get(*at)?;
                Some((*fingerprint, atoms(&rule.peers)?))
            })
    }

    /// Looks up its lists of peers.
    fn acquire(&mut self, peer_sets: &mut PeerSets) {
        let [ingress, egress] = DIRECTIONS.map(|direction| {
            let rules = self.rules.rules.get_mut(direction).iter_mut().flatten();
            let numbers = rules.map(|rule| match &mut rule.peers {
                Peers::All => None,
                Peers::Any(atoms) => Some(peer_sets.acquire(atoms)),
            });
            numbers.collect()
        });
        self.peers = Some(PerDirection { ingress, egress });
    }

    /// The numbers of its lists of peers in one direction, as far as they are looked up.
    fn numbers(&self, direction: Direction) -> impl Iterator<Item = Number> {
        let peers = self.peers.iter();
        peers.flat_map(move |peers| peers.get(direction).iter().flatten().copied())
    }

    /// The rules of one direction with their lists of peers, if these are looked up.
    fn rules_with_peers(
        &self,
        direction: Direction,
    ) -> impl Iterator<Item = (&Rule, Option<Number>)> {
        let peers = self.peers.iter();
        let lists = peers.flat_map(move |peers| peers.get(direction).iter().copied());
        self.rules.rules.get(direction).iter().flatten().zip(lists)
    }
}

/// The policies in force here, and what they allow.
#[derive(Debug, Default)]
pub struct Model {
    costs: Costs,
    fingerprints: Fingerprints,
    /// Whether everything was looked at once.
    started: bool,
    /// Whether a plan was made of it.
    planned: bool,
    /// Whether there is a plan that nothing was looked at for.
    open: bool,
    /// The pods that had the local addresses in the last plan.
    enforced_for: BTreeMap<IpAddr, Option<LocalPod>>,
    /// This node's own addresses in the last plan.
    own: BTreeSet<IpAddr>,
    locals: BTreeMap<IpAddr, Local>,
    in_force: BTreeMap<PolicyKey, InForce>,
    /// Policies that have changed since and were not looked at.
    pub queue: Queue,
    /// Which pods of other nodes the policies in force are about.
    pub peers: BTreeSet<PodScope>,
    /// Those that have been listed and are watched until `peers` are.
    pub kept: BTreeSet<PodScope>,
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
    pending: Pending,
}

/// What the next update has to look at.
#[derive(Debug, Default)]
struct Pending {
    /// Local addresses whose rules may be others.
    locals: BTreeSet<IpAddr>,
    /// Local addresses that may be enforced otherwise, or for another pod.
    enforced: BTreeSet<IpAddr>,
    /// Addresses whose identity may be another one.
    addresses: BTreeSet<IpAddr>,
    /// Namespaces whose labels may be others; none means all.
    namespaces: Option<BTreeSet<String>>,
    /// Local addresses that are gone.
    gone: BTreeSet<IpAddr>,
}

impl Model {
    /// The state in which nothing was compiled yet.
    pub fn anew(&self) -> Self {
        Self {
            costs: Costs::limited(self.costs.max),
            ..Self::default()
        }
    }

    /// For tests that cannot have so many rules.
    #[cfg(test)]
    pub fn limit_cost(&mut self, own: usize, joint: usize) {
        self.costs.max = cost::MaxCost { own, joint };
    }

    /// The same.
    #[cfg(test)]
    pub fn limit_going(&mut self, max: usize) {
        self.profiles.limit_going(max);
    }

    /// What of the policies in force cannot be represented.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Whether a plan was made, an open one included.
    pub fn has_plan(&self) -> bool {
        self.planned || self.open
    }

    /// Makes an open plan: of the local addresses only those are enforced, and no policy is about
    /// them, that belong to one of these pods, or to this node itself.
    pub fn open(
        &mut self,
        verdicts: &mut Verdicts,
        local: &LocalPods,
        mut pods: BTreeMap<IpAddr, Option<LocalPod>>,
    ) {
        pods.retain(|address, pod| local.pods.get(address) == Some(pod));
        let enforced = pods.keys().chain(&local.own);
        verdicts.enforced = enforced.copied().collect();
        verdicts.local_cidrs = spans_of(&local.cidrs, &[]);
        verdicts.active = true;
        self.enforced_for = pods;
        self.own.clone_from(&local.own);
        self.open = true;
    }

    /// Whether the next plan has something to do, though nothing changes.
    pub fn has_more(&self) -> bool {
        self.queue.len() > 0 || self.profiles.has_left()
    }

    /// The policies in force.
    pub fn in_force(&self) -> BTreeSet<PolicyKey> {
        self.in_force.keys().cloned().collect()
    }

    /// Brings the verdicts up to date. What has changed; none if all of them are new.
    pub fn update(&mut self, index: &mut Index, verdicts: &mut Verdicts) -> Option<VerdictsDelta> {
        let first = !std::mem::replace(&mut self.planned, true);
        let is_all_new = first && !std::mem::replace(&mut self.open, false);
        verdicts.active = true;
        let mut changing = Changing::of(verdicts, !is_all_new);
        let identified = self.identify(index, &mut changing, first);
        if !identified.touched.is_empty() || !self.pending.locals.is_empty() {
            self.limit_profiles(index, changing.desired);
        }
        self.enforce(index, &mut changing);
        self.pair(&identified, &mut changing);
        self.commit();
        let Changing { desired, delta } = changing;
        let mut delta = delta?;
        delta.takes_away = self.takes_away(desired, &delta, &identified);
        Some(delta)
    }

    /// Isolates local addresses that the last plan enforced for another pod than the one that
    /// has them now, for a time in which there can be no new plan. An open plan follows this
    /// node's own addresses besides. None if nothing changes.
    pub fn withdraw(&mut self, index: &Index, verdicts: &mut Verdicts) -> Option<VerdictsDelta> {
        let local = index.local.as_ref().filter(|_| self.has_plan())?;
        let mut changing = Changing::of(verdicts, true);
        self.enforced_for.retain(|address, pod| {
            let stays = local.pods.get(address) == Some(pod);
            if !stays && !local.own.contains(address) {
                put!(changing, enforced, *address, None);
                self.pending.enforced.insert(*address);
            }
            stays
        });
        if self.open {
            for address in local.own.difference(&self.own) {
                put!(changing, enforced, *address, Some(()));
            }
            self.own.extend(&local.own);
        }
        let mut delta = changing.delta?;
        delta.takes_away = !delta.enforced.removed.is_empty();
        (!delta.is_empty()).then_some(delta)
    }

    /// Numbers that became free in this change may be given out in the next one.
    fn commit(&mut self) {
        self.identities.commit();
        self.profiles.commit();
        self.pending = Pending {
            namespaces: Some(BTreeSet::new()),
            ..Pending::default()
        };
    }

    /// Which local addresses have been enforced.
    fn enforce(&mut self, index: &Index, verdicts: &mut Changing<'_>) {
        let Some(local) = &index.local else {
            return;
        };
        replace!(verdicts, local_cidrs, spans_of(&local.cidrs, &[]));
        for address in std::mem::take(&mut self.pending.enforced) {
            let known = self.locals.get(&address);
            let enforced = known.is_some_and(Local::is_enforced) || local.own.contains(&address);
            put!(verdicts, enforced, address, enforced.then_some(()));
            match local.pods.get(&address) {
                Some(pod) => drop(self.enforced_for.insert(address, pod.clone())),
                None => drop(self.enforced_for.remove(&address)),
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
fn atoms(peers: &Peers) -> Option<&[Atom]> {
    match peers {
        Peers::All => None,
        Peers::Any(atoms) => Some(atoms),
    }
}
