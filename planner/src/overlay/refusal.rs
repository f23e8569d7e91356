//! Claims of Nodes that are not accepted, each with the rule that it breaks,
//! and the [`Problem`]s that report them.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use ipnetwork::IpNetwork;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_core::{mac::Mac, text::printable};

/// A claim that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedClaim {
    /// The Node's name.
    pub node: String,
    /// The claim.
    pub claim: Claim,
    /// Why it is not accepted.
    pub why: Why,
}

/// What a Node can claim for itself. Text is as the Node has it, made printable
/// and cut to a bounded length.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// A range for its pods.
    PodCidr(String),
    /// An address at which other nodes reach it.
    Address(String),
    /// The MAC of its VXLAN device.
    Mac(Mac),
}

/// The rule that a claim breaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Why {
    /// Not `<network address>/<prefix length>`.
    #[error("is not a network address, '/' and a prefix length")]
    NotCidr,
    /// Bits are set behind the prefix; the network address that was meant.
    #[error("has bits set behind its prefix (the network is {0})")]
    HostBits(IpAddr),
    /// It shares addresses with this reserved range.
    #[error("takes in {0}")]
    Special(&'static str),
    /// The range is too small for one pod.
    #[error("has no room for pods")]
    NoRoom,
    /// The Node has this range of the same family already.
    #[error("is a second range of its family beside {0}")]
    SecondOfFamily(IpNetwork),
    /// Not inside any `--cluster-cidr` of its family.
    #[error("is outside --cluster-cidr")]
    OutsideCluster,
    /// It shares addresses with this range of an older Node.
    #[error("overlaps {0} of Node {1}, which is older")]
    OverlapsCidr(IpNetwork, String),
    /// An address of an older Node, or of the same Node, is in the range.
    #[error("takes in {0}, an address of Node {1}")]
    CoversAddress(IpAddr, String),
    /// A network that this machine is connected to is the range or a part of it.
    #[error("overlaps {0}, a network that this machine is connected to")]
    Connected(IpNetwork),
    /// Not an IP address.
    #[error("is not an IP address")]
    NotAddress,
    /// An older Node has the same MAC.
    #[error("is that of Node {0} too, which is older")]
    Taken(String),
    /// The address is in this pod CIDR of an older Node.
    #[error("is inside pod CIDR {0} of Node {1}, which is older")]
    InsideCidr(IpNetwork, String),
    /// `--cluster-cidr` is for pods alone: an address in it that is no pod's is
    /// unreachable, and packets to it are not masqueraded.
    #[error("is inside --cluster-cidr {0}, which is for pods")]
    InsideCluster(IpNetwork),
    /// An interface of this machine has the address of another Node.
    #[error("is an address of this machine")]
    OfThisMachine,
    /// No machine is reached by the network or broadcast address of a network
    /// that this machine is connected to.
    #[error("is the network or broadcast address of {0}, which this machine is connected to")]
    Edge(IpNetwork),
}

impl Claim {
    /// A pod CIDR as a Node has it.
    pub fn pod_cidr(text: &str) -> Self {
        Self::PodCidr(printable(text))
    }

    /// An address as a Node has it.
    pub fn address(text: &str) -> Self {
        Self::Address(printable(text))
    }

    fn kind(&self) -> ProblemKind {
        match self {
            Self::PodCidr(_) => ProblemKind::PodCidrRefused,
            Self::Address(_) => ProblemKind::NodeAddressRefused,
            Self::Mac(_) => ProblemKind::VtepMacRefused,
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodCidr(text) => write!(f, "pod CIDR {text}"),
            Self::Address(text) => write!(f, "address {text}"),
            Self::Mac(mac) => write!(f, "VTEP MAC {mac}"),
        }
    }
}

impl RefusedClaim {
    /// What the refusal does to the pods of this node, whose Node is `own`.
    ///
    /// A refused claim of another Node does nothing to them. A claim of the own
    /// Node is refused by the other nodes too, which then do not reach the pods
    /// that run here. There are three exceptions: a network that only this
    /// machine is connected to, text that is no usable address, and a second
    /// range, beside which the pods of the first are still reached.
    pub fn effect(&self, own: &str) -> Effect {
        if self.node != own {
            return Effect::Warning;
        }
        match (&self.claim, &self.why) {
            (Claim::Address(_), Why::NotAddress | Why::Special(_)) => Effect::Warning,
            (_, Why::Connected(_) | Why::SecondOfFamily(_)) => Effect::NewPods,
            _ => Effect::RunningPods,
        }
    }
}

/// How many refused claims one problem describes: a Node can claim as much as
/// its object in the API has room for.
const MAX_DESCRIBED: usize = 4;

/// One problem for each Node and kind of claim, in the order of names: several
/// refused addresses of a Node are mended together. The claims with the worst
/// effect are described.
pub fn problems(refusals: &[RefusedClaim], own: &str) -> Vec<Problem> {
    let mut groups: BTreeMap<(&str, ProblemKind), Vec<&RefusedClaim>> = BTreeMap::new();
    for refusal in refusals {
        let key = (refusal.node.as_str(), refusal.claim.kind());
        groups.entry(key).or_default().push(refusal);
    }
    groups
        .into_iter()
        .filter_map(|((node, kind), mut group)| {
            group.sort_by_key(|refusal| std::cmp::Reverse(refusal.effect(own)));
            let worst = group.first()?;
            let more = group.len().saturating_sub(MAX_DESCRIBED);
            let mut texts: Vec<String> = group
                .iter()
                .take(MAX_DESCRIBED)
                .map(|RefusedClaim { claim, why, .. }| {
                    format!("{claim} of Node {node} is refused: it {why}")
                })
                .collect();
            texts.extend((more > 0).then(|| format!("and {more} more")));
            Some(Problem::new(kind, node, texts.join("; ")).with_effect(worst.effect(own)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_words_cannot_forge_a_log_line() {
        let claim = Claim::pod_cidr("x\n2026-11-21 ERROR \u{1b}[2J");
        assert_eq!(
            claim.to_string(),
            r#"pod CIDR "x\n2026-11-21 ERROR \u{1b}[2J""#
        );
        assert_eq!(Claim::pod_cidr("").to_string(), r#"pod CIDR """#);
        assert!(Claim::pod_cidr(&"9".repeat(1 << 20)).to_string().len() < 100);
    }

    #[test]
    fn a_refusal_affects_running_pods_only_if_other_nodes_refuse_what_they_need() {
        let cidr = "10.0.1.0/24".parse().unwrap();
        let effect = |node: &str, why| {
            let claim = Claim::pod_cidr("10.0.2.0/24");
            let node = node.to_owned();
            RefusedClaim { node, claim, why }.effect("a")
        };
        let overlaps = || Why::OverlapsCidr(cidr, "b".to_owned());
        assert_eq!(effect("a", overlaps()), Effect::RunningPods);
        assert_eq!(effect("a", Why::SecondOfFamily(cidr)), Effect::NewPods);
        assert_eq!(effect("a", Why::Connected(cidr)), Effect::NewPods);
        assert_eq!(effect("b", overlaps()), Effect::Warning);
    }

    #[test]
    fn the_refusals_of_a_node_are_one_problem_of_the_worst_effect() {
        let refusal = |node: &str, text: &str, why| RefusedClaim {
            node: node.into(),
            claim: Claim::address(text),
            why,
        };
        let refusals = [
            refusal("a", "x", Why::NotAddress),
            refusal("a", "192.0.2.1", Why::Taken("b".into())),
            refusal("c", "192.0.2.1", Why::Taken("b".into())),
        ];
        let problems = problems(&refusals, "a");
        assert_eq!(problems.len(), 2);
        assert_eq!(problems[0].object, "a");
        assert_eq!(problems[0].effect, Effect::RunningPods);
        assert_eq!(
            problems[0].message,
            "address 192.0.2.1 of Node a is refused: it is that of Node b too, which is older; \
             address x of Node a is refused: it is not an IP address"
        );
        assert_eq!(problems[1].effect, Effect::Warning);
    }

    #[test]
    fn a_node_that_claims_without_end_gets_one_line() {
        let refusal = |number: usize, why| RefusedClaim {
            node: "a".into(),
            claim: Claim::address(&format!("{number:06}")),
            why,
        };
        let mut refusals: Vec<RefusedClaim> = (0..50_000)
            .map(|number| refusal(number, Why::NotAddress))
            .collect();
        refusals.push(refusal(50_000, Why::Taken("b".into())));
        let problems = problems(&refusals, "a");
        let [problem] = &problems[..] else {
            panic!("{}", problems.len());
        };
        assert_eq!(problem.effect, Effect::RunningPods);
        assert!(
            problem
                .message
                .starts_with("address 050000 of Node a is refused: it is that")
        );
        assert!(problem.message.ends_with("; and 49997 more"));
        assert!(problem.message.len() < 400, "{}", problem.message);
    }
}
