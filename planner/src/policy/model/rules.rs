//! A policy as rules over interned peers and sets of ports, with what of it cannot be
//! represented.
//!
//! What cannot be represented never allows anything: in a NetworkPolicy the entry
//! matches nothing; in a ClusterNetworkPolicy a rule with an unknown part matches
//! nothing if it accepts, and denies everything otherwise. A subject with an unknown
//! operator is read without that requirement, so that the pods that may be meant are
//! isolated, and then nothing is allowed by the policy.

mod cluster;
mod network;

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnetwork::IpNetwork;
use tweed_core::object::network_policy::PortMatch;
use tweed_core::object::selector::LabelSelector;
use tweed_core::text::printable;

use super::ports::{PortSet, RulePorts};
use super::verdicts::{DIRECTIONS, PerDirection};
use crate::addresses::parse_cidr;
use crate::protocols::protocol_number;

pub use cluster::{cluster_policy_selects, of_cluster_policy};
pub use network::of_network_policy;

/// Which namespaces a selector of pods is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespaces {
    /// This one.
    Named(String),
    /// Those with such labels.
    Selected(LabelSelector),
}

/// One thing that a rule can name as the other end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// Pods that are not on the host's network.
    Pods(Namespaces, LabelSelector),
    /// A CIDR without exceptions.
    Block(IpNetwork, Vec<IpNetwork>),
    /// The same for ports that are named: these are ports of the pods in it.
    PodsIn(IpNetwork, Vec<IpNetwork>),
    /// Nodes.
    Nodes(LabelSelector),
}

/// Whether a list of peers has networks.
pub fn has_networks(atoms: &[Atom]) -> bool {
    // Those by labels, which may be thousands, come first.
    let mut others = atoms.iter().rev().take_while(|atom| !atom.is_by_labels());
    others.any(Atom::is_network)
}

/// The other ends of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peers {
    /// Everybody.
    All,
    /// Whoever is one of these, in ascending order.
    Any(Arc<[Atom]>),
}

/// What a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The packet passes.
    Accept,
    /// It is dropped.
    Deny,
    /// The rest of the tier is left out.
    Pass,
}

/// When a rule is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Before NetworkPolicies.
    Admin,
    /// A NetworkPolicy.
    Network,
    /// After them, for pods that none selects.
    Baseline,
}

/// A rule of a policy in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What it decides; a NetworkPolicy only accepts.
    pub action: Action,
    /// The other ends.
    pub peers: Peers,
    /// Protocols and destination ports.
    pub ports: RulePorts,
}

/// A policy that can be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// When it is asked.
    pub tier: Tier,
    /// The order within the tier; lower is earlier, then the name decides.
    pub priority: i64,
    /// The rules of each direction that the policy is about.
    pub rules: PerDirection<Option<Vec<Rule>>>,
    /// What of it cannot be represented.
    pub unsupported: Vec<String>,
}

impl Atom {
    /// Whether labels of pods say who is meant, and not addresses.
    pub fn is_by_labels(&self) -> bool {
        matches!(self, Self::Pods(..))
    }

    /// Whether it is a CIDR.
    pub fn is_network(&self) -> bool {
        matches!(self, Self::Block(..) | Self::PodsIn(..))
    }

    /// The same as far as it is about pods.
    fn of_pods(&self) -> Self {
        match self {
            Self::Block(cidr, except) => Self::PodsIn(*cidr, except.clone()),
            other => other.clone(),
        }
    }
}

impl Rules {
    /// How many rules and peers there are.
    pub fn size(&self) -> usize {
        let both = DIRECTIONS.map(|direction| self.rules.get(direction).as_ref());
        let rules = both.into_iter().flatten().flatten();
        rules
            .map(|rule| match &rule.peers {
                Peers::All => 1,
                Peers::Any(atoms) => 1 + atoms.len(),
            })
            .sum()
    }

    /// Whether any rule names networks.
    pub fn has_networks(&self) -> bool {
        let both = DIRECTIONS.into_iter();
        let mut rules = both.flat_map(|direction| self.rules.get(direction).iter().flatten());
        rules.any(|rule| matches!(&rule.peers, Peers::Any(atoms) if has_networks(atoms)))
    }
}

impl Peers {
    fn of(atoms: BTreeSet<Atom>) -> Self {
        Self::Any(atoms.into_iter().collect())
    }
}

impl Namespaces {
    /// All of them.
    pub fn all() -> Self {
        Self::Selected(LabelSelector::default())
    }
}

impl Rule {
    /// What a rule that denies or passes is taken for if a part of it is not known.
    fn denies_everything() -> Self {
        Self {
            action: Action::Deny,
            peers: Peers::All,
            ports: RulePorts::all(),
        }
    }

    /// A rule of egress as one about numbers of ports and one about names. Names are those
    /// of pods, so the list of peers of the second one says which pods have to be known.
    fn split(self) -> Vec<Self> {
        let pods = Peers::of(match &self.peers {
            Peers::All => [Atom::Pods(Namespaces::all(), LabelSelector::default())].into(),
            Peers::Any(atoms) => atoms.iter().map(Atom::of_pods).collect(),
        });
        if self.ports.named.is_empty() || pods == self.peers {
            return vec![self];
        }
        let RulePorts { fixed, named } = self.ports;
        let numbers = RulePorts {
            fixed,
            named: Vec::new(),
        };
        let names = RulePorts {
            fixed: PortSet::default(),
            named,
        };
        let rule = |peers, ports| Self {
            action: self.action,
            peers,
            ports,
        };
        let both = [rule(self.peers, numbers), rule(pods, names)];
        let matches = |rule: &Self| !rule.ports.is_empty();
        both.into_iter().filter(matches).collect()
    }
}

fn block(cidr: &str, except: &[String]) -> Option<Atom> {
    let cidr = parse_cidr(cidr)?;
    let mut holes = Vec::new();
    for one in except {
        holes.push(parse_cidr(one)?);
    }
    holes.sort_unstable();
    Some(Atom::Block(cidr, holes))
}

/// Adds a port; false if it cannot be understood.
fn add_port(ports: &mut RulePorts, protocol: &str, port: &PortMatch) -> bool {
    let Some(protocol) = protocol_number(protocol) else {
        return false;
    };
    let (first, last) = match port {
        PortMatch::All => (0, u16::MAX),
        PortMatch::Range(first, last) if first <= last => (*first, *last),
        PortMatch::Range(..) | PortMatch::Invalid(_) => return false,
        PortMatch::Named(name) => {
            ports.named.push((Some(protocol), name.clone()));
            return true;
        }
    };
    ports.fixed = ports.fixed.union(&PortSet::range(protocol, first, last));
    true
}

fn port_text(protocol: &str, port: &PortMatch) -> String {
    let port = match port {
        PortMatch::All => String::new(),
        PortMatch::Range(first, last) => format!(" {first}-{last}"),
        PortMatch::Named(name) | PortMatch::Invalid(name) => format!(" {}", printable(name)),
    };
    format!("{}{port}", printable(protocol))
}

/// Whether all operators of a selector are known.
fn operators_known(selector: &LabelSelector, bad: &mut Vec<String>) -> bool {
    let unknown = selector.unknown_operator();
    bad.extend(unknown.map(|operator| format!("operator {}", printable(operator))));
    unknown.is_none()
}
