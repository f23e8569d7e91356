//! `where`: where new connections to a Service or an address go, and why.

use std::io;

use clap::Args;
use serde::{Deserialize, Serialize};
use tweed_component::explain::{Client, Destination, Question, Step, Where};
use tweed_component::message::{Answer, Request};

use super::served::{client, destination, typed, typed_client};
use crate::answered::{Answered, Unanswered};
use crate::node::{Node, unexpected};
use crate::output::Page;
use crate::verb::Verb;

const EXAMPLES: &str = "\
Examples:
  Where does a connection to this address go, and why to these endpoints?
    tweedctl where 10.96.0.10:53/UDP
    tweedctl where '[fd00:96::a]:443'

  All that a Service is reached by, or one of its ports, as one node has it:
    tweedctl where shop/web --node worker-1
    tweedctl where shop/web:80 --node worker-1

  A node port; what a certain client meets; for a program:
    tweedctl where nodeport:30080 --from outside
    tweedctl where 203.0.113.7:443 --from 198.51.100.20 -o json

Each node decides for itself: for a pod ask its own node, for a client outside the one that
gets its packets. Endpoints are those that new connections are sent to; what was connected
before stays where it is.";

/// The arguments of `where`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct WhereTo {
    /// ADDRESS:PORT, NAMESPACE/SERVICE[:PORT] or nodeport:PORT, with /TCP, /UDP or
    /// /SCTP; TCP if not given, of a Service all
    #[arg(value_name = "DESTINATION", value_parser = destination)]
    to: Destination,

    /// Who connects: an address, or pod, node (the one that answers) or outside; if not
    /// given, each of the three
    #[arg(long, value_name = "CLIENT", value_parser = client)]
    from: Option<Client>,

    /// List up to 600 endpoints instead of 16 for a port
    #[arg(long)]
    all: bool,
}

/// What one node answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The answer.
    pub steps: Vec<Step>,
}

impl Verb for WhereTo {
    type Report = Report;
    const NAME: &'static str = "where";

    fn local(&self, node: &Node) -> Result<Report, Unanswered> {
        let (to, from, all) = (self.to.clone(), self.from, self.all);
        let asked = Where { to, from, all };
        let steps = ask(node, asked)?;
        Ok(Report { steps })
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![Self::NAME.to_owned(), typed(&self.to)];
        let from = self.from.map(typed_client);
        arguments.extend(from.map(|from| format!("--from={from}")));
        arguments.extend(self.all.then(|| "--all".to_owned()));
        arguments
    }

    fn render(&self, answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
        for (node, answer) in answers {
            match answer {
                Ok(report) => {
                    for step in &report.steps {
                        page.line(&step.to_string())?;
                    }
                }
                Err(why) => page.unanswered(node, why)?,
            }
        }
        Ok(())
    }
}

/// The agent's answer to this question.
///
/// # Errors
/// It has none.
pub fn ask(node: &Node, asked: Where) -> Result<Vec<Step>, Unanswered> {
    match node.ask(&Request::Explain(Question::Where(asked)))? {
        Answer::Where(steps) => Ok(steps),
        _ => Err(unexpected()),
    }
}
