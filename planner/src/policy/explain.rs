//! Why policies allow or deny a flow, in words: for `policy why` and for the log of dropped
//! packets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tweed_component::explain::{End, Step, Why, listed, protocol_name};

use super::evaluate::{Decision, Judgement, Verdict};
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

/// What one end's policies say of a flow.
struct Side {
    /// Whether it passes; none if this node does not decide.
    passes: Option<bool>,
    steps: Vec<Step>,
    /// The policies that were asked.
    asked: Vec<PolicyKey>,
}

impl PolicyPlanner {
    /// Whether a flow is allowed, and what decides.
    ///
    /// # Errors
    /// When policies or an end are not known, or the ends have no family in common.
    pub fn explain(&self, asked: &Why) -> Result<Vec<Step>, ExplainError> {
        if !self.knows_policies() {
            return Err(ExplainError::NotListed);
        }
        let is_active = self.desired().verdicts.active;
        if !is_active && self.policies() != (0, 0) {
            return Err(ExplainError::NotPlanned(self.rules_before()));
        }
        let port = asked.port.map(|port| format!(" port {port}"));
        let mut steps = vec![Step::new(format!(
            "{} → {}, {}{}, as node {} knows it",
            asked.from,
            asked.to,
            protocol_name(asked.protocol),
            port.unwrap_or_default(),
            self.node_name()
        ))];
        if !is_active {
            steps.push(Step::new("allowed").because("no policy exists in the cluster"));
            return Ok(steps);
        }
        let destinations = self.index.addresses(&asked.to)?;
        let mut sides = Vec::new();
        let mut is_to_itself = false;
        for from in self.index.addresses(&asked.from)? {
            let same = |to: &&IpAddr| to.is_ipv4() == from.is_ipv4();
            if let Some(to) = destinations.iter().find(same) {
                let (flow, both) = self.flow(asked, from, *to);
                is_to_itself |= from == *to && both.iter().all(|side| side.passes.is_some());
                steps.push(flow);
                steps.extend(both.iter().flat_map(|side| side.steps.iter().cloned()));
                sides.extend(both);
            }
        }
        if sides.is_empty() {
            return Err(ExplainError::NoCommonFamily);
        }
        let itself = is_to_itself.then(|| TO_ITSELF.to_owned());
        let ends = [&asked.from, &asked.to].into_iter();
        let ends = ends.filter_map(|end| self.about_end(end));
        let notes = itself.into_iter().chain(ends).chain(self.in_vain(&sides));
        steps.extend(notes.map(Step::note));
        Ok(steps)
    }

    /// What both ends' policies say of a flow between two addresses.
    fn flow(&self, asked: &Why, from: IpAddr, to: IpAddr) -> (Step, [Side; 2]) {
        let service = (asked.protocol, asked.port.unwrap_or(0));
        let said = self.evaluate(from, to, service.0, service.1);
        let sides = [
            self.side((from, to), Direction::Out, &said.egress, service),
            self.side((to, from), Direction::In, &said.ingress, service),
        ];
        let passes = sides.each_ref().map(|side| side.passes);
        let verdict = if passes.contains(&Some(false)) {
            "is DENIED"
        } else if passes.contains(&None) {
            "is allowed as far as this node decides"
        } else {
            "is allowed"
        };
        (Step::new(format!("{from} → {to} {verdict}")), sides)
    }

    fn side(
        &self,
        (local, other): (IpAddr, IpAddr),
        direction: Direction,
        judgement: &Judgement,
        service: (u8, u16),
    ) -> Side {
        let end = match direction {
            Direction::Out => "egress of the source",
            Direction::In => "ingress of the destination",
        };
        if !matches!(self.who(local), Who::Pod { local: true, .. }) {
            return Side {
                passes: None,
                steps: vec![Step::new(format!("{end} is not decided on this node")).depth(1)],
                asked: Vec::new(),
            };
        }
        let verdicts = &self.desired().verdicts;
        let is_judged = verdicts.judged.contains(&local);
        let held = self.waiting_about(local, direction, other);
        let decision = &judgement.decision;
        let plain = |passes| (passes, if passes { "allowed" } else { "DENIED" });
        let exempt = (true, "allowed, policies are never asked here");
        let isolated = (false, "ISOLATED, the pod has not been judged yet");
        let (passes, verdict) = match decision {
            Decision::OwnNode | Decision::Itself => exempt,
            _ if !is_judged => isolated,
            Decision::NotYetKnown => isolated,
            Decision::NotSubject => exempt,
            _ if !held.is_empty() => plain(verdicts.allows((local, other), direction, service)),
            _ => plain(judgement.verdict == Verdict::Allowed),
        };
        let (object, because) = match decision {
            Decision::OwnNode | Decision::Itself => (String::new(), rule(decision)),
            _ if !is_judged => (String::new(), self.not_known(local).unwrap_or_default()),
            _ if !held.is_empty() => (String::new(), waiting(&held)),
            Decision::Default if judgement.policies.is_empty() => {
                let none = "no policy selects the pod in this direction";
                (String::new(), none.to_owned())
            }
            Decision::Rule { policy, .. } => (policy.to_string(), rule(decision)),
            Decision::NoneAllows(policies) => (named(policies, MAX_NAMED), rule(decision)),
            _ => (String::new(), rule(decision)),
        };
        let said = Step::new(format!("{end} is {verdict}"));
        let mut steps = vec![said.object(object).because(because).depth(1)];
        let policies = &judgement.policies;
        if !policies.is_empty() {
            let all = named(policies, usize::MAX);
            steps.push(Step::new(format!("policies that select it: {all}")).depth(2));
        }
        steps.push(Step::new(self.planned_for_kernel(local, other, direction)).depth(2));
        Side {
            passes: Some(passes),
            steps,
            asked: policies.clone(),
        }
    }

    /// What the sets of the kernel's table are to hold of the ends.
    fn planned_for_kernel(&self, local: IpAddr, other: IpAddr, direction: Direction) -> String {
        let verdicts = &self.desired().verdicts;
        let identity = verdicts.identity(local, other);
        let profile = verdicts.pairs.get(direction).get(&(local, identity));
        let profile = profile.map(|number| format!("profile {number:#x}"));
        let is = |holds| if holds { "" } else { "not " };
        format!(
            "the plan for the kernel: {}judged, {}policed, identity of the other end {identity}, {}",
            is(verdicts.judged.contains(&local)),
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
        let address = *self.index.addresses(end).ok()?.first()?;
        if matches!(
            self.who(address),
            Who::Pod { local: true, .. } | Who::Node(_)
        ) {
            return None;
        }
        let node = self.index.nodes.of_pod_address(address)?;
        Some(format!(
            "{} is a pod of node {node}: ask the agent there what its own policies say",
            self.name(address)
        ))
    }

    /// What of the policies that were asked cannot be carried out.
    fn in_vain(&self, sides: &[Side]) -> Vec<String> {
        let asked = sides.iter().flat_map(|side| &side.asked);
        let asked: BTreeSet<String> = asked.map(ToString::to_string).collect();
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

    /// Why a packet was dropped. The ends, the protocol and the destination's port are those
    /// of the flow's original direction; without a direction an end was not judged yet.
    #[must_use]
    pub fn dropped(
        &self,
        (from, to): (IpAddr, IpAddr),
        (protocol, port): (u8, u16),
        direction: Option<Direction>,
    ) -> Dropped {
        let unknown = |rule| ("unknown".to_owned(), rule);
        let (policy, rule) = match direction {
            None => {
                let rule = "the pod has not been judged yet, so it is isolated";
                ("none".to_owned(), rule.to_owned())
            }
            Some(_) if !self.knows_policies() || self.holds_all() => unknown(self.rules_before()),
            Some(direction) => {
                let said = self.evaluate(from, to, protocol, port);
                let (judgement, local, other) = match direction {
                    Direction::Out => (said.egress, from, to),
                    Direction::In => (said.ingress, to, from),
                };
                // What is in force then are the rules before, not those of now.
                match self.waiting_about(local, direction, other).as_slice() {
                    [] => denied(&judgement),
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
fn denied(judgement: &Judgement) -> (String, String) {
    let policy = match &judgement.decision {
        _ if judgement.verdict == Verdict::Allowed => {
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
    (policy, rule(&judgement.decision))
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
