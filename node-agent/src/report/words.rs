//! What problems are called in Kubernetes, and which of them are its business:
//! pure.

use tweed_core::problem::{Effect, Problem};

/// Problems that say that the agent does not know, and not that the network is
/// down. While nothing worse is known, the condition stays as it is.
pub const UNKNOWING: [&str; 3] = ["starting", "nodes-not-listed", NODES_UNREADABLE];
pub(super) const NODES_UNREADABLE: &str = "nodes-unreadable";

/// Problems of other Nodes, while they are no more than a warning here. Their
/// own node tells of them: 5,000 nodes would else write 5,000 Events for one.
pub const OF_OTHER_NODES: [&str; 5] = [
    "gateway-not-on-link",
    "node-address-refused",
    "node-not-reached",
    "pod-cidr-refused",
    "vtep-mac-refused",
];

/// The kind of the reports' own problem: to tell of it would be told in vain.
pub const NOT_REPORTED: &str = "not-reported";

/// Longest message, in bytes, less what follows. An Event's `note` may have 1,024.
const LONGEST: usize = 900;

/// Whether `problem` keeps new pods of this node from being served, for certain.
pub(super) fn is_outage(problem: &Problem) -> bool {
    problem.effect > Effect::Warning && !UNKNOWING.contains(&problem.kind.as_str())
}

/// Whether `problem` is told as an Event.
pub(super) fn is_event(problem: &Problem) -> bool {
    let kind = problem.kind.as_str();
    let elsewhere = problem.effect == Effect::Warning && OF_OTHER_NODES.contains(&kind);
    kind != NOT_REPORTED && !UNKNOWING.contains(&kind) && !elsewhere
}

/// A kind as Kubernetes writes reasons: `no-pod-cidr` is `NoPodCidr`.
#[must_use]
pub fn reason(kind: &str) -> String {
    kind.split('-')
        .flat_map(|word| {
            let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
            [first.to_ascii_uppercase(), rest.to_owned()]
        })
        .collect()
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

    fn problem(kind: &str, effect: Effect) -> Problem {
        Problem::new(kind, "alpha", effect, "it broke", "mend it")
    }

    #[test]
    fn a_kind_becomes_a_reason() {
        assert_eq!(reason("no-pod-cidr"), "NoPodCidr");
        assert_eq!(reason("nftables"), "Nftables");
        assert_eq!(reason("--ä-"), "ä");
    }

    #[test]
    fn a_message_is_short_whatever_it_tells() {
        let one = problem("a", Effect::Warning);
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
        assert!(!is_event(&problem("pod-cidr-refused", Effect::Warning)));
        assert!(is_event(&problem("pod-cidr-refused", Effect::NewPods)));
        assert!(is_event(&problem("portmap-missing", Effect::Warning)));
        assert!(!is_event(&problem("nodes-unreadable", Effect::NewPods)));
        assert!(!is_event(&problem(NOT_REPORTED, Effect::Warning)));
    }
}
