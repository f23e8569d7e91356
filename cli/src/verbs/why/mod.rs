//! `why`: whether a connection is allowed, who decides, and where. The ends of a connection
//! are decided on their own nodes: here is what one node says, and how several are one answer.

mod cluster;
mod merge;

use std::io;
use std::net::SocketAddr;

use anyhow::Result as Outcome;
use clap::Args;
use serde::{Deserialize, Serialize};
use tweed_component::explain::{
    Client, Destination as Served, End, Explained, Question, Step, Verdict, Where, text,
};
use tweed_component::message::{Answer, Request};

use super::places::{Destination, Place, destination, source};
use super::{addresses, where_to};
use crate::agents::Agents;
use crate::answered::{Answered, Unanswered, reports};
use crate::exit::Exit;
use crate::node::{Node, unexpected};
use crate::output::{Page, Tone};
use crate::verb::Verb;

const EXAMPLES: &str = "\
Examples:
  May web-0 of namespace shop talk to port 5432 of db-0?
    tweedctl why shop/web-0 shop/db-0:5432

  Through a Service: where it leads, and what the policies of its pods say:
    tweedctl why shop/web-0 svc/shop/db:5432

  DNS; an address outside the cluster; a node; ping:
    tweedctl why shop/web-0 10.244.3.7:53/UDP
    tweedctl why shop/web-0 '[2001:db8::7]:443'
    tweedctl why node/worker-1 shop/db-0:5432
    tweedctl why 192.0.2.1 shop/db-0:icmp

  For a script: exit code 3 if it is denied, 4 if that is not known:
    tweedctl why shop/web-0 shop/db-0:5432 --exit-code

  A container without a pod, on its node:
    tweedctl why container/4f0a1c 192.0.2.7:443

The node of the source decides what may leave the source, that of the destination what may
reach the destination. With a kubeconfig both are asked; on a node only its own agent is,
and the answer says which end another node decides. A pod in a namespace called node,
container, pod or svc is pod/NAMESPACE/POD.";

/// The arguments of `why`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Why {
    /// Who begins the connection: NAMESPACE/POD, an address, node/NAME, or container/ID
    #[arg(value_name = "FROM", value_parser = source)]
    from: Place,

    /// Who answers: NAMESPACE/POD:PORT, svc/NAMESPACE/NAME:PORT, IP:PORT or
    /// node/NAME:PORT, with /TCP (if not given), /UDP or /SCTP; :icmp instead of a port
    /// means ping
    #[arg(value_name = "TO", value_parser = destination)]
    to: Destination,

    /// End with exit code 3 if the connection is denied
    #[arg(long)]
    exit_code: bool,
}

/// What one node answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Where the Service sends the connection; empty if the destination is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub service: Vec<Step>,
    /// What the policies say: of a Service for each of its endpoints, as the Service sends
    /// connections there.
    pub answers: Vec<Explained>,
}

impl Report {
    /// Whether a Service leads nowhere, or refuses the client in every way.
    fn is_refused(&self) -> bool {
        let mut ways = self.service.iter().filter_map(|step| step.verdict.as_ref());
        let is_closed = ways.clone().next().is_some() && ways.all(|one| *one == Verdict::Denied);
        is_closed || (!self.service.is_empty() && self.answers.is_empty())
    }
}

impl Verb for Why {
    type Report = Report;
    const NAME: &'static str = "why";

    fn local(&self, node: &Node) -> Result<Report, Unanswered> {
        let from = end(node, &self.from)?;
        let service = self.service(node, &from)?;
        if service.is_empty() {
            let to = end(node, &self.to.place)?;
            let answers = vec![ask(node, self.to.question(from, to))?];
            return Ok(Report { service, answers });
        }
        let mut endpoints: Vec<SocketAddr> = service.iter().filter_map(|s| s.endpoint).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        let mut answers = Vec::new();
        let mut refusal = None;
        for at in endpoints {
            let protocol = self.to.service.map(|(protocol, _)| (protocol, at.port()));
            let to = Destination {
                service: protocol,
                ..self.to.clone()
            };
            match ask(node, to.question(from.clone(), End::Address(at.ip()))) {
                Ok(explained) => answers.push(explained),
                // Of another family, mostly.
                Err(why) => refusal = Some(why),
            }
        }
        match refusal.filter(|_| answers.is_empty()) {
            Some(why) => Err(why),
            None => Ok(Report { service, answers }),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let (from, to) = (self.from.to_string(), self.to.to_string());
        vec![Self::NAME.to_owned(), from, to]
    }

    fn remote(&self, agents: &dyn Agents) -> Outcome<Vec<Answered<Report>>> {
        cluster::ask(self, agents)
    }

    fn render(&self, answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
        if let [(node, answer)] = answers
            && node.is_empty()
        {
            return match answer {
                Ok(report) => print(report, page),
                Err(why) => page.unanswered(node, why),
            };
        }
        page.line(&format!("{} → {}", self.from, self.to))?;
        for step in reports(answers).flat_map(|(_, report)| &report.service) {
            page.line(&format!("  {step}"))?;
        }
        let merged = merge::merged(answers);
        for (flow, steps) in &merged.flows {
            let mut lines = steps.iter();
            if let Some(first) = lines.next() {
                page.toned(tone(flow.verdict()), &first.to_string())?;
            }
            for step in lines {
                page.line(&step.to_string())?;
            }
        }
        for note in &merged.notes {
            page.line(&note.to_string())?;
        }
        page.all_unanswered(answers)
    }

    fn exit(&self, answers: &[Answered<Report>]) -> Exit {
        let merged = merge::merged(answers);
        let flows = merged.flows.iter();
        let verdicts: Vec<&Verdict> = flows.map(|(flow, _)| flow.verdict()).collect();
        let mut open = verdicts
            .iter()
            .filter(|one| matches!(one, Verdict::DecidedBy(_)));
        let is_open = open.next().is_some();
        let is_of_one_node = answers.iter().all(|(node, _)| node.is_empty());
        let is_denied = verdicts.contains(&&Verdict::Denied);
        if self.exit_code && (is_denied || reports(answers).any(|(_, report)| report.is_refused()))
        {
            Exit::Denied
        } else if is_open && (self.exit_code || !is_of_one_node) {
            Exit::Undetermined
        } else {
            Exit::Fine
        }
    }
}

impl Why {
    /// Where the Service that is meant, or that has the address, sends the connection; empty
    /// if the destination is none.
    fn service(&self, node: &Node, from: &End) -> Result<Vec<Step>, Unanswered> {
        let Some((protocol, port)) = self.to.service else {
            return Ok(Vec::new());
        };
        let to = match &self.to.place {
            Place::Service(namespace, name) => Served::Service {
                namespace: namespace.clone(),
                name: name.clone(),
                port: Some(port),
                protocol: Some(protocol),
            },
            Place::End(End::Address(address)) => {
                Served::Address(SocketAddr::new(*address, port), protocol)
            }
            _ => return Ok(Vec::new()),
        };
        let from = match from {
            End::Address(address) => Some(Client::Address(*address)),
            End::Pod { .. } => Some(Client::Pod),
            End::Node(_) => None,
        };
        let asked = Where {
            to,
            from,
            all: false,
        };
        match (where_to::ask(node, asked), &self.to.place) {
            (Err(why), Place::Service(..)) => Err(why),
            // Services may be off, and the address is mostly a pod's.
            (Err(_), _) => Ok(Vec::new()),
            (Ok(steps), _) if steps.iter().any(|step| step.object.starts_with("Service ")) => {
                Ok(steps)
            }
            (Ok(_), _) => Ok(Vec::new()),
        }
    }
}

/// The end that an agent knows a place by.
fn end(node: &Node, place: &Place) -> Result<End, Unanswered> {
    match place {
        Place::End(end) => Ok(end.clone()),
        Place::Container(id) => addresses::of_container(node, id).map(End::Address),
        Place::Service(namespace, name) => {
            let what = format!("svc/{namespace}/{name} is no end of a connection");
            Err(Unanswered::new(what))
        }
    }
}

fn ask(node: &Node, why: tweed_component::explain::Why) -> Result<Explained, Unanswered> {
    match node.ask(&Request::Explain(Question::Why(why)))? {
        Answer::Why(explained) => Ok(explained),
        _ => Err(unexpected()),
    }
}

fn print(report: &Report, page: &mut Page<'_>) -> io::Result<()> {
    let policies = report.answers.iter().flat_map(Explained::steps);
    let steps: Vec<Step> = report.service.iter().cloned().chain(policies).collect();
    text(&steps).lines().try_for_each(|line| page.line(line))
}

fn tone(verdict: &Verdict) -> Tone {
    match verdict {
        Verdict::Allowed | Verdict::NoPod => Tone::Good,
        Verdict::Denied => Tone::Bad,
        Verdict::DecidedBy(_) => Tone::Warning,
    }
}
