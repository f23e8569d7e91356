//! `tweed-e2e`: tweed in a real Kubernetes cluster, from end to end.
//!
//! ```text
//! scenarios   what is shown, one file each, and the table of them
//! stage       what a scenario gets: the cluster, a namespace, a notebook
//! accounts    who says which pods there are
//! newcomer    a node that comes in a scenario, and goes
//! overlay     what nodes' kernels hold of each other
//! place       where packets start and end: a pod, a node, the host outside
//! node        a node, by both of its addresses
//! ask         questions to servers: who answers, and whom does it see?
//! plugin      the plugin called by hand
//! pods        pods that only are there
//! traffic     packets and connections of which none may be lost
//! run         one cluster for all scenarios, and what is told of each
//! results     what goes to files
//! ```
//!
//! What always holds: the cluster is gone at the end, unless it is to be kept;
//! a scenario that fails does not keep the others from running.

mod accounts;
mod ask;
mod newcomer;
mod node;
mod overlay;
mod place;
mod plugin;
mod pods;
mod results;
mod run;
mod scenarios;
mod stage;
mod traffic;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use scenarios::{Scenario, Tier};

/// Shows tweed at work in a real Kubernetes cluster on this machine; writes
/// what it saw to files. Needs root, and what `conformance/setup.sh e2e` and
/// `make image` build.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Tell which scenarios there are, and run none.
    #[arg(long)]
    list: bool,
    /// Run this scenario; any number of times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run all of it at full size: more pods, longer outages, more rounds.
    #[arg(long)]
    full: bool,
    /// Leave the cluster up at the end.
    #[arg(long)]
    keep: bool,
    /// Nodes beside the control-plane node.
    #[arg(long, default_value_t = 3)]
    workers: u8,
    /// The cluster's name: that of each namespace starts with it.
    #[arg(long, value_name = "NAME", default_value = "e2e")]
    name: String,
    /// Run in a cluster that was left up, of this name, and leave it up.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["name", "workers", "keep"])]
    cluster: Option<String>,
    /// Folder for the results.
    #[arg(long, value_name = "DIR", default_value = "target/e2e")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match begin(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // A closed stderr leaves nowhere to tell of it.
            let _ = writeln!(std::io::stderr(), "tweed-e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what is asked for; whether all of it passed.
fn begin(arguments: &Arguments) -> anyhow::Result<bool> {
    let tier = if arguments.full { Tier::Full } else { Tier::Ci };
    let chosen = scenarios::choose(&arguments.only)?;
    if arguments.list {
        return list(&chosen).map(|()| true);
    }
    run::run(arguments, tier, &chosen)
}

fn list(chosen: &[&Scenario]) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    for scenario in chosen {
        let Scenario { name, shows, .. } = scenario;
        writeln!(out, "{name:<12} {shows}")?;
    }
    Ok(())
}
