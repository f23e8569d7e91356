//! One way to a node: what its next turn sends, and what follows from the answers.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tweed_component::peers::{PeerState, PeerStatus, micros, millis};

use super::sizes::Sizes;
use super::{Means, Peer, headers, message};

/// How many turns without an answer are a problem, and how many with one end it.
const MISSES: u32 = 3;
const ANSWERS: u32 = 2;
/// How many turns in which the node's own address does not answer either mean that the node
/// is away.
const NODE_MISSES: u32 = 2;

/// Where a packet of a turn goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// To the peer's first address of pods, as pods' packets go.
    Pods { size: u32 },
    /// To the node's own address.
    Node,
}

/// A packet of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub id: u64,
    pub target: Target,
    pub means: Means,
    pub answered: bool,
}

/// Which of the ways comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// An answer was missed, or came again.
    Doubtful,
    /// How large packets may be is to be found out.
    Size,
    /// Nothing is known yet.
    Unknown,
    /// What is known is asked again.
    Usual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Unknown,
    Answers,
    Silent,
    Unreachable,
}

/// Which packets are lost, where one direction works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// Those to the peer.
    Outbound,
    /// Those from it.
    Inbound,
}

/// The size of a small packet to `ip`.
pub(super) fn small(ip: IpAddr) -> u32 {
    let content = u32::try_from(message::SIZE).unwrap_or(u32::MAX);
    headers(ip).saturating_add(content)
}

/// What is known of one way.
#[derive(Debug)]
pub(super) struct Path {
    pub peer: Peer,
    /// The packets of the turn that is open; empty while none is.
    pub sent: Vec<Sent>,
    pub sent_at: Instant,
    turns: u64,
    verdict: Verdict,
    /// Turns in a row without an answer, and with one.
    missed: u32,
    answers: u32,
    node_missed: u32,
    /// Whether echoes are not answered, and datagrams are.
    by_udp: bool,
    sizes: Sizes,
    missing_since: Option<Instant>,
    /// The direction in which packets are lost, as of the last turn without an answer.
    lost: Option<Lost>,
    /// When a probe of the peer has last come over this way.
    heard: Option<Instant>,
    /// When a probe of this node has last come to the peer over this way, as it says.
    arrived: Option<Instant>,
    answered: Option<(Instant, Duration)>,
}

impl Path {
    pub(super) fn new(peer: Peer, now: Instant) -> Self {
        Self {
            peer,
            sent: Vec::new(),
            sent_at: now,
            turns: 0,
            verdict: Verdict::Unknown,
            missed: 0,
            answers: 0,
            node_missed: 0,
            by_udp: false,
            sizes: Sizes::default(),
            missing_since: None,
            lost: None,
            heard: None,
            arrived: None,
            answered: None,
        }
    }

    /// Forgets how large packets may be: pods send others than before.
    pub(super) fn forget_sizes(&mut self) {
        self.sizes = Sizes::default();
    }

    fn is_bad(&self) -> bool {
        matches!(self.verdict, Verdict::Silent | Verdict::Unreachable)
    }

    /// Whether it comes before others.
    pub(super) fn urgency(&self) -> Urgency {
        match self.verdict {
            Verdict::Silent | Verdict::Unreachable if self.answers == 0 => Urgency::Usual,
            Verdict::Answers if self.missed == 0 && self.sizes.is_urgent() => Urgency::Size,
            Verdict::Answers if self.missed == 0 => Urgency::Usual,
            Verdict::Unknown if self.missed == 0 => Urgency::Unknown,
            _ => Urgency::Doubtful,
        }
    }

    /// What the next turn sends, if pods send packets of up to `full` bytes. While all is
    /// well that is one packet, which is small or large; the rest is only sent where
    /// something is to be found out.
    pub(super) fn packets(&self, full: u32) -> Vec<(Target, Means)> {
        let full = full.max(small(self.peer.address));
        let usual = if self.by_udp { Means::Udp } else { Means::Icmp };
        let small = Target::Pods {
            size: small(self.peer.address),
        };
        if self.missed == 0 && !self.is_bad() {
            let size = self.sizes.next(full);
            let large = (Target::Pods { size }, usual);
            let is_larges_turn = self.turns % 2 == 1;
            return if self.sizes.is_full() {
                vec![if is_larges_turn {
                    large
                } else {
                    (small, usual)
                }]
            } else if self.sizes.is_urgent() || is_larges_turn {
                vec![(small, usual), large]
            } else {
                vec![(small, usual)]
            };
        }
        let mut packets = vec![(small, Means::Icmp), (small, Means::Udp)];
        if self.missed == 1 {
            packets.push((Target::Node, Means::Icmp));
        } else {
            // The answer says what the peer hears.
            packets.push((Target::Node, Means::Udp));
            let other = match self.turns % 2 {
                _ if !self.is_bad() => Means::Tcp,
                0 => Means::Icmp,
                _ => Means::Tcp,
            };
            packets.extend((self.node_missed > 0).then_some((Target::Node, other)));
        }
        packets
    }

    /// A turn has begun.
    pub(super) fn begin(&mut self, sent: Vec<Sent>, now: Instant) {
        self.turns += 1;
        self.sent = sent;
        self.sent_at = now;
    }

    /// The packet with this number was answered. The peer may say how long ago it heard this
    /// node. Gives the time that a small packet and its answer have taken.
    pub(super) fn answer(
        &mut self,
        id: u64,
        heard: Option<Duration>,
        now: Instant,
    ) -> Option<Duration> {
        if let Some(at) = heard.and_then(|age| now.checked_sub(age)) {
            self.arrived = Some(at);
        }
        let small = small(self.peer.address);
        let sent = self.sent.iter_mut().find(|sent| sent.id == id)?;
        sent.answered = true;
        if sent.target == Target::Node {
            return None;
        }
        let took = now.saturating_duration_since(self.sent_at);
        self.answered = Some((now, took));
        (sent.target == Target::Pods { size: small }).then_some(took)
    }

    /// A probe of the peer has come over this way.
    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// How long ago that was.
    pub(super) fn heard_ago(&self, now: Instant) -> Option<Duration> {
        self.heard.map(|at| now.saturating_duration_since(at))
    }

    /// The turn is over. What was seen to arrive less than `recent` ago counts. Says whether
    /// that changes what is known.
    pub(super) fn end(&mut self, full: u32, now: Instant, recent: Duration) -> bool {
        let before = (self.verdict, self.lost, self.sizes.limit());
        let sent = std::mem::take(&mut self.sent);
        let small = small(self.peer.address);
        let of_pods = |sent: &&Sent| matches!(sent.target, Target::Pods { .. });
        let to_node = |sent: &&Sent| sent.target == Target::Node;
        let is_large = |sent: &&Sent| matches!(sent.target, Target::Pods { size } if size > small);
        // What could not be sent says nothing.
        if !sent.iter().any(|sent| of_pods(&sent)) {
            return false;
        }
        let answers = sent.iter().filter(of_pods).any(|sent| sent.answered);
        if sent.iter().any(|sent| to_node(&sent)) {
            let node = sent.iter().filter(to_node).any(|sent| sent.answered);
            self.node_missed = if node { 0 } else { self.node_missed + 1 };
        }
        let large = sent.iter().find(is_large);
        if let Some(large) = large.filter(|large| large.answered || answers || sent.len() == 1) {
            self.sizes = self.sizes.tried(large.answered, small, full.max(small));
        }
        if answers {
            let by = |means| {
                let mut of_pods = sent.iter().filter(of_pods);
                of_pods.any(|sent| sent.answered && sent.means == means)
            };
            self.by_udp = !by(Means::Icmp);
            (self.missed, self.node_missed) = (0, 0);
            self.answers = self.answers.saturating_add(1);
            if !self.is_bad() || self.answers >= ANSWERS {
                self.verdict = Verdict::Answers;
                (self.missing_since, self.lost) = (None, None);
            }
        } else {
            self.missing_since.get_or_insert(self.sent_at);
            self.missed = self.missed.saturating_add(1);
            self.answers = 0;
            if self.missed >= MISSES || self.is_bad() {
                self.verdict = if self.node_missed >= NODE_MISSES {
                    Verdict::Unreachable
                } else {
                    Verdict::Silent
                };
            }
            self.lost = self.find_lost(now, recent);
        }
        before != (self.verdict, self.lost, self.sizes.limit())
    }

    /// The direction in which packets are lost, if those of the other one were seen to arrive
    /// less than `recent` ago.
    fn find_lost(&self, now: Instant, recent: Duration) -> Option<Lost> {
        let since = self.missing_since.filter(|_| self.is_bad())?;
        let counts = |at: Option<Instant>| {
            at.is_some_and(|at| at > since && now.saturating_duration_since(at) < recent)
        };
        match (counts(self.heard), counts(self.arrived)) {
            (true, false) => Some(Lost::Outbound),
            (false, true) => Some(Lost::Inbound),
            // The way comes back.
            (true, true) => self.lost,
            (false, false) => None,
        }
    }

    /// The direction in which packets are lost, if those of the other one arrive.
    pub(super) fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// The largest size that passes, where it is less than pods send.
    pub(super) fn limit(&self) -> Option<u32> {
        self.sizes.limit()
    }

    pub(super) fn state(&self) -> PeerState {
        match self.verdict {
            _ if !self.peer.is_ready => PeerState::NotReady,
            Verdict::Unknown => PeerState::Unknown,
            Verdict::Answers if self.limit().is_some() => PeerState::Mtu,
            Verdict::Answers => PeerState::Answers,
            _ if self.lost.is_some() => PeerState::OneWay,
            Verdict::Silent => PeerState::Silent,
            Verdict::Unreachable => PeerState::Unreachable,
        }
    }

    pub(super) fn status(&self, now: Instant, full: u32) -> PeerStatus {
        let passes = matches!(self.sizes, Sizes::Full { passed: true, .. }).then_some(full);
        let ago = |at: Instant| millis(now.saturating_duration_since(at));
        PeerStatus {
            node: self.peer.node.clone(),
            address: self.peer.address,
            underlay: self.peer.underlay,
            way: self.peer.way,
            state: self.state(),
            mtu: self.limit().or(passes),
            round_trip_us: self.answered.map(|(_, took)| micros(took)),
            answered_ms_ago: self.answered.map(|(at, _)| ago(at)),
            missed: self.missed,
        }
    }
}
