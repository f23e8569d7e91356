//! What problems are called in Kubernetes, and which of them are its business:
//! pure.

use tweed_core::problem::{Effect, Problem, Scope};

/// Longest message, in bytes, less what follows. An Event's `note` may have 1,024.
const LONGEST: usize = 900;

/// Whether `problem` keeps new pods of this node from being served, for certain.
/// While the Nodes are not known, the condition stays as it is.
pub(super) fn is_outage(problem: &Problem) -> bool {
    problem.effect > Effect::Warning && problem.kind.scope() != Scope::Source
}

/// Whether `problem` is told as an Event. A problem of another Node is reported
/// by that node: 5,000 nodes would else write 5,000 Events for one.
pub(super) fn is_event(problem: &Problem) -> bool {
    match problem.kind.scope() {
        Scope::Source | Scope::Reports => false,
        Scope::AnyNode => problem.effect > Effect::Warning,
        Scope::OwnNode | Scope::Host => true,
    }
}

/// One message for `problems`: the first whole, the others counted.
pub(super) fn message(problems: &[&Problem]) -> String {
    let first = problems.first().map(ToString::to_string);
    let mut message = cut(&first.unwrap_or_default());
    let more = problems.len().saturating_sub(1);
    if more > 0 {
        message.push_str(&format!(" (and {more} more like it: see /readyz)"));
    }
    message
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST);
    match end < text.len() {
        true => format!("{}…", &text[..end]),
        false => text.to_owned(),
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
    fn a_message_is_short_whatever_it_tells() {
        let one = problem(ProblemKind::RangeFull, Effect::Warning);
        assert_eq!(message(&[&one]), "it broke (alpha): mend it");
        let two = message(&[&one, &one]);
        assert_eq!(
            two,
            "it broke (alpha): mend it (and 1 more like it: see /readyz)"
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
    fn what_is_wrong_with_another_node_is_told_there() {
        let told = |kind, effect| is_event(&problem(kind, effect));
        assert!(!told(ProblemKind::PodCidrRefused, Effect::Warning));
        assert!(told(ProblemKind::PodCidrRefused, Effect::NewPods));
        assert!(told(ProblemKind::PortmapMissing, Effect::Warning));
        assert!(!told(ProblemKind::NodesUnreadable, Effect::NewPods));
        assert!(!told(ProblemKind::NotReported, Effect::Warning));
    }
}
