//! The index of pods: from several watches, by name, by address and by kind.
//!
//! Only what policies need is stored, and texts are shared, because the pods of a whole
//! cluster may be in here. A pod that two watches give is one entry; the last one that
//! described it counts, and it goes when no watch gives it any more. Watches may be late,
//! each by itself: of two pods with one name the older is gone, whatever a late one says.

mod claims;
mod entry;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_component::watched::{Change, Watched};
use tweed_core::object::pod::Pod;
use tweed_core::object::{Event, ObjectKey};

use super::labels::{Interner, Kind};
use super::nodes::NodeIndex;
use claims::Claims;
pub use entry::Entry;
use entry::entry;

/// Which pods a watch gives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodScope {
    /// Those of this node.
    Own,
    /// Those of this namespace.
    Namespace(String),
    /// All of the cluster.
    All,
}

/// A pod and the watches that give it.
#[derive(Debug)]
struct Known {
    entry: Entry,
    /// A bit for each of the three scopes that can give it: see [`bit`].
    given: u8,
}

/// A pod's number; it may be given to another one after the pod is gone.
pub type PodId = u32;

/// A pod's namespace and name.
pub type PodKey = (Arc<str>, Box<str>);

/// All pods that are known.
#[derive(Debug, Default)]
pub struct PodIndex {
    interner: Interner,
    pods: HashMap<Arc<str>, HashMap<Box<str>, PodId>>,
    slots: Vec<Option<Known>>,
    free: Vec<PodId>,
    scopes: BTreeMap<PodScope, Watched<PodKey, Entry>>,
    addresses: HashMap<IpAddr, Claims>,
    kinds: HashMap<Arc<Kind>, Vec<PodId>>,
    /// The pods of each node that policies see.
    nodes: HashMap<Arc<str>, BTreeSet<PodId>>,
    /// Addresses whose pod may be another one, or have other labels, than when they
    /// were last taken.
    touched: BTreeSet<IpAddr>,
    /// Pods that have changed since they were last taken, by namespace and name.
    touched_pods: BTreeSet<PodKey>,
    /// Whether other scopes are complete than when this was last taken.
    scopes_touched: bool,
}

/// The bit of a scope in [`Known::given`]: a pod is in one namespace only.
fn bit(scope: &PodScope) -> u8 {
    match scope {
        PodScope::Own => 1,
        PodScope::Namespace(_) => 2,
        PodScope::All => 4,
    }
}

impl PodIndex {
    /// Takes one event of a watch in. True if a pod or what is complete changed.
    pub fn apply(&mut self, scope: &PodScope, event: Event<Pod>) -> bool {
        if let Event::InitApply(pod) | Event::Apply(pod) = &event
            && !self.belongs(scope, &pod.namespace)
        {
            return false;
        }
        if matches!(event, Event::Init) {
            self.scopes.entry(scope.clone()).or_default();
        }
        let Self {
            interner, scopes, ..
        } = self;
        let Some(watched) = scopes.get_mut(scope) else {
            return false;
        };
        let key = |key: ObjectKey| (key.namespace.into(), key.name.into());
        match watched.apply(event, key, |pod| Some(entry(interner, &pod))) {
            Change::Nothing => false,
            Change::Replace { all, is_first } => self.replace(scope, all, is_first),
            Change::Set((_, name), Some(entry)) => self.put(scope, &name, entry),
            Change::Set((namespace, name), None) => self.remove(scope, &namespace, &name),
        }
    }

    /// Forgets a watch and the pods that no other one gives. True if anything changed.
    pub fn drop_scope(&mut self, scope: &PodScope) -> bool {
        let known = self.scopes.remove(scope).is_some();
        if known {
            self.scopes_touched = true;
            self.retain(scope, |_, _| false);
        }
        known
    }

    /// Whether a list of this watch has ended.
    pub fn is_complete(&self, scope: &PodScope) -> bool {
        self.scopes.get(scope).is_some_and(Watched::is_complete)
    }

    /// The scopes that are listed, besides that of the own pods.
    pub fn listed_of_others(&self) -> BTreeSet<PodScope> {
        let listed = self.scopes.iter().filter(|(_, scope)| scope.is_complete());
        let others = listed.filter(|(scope, _)| **scope != PodScope::Own);
        others.map(|(scope, _)| scope.clone()).collect()
    }

    /// The pod of this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Entry> {
        let id = self.id(namespace, name)?;
        self.entry(id)
    }

    /// The pod that has an address. The kubelets say which ones pods have, and each is
    /// believed only of what its Node may give: an address in that Node's pod CIDRs. Of
    /// several pods the youngest that has not ended has it; where they are of one second,
    /// UID and name decide, so that it does not depend on the order in which they became
    /// known.
    pub fn at(&self, address: IpAddr, nodes: &NodeIndex) -> Option<&Entry> {
        self.id_at(address, nodes).and_then(|id| self.entry(id))
    }

    /// The name of the pod that has an address.
    pub fn name_at(&self, address: IpAddr, nodes: &NodeIndex) -> Option<(&str, &str)> {
        self.name_of(self.id_at(address, nodes)?)
    }

    fn id_at(&self, address: IpAddr, nodes: &NodeIndex) -> Option<PodId> {
        let claims = self.addresses.get(&address)?.all().iter();
        let entries = claims.filter_map(|id| Some((*id, self.entry(*id)?)));
        let have = entries.filter(|(_, pod)| nodes.has_pod_address(&pod.node, address));
        let age = |pod: &Entry| (pod.created, pod.uid);
        let youngest = have.max_by(|(a, one), (b, other)| {
            let by_name = || self.name_of(*a).cmp(&self.name_of(*b));
            age(one).cmp(&age(other)).then_with(by_name)
        });
        youngest.map(|(id, _)| id)
    }

    /// Namespace and name of a pod. All names of the namespace are looked through.
    fn name_of(&self, id: PodId) -> Option<(&str, &str)> {
        let namespace = &self.entry(id)?.kind.namespace;
        let mut names = self.pods.get(namespace)?.iter();
        let (name, _) = names.find(|(_, one)| **one == id)?;
        Some((namespace, name))
    }

    /// The addresses that the pods of a node say they have.
    pub fn addresses_of_node(&self, name: &str) -> impl Iterator<Item = IpAddr> {
        let ids = self.nodes.get(name).into_iter().flatten();
        let entries = ids.filter_map(|id| self.entry(*id));
        entries.flat_map(|entry| entry.addresses.iter().copied())
    }

    /// Every address of a pod.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.keys().copied()
    }

    /// Every kind of pods with addresses.
    pub fn kinds(&self) -> impl ExactSizeIterator<Item = &Arc<Kind>> {
        self.kinds.keys()
    }

    /// The addresses of all pods of a kind.
    pub fn addresses_of(&self, kind: &Kind) -> impl Iterator<Item = IpAddr> {
        let ids = self.kinds.get(kind).into_iter().flatten();
        let entries = ids.filter_map(|id| self.entry(*id));
        entries.flat_map(|entry| entry.addresses.iter().copied())
    }

    /// The addresses and pods that have changed since this was last asked.
    pub fn take_touched(&mut self) -> (BTreeSet<IpAddr>, BTreeSet<PodKey>) {
        let addresses = std::mem::take(&mut self.touched);
        (addresses, std::mem::take(&mut self.touched_pods))
    }

    /// Whether other scopes are complete than when this was last asked.
    pub fn take_scopes_touched(&mut self) -> bool {
        std::mem::take(&mut self.scopes_touched)
    }

    fn belongs(&self, scope: &PodScope, namespace: &str) -> bool {
        match scope {
            PodScope::Namespace(only) => only == namespace,
            PodScope::Own | PodScope::All => true,
        }
    }

    fn id(&self, namespace: &str, name: &str) -> Option<PodId> {
        self.pods.get(namespace)?.get(name).copied()
    }

    fn entry(&self, id: PodId) -> Option<&Entry> {
        let known = self.slots.get(id as usize)?.as_ref();
        known.map(|known| &known.entry)
    }

    /// Ends a list: what it gives replaces what the same watch gave before.
    fn replace(&mut self, scope: &PodScope, all: BTreeMap<PodKey, Entry>, is_first: bool) -> bool {
        let mut changed = is_first;
        self.scopes_touched |= is_first;
        changed |= self.retain(scope, |namespace, name| {
            all.contains_key(&(namespace.clone(), name.into()))
        });
        for ((_, name), entry) in all {
            changed |= self.put(scope, &name, entry);
        }
        changed
    }

    fn put(&mut self, scope: &PodScope, name: &str, entry: Entry) -> bool {
        let namespace = entry.kind.namespace.clone();
        let known_id = self.id(&namespace, name);
        let mut given = bit(scope);
        if let Some(id) = known_id {
            if let Some(Some(known)) = self.slots.get_mut(id as usize) {
                let others = known.given & !given;
                if others != 0 && entry.is_replaced_by(&known.entry) {
                    // This watch does not give the newer pod yet.
                    known.given = others;
                    return false;
                }
                if known.entry.is_replaced_by(&entry) {
                    // The other watches gave the older pod.
                    known.given = 0;
                }
                known.given |= given;
                given = known.given;
                if known.entry == entry {
                    return false;
                }
            }
            self.unlink(id);
        }
        let id = known_id.unwrap_or_else(|| self.free.pop().unwrap_or(self.slots.len() as PodId));
        if id as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.touched_pods.insert((namespace.clone(), name.into()));
        self.pods
            .entry(namespace)
            .or_default()
            .insert(name.into(), id);
        self.link(id, &entry);
        self.slots[id as usize] = Some(Known { entry, given });
        true
    }

    fn remove(&mut self, scope: &PodScope, namespace: &str, name: &str) -> bool {
        let Some(id) = self.id(namespace, name) else {
            return false;
        };
        let Some(Some(known)) = self.slots.get_mut(id as usize) else {
            return false;
        };
        known.given &= !bit(scope);
        if known.given != 0 {
            return false;
        }
        self.unlink(id);
        self.slots[id as usize] = None;
        self.free.push(id);
        if let Some(names) = self.pods.get_mut(namespace) {
            names.remove(name);
            if names.is_empty() {
                self.pods.remove(namespace);
            }
        }
        self.touched_pods.insert((namespace.into(), name.into()));
        true
    }

    /// Takes away the pods that this watch gave and that `keep` does not want.
    fn retain(&mut self, scope: &PodScope, keep: impl Fn(&Arc<str>, &str) -> bool) -> bool {
        let mut gone = Vec::new();
        for (namespace, names) in &self.pods {
            if !self.belongs(scope, namespace) {
                continue;
            }
            for (name, id) in names {
                let known = self.slots.get(*id as usize).and_then(Option::as_ref);
                let given = known.is_some_and(|known| known.given & bit(scope) != 0);
                if given && !keep(namespace, name) {
                    gone.push((namespace.clone(), name.clone()));
                }
            }
        }
        let mut changed = false;
        for (namespace, name) in gone {
            changed |= self.remove(scope, &namespace, &name);
        }
        changed
    }

    /// Enters a pod under its addresses and its kind, if policies see it.
    fn link(&mut self, id: PodId, entry: &Entry) {
        if entry.host_network || entry.finished {
            return;
        }
        for address in &entry.addresses {
            self.touched.insert(*address);
            let claims = self.addresses.entry(*address).or_insert(Claims::One(id));
            claims.add(id);
        }
        self.kinds.entry(entry.kind.clone()).or_default().push(id);
        self.nodes.entry(entry.node.clone()).or_default().insert(id);
    }

    fn unlink(&mut self, id: PodId) {
        let Some(Some(known)) = self.slots.get(id as usize) else {
            return;
        };
        for address in &known.entry.addresses {
            let Some(claims) = self.addresses.get_mut(address) else {
                continue;
            };
            self.touched.insert(*address);
            let others = claims.all().iter().copied().filter(|one| *one != id);
            match others.collect::<Vec<PodId>>()[..] {
                [] => {
                    self.addresses.remove(address);
                }
                [one] => *claims = Claims::One(one),
                ref several => *claims = Claims::Several(several.to_vec()),
            }
        }
        if let Some(ids) = self.kinds.get_mut(&known.entry.kind) {
            ids.retain(|one| *one != id);
            if ids.is_empty() {
                self.kinds.remove(&known.entry.kind);
            }
        }
        if let Some(ids) = self.nodes.get_mut(&known.entry.node) {
            ids.remove(&id);
            if ids.is_empty() {
                self.nodes.remove(&known.entry.node);
            }
        }
    }
}
