//! `graph`: the nodes and the ways between them as a drawing.

mod picture;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::agents::Agents;
use crate::answered::Unanswered;
use crate::exit::Exit;
use crate::output::Page;
use crate::verb::ask;
use crate::verbs::peers::Peers;
use crate::verbs::status::{self, Status};

const EXAMPLES: &str = "\
Examples:
  All nodes, with the time that a packet takes from one to the other and back:
    tweedctl graph --file network.svg

Red nodes and lines have something wrong: a line at both ends says which of the two finds it.";

/// The arguments of `graph`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Graph {
    /// The drawing, SVG; if not given, it is printed
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Graph {
    /// Draws a cluster.
    ///
    /// # Errors
    /// It cannot be asked, or the drawing cannot be written.
    pub fn in_cluster(&self, agents: &dyn Agents, page: &mut Page<'_>) -> Result<Exit> {
        let reports = ask(&Status::default(), agents, None)?;
        let peers = ask(&Peers {}, agents, None)?;
        let svg = picture::draw(&reports, &peers);
        match &self.file {
            Some(path) => {
                fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?
            }
            None => page.raw(svg.as_bytes())?,
        }
        let all_known = reports.iter().all(|(_, report)| report.is_ok())
            && peers.iter().all(|(_, peers)| peers.is_ok());
        Ok(if all_known {
            Exit::Fine
        } else {
            Exit::Undetermined
        })
    }
}

/// How bad a node is, and what is written below its name.
fn words(report: &Result<status::Report, Unanswered>) -> (&'static str, String) {
    match report {
        Err(_) => ("bad", "no answer".to_owned()),
        Ok(report) if !report.ready => ("bad", "not ready".to_owned()),
        Ok(report) => match report.problems.len() + report.more_problems {
            0 => ("good", "ready".to_owned()),
            count => ("doubtful", format!("ready, {count} warnings")),
        },
    }
}

#[cfg(test)]
mod tests;
