//! The answer for people.

use std::fmt::Write as _;

use tweed_core::agent_socket::why::{Explained, Flow, Held, Side, Verdict, Why, protocol_name};

use crate::question::line;

/// The whole answer, each line with its end.
pub(super) fn text(why: &Why, explained: &Explained) -> String {
    let mut text = String::new();
    let service = match why.port {
        Some(port) => format!("{} port {port}", protocol_name(why.protocol)),
        None => protocol_name(why.protocol),
    };
    let node = &explained.node;
    line(
        &mut text,
        0,
        &format!(
            "{} → {}, {service}, as node {node} knows it",
            why.from, why.to
        ),
    );
    if !explained.in_force {
        line(&mut text, 0, "allowed: no policy exists in the cluster");
    }
    for flow in &explained.flows {
        show_flow(&mut text, flow);
    }
    for hint in &explained.hints {
        line(&mut text, 0, &format!("note: {hint}"));
    }
    text
}

fn show_flow(text: &mut String, flow: &Flow) {
    let sides = [flow.egress.verdict, flow.ingress.verdict];
    let verdict = match sides {
        _ if sides.iter().any(|verdict| verdict.stops()) => "DENIED",
        _ if sides.contains(&Verdict::NotHere) => "allowed as far as this node decides",
        _ => "allowed",
    };
    line(text, 0, &format!("{} → {}: {verdict}", flow.from, flow.to));
    show_side(text, "egress of the source", &flow.egress);
    show_side(text, "ingress of the destination", &flow.ingress);
}

fn show_side(text: &mut String, name: &str, side: &Side) {
    line(text, 1, &format!("{name}: {}", meaning(side.verdict)));
    if let Some(policy) = &side.policy {
        let rule = side.rule.as_deref().unwrap_or("-");
        line(text, 2, &format!("decided by: {policy}, {rule}"));
    } else if let Some(rule) = &side.rule {
        line(text, 2, &format!("decided by: {rule}"));
    }
    if !side.policies.is_empty() {
        line(
            text,
            2,
            &format!("policies that select it: {}", side.policies.join(", ")),
        );
    }
    if let Some(held) = &side.kernel {
        line(
            text,
            2,
            &format!("the plan for the kernel: {}", kernel(held)),
        );
    }
}

fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allowed => "allowed",
        Verdict::Denied => "DENIED",
        Verdict::Open => "allowed, no policy selects the pod in this direction",
        Verdict::Isolated => "ISOLATED, the pod has not been judged yet",
        Verdict::Exempt => "allowed, policies are never asked here",
        Verdict::NotHere => "not decided on this node",
    }
}

fn kernel(held: &Held) -> String {
    let is = |what, holds: bool| match holds {
        true => what,
        false => match what {
            "judged" => "not judged",
            _ => "not policed",
        },
    };
    let mut text = format!(
        "{}, {}, identity of the other end {}",
        is("judged", held.judged),
        is("policed", held.policed),
        held.identity
    );
    match held.profile {
        Some(profile) => {
            // Writing to a String cannot fail.
            let _ = write!(text, ", profile {profile:#x}");
        }
        None => text.push_str(", no profile"),
    }
    text
}

#[cfg(test)]
mod tests {
    use tweed_core::agent_socket::why::End;

    use super::*;

    fn pod(namespace: &str, name: &str) -> End {
        End::Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn why() -> Why {
        Why {
            from: pod("shop", "web-0"),
            to: pod("shop", "db-0"),
            protocol: 6,
            port: Some(5432),
        }
    }

    fn side(verdict: Verdict) -> Side {
        Side {
            verdict,
            policies: Vec::new(),
            policy: None,
            rule: None,
            kernel: None,
        }
    }

    #[test]
    fn a_denied_connection_names_policy_rule_and_what_the_kernel_holds() {
        let ingress = Side {
            verdict: Verdict::Denied,
            policies: vec!["NetworkPolicy shop/db".to_owned()],
            policy: Some("NetworkPolicy shop/db".to_owned()),
            rule: Some("no rule allows it".to_owned()),
            kernel: Some(Held {
                judged: true,
                policed: true,
                identity: 7,
                profile: None,
            }),
        };
        let explained = Explained {
            node: "n1".to_owned(),
            in_force: true,
            flows: vec![Flow {
                from: "10.244.1.5".parse().unwrap(),
                to: "10.244.1.6".parse().unwrap(),
                egress: side(Verdict::Open),
                ingress,
            }],
            hints: vec!["so\nand so".to_owned()],
        };
        let expected = "\
shop/web-0 → shop/db-0, TCP port 5432, as node n1 knows it
10.244.1.5 → 10.244.1.6: DENIED
  egress of the source: allowed, no policy selects the pod in this direction
  ingress of the destination: DENIED
    decided by: NetworkPolicy shop/db, no rule allows it
    policies that select it: NetworkPolicy shop/db
    the plan for the kernel: judged, policed, identity of the other end 7, no profile
note: so?and so
";
        assert_eq!(text(&why(), &explained), expected);
    }

    #[test]
    fn a_node_that_decides_one_end_says_that_the_other_is_not_its() {
        let explained = Explained {
            node: "n1".to_owned(),
            in_force: true,
            flows: vec![Flow {
                from: "10.244.1.5".parse().unwrap(),
                to: "10.244.2.6".parse().unwrap(),
                egress: side(Verdict::Open),
                ingress: side(Verdict::NotHere),
            }],
            hints: Vec::new(),
        };
        let shown = text(&why(), &explained);
        assert!(
            shown.contains("allowed as far as this node decides"),
            "{shown}"
        );
    }

    #[test]
    fn without_any_policy_that_is_the_answer() {
        let shown = text(&why(), &Explained::default());
        assert!(shown.contains("no policy exists"), "{shown}");
    }
}
