//! Which problems are reported to Kubernetes, and their message.

use tweed_core::problem::{Effect, Problem, Scope};

/// Maximum length of the text of the first problem, in bytes. An API server
/// allows 1,024 bytes in all, so there is room for the number of the others.
const MAX_TEXT: usize = 900;

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The own Node.
    Node,
    /// A policy.
    Policy {
        /// `NetworkPolicy` or `ClusterNetworkPolicy`.
        kind: String,
        /// Its namespace; empty of a ClusterNetworkPolicy.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Subject {
    /// What the Event that is written of `problem` is about, if one is written. A problem of
    /// another Node is reported by that node: otherwise 5,000 nodes would write 5,000 Events
    /// for it.
    pub(super) fn of(problem: &Problem) -> Option<Self> {
        let is_of_node = match problem.kind.scope() {
            Scope::Policy => {
                let (kind, name) = problem.object.split_once(' ')?;
                let (namespace, name) = name.split_once('/').unwrap_or(("", name));
                return Some(Self::Policy {
                    kind: kind.to_owned(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                });
            }
            Scope::Source | Scope::Reports | Scope::Service => false,
            Scope::AnyNode => problem.effect > Effect::Warning,
            Scope::OwnNode | Scope::Rights | Scope::Host => true,
        };
        is_of_node.then_some(Self::Node)
    }
}

/// Whether `problem` certainly keeps new pods of this node from being served.
/// While the Nodes are not known, the condition stays as it is.
pub(super) fn is_outage(problem: &Problem) -> bool {
    problem.effect > Effect::Warning && problem.kind.scope() != Scope::Source
}

/// One message for `problems`: the text of the first, and the number of others.
pub(super) fn message(problems: &[&Problem]) -> String {
    let first = problems.first().map(ToString::to_string);
    let mut message = cut(&first.unwrap_or_default());
    let more = problems.len().saturating_sub(1);
    if more > 0 {
        message.push_str(&format!(" (and {more} more like it: tweedctl status)"));
    }
    message
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_TEXT);
    if end < text.len() {
        format!("{}…", &text[..end])
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_core::problem::ProblemKind;

    fn problem(kind: ProblemKind, effect: Effect) -> Problem {
        Problem::new(kind, "alpha", "it broke")
            .with_effect(effect)
            .with_cure("mend it")
    }

    #[test]
    fn a_message_is_short_whatever_the_problems_are() {
        let one = problem(ProblemKind::RangeFull, Effect::Warning);
        assert_eq!(message(&[&one]), "it broke (alpha): mend it");
        let two = message(&[&one, &one]);
        assert_eq!(
            two,
            "it broke (alpha): mend it (and 1 more like it: tweedctl status)"
        );
        let long = Problem {
            message: "aä".repeat(5000),
            ..one
        };
        let told = message(&[&long, &long]);
        assert!(told.len() <= 1024, "{} bytes: {told}", told.len());
        assert!(told.starts_with("aäaä") && told.contains("… (and 1 more"));
    }

    #[test]
    fn a_problem_of_another_node_is_reported_by_that_node() {
        let written = |kind, effect| Subject::of(&problem(kind, effect)).is_some();
        assert!(!written(ProblemKind::PodCidrRefused, Effect::Warning));
        assert!(written(ProblemKind::PodCidrRefused, Effect::NewPods));
        assert!(written(ProblemKind::PortmapMissing, Effect::Warning));
        assert!(!written(ProblemKind::NodesUnreadable, Effect::NewPods));
        assert!(!written(ProblemKind::PoliciesUnreadable, Effect::NewPods));
        assert!(written(ProblemKind::PoliciesForbidden, Effect::Warning));
        assert!(!written(ProblemKind::NotReported, Effect::Warning));
    }
}
