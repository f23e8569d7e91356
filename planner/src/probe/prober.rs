//! Which node is asked next. Those of which something is to be found out come first and each
//! second, as long as that leaves every second turn to the others; of these the one that was
//! asked longest ago.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tweed_component::peers::{PeerState, PeerStatus};
use tweed_core::family::Family;
use tweed_core::problem::Problem;

use super::path::Urgency::{self, Doubtful, Size, Unknown, Usual};
use super::path::{self, Path, Sent, Target};
use super::{Message, Own, Peer, Probe, SPACING, TIMEOUT, problems};

/// How many turns of all others a way that is not the main one to its node is asked after.
const ROUNDS_BETWEEN: u32 = 10;
/// For how long at least it counts that a packet has arrived.
const RECENT: Duration = Duration::from_secs(30);
/// How many packets a turn has at most.
const MAX_PACKETS: u32 = 4;

/// All ways to other nodes, and what is known of them.
#[derive(Debug, Default)]
pub struct Prober {
    own: Own,
    /// By the address of pods: no two nodes have the same. Each is an allocation of its own, as
    /// the nodes of a tree of thousands are half empty.
    paths: BTreeMap<IpAddr, Box<Path>>,
    /// The nodes' own addresses, in ascending order.
    underlays: Vec<IpAddr>,
    /// The ways that wait for their turn, by how urgent it is and when it comes.
    waiting: BTreeMap<Urgency, BTreeSet<(Instant, IpAddr)>>,
    /// The turns that are open, by when they end.
    open: VecDeque<(Instant, IpAddr)>,
    is_turn_of_others: bool,
    last_id: u64,
    changed: bool,
}

impl Prober {
    /// Takes the ways of now. One that has changed is a new one, and comes first.
    pub fn set_peers(&mut self, own: Own, peers: Vec<Peer>, now: Instant) {
        let other_mtu = own.mtu != self.own.mtu;
        self.own = own;
        self.changed = true;
        self.underlays = peers.iter().map(|peer| peer.underlay).collect();
        self.underlays.sort_unstable();
        let mut old = std::mem::take(&mut self.paths);
        let mut new = Vec::new();
        for peer in peers {
            let same = old.remove(&peer.address).filter(|path| {
                let before = &path.peer;
                (&before.node, before.underlay, before.way) == (&peer.node, peer.underlay, peer.way)
            });
            let mut path = same.unwrap_or_else(|| {
                new.push(peer.address);
                Box::new(Path::new(peer.clone(), now))
            });
            path.peer = peer;
            if other_mtu {
                path.forget_sizes();
            }
            self.paths.insert(path.peer.address, path);
        }
        let goes_on = |address: &IpAddr| self.paths.contains_key(address) && !new.contains(address);
        for waiting in self.waiting.values_mut() {
            waiting.retain(|(_, address)| goes_on(address));
        }
        self.open.retain(|(_, address)| goes_on(address));
        let unknown = self.waiting.entry(Unknown).or_default();
        unknown.extend(new.into_iter().map(|address| (now, address)));
    }

    /// What to send now, if it is the turn of one; of more than one packet the next turn has to
    /// wait for [`SPACING`] each.
    pub fn turn(&mut self, now: Instant) -> Vec<Probe> {
        self.end_turns(now);
        let is_due = |(at, _): &(Instant, IpAddr)| *at <= now;
        // Where very many are urgent, each second turn is one of the others all the same.
        self.is_turn_of_others = !self.is_turn_of_others;
        let order = if self.is_turn_of_others {
            [Unknown, Usual, Size, Doubtful]
        } else {
            [Doubtful, Size, Unknown, Usual]
        };
        let first = |urgency: &Urgency| self.waiting.get(urgency)?.first();
        let has_due = |urgency: &Urgency| first(urgency).is_some_and(is_due);
        let urgency = order.into_iter().find(has_due);
        let waiting = urgency.and_then(|urgency| self.waiting.get_mut(&urgency));
        let Some((_, address)) = waiting.and_then(BTreeSet::pop_first) else {
            return Vec::new();
        };
        let (Some(path), own) = (self.paths.get_mut(&address), &self.own) else {
            return Vec::new();
        };
        let mut sent = Vec::new();
        let mut probes = Vec::new();
        for (target, means) in path.packets(own.mtu) {
            self.last_id += 1;
            let (from, to, size) = match target {
                Target::Pods { size } => (&own.addresses, address, size),
                Target::Node => {
                    let to = path.peer.underlay;
                    (&own.underlay, to, path::small(to))
                }
            };
            let about = own.addresses.get(&Family::of(address));
            probes.push(Probe {
                id: self.last_id,
                means,
                from: from.get(&Family::of(to)).copied(),
                to,
                size,
                asks_about: about.copied().unwrap_or(address),
            });
            sent.push(Sent {
                id: self.last_id,
                target,
                means,
                answered: false,
            });
        }
        path.begin(sent, now);
        self.open.push_back((now + TIMEOUT, address));
        probes
    }

    /// Ends the turns whose time is over.
    fn end_turns(&mut self, now: Instant) {
        let recent = self.recent();
        while let Some((ends, address)) = self.open.pop_front_if(|(ends, _)| *ends <= now) {
            let ways = u32::try_from(self.paths.len()).unwrap_or(u32::MAX);
            let Some(path) = self.paths.get_mut(&address) else {
                continue;
            };
            if now - ends > TIMEOUT {
                // The agent, or its machine, has slept: answers may still wait to be read.
                path.sent.retain(|sent| sent.answered);
            }
            self.changed |= path.end(self.own.mtu, now, recent);
            let urgency = path.urgency();
            let is_late = urgency == Usual && !path.peer.is_main;
            let pause = ROUNDS_BETWEEN * (SPACING * ways).max(TIMEOUT);
            let due = if is_late { now + pause } else { now };
            self.waiting
                .entry(urgency)
                .or_default()
                .insert((due, address));
        }
    }

    /// How long there is nothing to do, if nobody else does anything.
    pub fn idle(&self, now: Instant) -> Option<Duration> {
        let waiting = self.waiting.values().filter_map(BTreeSet::first);
        let due = waiting.chain(self.open.front());
        let next = due.map(|(at, _)| *at).min()?;
        Some(next.saturating_duration_since(now))
    }

    /// The packet with this number could not be sent, as this node lacks its source: that says
    /// nothing of the peer.
    pub fn not_sent(&mut self, id: u64) {
        if let Some(path) = self.asked(id) {
            path.sent.retain(|sent| sent.id != id);
        }
    }

    /// The packet with this number was answered; `heard` is what the answer says of it. Gives
    /// the time from a small packet to its answer.
    pub fn answered(&mut self, id: u64, heard: Option<Duration>, now: Instant) -> Option<Duration> {
        self.asked(id)?.answer(id, heard, now)
    }

    fn asked(&mut self, id: u64) -> Option<&mut Path> {
        let is_of = |path: &Path| path.sent.iter().any(|sent| sent.id == id);
        let mut open = self.open.iter().map(|(_, address)| *address);
        let address =
            open.find(|address| self.paths.get(address).is_some_and(|path| is_of(path)))?;
        self.paths.get_mut(&address).map(Box::as_mut)
    }

    /// What is answered to a datagram from this address: only the nodes get an answer.
    pub fn answer_to(&mut self, from: IpAddr, asked: &Message, now: Instant) -> Option<Message> {
        if asked.is_answer {
            return None;
        }
        let mut heard = None;
        if let Some(path) = self.paths.get_mut(&from) {
            path.hear(now);
        } else if self.underlays.binary_search(&from).is_ok() {
            let path = self.paths.get(&asked.address);
            heard = path.and_then(|path| path.heard_ago(now));
        } else {
            return None;
        }
        Some(Message {
            is_answer: true,
            heard,
            ..*asked
        })
    }

    /// For how long it counts that something has arrived: the time in which each way has
    /// several turns.
    fn recent(&self) -> Duration {
        let ways = u32::try_from(self.paths.len()).unwrap_or(u32::MAX);
        RECENT.max(SPACING * ways * MAX_PACKETS * 2)
    }

    /// A row for each way, by node.
    pub fn status(&self, now: Instant) -> Vec<PeerStatus> {
        let paths = self.paths.values();
        let mut rows: Vec<_> = paths.map(|path| path.status(now, self.own.mtu)).collect();
        rows.sort_by(|a, b| (&a.node, a.address).cmp(&(&b.node, b.address)));
        rows
    }

    /// How many nodes are in each state. One with two ways is in the worse of the two.
    pub fn counts(&self) -> BTreeMap<PeerState, usize> {
        let mut nodes = BTreeMap::<&str, PeerState>::new();
        for path in self.paths.values() {
            let state = path.state();
            let worst = nodes.entry(&path.peer.node).or_insert(state);
            *worst = state.max(*worst);
        }
        let mut counts: BTreeMap<_, _> = PeerState::ALL.map(|state| (state, 0)).into();
        for state in nodes.into_values() {
            *counts.entry(state).or_default() += 1;
        }
        counts
    }

    /// What is wrong: one problem of each kind, however many nodes it is about.
    pub fn problems(&self) -> Vec<Problem> {
        problems::of(self.paths.values().map(Box::as_ref), &self.own)
    }

    /// Whether anything may be known now that was not when this was last asked.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}
