//! Which policies apply to which local pods.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use tweed_component::store::Touched;
use tweed_core::keyed::{self, Entry};
use tweed_core::object::ObjectKey;
use tweed_core::object::selector::Labels;

use super::index::Index;
use super::labels::Kind;
use super::local::{Known, Local, LocalPod, PolicyKey};
use super::pods::PodKey;
use super::rules::Rules;
use super::verdicts::{Direction, Verdicts};
use super::wants;
use super::{InForce, Model, PeerNumbers};

/// Policies that may be other ones; none means all.
pub(super) type Policies = Option<BTreeSet<PolicyKey>>;

impl Model {
    /// Brings up to date which policies apply to which local pods, and what has to be
    /// watched for them.
    pub fn select(&mut self, index: &mut Index, verdicts: &Verdicts) {
        let first = !std::mem::replace(&mut self.started, true);
        let namespaces = touched_namespaces(index, first);
        let policies = self.next_batch(index, first);
        let (addresses, pods) = index.pods.take_touched();
        self.pending.addresses.extend(addresses);
        self.pending.addresses.extend(index.nodes.take_touched());
        for node in index.nodes.take_moved() {
            let addresses = index.pods.addresses_of_node(&node);
            self.pending.addresses.extend(addresses);
        }

        let mut locals = BTreeSet::new();
        let mut left = BTreeSet::new();
        if std::mem::take(&mut index.local_touched) || first {
            left = self.set_locals(index, &mut locals);
        }
        self.touch_locals(index, namespaces.as_ref(), &pods, &mut locals);
        for address in &locals {
            self.refresh(index, *address);
        }
        let mut changed = self.apply_policies(index, &policies, &locals);
        changed.extend(left);
        self.pending.addresses.extend(locals);
        let (others, released) = self.put_in_force(index, &changed, &policies);
        let namespaces_changed = namespaces.as_ref().is_none_or(|all| !all.is_empty());
        let lists_changed = index.pods.take_scopes_touched() || others || namespaces_changed;
        if lists_changed {
            self.find_unlisted(index);
        }
        self.classify(index, verdicts);
        let holds = self.is_any_held();
        let held = std::mem::replace(&mut self.holds, holds);
        if held != holds {
            // Rules that are doubtful tell pods that have been listed from others.
            self.pending.addresses.extend(index.pods.addresses());
            self.pending.addresses.extend(self.locals.keys());
        }
        let held = held || holds;
        if held {
            self.retain_lists();
        }
        self.release(&released);
        if lists_changed || held {
            self.update_watched(index);
        }
        if policies.is_none_or(|these| !these.is_empty()) || others {
            self.collect_problems(index);
        }
        match (&mut self.pending.namespaces, namespaces) {
            (Some(pending), Some(more)) => pending.extend(more),
            (pending, None) => *pending = None,
            (None, _) => {}
        }
    }

    /// Takes new local addresses in, and those away that are gone. The policies that
    /// applied to the latter.
    fn set_locals(&mut self, index: &Index, touched: &mut BTreeSet<IpAddr>) -> BTreeSet<PolicyKey> {
        let mut left = BTreeSet::new();
        let Some(local) = &index.local else {
            return left;
        };
        let known = self.locals.keys().copied();
        let gone: Vec<IpAddr> = known.filter(|one| !local.pods.contains_key(one)).collect();
        for address in gone {
            if let Some(local) = self.locals.remove(&address) {
                left.extend(local.applied.iter().cloned());
                self.pending.gone.insert(address);
                self.pending.addresses.insert(address);
                self.pending.locals.insert(address);
            }
        }
        for address in local.pods.keys() {
            if self.is_other(index, *address) {
                touched.insert(*address);
            }
        }
        // Those that the last plan enforced for another pod, or for none, or for none any more.
        let compared = keyed::compare(&self.enforced_for, &local.pods);
        let differing = compared.filter_map(|entry| match entry {
            Entry::First(address, _) | Entry::Second(address, _) => Some(*address),
            Entry::Both(address, was, is) => (was != is).then_some(*address),
        });
        let of_others: Vec<IpAddr> = differing.collect();
        // Whether a pod waits also depends on whether it is the one that was enforced.
        self.pending.locals.extend(&of_others);
        self.pending.enforced.extend(of_others);
        self.pending.enforced.extend(&self.own ^ &local.own);
        left
    }

    /// Adds the local addresses whose pods or namespaces are among these, and differ from
    /// what is known of them; a namespace also where only its labels may differ.
    fn touch_locals(
        &self,
        index: &Index,
        namespaces: Option<&BTreeSet<String>>,
        pods: &BTreeSet<PodKey>,
        touched: &mut BTreeSet<IpAddr>,
    ) {
        if pods.is_empty() && namespaces.is_some_and(BTreeSet::is_empty) {
            return;
        }
        for (address, pod) in index.local.iter().flat_map(|local| &local.pods) {
            let Some(LocalPod { name, .. }) = pod else {
                continue;
            };
            let key = (name.namespace.as_str().into(), name.name.as_str().into());
            let moved = namespaces.is_none_or(|all| all.contains(&name.namespace));
            if moved || (pods.contains(&key) && self.is_other(index, *address)) {
                touched.insert(*address);
            }
        }
    }

    /// Whether something else is known of a local address than when it was last looked up.
    fn is_other(&self, index: &Index, address: IpAddr) -> bool {
        let local = self.locals.get(&address);
        local.is_none_or(|local| local.known != index.known(address))
    }

    /// Looks up what is known of a local address.
    fn refresh(&mut self, index: &Index, address: IpAddr) {
        if !self.is_other(index, address) {
            return;
        }
        let known = index.known(address);
        let entry = self.locals.entry(address);
        entry.or_insert_with(|| Local::new(Known::NotYet)).known = known;
        self.pending.locals.insert(address);
        self.pending.enforced.insert(address);
    }

    /// Looks which policies apply: for these local addresses all policies, and for these
    /// policies all local addresses. Which policies have changed for any of them.
    fn apply_policies(
        &mut self,
        index: &Index,
        policies: &Policies,
        locals: &BTreeSet<IpAddr>,
    ) -> BTreeSet<PolicyKey> {
        let mut changed = BTreeSet::new();
        let these = policies.as_ref();
        if these.is_some_and(BTreeSet::is_empty) && locals.is_empty() {
            return changed;
        }
        for (address, local) in &mut self.locals {
            let looks_at_all = these.is_none() || locals.contains(address);
            if !looks_at_all && these.is_some_and(BTreeSet::is_empty) {
                continue;
            }
            let kind = local.subject().cloned();
            let subject = kind.map(|kind| (index.labels_of(&kind.namespace), kind));
            let Some(these) = these.filter(|_| !looks_at_all) else {
                let selecting = subject.map(|(labels, kind)| index.applied_to(&kind, &labels));
                let mut applied = selecting.unwrap_or_default();
                applied.retain(|key| !self.queue.has(key) || local.applied.contains(key));
                changed.extend(applied.symmetric_difference(&local.applied).cloned());
                if applied != local.applied {
                    self.pending.locals.insert(*address);
                }
                local.applied = applied;
                continue;
            };
            for policy in these {
                let selects =
                    |(labels, kind): &(Labels, Arc<Kind>)| index.selects(policy, kind, labels);
                let was = local.applied.remove(policy);
                let is = subject.as_ref().is_some_and(selects);
                if is {
                    local.applied.insert(policy.clone());
                }
                if is || was {
                    changed.insert(policy.clone());
                    self.pending.locals.insert(*address);
                }
            }
        }
        match these {
            Some(these) => {
                let known = these.iter().filter(|one| self.in_force.contains_key(one));
                changed.extend(known.cloned());
            }
            None => changed.extend(self.in_force.keys().cloned()),
        }
        changed
    }

    /// Compiles the policies that apply and have changed, and forgets those that do not
    /// apply any more. Whether there were any, and those whose lists of peers are to be
    /// released.
    fn put_in_force(
        &mut self,
        index: &Index,
        changed: &BTreeSet<PolicyKey>,
        touched: &Policies,
    ) -> (bool, Vec<PeerNumbers>) {
        if changed.is_empty() {
            return (false, Vec::new());
        }
        let locals = self.locals.values();
        let applied: BTreeSet<&PolicyKey> = locals
            .flat_map(|local| changed.intersection(&local.applied))
            .collect();
        let (mut others, mut released) = (BTreeSet::new(), Vec::new());
        let mut networks = false;
        for key in changed {
            // Its rules follow from the policy alone.
            let is_same = touched.as_ref().is_some_and(|all| !all.contains(key));
            if applied.contains(key) && self.in_force.contains_key(key) && is_same {
                continue;
            }
            let rules = applied.contains(key).then(|| index.rules(key)).flatten();
            let in_force = self.in_force.get(key);
            let was = in_force.map(|one| &one.rules);
            if was == rules.as_ref() {
                if in_force.is_some_and(|one| !one.counts) {
                    others.insert(key.clone());
                }
                continue;
            }
            networks |= was.into_iter().chain(&rules).any(Rules::has_networks);
            released.extend(self.in_force.remove(key).and_then(|one| one.peers));
            if let Some(rules) = rules {
                let one = InForce::new(rules, &self.fingerprints);
                self.in_force.insert(key.clone(), one);
            }
            others.insert(key.clone());
        }
        if others.is_empty() {
            return (false, released);
        }
        let (more, admitted) = self.acquire_lists(&others, networks);
        released.extend(more);
        others.extend(admitted);
        for (address, local) in &self.locals {
            // A policy that changed applies to this one, or did.
            if !local.applied.is_disjoint(&others) {
                self.pending.locals.insert(*address);
            }
        }
        (!others.is_empty(), released)
    }

    /// Releases the lists of peers of policies. This comes after new ones are in and what
    /// is retained is known, so that a list that stays keeps its number.
    fn release(&mut self, peers: &[PeerNumbers]) {
        let lists = peers
            .iter()
            .flat_map(|one| one.ingress.iter().chain(&one.egress));
        for list in lists.flatten() {
            self.peer_sets.release(*list);
        }
    }

    /// What is watched for the policies in force, and which names of ports they use; with
    /// the rules before that still decide.
    fn update_watched(&mut self, index: &Index) {
        let namespaces = self.peer_sets.pods_of().flat_map(|(_, all)| all);
        let all = || index.namespaces.objects().values();
        self.peers = wants::peers(namespaces, all, &self.peers);
        self.kept = if index.are_watched(&self.peers) {
            BTreeSet::new()
        } else {
            index.pods.listed_of_others()
        };
        let egress = self
            .in_force
            .values()
            .filter_map(|one| one.rules.rules.egress.as_ref());
        let named = egress.flatten().flat_map(|rule| &rule.ports.named);
        let before = self.rules_before();
        let egress_before = before.filter(|(direction, _)| *direction == Direction::Out);
        let names_before = egress_before.flat_map(|(_, class)| class.names_before());
        let all_names = named.map(|(_, name)| name).chain(names_before);
        let names: BTreeSet<String> = all_names.cloned().collect();
        let differ: BTreeSet<&String> = names.symmetric_difference(&self.port_names).collect();
        for kind in index.pods.kinds() {
            if kind.ports.iter().any(|port| differ.contains(&port.name)) {
                self.pending.addresses.extend(index.pods.addresses_of(kind));
            }
        }
        if !differ.is_empty() {
            self.pending.addresses.extend(self.locals.keys());
        }
        self.port_names = names;
    }
}

/// Namespaces that may have other labels; none means all.
fn touched_namespaces(index: &mut Index, first: bool) -> Option<BTreeSet<String>> {
    match index.namespaces.take_touched() {
        Touched::Objects(objects) if !first => {
            Some(objects.into_keys().map(|key| key.name).collect())
        }
        _ => None,
    }
}

/// Policies that may be other ones than when this was last asked.
pub(super) fn touched_policies(index: &mut Index) -> Policies {
    let network = index.network_policies.take_touched();
    let cluster = index.cluster_policies.take_touched();
    let (Touched::Objects(network), Touched::Objects(cluster)) = (network, cluster) else {
        return None;
    };
    let of_network = |ObjectKey { name, namespace }| PolicyKey::Network(namespace, name);
    let network_keys = network.into_keys().map(of_network);
    let cluster_keys = cluster.into_keys().map(|key| PolicyKey::Cluster(key.name));
    Some(network_keys.chain(cluster_keys).collect())
}
