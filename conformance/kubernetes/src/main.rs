//! `tweed-lab`: the demo and the cluster, for people.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tweed_lab::demo;

mod cluster_verbs;

/// Nodes and pods as network namespaces on this machine.
#[derive(Debug, Parser)]
#[command(name = "tweed-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Three nodes, two pods on each, every path checked; then one node more
    /// and one less, and every path again. Needs root.
    Demo {
        /// Leave it up at the end, to look around.
        #[arg(long)]
        keep: bool,
        /// Draw the topology into this file, too.
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        #[command(flatten)]
        lab: LabName,
    },
    /// Take away a demo that was left up, or that a kill -9 left behind.
    Down {
        #[command(flatten)]
        lab: LabName,
        /// And whatever killed tests left.
        #[arg(long)]
        all: bool,
    },
    /// A real Kubernetes cluster on this machine. Needs root, and what
    /// `conformance/setup.sh e2e` builds.
    #[command(subcommand)]
    Cluster(cluster_verbs::ClusterVerb),
}

#[derive(Debug, clap::Args)]
struct LabName {
    /// The lab's name: that of each namespace starts with it.
    #[arg(long, value_name = "NAME", default_value = "demo")]
    name: String,
}

fn main() -> ExitCode {
    let mut out = std::io::stdout();
    let outcome = match Arguments::parse().command {
        Verb::Demo { keep, svg, lab } => demo::run(&mut out, &lab.name, keep, svg.as_deref()),
        Verb::Down { lab, all } => demo::down(&mut out, &lab.name, all),
        Verb::Cluster(verb) => cluster_verbs::run(&mut out, &verb),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr leaves nowhere to tell of it.
            let _ = writeln!(std::io::stderr(), "tweed-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
