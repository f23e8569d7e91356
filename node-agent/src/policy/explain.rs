//! Why policies allow or deny a flow: the planner's explanation in the words of
//! `policy why` and of the drop log.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tweed_core::agent_socket::why::{End, Explained, Flow, Held, Side, Verdict, Why};
use tweed_core::object::node::Node;
use tweed_planner::policy::desired::Direction;
use tweed_planner::policy::evaluator::{Decision, Judgement, Verdict as Passes};
use tweed_planner::policy::{Endpoint, ExplainError, PolicyKey, PolicyPlanner, Who};

use super::verdict;
use crate::packet::Headers;

/// Maximum number of policies that are named where several come to the same.
const MAX_NAMED: usize = 5;

/// The note of a flow from an address to itself.
const TO_ITSELF: &str = "this is about the way through a Service: a packet to the pod's own \
                         address never leaves the pod, and always arrives";

/// Why a packet was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Who began the flow.
    pub from: String,
    /// Who was to answer.
    pub to: String,
    /// The policy that decided; for the metrics too, so of several in a namespace none
    /// is named.
    pub policy: String,
    /// Its rule, or why it is none.
    pub rule: String,
}

/// What the planner knows of a flow.
///
/// # Errors
/// When an end is not known, or the ends have no family in common.
pub fn answer(
    planner: &PolicyPlanner,
    nodes: &[Node],
    why: &Why,
) -> Result<Explained, ExplainError> {
    let mut explained = Explained {
        node: planner.node_name().to_owned(),
        in_force: planner.desired().active,
        ..Explained::default()
    };
    if !explained.in_force {
        return Ok(explained);
    }
    let (from, to) = (endpoint(&why.from), endpoint(&why.to));
    let destinations = planner.addresses(&to)?;
    for source in planner.addresses(&from)? {
        let same = |address: &&IpAddr| address.is_ipv4() == source.is_ipv4();
        if let Some(destination) = destinations.iter().find(same) {
            let flow = flow(planner, source, *destination, why)?;
            explained.flows.push(flow);
        }
    }
    if explained.flows.is_empty() {
        return Err(ExplainError::NoCommonFamily);
    }
    // The kernel sees such a flow only where a Service leads back to the pod, and judges it.
    let is_own = |flow: &Flow| flow.from == flow.to && flow.egress.verdict != Verdict::NotHere;
    if explained.flows.iter().any(is_own) {
        explained.hints.push(TO_ITSELF.to_owned());
    }
    for end in [&from, &to] {
        explained.hints.extend(hint(planner, nodes, end));
    }
    explained
        .hints
        .extend(unsupported(planner, &explained.flows));
    Ok(explained)
}

/// What of the policies that were asked cannot be carried out.
fn unsupported(planner: &PolicyPlanner, flows: &[Flow]) -> Vec<String> {
    let sides = flows.iter().flat_map(|flow| [&flow.egress, &flow.ingress]);
    let asked: BTreeSet<&String> = sides.flat_map(|side| &side.policies).collect();
    let problems = planner.problems().iter();
    let of_these = problems.filter(|problem| asked.contains(&problem.object));
    let texts = of_these.map(|problem| format!("{}: {}", problem.object, problem.message));
    texts.take(MAX_NAMED).collect()
}

/// That there are policies and none is planned yet, as after a restart while a list is
/// missing: what the kernel has then is of the run before, of which nothing is known.
#[must_use]
pub fn unplanned(planner: &PolicyPlanner) -> Option<String> {
    let (network, cluster) = planner.policies();
    let is_first = !planner.desired().active && network + cluster > 0;
    is_first.then(|| rules_before(planner))
}

/// That what is known now decides nothing, and what is missing.
fn rules_before(planner: &PolicyPlanner) -> String {
    let why = match planner.held() {
        [] => "nothing is planned yet".to_owned(),
        held => verdict::not_listed(held),
    };
    format!("the rules before decide; {why}")
}

/// Why a packet with these headers, those of the flow's original direction, was dropped.
#[must_use]
pub fn dropped(
    planner: &PolicyPlanner,
    headers: &Headers,
    direction: Option<Direction>,
) -> Dropped {
    let (from, to) = (headers.source, headers.destination);
    let (policy, rule) = match direction {
        None => (
            "none".to_owned(),
            "the pod has not been judged yet, so it is isolated".to_owned(),
        ),
        Some(_) if !planner.knows_policies() || planner.holds_all() => {
            ("unknown".to_owned(), rules_before(planner))
        }
        Some(direction) => {
            let port = headers.port().unwrap_or(0);
            let (from, to) = (Endpoint::Address(from), Endpoint::Address(to));
            match planner.explain(&from, &to, headers.protocol, port) {
                Ok(explanation) => {
                    let (judgement, local) = match direction {
                        Direction::Out => (&explanation.egress, headers.source),
                        Direction::In => (&explanation.ingress, headers.destination),
                    };
                    let waiting = planner.waiting_texts(local, direction);
                    // What is in force then are the rules before, not those of now.
                    match waiting.is_empty() {
                        true => denied(judgement),
                        false => ("unknown".to_owned(), verdict::waiting(&waiting)),
                    }
                }
                Err(error) => ("unknown".to_owned(), error.to_string()),
            }
        }
    };
    Dropped {
        from: name(planner, from),
        to: name(planner, to),
        policy,
        rule,
    }
}

/// The policy and the rule of a packet that was dropped.
fn denied(judgement: &Judgement) -> (String, String) {
    match &judgement.decision {
        _ if judgement.verdict == Passes::Allowed => (
            "unknown".to_owned(),
            "the policies allow it by now: they have changed since".to_owned(),
        ),
        Decision::NoneAllows(policies) => {
            let policy = match policies.as_slice() {
                [PolicyKey::Network(namespace, _), _, ..] => format!("NetworkPolicy {namespace}/*"),
                [one, ..] => one.to_string(),
                [] => "unknown".to_owned(),
            };
            (policy, rule(&judgement.decision).unwrap_or_default())
        }
        Decision::Rule { policy, .. } => (
            policy.to_string(),
            rule(&judgement.decision).unwrap_or_default(),
        ),
        other => ("none".to_owned(), rule(other).unwrap_or_default()),
    }
}

fn endpoint(end: &End) -> Endpoint {
    match end {
        End::Pod { namespace, name } => Endpoint::Pod {
            namespace: namespace.clone(),
            name: name.clone(),
        },
        End::Address(address) => Endpoint::Address(*address),
    }
}

fn flow(
    planner: &PolicyPlanner,
    from: IpAddr,
    to: IpAddr,
    why: &Why,
) -> Result<Flow, ExplainError> {
    let ends = (Endpoint::Address(from), Endpoint::Address(to));
    let port = why.port.unwrap_or(0);
    let explanation = planner.explain(&ends.0, &ends.1, why.protocol, port)?;
    let side = |ends, direction, judgement| side(planner, why, ends, direction, judgement);
    Ok(Flow {
        from,
        to,
        egress: side((from, to), Direction::Out, &explanation.egress),
        ingress: side((to, from), Direction::In, &explanation.ingress),
    })
}

fn side(
    planner: &PolicyPlanner,
    why: &Why,
    (local, other): (IpAddr, IpAddr),
    direction: Direction,
    judgement: &Judgement,
) -> Side {
    if !matches!(planner.who(local), Who::Pod { local: true, .. }) {
        return bare(Verdict::NotHere);
    }
    let desired = planner.desired();
    let is_judged = desired.judged.contains(&local);
    let waiting = planner.waiting_texts(local, direction);
    let verdict = match (&judgement.decision, judgement.verdict) {
        (Decision::OwnNode | Decision::Itself, _) => Verdict::Exempt,
        _ if !is_judged => Verdict::Isolated,
        (Decision::NotYetKnown, _) => Verdict::Isolated,
        (Decision::NotSubject, _) => Verdict::Exempt,
        _ if !waiting.is_empty() => {
            let port = why.port.unwrap_or(0);
            match planner.allows((local, other), direction, (why.protocol, port)) {
                true => Verdict::Allowed,
                false => Verdict::Denied,
            }
        }
        (Decision::Default, _) if judgement.policies.is_empty() => Verdict::Open,
        (_, Passes::Allowed) => Verdict::Allowed,
        (_, Passes::Denied) => Verdict::Denied,
    };
    let identity = desired.identity(local, other);
    let held = Held {
        judged: is_judged,
        policed: desired.policed.get(direction).contains(&local),
        identity,
        profile: desired
            .pairs
            .get(direction)
            .get(&(local, identity))
            .copied(),
    };
    Side {
        verdict,
        policies: judgement.policies.iter().map(ToString::to_string).collect(),
        policy: match &judgement.decision {
            _ if !waiting.is_empty() => None,
            Decision::Rule { policy, .. } => Some(policy.to_string()),
            Decision::NoneAllows(policies) => Some(names(policies)),
            _ => None,
        },
        rule: match &judgement.decision {
            Decision::OwnNode | Decision::Itself => rule(&judgement.decision),
            _ if !is_judged => planner.not_known(local),
            decision if waiting.is_empty() => rule(decision),
            _ => Some(verdict::waiting(&waiting)),
        },
        kernel: Some(held),
    }
}

fn bare(verdict: Verdict) -> Side {
    Side {
        verdict,
        policies: Vec::new(),
        policy: None,
        rule: None,
        kernel: None,
    }
}

/// The rule that decided, or what decided instead of one.
fn rule(decision: &Decision) -> Option<String> {
    let text = match decision {
        Decision::Default => return None,
        Decision::Rule { rule, name, .. } if name.is_empty() => format!("rule {}", rule + 1),
        Decision::Rule { rule, name, .. } => format!("rule {} ({name})", rule + 1),
        Decision::NoneAllows(_) => "no rule allows it".to_owned(),
        Decision::NotSubject => "policies are not about this container".to_owned(),
        Decision::OwnNode => "a node always reaches its own pods".to_owned(),
        Decision::Itself => "a pod always reaches itself through a Service".to_owned(),
        Decision::NotYetKnown => "the pod is not known yet".to_owned(),
    };
    Some(text)
}

fn names(policies: &[PolicyKey]) -> String {
    let named: Vec<String> = policies
        .iter()
        .take(MAX_NAMED)
        .map(ToString::to_string)
        .collect();
    match policies.len().saturating_sub(MAX_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Who has an address.
fn name(planner: &PolicyPlanner, address: IpAddr) -> String {
    match planner.who(address) {
        Who::Pod {
            name: Some(pod), ..
        } => format!("{}/{}", pod.namespace, pod.name),
        Who::Node(name) => format!("Node {name}"),
        Who::Pod { name: None, .. } | Who::Unknown => address.to_string(),
    }
}

/// What else to know of an end.
fn hint(planner: &PolicyPlanner, nodes: &[Node], end: &Endpoint) -> Option<String> {
    if let Endpoint::Pod { namespace, name } = end
        && planner.is_on_host_network(end)
    {
        return Some(format!(
            "{namespace}/{name} is on the host's network: no policy applies to it, and to others it is its node"
        ));
    }
    let address = *planner.addresses(end).ok()?.first()?;
    let (who, is_local) = match planner.who(address) {
        Who::Pod { local, .. } => (name(planner, address), local),
        Who::Node(_) => return None,
        Who::Unknown => (address.to_string(), false),
    };
    if is_local {
        return None;
    }
    let is_its = |node: &&Node| {
        let cidrs = node.pod_cidrs.iter();
        let mut cidrs = cidrs.filter_map(|cidr| cidr.parse::<ipnetwork::IpNetwork>().ok());
        cidrs.any(|cidr| cidr.contains(address))
    };
    nodes.iter().find(is_its).map(|node| {
        format!(
            "{who} is a pod of node {}: ask the agent there what its own policies say",
            node.name
        )
    })
}

#[cfg(test)]
mod tests;
