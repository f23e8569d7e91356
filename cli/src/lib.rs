//! `tweedctl`: asks the agents of one node or of a whole cluster, and prints what they answer.
//!
//! How data flows: [`args`] is what can be typed, and [`target`] says who is meant. On a node a
//! verb asks the agent's socket ([`node`]) and gets its report. In a cluster the same
//! `tweedctl VERB … -o json` runs beside each agent ([`agents`], carried out by exec), and what
//! it prints is read as that report ([`answered`]). So each verb is a [`verb::Verb`]: one question with one
//! report, which is asked in two ways and printed in one, and [`verb::show`] prints it as JSON
//! or has it rendered on a page ([`output`]). [`exit`] is the number at the end.
//!
//! Nothing listens: the only ways in are the agent's socket and the API server.

pub mod agents;
pub mod answered;
pub mod args;
pub mod cluster;
pub mod exit;
pub mod node;
pub mod output;
pub mod target;
pub mod verb;
pub mod verbs;

use std::time::Duration;

use anyhow::Result;
use clap::CommandFactory as _;
use clap::error::ErrorKind;

use answered::Unanswered;
use args::{Cli, Command};
use cluster::Cluster;
use exit::Exit;
use output::{Format, Page};
use target::{Common, Surroundings, Target, target};
use verb::{Verb, show};

/// The version of this program, with its commit.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TWEED_COMMIT"), ")");

/// Does what was typed.
///
/// # Errors
/// Nobody can be asked, or the answer cannot be written.
pub fn run(cli: &Cli, page: &mut Page<'_>) -> Result<Exit> {
    let common = &cli.common;
    match &cli.command {
        Command::Status(verb) => match target(common, Surroundings::find())? {
            Target::Node(node) => verb.on_node(&node, page),
            Target::Cluster => verb.in_cluster(&Cluster::connect(common)?, page),
        },
        Command::Doctor(verb) => match target(common, Surroundings::find())? {
            Target::Node(_) => ask(verb, common, page),
            Target::Cluster => verb.in_cluster(&Cluster::connect(common)?, page),
        },
        Command::Bundle(verb) => match target(common, Surroundings::find())? {
            Target::Node(node) => verb.on_node(&node, page),
            Target::Cluster => verb.in_cluster(&Cluster::connect(common)?, page),
        },
        Command::Graph(verb) => match target(common, Surroundings::find())? {
            Target::Node(_) => {
                let why = "a drawing is of a cluster: give --kubeconfig in place of --run-dir";
                Err(Cli::command().error(ErrorKind::ArgumentConflict, why))?
            }
            Target::Cluster => verb.in_cluster(&Cluster::connect(common)?, page),
        },
        Command::Why(verb) => ask(verb, common, page),
        Command::Where(verb) => ask(verb, common, page),
        Command::Addresses(verb) => ask(verb, common, page),
        Command::Peers(verb) => ask(verb, common, page),
        Command::Drops(verb) if verb.follow => follow(verb, common, page),
        Command::Drops(verb) => ask(verb, common, page),
        Command::FastPath(verb) => ask(verb, common, page),
        Command::Version(verb) => {
            if page.format != Format::Json {
                page.line(&format!("tweedctl {VERSION}"))?;
            }
            match target(common, Surroundings::find()) {
                // There is nobody else whose version could be told.
                Err(_) if page.format != Format::Json => Ok(Exit::Fine),
                Err(why) => {
                    let nobody = Err(Unanswered::new(why.to_string()));
                    show(verb, &[(String::new(), nobody)], page)
                }
                Ok(_) => ask(verb, common, page),
            }
        }
        Command::Completion(verb) => verb.run(Cli::command(), page),
        Command::Man(verb) => verb.run(Cli::command(), page),
    }
}

/// Asks a verb of its target, and prints the answers.
fn ask<V: Verb>(verb: &V, common: &Common, page: &mut Page<'_>) -> Result<Exit> {
    let answers = match target(common, Surroundings::find())? {
        Target::Node(node) => vec![(String::new(), verb.local(&node))],
        Target::Cluster => verb.remote(&Cluster::connect(common)?)?,
    };
    show(verb, &answers, page)
}

/// Asks again every second, until what is printed cannot be written any more.
fn follow<V: Verb>(verb: &V, common: &Common, page: &mut Page<'_>) -> Result<Exit> {
    ask(verb, common, page)?;
    loop {
        page.flush()?;
        std::thread::sleep(Duration::from_secs(1));
        match ask(verb, common, page) {
            // An agent that is away for a moment does not end it.
            Err(error) if page.format != Format::Json => page.line(&format!("{error:#}"))?,
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
}
