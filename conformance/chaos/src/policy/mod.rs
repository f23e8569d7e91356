//! Namespaces, labels and policies of the cluster under test: simple ones, drawn from a
//! number, and what they say. Plain code that shares nothing with tweed.

mod judge;
mod manifest;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnetwork::Ipv4Network;

use crate::random::Random;

pub use judge::{End, may_receive, passes};

/// The namespaces of the pods.
pub const NAMESPACES: [&str; 3] = ["red", "green", "blue"];

/// Values of the label `app` of pods.
pub const APPS: [&str; 3] = ["front", "back", "store"];

/// Values of the label `team` of namespaces.
pub const TEAMS: [&str; 2] = ["north", "south"];

/// Number of NetworkPolicies that there can be at a time.
pub const POLICIES: usize = 6;

/// Number of ClusterNetworkPolicies that there can be at a time.
pub const CLUSTER_POLICIES: usize = 3;

/// What there is of policies, and what they select by.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    /// The label `team` of namespaces.
    pub teams: BTreeMap<&'static str, &'static str>,
    /// NetworkPolicies by their number.
    pub namespaced: BTreeMap<usize, NetworkPolicy>,
    /// ClusterNetworkPolicies by their number, which is their priority too.
    pub cluster: BTreeMap<usize, ClusterPolicy>,
}

/// A NetworkPolicy.
#[derive(Debug, Clone)]
pub struct NetworkPolicy {
    /// Its namespace.
    namespace: &'static str,
    /// The label `app` of the pods that it selects; `None` for all.
    app: Option<&'static str>,
    /// What may come in; `None` if it says nothing about that direction.
    ingress: Option<Vec<Rule>>,
    /// What may go out.
    egress: Option<Vec<Rule>>,
    /// Number of further rules in each of its directions, for a port of TCP each and all
    /// addresses but a network of nobody. The checks do not send TCP.
    bulk: usize,
}

/// What is allowed.
#[derive(Debug, Clone)]
struct Rule {
    peer: Peer,
    ports: Ports,
}

/// The other end.
#[derive(Debug, Clone)]
enum Peer {
    Everybody,
    /// Pods of the policy's own namespace.
    App(&'static str),
    /// All pods of the namespaces of a team.
    Team(&'static str),
    /// Pods with this label of the namespaces of a team.
    AppOfTeam(&'static str, &'static str),
    Block(Ipv4Network, Option<Ipv4Network>),
}

/// Which ports; the checks send to one.
#[derive(Debug, Clone, Copy)]
enum Ports {
    All,
    /// UDP, a range that begins at this one.
    From(u16),
    /// TCP only, which the checks do not send.
    Tcp,
}

/// A ClusterNetworkPolicy with one rule.
#[derive(Debug, Clone)]
pub struct ClusterPolicy {
    tier: Tier,
    /// The label `app` of its subjects, in all namespaces.
    app: &'static str,
    direction: Direction,
    action: Verdict,
    /// The other end: pods of the namespaces of a team, or of all namespaces.
    team: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    Admin,
    Baseline,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Ingress,
    Egress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Accept,
    Deny,
    Pass,
}

impl Policies {
    /// No policies, and each namespace with its team.
    pub fn new() -> Self {
        let teams = NAMESPACES.into_iter().zip(TEAMS.into_iter().cycle());
        Self {
            teams: teams.collect(),
            ..Self::default()
        }
    }

    /// Whether there is any policy.
    pub fn any(&self) -> bool {
        !(self.namespaced.is_empty() && self.cluster.is_empty())
    }
}

fn one<T: Copy>(random: &mut Random, all: &[T]) -> Option<T> {
    all.get(random.below(all.len())).copied()
}

impl NetworkPolicy {
    /// The policy of this number.
    pub fn drawn(number: u64) -> Self {
        let mut random = Random::new(number, 1);
        let random = &mut random;
        let directions = random.below(3);
        Self {
            namespace: one(random, &NAMESPACES).unwrap_or_default(),
            app: match random.below(3) {
                0 => None,
                _ => one(random, &APPS),
            },
            ingress: (directions != 1).then(|| rules(random)),
            egress: (directions != 0).then(|| rules(random)),
            // One in ten takes so many elements that the agent writes them in parts: about
            // the square of the number.
            bulk: match random.below(10) {
                0 => 150 + random.below(50),
                _ => 0,
            },
        }
    }
}

fn rules(random: &mut Random) -> Vec<Rule> {
    (0..random.below(4))
        .map(|_| Rule {
            peer: peer(random),
            ports: match random.below(4) {
                0 => Ports::Tcp,
                1 => Ports::From(7000),
                2 => Ports::From(7778),
                _ => Ports::All,
            },
        })
        .collect()
}

fn peer(random: &mut Random) -> Peer {
    let app = one(random, &APPS).unwrap_or_default();
    let team = one(random, &TEAMS).unwrap_or_default();
    match random.below(6) {
        0 => Peer::Everybody,
        1 => Peer::App(app),
        2 => Peer::Team(team),
        3 => Peer::AppOfTeam(app, team),
        _ => {
            let third = u8::try_from(1 + random.below(6)).unwrap_or(1);
            let node = network([10, 244, third, 0], 24);
            match random.below(4) {
                0 => Peer::Block(network([10, 244, 0, 0], 16), Some(node)),
                1 => Peer::Block(network([192, 0, 2, 0], 24), None),
                2 => Peer::Block(network([0, 0, 0, 0], 0), Some(node)),
                _ => Peer::Block(node, None),
            }
        }
    }
}

fn network(address: [u8; 4], length: u8) -> Ipv4Network {
    let all = Ipv4Network::from(Ipv4Addr::UNSPECIFIED);
    Ipv4Network::new(Ipv4Addr::from(address), length).unwrap_or(all)
}

impl ClusterPolicy {
    /// The policy of this number.
    pub fn drawn(number: u64) -> Self {
        let mut random = Random::new(number, 2);
        let random = &mut random;
        Self {
            tier: match random.below(3) {
                0 => Tier::Baseline,
                _ => Tier::Admin,
            },
            app: one(random, &APPS).unwrap_or_default(),
            direction: match random.below(2) {
                0 => Direction::Ingress,
                _ => Direction::Egress,
            },
            action: match random.below(4) {
                0 => Verdict::Accept,
                1 => Verdict::Pass,
                _ => Verdict::Deny,
            },
            team: match random.below(3) {
                0 => None,
                _ => one(random, &TEAMS),
            },
        }
    }
}
