//! The identities of addresses and networks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;
use tweed_core::keyed;
use tweed_core::object::selector::Labels;

use super::Model;
use super::end_addresses::EndAddresses;
use super::identities::{Content, Move};
use super::index::Index;
use super::labels::Kind;
use super::peer_sets::Networks;
use super::rules::Atom;
use super::selection;
use super::verdicts::{Changing, Number, Span, Verdicts, network_at};
use crate::addresses;
use crate::tables::put;

/// The lists of peers that are new or gone.
type Changed = BTreeMap<Number, Arc<[Atom]>>;

/// The number of kinds from which on they are looked up together, not one by one.
const MANY: usize = 64;

/// What has changed in identities.
#[derive(Debug, Default)]
pub struct Identified {
    /// Identities that are new, gone, mean something else, or are new to a family or
    /// gone from it.
    pub touched: BTreeSet<Number>,
    /// Where addresses went: the identity before, and after.
    pub moved: BTreeSet<(Number, Number)>,
    /// Addresses that have another identity.
    pub addresses: BTreeSet<IpAddr>,
}

/// What a move is about.
#[derive(Debug, Clone, Copy)]
enum Place {
    Address(IpAddr),
    Span(Span),
}

impl Model {
    /// Brings the identities up to date.
    pub(super) fn identify(
        &mut self,
        index: &Index,
        verdicts: &mut Changing<'_>,
        first: bool,
    ) -> Identified {
        let changed = self.peer_sets.take_changed();
        if first {
            self.pending.addresses.extend(index.pods.addresses());
            self.pending.addresses.extend(index.nodes.addresses());
            self.pending.addresses.extend(self.locals.keys());
        }
        self.refresh_kinds(index, &changed);
        if changed
            .values()
            .any(|atoms| atoms.iter().any(|atom| matches!(atom, Atom::Nodes(_))))
        {
            self.pending.addresses.extend(index.nodes.addresses());
        }
        let mut atoms = changed.values().flat_map(|atoms| atoms.iter());
        let networks = atoms.any(Atom::is_network);
        let before = networks.then(|| verdicts.desired.networks.clone());
        if networks {
            self.cut_networks(index);
        }
        let (places, moves) = self.moves(index, verdicts.desired, networks);
        let (numbers, touched) = self.identities.apply(&moves);
        let mut identified = Identified {
            touched,
            ..Identified::default()
        };
        write(verdicts, &places, &moves, &numbers);
        for (place, one) in places.iter().zip(&moves) {
            if let Place::Address(address) = place {
                let after = verdicts.desired.identity_of(*address);
                identified.moved.insert((one.before, after));
                identified.addresses.insert(*address);
            }
        }
        if let Some(before) = before
            && !first
        {
            moved_networks(&before, &verdicts.desired.networks, &mut identified.moved);
        }
        identified.moved.retain(|(before, after)| before != after);
        identified
    }

    /// Brings up to date which lists of peers pods of each kind are in, and notes the
    /// addresses of those for which they differ.
    fn refresh_kinds(&mut self, index: &Index, changed: &Changed) {
        let namespaces = self.pending.namespaces.take();
        let is_moved = |kind: &&Arc<Kind>| {
            let all = namespaces.as_ref();
            all.is_none_or(|all| all.contains(&*kind.namespace))
        };
        let mut looked_up: Vec<Arc<Kind>> =
            self.kind_sets.keys().filter(is_moved).cloned().collect();
        let mut atoms = changed.values().flat_map(|atoms| atoms.iter());
        if atoms.any(Atom::is_by_labels) {
            self.add_sets(index, changed, &looked_up);
        }
        // Where many pods come at once their kinds are looked up together.
        if self.pending.addresses.len() >= MANY {
            let kinds = index.pods.kinds();
            let new = kinds.filter(|kind| !self.kind_sets.contains_key(*kind));
            looked_up.extend(new.cloned());
        }
        for (kind, sets) in self.sets_of(index, looked_up) {
            self.set_kind(index, kind, sets);
        }
        if self.kind_sets.len() > 1024 + 2 * index.pods.kinds().len() {
            // One reference is the index's interner's, one is this map's.
            self.kind_sets.retain(|kind, _| Arc::strong_count(kind) > 2);
            self.kind_sets.shrink_to(2 * self.kind_sets.len());
        }
    }

    /// Looks up all lists of peers for kinds: for many of them together.
    fn sets_of(&self, index: &Index, kinds: Vec<Arc<Kind>>) -> Vec<(Arc<Kind>, Arc<[Number]>)> {
        let labels = labels_of(index, &kinds);
        let found: Vec<Arc<[Number]>> = if kinds.len() < MANY {
            let each = kinds.iter().filter_map(|kind| {
                let found = self.peer_sets.of_kind(kind, labels.get(&kind.namespace)?);
                Some(found.into_iter().collect())
            });
            each.collect()
        } else {
            let found = selection::lists_of(&kinds, &labels, self.peer_sets.iter());
            found.into_iter().map(Arc::from).collect()
        };
        kinds.into_iter().zip(found).collect()
    }

    /// Sets which lists of peers pods of a kind are in.
    fn set_kind(&mut self, index: &Index, kind: Arc<Kind>, sets: Arc<[Number]>) {
        if self.kind_sets.get(&kind) == Some(&sets) {
            return;
        }
        self.pending
            .addresses
            .extend(index.pods.addresses_of(&kind));
        let locals = { self.locals.iter() }.filter(|(_, local)| local.peer() == Some(&kind));
        let addresses = locals.map(|(address, _)| *address);
        self.pending.addresses.extend(addresses);
        self.kind_sets.insert(kind, sets);
    }

    /// Enters the new lists of peers into the known kinds but `others`, and removes those that
    /// are gone.
    fn add_sets(&mut self, index: &Index, changed: &Changed, others: &[Arc<Kind>]) {
        let others: HashSet<&Arc<Kind>> = others.iter().collect();
        let known = self.kind_sets.keys().filter(|kind| !others.contains(kind));
        let kinds: Vec<Arc<Kind>> = known.cloned().collect();
        let all = changed.iter().map(|(id, atoms)| (*id, &**atoms));
        let new = all.filter(|(id, _)| self.peer_sets.has(*id));
        let found = selection::lists_of(&kinds, &labels_of(index, &kinds), new);
        for (kind, found) in kinds.into_iter().zip(found) {
            let known = self.kind_sets.get(&kind).cloned().unwrap_or_default();
            let stay = known.iter().filter(|id| !changed.contains_key(id));
            let mut sets: Vec<Number> = stay.copied().collect();
            if found.is_empty() && sets.len() == known.len() {
                continue;
            }
            sets.extend(found);
            sets.sort_unstable();
            self.set_kind(index, kind, sets.into());
        }
    }

    /// Cuts the networks of all rules anew, and notes the addresses for which they
    /// differ.
    fn cut_networks(&mut self, index: &Index) {
        let new = Family::BOTH.map(|family| {
            let ranges = self.peer_sets.ranges(family);
            Networks::new(family, ranges, &self.fingerprints)
        });
        let old = std::mem::replace(&mut self.networks, new);
        let differs = |address: &IpAddr| {
            old[Family::of(*address) as usize].at(*address) != self.networks(*address)
        };
        let pods = index.pods.addresses();
        let addresses: Vec<IpAddr> = pods
            .chain(self.locals.keys().copied())
            .filter(differs)
            .collect();
        self.pending.addresses.extend(addresses);
        self.pending.addresses.extend(index.nodes.addresses());
    }

    /// The pending addresses, and with `networks` the networks, that are to have another
    /// identity.
    fn moves(
        &mut self,
        index: &Index,
        verdicts: &Verdicts,
        networks: bool,
    ) -> (Vec<Place>, Vec<Move>) {
        let (mut places, mut moves) = (Vec::new(), Vec::new());
        let mut known: BTreeMap<Arc<Content>, ()> = BTreeMap::new();
        let mut share = |content: Content| match known.get_key_value(&content) {
            Some((content, ())) => content.clone(),
            None => {
                let content = Arc::new(content);
                known.insert(content.clone(), ());
                content
            }
        };
        for address in std::mem::take(&mut self.pending.addresses) {
            let was = verdicts.identities.get(&address).copied();
            let found = self.content(index, address).map(&mut share);
            // The kernel asks networks about an address that it has no identity for. So
            // one that no list has, but whose network has some, needs an identity too.
            let is_needed = !self.networks(address).is_empty();
            let content = found.filter(|content| is_needed || !content.is_unknown());
            let same = was
                .and_then(|was| self.identities.get(was))
                .map(|one| &one.content);
            if same != content.as_ref() {
                places.push(Place::Address(address));
                moves.push(Move {
                    family: Family::of(address),
                    was,
                    before: verdicts.identity_of(address),
                    content,
                });
            }
        }
        if networks {
            self.network_moves(verdicts, &mut share, &mut places, &mut moves);
        }
        (places, moves)
    }

    fn network_moves(
        &self,
        verdicts: &Verdicts,
        share: &mut impl FnMut(Content) -> Arc<Content>,
        places: &mut Vec<Place>,
        moves: &mut Vec<Move>,
    ) {
        let mut all: BTreeMap<Span, Arc<Content>> = BTreeMap::new();
        for (family, networks) in Family::BOTH.into_iter().zip(&self.networks) {
            // Equal lists of lists are one, so that the content of each is made once.
            let mut contents: HashMap<*const Number, Arc<Content>> = HashMap::new();
            for (range, sets) in networks.iter() {
                let content = contents.entry(sets.as_ptr()).or_insert_with(|| {
                    share(Content {
                        sets: sets.iter().copied().collect(),
                        ..Content::default()
                    })
                });
                all.insert(addresses::span(family, range), Arc::clone(content));
            }
        }
        let old = &verdicts.networks;
        for (span, was) in old.iter().filter(|(span, _)| !all.contains_key(span)) {
            places.push(Place::Span(*span));
            moves.push(Move {
                family: Family::of(span.first),
                was: Some(*was),
                before: *was,
                content: None,
            });
        }
        for (span, content) in all {
            let was = old.get(&span).copied();
            let same = was
                .and_then(|was| self.identities.get(was))
                .map(|one| &one.content);
            if same != Some(&content) {
                places.push(Place::Span(span));
                moves.push(Move {
                    family: Family::of(span.first),
                    was,
                    before: network_at(old, span.first),
                    content: Some(content),
                });
            }
        }
    }

    /// What rules can tell of an address that is a pod's or a Node's.
    fn content(&mut self, index: &Index, address: IpAddr) -> Option<Content> {
        let kind = match self.locals.get(&address) {
            Some(local) => local.peer().cloned(),
            None => { index.pods.at(address, &index.nodes) }.map(|pod| pod.kind.clone()),
        };
        let nodes: Vec<_> = index.nodes.at(address).map(|(_, node)| node).collect();
        if kind.is_none() && nodes.is_empty() {
            return None;
        }
        let aliases = nodes.iter().flat_map(|node| node.aliases(address));
        let mut sets = self.networks_of(&EndAddresses {
            address,
            aliases: aliases.collect(),
        });
        for node in nodes {
            sets.extend(self.peer_sets.of_node(&node.labels));
        }
        let mut ports = Vec::new();
        let listed = kind.is_some() && self.holds;
        if let Some(kind) = kind {
            if !self.kind_sets.contains_key(&kind) {
                let labels = index.labels_of(&kind.namespace);
                let of = self.peer_sets.of_kind(&kind, &labels);
                self.kind_sets
                    .insert(kind.clone(), of.into_iter().collect());
            }
            sets.extend(
                self.kind_sets
                    .get(&kind)
                    .into_iter()
                    .flat_map(|sets| sets.iter()),
            );
            let used = kind
                .ports
                .iter()
                .filter(|port| self.port_names.contains(&port.name));
            ports.extend(used.cloned());
        }
        Some(Content {
            sets: sets.into_iter().collect(),
            ports: ports.into(),
            listed,
        })
    }

    /// The lists that have a CIDR for an end. An exception can be about all addresses of
    /// one, so these are not just the lists of each.
    fn networks_of(&self, end: &EndAddresses) -> BTreeSet<Number> {
        let each = end.counting().iter().flat_map(|one| self.networks(*one));
        let mut sets: BTreeSet<Number> = each.copied().collect();
        if !end.aliases.is_empty() {
            sets.retain(|set| self.peer_sets.has_block_of(*set, end));
        }
        sets
    }
}

/// The labels of the namespaces of kinds.
fn labels_of(index: &Index, kinds: &[Arc<Kind>]) -> BTreeMap<Arc<str>, Labels> {
    let names: BTreeSet<&Arc<str>> = kinds.iter().map(|kind| &kind.namespace).collect();
    let labels = names.into_iter();
    labels
        .map(|name| (name.clone(), index.labels_of(name)))
        .collect()
}

fn write(verdicts: &mut Changing<'_>, places: &[Place], moves: &[Move], numbers: &[Number]) {
    for ((place, one), number) in places.iter().zip(moves).zip(numbers) {
        let value = one.content.as_ref().map(|_| *number);
        match place {
            Place::Address(address) => put!(verdicts, identities, *address, value),
            Place::Span(span) => put!(verdicts, networks, *span, value),
        }
    }
}

/// From which identity to which one the addresses of networks went.
fn moved_networks(
    old: &BTreeMap<Span, Number>,
    new: &BTreeMap<Span, Number>,
    moved: &mut BTreeSet<(Number, Number)>,
) {
    let differ = keyed::diff(old, new);
    let spans = || differ.removed.keys().chain(differ.added.keys());
    let mut bounds: BTreeSet<IpAddr> = spans().map(|span| span.first).collect();
    for span in spans() {
        let family = Family::of(span.last);
        let last = addresses::number(span.last);
        if last < addresses::highest(family) {
            bounds.insert(addresses::address(family, last + 1));
        }
    }
    for bound in bounds {
        moved.insert((network_at(old, bound), network_at(new, bound)));
    }
}
