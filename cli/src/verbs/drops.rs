//! `drops`: what tweed's rules have dropped, by reason.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

use clap::Args;
use serde::{Deserialize, Serialize};
use tweed_component::drops::{DropReason, Dropped};
use tweed_component::message::{Answer, Request};

use crate::answered::{Answered, Unanswered};
use crate::node::{Node, unexpected};
use crate::output::{Format, Page};
use crate::verb::Verb;

const EXAMPLES: &str = "\
Examples:
  What was dropped on each node, since its tables were made:
    tweedctl drops

  What is dropped now, until Ctrl-C, on one node:
    tweedctl drops -f --node worker-1

  With what each reason means, those without a packet too:
    tweedctl drops -o wide

Who sent what a policy has dropped is in the log of an agent with --policy-log on.";

/// The packets of a node and a reason that were printed.
type Seen = BTreeMap<(String, DropReason), u64>;

/// The arguments of `drops`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Drops {
    /// Go on, and print every second what was dropped meanwhile
    #[arg(short, long)]
    pub follow: bool,

    /// What was printed, with `--follow`.
    #[arg(skip)]
    seen: RefCell<Option<Seen>>,
}

/// What one node answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// One for each reason that the node's tables count.
    pub drops: Vec<Dropped>,
}

impl Verb for Drops {
    type Report = Report;
    const NAME: &'static str = "drops";

    fn local(&self, node: &Node) -> Result<Report, Unanswered> {
        match node.ask(&Request::Drops {})? {
            Answer::Drops(drops) => Ok(Report { drops }),
            _ => Err(unexpected()),
        }
    }

    fn render(&self, answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
        let is_wide = page.format == Format::Wide;
        let before = self.seen.take();
        let is_first = before.is_none();
        let (before, mut now) = (before.unwrap_or_default(), Seen::new());
        let mut rows = Vec::new();
        for (node, answer) in answers {
            let drops = answer.iter().flat_map(|report| &report.drops);
            for dropped in drops {
                let key = (node.clone(), dropped.reason);
                let known = before.get(&key).copied().unwrap_or(0);
                now.insert(key, dropped.packets);
                // A table that was made anew counts from 0.
                let more = dropped.packets.checked_sub(known);
                let new = more.unwrap_or(dropped.packets);
                if new > 0 || (is_wide && is_first) {
                    rows.push(row(node, dropped.reason, new, is_wide));
                }
            }
        }
        let is_of_one_node = answers.iter().all(|(node, _)| node.is_empty());
        let mut header = vec!["NODE", "REASON", "PACKETS"];
        header.extend(is_wide.then_some("MEANING"));
        if is_of_one_node {
            header.remove(0);
            rows.iter_mut().for_each(|row| drop(row.remove(0)));
        }
        if is_first || !rows.is_empty() {
            page.table(&header, &rows)?;
        }
        if self.follow {
            self.seen.replace(Some(now));
        }
        page.all_unanswered(answers)
    }
}

fn row(node: &str, reason: DropReason, packets: u64, is_wide: bool) -> Vec<String> {
    let mut row = vec![node.to_owned(), reason.to_string(), packets.to_string()];
    row.extend(is_wide.then(|| reason.text().to_owned()));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(node: &str, packets: u64) -> Answered<Report> {
        let dropped = |reason, packets| Dropped {
            reason,
            packets,
            bytes: packets * 60,
        };
        let drops = vec![
            dropped(DropReason::SpoofedSource, packets),
            dropped(DropReason::PolicyIngress, 0),
        ];
        (node.to_owned(), Ok(Report { drops }))
    }

    fn shown(verb: &Drops, answers: &[Answered<Report>], format: Format) -> String {
        let mut out = Vec::new();
        verb.render(answers, &mut Page::new(&mut out, format))
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_was_dropped_is_shown_by_reason_and_live_what_is_new() {
        let mut verb = Drops {
            follow: false,
            seen: RefCell::default(),
        };
        let once = "REASON          PACKETS\nspoofed-source  7\n";
        assert_eq!(shown(&verb, &[answer("", 7)], Format::Table), once);
        assert_eq!(shown(&verb, &[answer("", 7)], Format::Table), once);
        let wide = shown(&verb, &[answer("", 0)], Format::Wide);
        assert!(wide.contains("policy-ingress  0        A policy"), "{wide}");
        verb.follow = true;
        let of =
            |packets| format!("NODE  REASON          PACKETS\nn1    spoofed-source  {packets}\n");
        for (counted, new) in [(7, Some(7)), (7, None), (9, Some(2)), (1, Some(1))] {
            let expected = new.map(of).unwrap_or_default();
            assert_eq!(
                shown(&verb, &[answer("n1", counted)], Format::Table),
                expected
            );
        }
    }
}
