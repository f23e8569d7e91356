//! Policies that wait for lists of pods: what they hold back, and what goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use proptest::prelude::*;
use tweed_core::object::Event;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::pod::Pod;

use super::cluster::Cluster;
use super::properties::{flow, follows, sizes};
use super::walk::{Flow, passes};
use super::world::{World, labels};
use crate::policy::evaluate::Verdict;
use crate::policy::model::local::LocalPod;
use crate::policy::model::pods::PodScope;
use crate::policy::planner::{PolicyPlanner, Step};
use crate::policy::verdicts::{DIRECTIONS, Direction};
use crate::tests::dice::Dice;

/// A pod's direction.
type Side = (IpAddr, Direction);

/// A world whose pods are listed only as the planner wants them, and late.
struct Late {
    world: World,
    listed: BTreeSet<PodScope>,
    /// For each side the cluster of the last plan in which it was not held.
    before: BTreeMap<Side, Rc<Cluster>>,
    /// The cluster as far as the planner knows its pods.
    known: Cluster,
    /// For each side that is held, as far as it can be told, what is known, but with the
    /// policies and the pod of when it was last not held.
    known_before: BTreeMap<Side, Cluster>,
}

impl Late {
    fn new(dice: &mut Dice) -> Self {
        let mut world = World::random(dice);
        // Selectors that are about many namespaces want all pods.
        for number in 0..16 {
            let app = *dice.pick(&["x", "y"]);
            world.cluster.namespaces.push(Namespace {
                name: format!("filler{number}"),
                labels: labels(&[("app", app)]),
                ..Namespace::default()
            });
        }
        let mut world = World::new(world.cluster);
        world.planner.drop_scope(&PodScope::All);
        Self {
            world,
            listed: BTreeSet::new(),
            before: BTreeMap::new(),
            known: Cluster::default(),
            known_before: BTreeMap::new(),
        }
    }

    /// The same, where the kernel has no policies, and what is known of Namespaces and of the
    /// own pods has not come either, or has. The pods that can do all in the open plan.
    fn begin(dice: &mut Dice) -> (Self, BTreeMap<IpAddr, LocalPod>) {
        let mut late = Self::new(dice);
        let policies = std::mem::take(&mut late.world.cluster.network_policies);
        let cluster_policies = std::mem::take(&mut late.world.cluster.cluster_network_policies);
        late.note();
        late.world.cluster.network_policies = policies;
        late.world.cluster.cluster_network_policies = cluster_policies;
        let of_record = |address: IpAddr| (address, late.world.planner.local_pod(address).unwrap());
        let recorded = late.world.local().into_iter().map(of_record);
        let mut records: BTreeMap<_, _> = recorded
            .map(|(address, pod)| (address, pod.cloned()))
            .collect();
        // An ADD that came with the policies.
        records.retain(|_, _| !dice.chance(4));
        late.world.planner.begin(records.clone());
        let pods = records.into_iter();
        (
            late,
            pods.filter_map(|(address, pod)| Some((address, pod?)))
                .collect(),
        )
    }

    fn wanted(&self) -> BTreeSet<PodScope> {
        let mut wanted = self.world.planner.wants().pods;
        wanted.remove(&PodScope::Own);
        wanted
    }

    /// Lists what is wanted, or only some of it, and stops what is not wanted.
    fn watch(&mut self, dice: &mut Dice, all: bool) {
        let wanted = self.wanted();
        for scope in self.listed.difference(&wanted) {
            self.world.planner.drop_scope(scope);
        }
        self.listed.retain(|scope| wanted.contains(scope));
        for scope in wanted {
            if !self.listed.contains(&scope) && (all || dice.chance(4)) {
                let pods = self.world.cluster.pods.clone();
                list(&mut self.world.planner, &scope, pods);
                self.listed.insert(scope);
            }
        }
    }

    fn is_known(&self, pod: &Pod) -> bool {
        pod.node == "me" || self.listed.iter().any(|scope| is_of(scope, pod))
    }

    /// What a side knew when it was last not held, with what is known now of all others.
    /// None if the labels of its namespace differ.
    fn known_before(&self, side: Side) -> Option<Cluster> {
        let (before, mut now) = (self.before.get(&side)?, self.known.clone());
        let own = before.pods.iter().find(|pod| has(pod, side.0))?.clone();
        now.pods.retain(|pod| !has(pod, side.0));
        let labels_in = |cluster: &Cluster| {
            let mut all = cluster.namespaces.iter();
            all.find(|one| one.name == own.namespace).cloned()
        };
        let is_same = labels_in(before) == labels_in(&now);
        now.pods.push(own);
        now.network_policies.clone_from(&before.network_policies);
        (now.cluster_network_policies).clone_from(&before.cluster_network_policies);
        is_same.then_some(now)
    }

    fn is_held(&self, (address, direction): Side) -> bool {
        !(self.world.planner.waiting_texts(address, direction)).is_empty()
    }

    fn pod(&self, address: IpAddr) -> Option<&LocalPod> {
        self.world.planner.local_pod(address).flatten()
    }

    /// The pods whose addresses are enforced.
    fn enforced(&self) -> BTreeMap<IpAddr, LocalPod> {
        let enforced = self.world.planner.desired().verdicts.enforced.iter();
        enforced
            .filter_map(|address| Some((*address, self.pod(*address)?.clone())))
            .collect()
    }

    /// Holds one packet against the rules at the head of `model/waiting.rs`.
    fn check(&self, direction: Direction, flow: Flow, was_enforced: &BTreeMap<IpAddr, LocalPod>) {
        let (local, other) = match direction {
            Direction::In => (flow.to, flow.from),
            Direction::Out => (flow.from, flow.to),
        };
        let cluster = &self.world.cluster;
        let desired = self.world.planner.desired();
        let is = passes(desired, direction, flow);
        let allows = |cluster: &Cluster| {
            let said = cluster.evaluate(flow.from, flow.to, flow.protocol, flow.port);
            let said = match direction {
                Direction::In => said.ingress,
                Direction::Out => said.egress,
            };
            said.verdict == Verdict::Allowed
        };
        let waits = DIRECTIONS.iter().any(|one| self.is_held((local, *one)));
        let is_new = was_enforced.get(&local) != self.pod(local);
        let is_enforced = desired.verdicts.enforced.contains(&local);
        if desired.verdicts.active {
            assert_eq!(is_enforced, !(waits && is_new), "{local}");
        }
        if desired.verdicts.active && !is_enforced {
            return;
        }
        let about = || format!("{direction:?} {flow:?} {:?}", self.world.planner.held());
        let is_held = self.is_held((local, direction));
        if !is_held {
            assert_eq!(is, allows(&self.known), "{} {cluster:#?}", about());
        }
        // Of pods that are not listed it is not known that they have the address of another.
        let pods = cluster.pods.iter();
        let claims: Vec<&Pod> = pods.filter(|pod| has(pod, other)).collect();
        if claims.len() > 1 && claims.iter().any(|pod| !self.is_known(pod)) {
            return;
        }
        if !is_held {
            assert_eq!(is, allows(cluster), "{} {cluster:#?}", about());
        } else if local != other && self.known.party(other).pod.is_some() {
            assert_eq!(is, allows(cluster), "listed: {} {cluster:#?}", about());
        } else if local != other
            && let Some(before) = self.known_before.get(&(local, direction))
        {
            let (before, after) = (allows(before), allows(cluster));
            assert!(!is || before || after, "let in: {} {cluster:#?}", about());
            assert!(is || !before || !after, "cut: {} {cluster:#?}", about());
        }
    }

    /// Notes what is known after a plan.
    fn note(&mut self) {
        let cluster = Rc::new(self.world.cluster.clone());
        self.known = (*cluster).clone();
        let is_known: BTreeSet<String> = { cluster.pods.iter() }
            .filter(|pod| self.is_known(pod))
            .map(|pod| pod.name.clone())
            .collect();
        self.known.pods.retain(|pod| is_known.contains(&pod.name));
        self.known_before.clear();
        for address in self.world.local() {
            for side in DIRECTIONS.map(|direction| (address, direction)) {
                if !self.is_held(side) {
                    self.before.insert(side, Rc::clone(&cluster));
                } else if let Some(known) = self.known_before(side) {
                    self.known_before.insert(side, known);
                }
            }
        }
    }
}

fn has(pod: &Pod, address: IpAddr) -> bool {
    pod.addresses.iter().any(|one| one.parse() == Ok(address))
}

fn is_of(scope: &PodScope, pod: &Pod) -> bool {
    match scope {
        PodScope::Own => pod.node == "me",
        PodScope::Namespace(name) => *name == pod.namespace,
        PodScope::All => true,
    }
}

/// Lists the pods of a scope.
fn list(planner: &mut PolicyPlanner, scope: &PodScope, pods: Vec<Pod>) {
    planner.apply_pods(scope, Event::Init);
    for pod in pods.into_iter().filter(|pod| is_of(scope, pod)) {
        planner.apply_pods(scope, Event::InitApply(pod));
    }
    planner.apply_pods(scope, Event::InitDone);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn only_what_depends_on_a_list_that_is_missing_waits_for_it(
        seed in any::<u64>(),
        steps in 1..30usize,
        begins in any::<bool>(),
    ) {
        let mut dice = Dice(seed);
        let (mut late, mut first) = if begins { Late::begin(&mut dice)
 } else { (Late::new(&mut dice), BTreeMap::new())
 };
        for _ in 0..steps {
            let old = late.world.planner.desired().clone();
            let mut was_enforced = late.enforced();
            if !old.verdicts.active {
                was_enforced.append(&mut first);
            }
            let flows: Vec<_> = (0..60).filter_map(|_| flow(&late.world, &mut dice)).collect();
            for _ in 0..=dice.roll(2) {
                late.world.change(&mut dice);
            }
            late.watch(&mut dice, false);
            let mut step = late.world.planner.plan();
            // The first plan waits for all lists.
            while late.world.planner.holds_all() {
                prop_assert!(!late.world.planner.desired().verdicts.active);
                late.watch(&mut dice, true);
                step = late.world.planner.plan();
            }
            follows(step, &old, late.world.planner.desired(), &flows)?;
            late.note();
            for _ in 0..60 {
                if let Some((direction, flow)) = flow(&late.world, &mut dice) {
                    late.check(direction, flow, &was_enforced);
                }
            }
        }
        while !late.wanted().is_subset(&late.listed) {
            late.watch(&mut dice, true);
            late.world.planner.plan();
        }
        let none: [String; 0] = [];
        prop_assert_eq!(late.world.planner.held(), none);
        let mut fresh = World::new(late.world.cluster.clone());
        fresh.planner.drop_scope(&PodScope::All);
        for scope in &late.listed {
            list(&mut fresh.planner, scope, late.world.cluster.pods.clone());
        }
        prop_assert!(!matches!(fresh.planner.plan(), Step::Hold(_)));
        prop_assert_eq!(sizes(late.world.planner.desired()), sizes(fresh.planner.desired()));
    }
}
