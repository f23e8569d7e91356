//! `status`: how the nodes are, and what is wrong, each problem once with its cure.

mod kubernetes;
mod render;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use tweed_component::message::{AgentStatus, Answer, Drift, Found, RangeUse, Request};
use tweed_component::peers::PeerState;
use tweed_core::agent_state::{AGENT_STATE_FILE, LastState, Readiness};
use tweed_core::problem::Effect;
use tweed_core::{limits, regular_file};

use crate::answered::{Answered, Unanswered, reports};
use crate::cluster::Cluster;
use crate::exit::Exit;
use crate::node::{Node, unexpected};
use crate::output::{Format, Page};
use crate::verb::{Verb, show};

const EXAMPLES: &str = "\
Examples:
  How the cluster's nodes are:
    tweedctl status

  The same every 2 seconds, of two nodes:
    tweedctl status --watch --node worker1 --node worker2

  How this machine is, as root:
    tweedctl status --run-dir /run/tweed

With -o wide it shows pod CIDRs and kinds that the API server lacks, too. It ends with 1 if a
node is not ready or has a problem, and with 4 if one does not answer.";

/// Time between two looks with `--watch`.
const INTERVAL: Duration = Duration::from_secs(2);

/// The arguments of `status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// Look again every 2 seconds, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// How one node is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Report {
    /// The Node's name.
    pub node: String,
    /// Whether new pods are served.
    pub ready: bool,
    /// Whether running pods are affected too.
    pub affects_running: bool,
    /// The version of the agent that runs; none if it does not answer.
    pub agent: Option<String>,
    /// MTU of pods, in bytes.
    pub mtu: Option<u32>,
    /// The node's pod CIDRs.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
    /// How full they are.
    pub ranges: Vec<RangeUse>,
    /// The ways to other nodes; none if the agent does not probe them.
    pub peers: Option<Reached>,
    /// What is wrong, the worst first.
    pub problems: Vec<Found>,
    /// How many more problems there are.
    pub more_problems: usize,
    /// What else a person should know, a sentence each.
    pub notes: Vec<String>,
    /// What was put back since the agent started.
    pub drift: Vec<Drift>,
}

/// Ways to other nodes, without those to Nodes that are not Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// Those that answer.
    pub answer: usize,
    /// All.
    pub all: usize,
}

/// How many of the ways to other nodes answer.
fn reached(node: &Node) -> Option<Reached> {
    let Ok(Answer::Peers(peers)) = node.ask(&Request::Peers {}) else {
        return None;
    };
    let states = || peers.iter().map(|peer| peer.state);
    Some(Reached {
        answer: states()
            .filter(|state| *state == PeerState::Answers)
            .count(),
        all: states()
            .filter(|state| *state != PeerState::NotReady)
            .count(),
    })
}

/// What the agent has published in `agent.json`.
#[derive(Debug, Deserialize)]
struct Published {
    #[serde(default)]
    node: String,
    #[serde(flatten)]
    readiness: Readiness,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(flatten)]
    last: LastState,
}

impl Published {
    fn read(node: &Node) -> Result<Self, Unanswered> {
        let path = node.run_dir.join(AGENT_STATE_FILE);
        let unusable = |why: String| {
            Unanswered::new(format!(
                "{} says nothing: {why}; no agent has run with this folder since the machine's start, or this process may not read it",
                path.display()
            ))
        };
        let text = regular_file::read_text(&path, limits::LOCK)
            .map_err(|error| unusable(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))
    }

    /// What it says is wrong, of problems whose kinds it does not name.
    fn problems(&self) -> Vec<Found> {
        let effect = if self.readiness.affects_running {
            Effect::RunningPods
        } else {
            Effect::NewPods
        };
        let reasons = self.readiness.reasons.iter().map(|text| (effect, text));
        let warnings = self.warnings.iter().map(|text| (Effect::Warning, text));
        let found = reasons.chain(warnings).map(|(effect, text)| Found {
            kind: String::new(),
            object: String::new(),
            effect,
            message: text.clone(),
            cure: String::new(),
        });
        found.collect()
    }
}

/// That the agent does not run, or does not answer.
fn silent(why: &Unanswered) -> Found {
    Found {
        kind: "agent-silent".to_owned(),
        object: "tweed-agent".to_owned(),
        effect: Effect::NewPods,
        message: format!("{why}; what follows is what it has said last"),
        cure: "start the agent; pods that run keep their network without it".to_owned(),
    }
}

impl Report {
    /// How the node of this agent is.
    ///
    /// # Errors
    /// It has published nothing, or refuses to answer.
    pub(super) fn of(node: &Node) -> Result<Self, Unanswered> {
        let published = Published::read(node)?;
        let answer = match node.ask(&Request::Status {}) {
            Ok(Answer::Status(status)) => Ok(status),
            Ok(_) => Err(unexpected()),
            Err(why) if why.is_refusal => return Err(why),
            Err(why) => Err(why),
        };
        let agent = answer.as_ref().ok().map(|status| status.version.clone());
        let status = answer.unwrap_or_else(|why| AgentStatus {
            problems: std::iter::once(silent(&why))
                .chain(published.problems())
                .collect(),
            ..AgentStatus::default()
        });
        let peers = agent.as_ref().and_then(|_| reached(node));
        Ok(Self {
            peers,
            ..Self::new(published, status, agent)
        })
    }

    fn new(published: Published, status: AgentStatus, agent: Option<String>) -> Self {
        let worst = status.problems.iter().map(|one| one.effect).max();
        Self {
            node: published.node,
            ready: published.readiness.ready && worst < Some(Effect::NewPods),
            affects_running: published.readiness.affects_running,
            agent,
            mtu: published.last.mtu,
            pod_cidrs: published
                .last
                .pod_cidrs
                .iter()
                .map(ToString::to_string)
                .collect(),
            ranges: status.ranges,
            peers: None,
            problems: status.problems,
            more_problems: status.more_problems,
            notes: status.notes,
            drift: status.drift,
        }
    }
}

impl Verb for Status {
    type Report = Report;
    const NAME: &'static str = "status";

    fn local(&self, node: &Node) -> Result<Report, Unanswered> {
        Report::of(node)
    }

    fn render(&self, answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
        render::render(answers, page)
    }

    fn exit(&self, answers: &[Answered<Report>]) -> Exit {
        if reports(answers).any(|(_, report)| !report.ready || !report.problems.is_empty()) {
            Exit::Findings
        } else {
            Exit::Fine
        }
    }
}

impl Status {
    /// How this node is; with `--watch` again and again.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn on_node(&self, node: &Node, page: &mut Page<'_>) -> Result<Exit> {
        self.again_and_again(page, |page| {
            show(self, &[(String::new(), self.local(node))], page)
        })
    }

    /// How the nodes of a cluster are: first what Kubernetes says, as that is known at once.
    ///
    /// # Errors
    /// The cluster cannot be asked, or the answer cannot be written.
    pub fn in_cluster(&self, cluster: &Cluster, page: &mut Page<'_>) -> Result<Exit> {
        self.again_and_again(page, |page| {
            if page.format != Format::Json {
                kubernetes::show(cluster, page)?;
            }
            show(self, &self.remote(cluster)?, page)
        })
    }

    fn again_and_again(
        &self,
        page: &mut Page<'_>,
        mut look: impl FnMut(&mut Page<'_>) -> Result<Exit>,
    ) -> Result<Exit> {
        if !self.watch {
            return look(page);
        }
        loop {
            let is_screen = page.format != Format::Json && io::stdout().is_terminal();
            let clear: &[u8] = if is_screen { b"\x1b[H\x1b[2J" } else { b"" };
            let mut screen = clear.to_vec();
            let mut whole = Page::new(&mut screen, page.format);
            whole.has_colours = page.has_colours;
            // A server that is away for a moment does not end the watch.
            if let Err(error) = look(&mut whole) {
                whole.line(&format!("{error:#}"))?;
            }
            page.raw(&screen)?;
            std::thread::sleep(INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests;
