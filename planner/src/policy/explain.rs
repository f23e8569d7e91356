//! Why policies allow or deny a flow, in words: for `tweedctl why` and for the log of dropped
//! packets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tweed_component::drops::DropReason;
use tweed_component::explain::{
    End, Explained, Flow, Side, Step, Verdict as Passes, Why, listed, protocol_name,
};

use super::evaluate::{Decision, Evaluation, Verdict};
use super::flow::ExplainError;
use super::model::local::PolicyKey;
use super::planner::PolicyPlanner;
use super::verdicts::Direction;
use super::who::Who;

/// Maximum number of policies that are named where several come to the same.
const MAX_NAMED: usize = 5;

/// The note of a flow from an address to itself. The kernel sees such a flow only where a
/// Service leads back to the pod, and judges it.
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

impl PolicyPlanner {
    /// Whether a flow is allowed, and what decides.
    ///
    /// # Errors
    /// When policies or an end are not known, or the ends have no family in common.
    pub fn explain(&self, asked: &Why) -> Result<Explained, ExplainError> {
        if !self.knows_policies() {
            return Err(ExplainError::NotListed);
        }
        let is_active = self.desired().verdicts.active;
        if !is_active && self.policies() != (0, 0) {
            return Err(ExplainError::NotPlanned(self.rules_before()));
        }
        let port = asked.port.map(|port| format!(" port {port}"));
        let mut explained = Explained {
            about: format!(
                "{} → {}, {}{}, as node {} knows it",
                asked.from,
                asked.to,
                protocol_name(asked.protocol),
                port.unwrap_or_default(),
                self.node_name()
            ),
            flows: Vec::new(),
            notes: Vec::new(),
        };
        if !is_active {
            let none = Step::new("allowed").because("no policy exists in the cluster");
            explained.notes.push(none);
            return Ok(explained);
        }
        let destinations = self.index.addresses(&asked.to)?;
        let mut policies = Vec::new();
        let mut is_to_itself = false;
        for from in self.index.addresses(&asked.from)? {
            let same = |to: &&IpAddr| to.is_ipv4() == from.is_ipv4();
            if let Some(to) = destinations.iter().find(same) {
                let service = (asked.protocol, asked.port.unwrap_or(0));
                let said = self.evaluate(from, *to, service.0, service.1);
                is_to_itself |= from == *to && self.is_local(from);
                explained.flows.push(Flow {
                    from,
                    to: *to,
                    protocol: asked.protocol,
                    port: asked.port,
                    egress: self.side((from, *to), Direction::Out, &said.egress, service),
                    ingress: self.side((*to, from), Direction::In, &said.ingress, service),
                });
                for (local, said) in [(from, said.egress), (*to, said.ingress)] {
                    let is_decided = self.is_local(local);
                    policies.extend(is_decided.then_some(said.policies).into_iter().flatten());
                }
            }
        }
        if explained.flows.is_empty() {
            return Err(ExplainError::NoCommonFamily);
        }
        let itself = is_to_itself.then(|| TO_ITSELF.to_owned());
        let ends = [&asked.from, &asked.to].into_iter();
        let about_ends = ends.filter_map(|end| self.about_end(end));
        let about_pods = itself.into_iter().chain(about_ends);
        let notes = about_pods.chain(self.in_vain(&policies));
        explained.notes = notes.map(Step::note).collect();
        Ok(explained)
    }

    fn is_local(&self, address: IpAddr) -> bool {
        matches!(self.who(address), Who::Pod { local: true, .. })
    }

    fn side(
        &self,
        (local, other): (IpAddr, IpAddr),
        direction: Direction,
        evaluation: &Evaluation,
        service: (u8, u16),
    ) -> Side {
        let end = match direction {
            Direction::Out => "egress of the source",
            Direction::In => "ingress of the destination",
        };
        if !self.is_local(local) {
            let (verdict, said) = match self.node_of_pod(local) {
                Some(node) => {
                    let said = format!("{end} is not decided on this node");
                    (Passes::DecidedBy(node.to_owned()), said)
                }
                None => (
                    Passes::NoPod,
                    format!("{end} has no policies: it is no pod"),
                ),
            };
            let steps = vec![Step::new(said).depth(1)];
            return Side { verdict, steps };
        }
        let verdicts = &self.desired().verdicts;
        let is_enforced = verdicts.enforced.contains(&local);
        let held = self.waiting_about(local, direction, other);
        let decision = &evaluation.decision;
        let plain = |passes| (passes, if passes { "allowed" } else { "DENIED" });
        let exempt = (true, "allowed, policies are never asked here");
        let isolated = (false, "ISOLATED, policies are not enforced for the pod yet");
        let (passes, verdict) = match decision {
            Decision::OwnNode | Decision::Itself => exempt,
            _ if !is_enforced => isolated,
            Decision::NotYetKnown => isolated,
            Decision::NotSubject => exempt,
            _ if !held.is_empty() => plain(verdicts.allows((local, other), direction, service)),
            _ => plain(evaluation.verdict == Verdict::Allowed),
        };
        let (object, because) = match decision {
            Decision::OwnNode | Decision::Itself => (String::new(), rule(decision)),
            _ if !is_enforced => (String::new(), self.not_known(local).unwrap_or_default()),
            _ if !held.is_empty() => (String::new(), waiting(&held)),
            Decision::Default if evaluation.policies.is_empty() => {
                let none = "no policy selects the pod in this direction";
                (String::new(), none.to_owned())
            }
            Decision::Rule { policy, .. } => (policy.to_string(), rule(decision)),
            Decision::NoneAllows(policies) => (named(policies, MAX_NAMED), rule(decision)),
            _ => (String::new(), rule(decision)),
        };
        let said = Step::new(format!("{end} is {verdict}"));
        let mut steps = vec![said.object(object).because(because).depth(1)];
        let policies = &evaluation.policies;
        if !policies.is_empty() {
            let all = named(policies, usize::MAX);
            steps.push(Step::new(format!("policies that select it: {all}")).depth(2));
        }
        steps.push(Step::new(self.planned_for_kernel(local, other, direction)).depth(2));
        let verdict = if passes {
            Passes::Allowed
        } else {
            Passes::Denied
        };
        Side { verdict, steps }
    }

    /// The node of the pod of another node that has an address.
    fn node_of_pod(&self, address: IpAddr) -> Option<&str> {
        if matches!(self.who(address), Who::Node(_)) {
            return None;
        }
        let node = self.index.nodes.of_pod_address(address)?;
        // No pod of this node has it.
        (node != self.node_name()).then_some(node)
    }

    /// What the sets of the kernel's table are to hold of the ends.
    fn planned_for_kernel(&self, local: IpAddr, other: IpAddr, direction: Direction) -> String {
        let verdicts = &self.desired().verdicts;
        let identity = verdicts.identity(local, other);
        let number = verdicts.pairs.get(direction).get(&(local, identity));
        let profile = number.map(|number| format!("profile {number:#x}"));
        let is = |holds| if holds { "" } else { "not " };
        format!(
            "the plan for the kernel: {}enforced, {}policed, identity of the other end {identity}, {}",
            is(verdicts.enforced.contains(&local)),
            is(verdicts.policed.get(direction).contains(&local)),
            profile.unwrap_or_else(|| "no profile".to_owned())
        )
    }

    /// What else to know of an end.
    fn about_end(&self, end: &End) -> Option<String> {
        if let End::Pod { namespace, name } = end
            && self.index.pods.get(namespace, name)?.host_network
        {
            return Some(format!(
                "{end} is on the host's network: no policy applies to it, and to others it is its node"
            ));
        }
        None
    }

    /// What of the policies that were asked cannot be carried out.
    fn in_vain(&self, asked: &[PolicyKey]) -> Vec<String> {
        let asked: BTreeSet<String> = asked.iter().map(ToString::to_string).collect();
        let problems = self.problems().iter();
        let of_these = problems.filter(|problem| asked.contains(&problem.object));
        let texts = of_these.map(|problem| format!("{}: {}", problem.object, problem.message));
        texts.take(MAX_NAMED).collect()
    }

    /// That what is known now decides nothing, and what is missing.
    fn rules_before(&self) -> String {
        let why = match self.held() {
            [] => "nothing is planned yet".to_owned(),
            held => not_listed(held),
        };
        format!("the rules before decide; {why}")
    }

    /// Why a packet was dropped, by whichever table. The ends, the protocol and the
    /// destination's port are those of the flow's original direction.
    #[must_use]
    pub fn dropped(
        &self,
        (from, to): (IpAddr, IpAddr),
        (protocol, port): (u8, u16),
        reason: DropReason,
    ) -> Dropped {
        let unknown = |rule| ("unknown".to_owned(), rule);
        let direction = match reason {
            DropReason::PolicyIngress => Some(Direction::In),
            DropReason::PolicyEgress => Some(Direction::Out),
            _ => None,
        };
        let (policy, rule) = match direction {
            None => ("none".to_owned(), reason.text().to_owned()),
            Some(_) if !self.knows_policies() || self.holds_all() => unknown(self.rules_before()),
            Some(direction) => {
                let said = self.evaluate(from, to, protocol, port);
                let (evaluation, local, other) = match direction {
                    Direction::Out => (said.egress, from, to),
                    Direction::In => (said.ingress, to, from),
                };
                // What is in force then are the rules before, not those of now.
                match self.waiting_about(local, direction, other).as_slice() {
                    [] => denied(&evaluation),
                    held => unknown(waiting(held)),
                }
            }
        };
        Dropped {
            from: self.name(from),
            to: self.name(to),
            policy,
            rule,
        }
    }

    /// Who has an address.
    fn name(&self, address: IpAddr) -> String {
        match self.who(address) {
            Who::Pod {
                name: Some(pod), ..
            } => format!("{}/{}", pod.namespace, pod.name),
            Who::Node(name) => format!("Node {name}"),
            Who::Pod { name: None, .. } | Who::Unknown => address.to_string(),
        }
    }
}

/// The policy and the rule of a packet that was dropped.
fn denied(evaluation: &Evaluation) -> (String, String) {
    let policy = match &evaluation.decision {
        _ if evaluation.verdict == Verdict::Allowed => {
            let changed = "the policies allow it by now: they have changed since";
            return ("unknown".to_owned(), changed.to_owned());
        }
        Decision::NoneAllows(policies) => match policies.as_slice() {
            [PolicyKey::Network(namespace, _), _, ..] => format!("NetworkPolicy {namespace}/*"),
            [one, ..] => one.to_string(),
            [] => "unknown".to_owned(),
        },
        Decision::Rule { policy, .. } => policy.to_string(),
        _ => "none".to_owned(),
    };
    (policy, rule(&evaluation.decision))
}

/// The rule that decided, or what decided instead of one; empty if nothing did.
fn rule(decision: &Decision) -> String {
    match decision {
        Decision::Default => String::new(),
        Decision::Rule { rule, name, .. } if name.is_empty() => format!("rule {}", rule + 1),
        Decision::Rule { rule, name, .. } => format!("rule {} ({name})", rule + 1),
        Decision::NoneAllows(_) => "no rule allows it".to_owned(),
        Decision::NotSubject => "policies are not about this container".to_owned(),
        Decision::OwnNode => "a node always reaches its own pods".to_owned(),
        Decision::Itself => "a pod always reaches itself through a Service".to_owned(),
        Decision::NotYetKnown => "the pod is not known yet".to_owned(),
    }
}

/// Why the planner holds everything, as the end of a sentence.
#[must_use]
pub fn not_listed(held: &[String]) -> String {
    format!("not listed yet: {}", held.join(", "))
}

/// What policies wait for, each in a sentence, as one.
#[must_use]
pub fn waiting(texts: &[String]) -> String {
    let named = listed(texts.iter().cloned(), MAX_NAMED);
    format!("{named}; until then the rules before decide what depends on it")
}

fn named(policies: &[PolicyKey], most: usize) -> String {
    listed(policies.iter().map(ToString::to_string), most)
}

#[cfg(test)]
mod tests;
