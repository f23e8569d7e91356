//! What several nodes say of the same flows, as one answer.

use std::net::IpAddr;

use tweed_component::explain::{Flow, Side, Step, Verdict};

use super::Report;
use crate::answered::Answered;

/// One answer.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// Each flow with both ends as the nodes say that decide them, and its steps.
    pub(super) flows: Vec<(Flow, Vec<Step>)>,
    /// What else to know.
    pub(super) notes: Vec<Step>,
}

/// A flow whose ends name the nodes that decided them.
struct Known<'a> {
    flow: Flow,
    by: [Option<&'a str>; 2],
}

/// The answer of all of these nodes.
pub(super) fn merged(answers: &[Answered<Report>]) -> Merged {
    let mut known: Vec<Known<'_>> = Vec::new();
    let mut notes: Vec<Step> = Vec::new();
    for (node, answer) in answers {
        let explained = answer.iter().flat_map(|report| &report.answers);
        for one in explained {
            for flow in &one.flows {
                add(&mut known, node, flow);
            }
            for note in &one.notes {
                if !notes.contains(note) {
                    notes.push(note.clone());
                }
            }
        }
    }
    let flows = known.into_iter().map(|one| {
        let steps = one.steps();
        (one.flow, steps)
    });
    Merged {
        flows: flows.collect(),
        notes,
    }
}

fn add<'a>(known: &mut Vec<Known<'a>>, node: &'a str, flow: &Flow) {
    let key = |flow: &Flow| -> (IpAddr, IpAddr, u8, Option<u16>) {
        (flow.from, flow.to, flow.protocol, flow.port)
    };
    if !known.iter().any(|one| key(&one.flow) == key(flow)) {
        known.push(Known {
            flow: flow.clone(),
            by: [None, None],
        });
    }
    let Some(one) = known.iter_mut().find(|one| key(&one.flow) == key(flow)) else {
        return;
    };
    let sides = [
        (&mut one.flow.egress, &flow.egress),
        (&mut one.flow.ingress, &flow.ingress),
    ];
    for ((side, said), by) in sides.into_iter().zip(&mut one.by) {
        if matches!(said.verdict, Verdict::Allowed | Verdict::Denied) {
            *side = Side::clone(said);
            *by = Some(node);
        }
    }
}

impl Known<'_> {
    fn steps(&self) -> Vec<Step> {
        let mut flow = self.flow.clone();
        for (side, by) in [&mut flow.egress, &mut flow.ingress]
            .into_iter()
            .zip(self.by)
        {
            if let (Some(by), Some(first)) =
                (by.filter(|by| !by.is_empty()), side.steps.first_mut())
            {
                first.what = format!("node {by}: {}", first.what);
            }
        }
        flow.steps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answered::Unanswered;
    use tweed_component::explain::{Explained, text};

    fn side(verdict: Verdict, what: &str) -> Side {
        let steps = vec![Step::new(what).depth(1)];
        Side { verdict, steps }
    }

    fn report(egress: Side, ingress: Side) -> Report {
        let flow = Flow {
            from: "10.0.1.5".parse().unwrap(),
            to: "10.0.2.6".parse().unwrap(),
            protocol: 6,
            port: Some(80),
            egress,
            ingress,
        };
        let answers = vec![Explained {
            about: String::new(),
            flows: vec![flow],
            notes: vec![Step::note("the same")],
        }];
        Report {
            answers,
            ..Report::default()
        }
    }

    fn elsewhere(node: &str) -> Side {
        side(Verdict::DecidedBy(node.to_owned()), "not decided here")
    }

    #[test]
    fn each_end_is_told_by_the_node_that_decides_it() {
        let source = report(side(Verdict::Allowed, "egress is allowed"), elsewhere("n2"));
        let destination = report(elsewhere("n1"), side(Verdict::Denied, "ingress is DENIED"));
        let answers = [
            ("n1".to_owned(), Ok(source)),
            ("n2".to_owned(), Ok(destination)),
        ];
        let merged = merged(&answers);
        let [(flow, steps)] = merged.flows.as_slice() else {
            panic!("{:?}", merged.flows);
        };
        assert_eq!(flow.verdict(), &Verdict::Denied);
        let expected = "\
10.0.1.5 → 10.0.2.6 is DENIED
  node n1: egress is allowed
  node n2: ingress is DENIED
";
        assert_eq!(text(steps), expected);
        assert_eq!(merged.notes, [Step::note("the same")]);
    }

    #[test]
    fn an_end_whose_node_has_not_answered_stays_open() {
        let source = report(side(Verdict::Allowed, "egress is allowed"), elsewhere("n2"));
        let failed = Err(Unanswered::new("no agent runs there"));
        let answers = [("n1".to_owned(), Ok(source)), ("n2".to_owned(), failed)];
        let merged = merged(&answers);
        let open = Verdict::DecidedBy("n2".to_owned());
        assert_eq!(merged.flows[0].0.verdict(), &open);
    }
}
