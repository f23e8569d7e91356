//! `tweed-lab`: the demo, and clusters to work with.

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
    /// Create three nodes with two pods each and check every path; then add a node,
    /// remove one, and check every path again. Needs root.
    Demo {
        /// Keep the lab at the end.
        #[arg(long)]
        keep: bool,
        /// Also draw the topology into this file.
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        #[command(flatten)]
        lab: LabName,
    },
    /// Show NetworkPolicies at work between the pods of three nodes: who reaches whom
    /// before and after, and why one connection is denied. Needs root.
    Policy {
        /// The lab's name, with which the name of each of its namespaces starts.
        #[arg(long, value_name = "NAME", default_value = "policy")]
        name: String,
    },
    /// Remove a demo that was kept, or that a killed program has left.
    Down {
        #[command(flatten)]
        lab: LabName,
        /// Also remove everything that killed tests have left.
        #[arg(long)]
        all: bool,
    },
    /// Create, remove or list real Kubernetes clusters on this machine. Needs root,
    /// and what `conformance/setup.sh e2e` builds.
    #[command(subcommand)]
    Cluster(cluster_verbs::ClusterVerb),
}

#[derive(Debug, clap::Args)]
struct LabName {
    /// The lab's name, with which the name of each of its namespaces starts.
    #[arg(long, value_name = "NAME", default_value = "demo")]
    name: String,
}

fn main() -> ExitCode {
    let mut out = std::io::stdout();
    let outcome = match Arguments::parse().command {
        Verb::Demo { keep, svg, lab } => demo::run(&mut out, &lab.name, keep, svg.as_deref()),
        Verb::Policy { name } => demo::policy::run(&mut out, &name),
        Verb::Down { lab, all } => demo::down(&mut out, &lab.name, all),
        Verb::Cluster(verb) => cluster_verbs::run(&mut out, &verb),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr is closed, there is nowhere to report it.
            let _ = writeln!(std::io::stderr(), "tweed-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
