//! What of the policies cannot be carried out.

use tweed_core::object::cluster_network_policy::{ClusterNetworkPolicy, Subject};
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::text::printable;

use super::cost::Owner;
use super::index::Index;
use super::local::PolicyKey;
use super::{InForce, Model};

impl Model {
    /// What cannot be represented: of the policies in force here, and of those that are
    /// in force nowhere because it is not known whom they are about.
    pub(super) fn collect_problems(&mut self, index: &Index) {
        let in_force = self.in_force.iter().filter_map(partly_unsupported);
        let refused = { self.in_force.keys() }.filter(|key| self.costs.is_refused(&Owner::of(key)));
        let cluster = index.cluster_policies.objects().values();
        self.problems = in_force
            .chain(refused.map(too_costly))
            .chain(cluster.filter_map(without_subject))
            .collect();
    }
}

fn partly_unsupported((key, one): (&PolicyKey, &InForce)) -> Option<Problem> {
    if one.rules.unsupported.is_empty() {
        return None;
    }
    let what = one.rules.unsupported.join("; ");
    let text = format!("not all of this policy can be carried out: {what}");
    let object = key.to_string();
    Some(Problem::new(ProblemKind::PolicyUnsupported, object, text))
}

fn too_costly(key: &PolicyKey) -> Problem {
    let text = match key {
        PolicyKey::Network(namespace, _) => format!(
            "the NetworkPolicies of Namespace {namespace} need more than this node has room for: \
             they allow nothing here, and the pods that they select stay isolated"
        ),
        PolicyKey::Cluster(_) => "the ClusterNetworkPolicies need more than this node has room \
             for: they accept nothing here, and what they would deny in part they deny altogether"
            .to_owned(),
    };
    let problem = Problem::new(ProblemKind::PolicyUnsupported, key.to_string(), text);
    problem.with_cure("use fewer different selectors, networks and ports in these policies")
}

fn without_subject(policy: &ClusterNetworkPolicy) -> Option<Problem> {
    let Subject::Unknown(subject) = &policy.subject else {
        return None;
    };
    let object = PolicyKey::Cluster(policy.name.clone()).to_string();
    let subject = printable(subject);
    let text = format!("this policy is in force for no pod: its subject is not known: {subject}");
    let problem = Problem::new(ProblemKind::PolicyUnsupported, object, text);
    Some(problem.with_cure("replace its subject by namespaces or pods"))
}
