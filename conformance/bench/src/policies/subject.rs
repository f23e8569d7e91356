//! Who does what is measured on a node: tweed's agent, a program of others, or nobody.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use tweed_lab::Underlay;

use super::host::{Attached, Host};
use crate::stats::turns;

/// A column of the tables.
#[derive(Debug)]
pub struct Subject {
    pub name: String,
    pub who: Who,
}

#[derive(Debug)]
pub enum Who {
    /// `tweed-agent` with these flags.
    Tweed(&'static [&'static str]),
    /// A program of others with its flags, beside an agent with flags that leave the work to
    /// it. None if it is not built.
    Peer {
        program: Option<PathBuf>,
        flags: Vec<String>,
        agent: &'static [&'static str],
    },
    /// The floor of what is measured.
    Nobody,
}

impl Subject {
    /// Whether it can be measured.
    pub fn is_there(&self) -> bool {
        !matches!(self.who, Who::Peer { program: None, .. })
    }

    pub fn is_peer(&self) -> bool {
        matches!(self.who, Who::Peer { .. })
    }
}

/// A subject on a node of its own.
pub struct Contender<'a> {
    pub subject: &'a Subject,
    /// Its number among the columns.
    pub column: usize,
    pub host: Host,
}

impl<'a> Contender<'a> {
    /// On a node with its pods, where nobody does the work yet.
    fn new(
        underlay: &Underlay,
        subject: &'a Subject,
        column: usize,
        locals: usize,
    ) -> anyhow::Result<Self> {
        let mut host = Host::new(underlay, column as u8 + 1, locals)?;
        match subject.who {
            Who::Tweed(flags) => {
                host.stop_agent()?;
                host.set_flags(flags);
            }
            Who::Peer { agent, .. } => {
                host.stop_agent()?;
                host.set_flags(agent);
                host.start_agent()?;
            }
            Who::Nobody => {}
        }
        Ok(Self {
            subject,
            column,
            host,
        })
    }

    /// All that are there, each on its node once `begin` has done its part, in this round's
    /// order.
    pub fn all(
        underlay: &Underlay,
        subjects: &'a [Subject],
        (round, locals): (usize, usize),
        mut begin: impl FnMut(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Self>> {
        let there = |column: &usize| subjects[*column].is_there();
        let columns = turns(round, subjects.len()).filter(there);
        let made = columns.map(|column| {
            let subject = &subjects[column];
            let mut one = Self::new(underlay, subject, column, locals)?;
            begin(&mut one)
                .with_context(|| format!("{}{}", subject.name, one.host.last_lines_of_peer()))?;
            Ok(one)
        });
        made.collect()
    }

    /// Starts who does the work; gives the moment before.
    pub fn start(&mut self) -> anyhow::Result<Instant> {
        match &self.subject.who {
            Who::Tweed(_) => self.host.start_agent(),
            Who::Peer { program, flags, .. } => {
                let program = program.as_ref().context("it is not built")?;
                let own = [
                    format!("--kubeconfig={}", self.host.kubeconfig.display()),
                    format!("--hostname-override={}", self.host.node.name()),
                ];
                self.host.start_peer(program, own.iter().chain(flags))
            }
            Who::Nobody => Ok(Instant::now()),
        }
    }

    /// The pod that packets are sent to.
    pub fn server(&self) -> &Attached {
        &self.host.ends[0]
    }

    /// The pod that sends to it.
    pub fn client(&self) -> &Attached {
        &self.host.ends[1]
    }
}
