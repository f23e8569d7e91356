//! `tweed-bench`: tweed measured beside its peers and beside the kernel's floor.
//!
//! ```text
//! attach    ADD and DEL
//! converge  from the source of Nodes to the kernel
//! carry     packets between pods
//! stats     medians, spreads, ratios
//! report    what the results of all verbs have in common
//! first     threads that do not wait for a CPU
//! ```
//!
//! What always holds: nothing is made in the machine's own network namespace; a
//! verb's results are written before the next verb begins.

mod attach;
mod carry;
mod converge;
mod first;
mod report;
mod stats;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use report::Results;

/// Measures tweed beside its peers and beside the kernel's floor; writes tables
/// (Markdown, JSON) and a plot (SVG) for each verb. Without a verb: all of them.
/// Needs root.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Folder for the results.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "target/bench",
        global = true
    )]
    out: PathBuf,
    /// As little of everything as there can be, whatever else is asked for: to
    /// see that the bench works. Its numbers say nothing.
    #[arg(long, global = true)]
    smoke: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// ADD and DEL beside other plugins and beside the kernel's floor.
    Attach(attach::Plan),
    /// Packets between pods, beside other pod networks and beside no overlay.
    Carry(carry::Plan),
    /// 5,000 Nodes from an API server or a file to the kernel.
    Converge(converge::Plan),
}

impl Verb {
    /// Every verb, in the order in which they run.
    fn all() -> Vec<Self> {
        vec![
            Self::Attach(attach::Plan::default()),
            Self::Converge(converge::Plan::default()),
            Self::Carry(carry::Plan::default()),
        ]
    }

    /// The same verb at its smallest.
    fn smoke(self) -> Self {
        match self {
            Self::Attach(_) => Self::Attach(attach::Plan::smoke()),
            Self::Converge(plan) => Self::Converge(plan.smoke()),
            Self::Carry(plan) => Self::Carry(plan.smoke()),
        }
    }

    /// Measures; one that takes long writes to `out` as it goes.
    fn run(&self, out: &Path, say: impl FnMut(&str)) -> anyhow::Result<Results> {
        match self {
            Self::Attach(plan) => plan.run(out, say),
            Self::Converge(plan) => plan.run(out, say),
            Self::Carry(plan) => plan.run(out, say),
        }
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr leaves nowhere to tell of it.
            let _ = writeln!(std::io::stderr(), "tweed-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let verbs = arguments.verb.map_or_else(Verb::all, |verb| vec![verb]);
    for verb in verbs {
        let verb = if arguments.smoke { verb.smoke() } else { verb };
        let results = verb.run(&arguments.out, |line| {
            // A closed stdout is no reason to stop: the results go to files.
            let _ = writeln!(out, "{line}");
        })?;
        results.write(&arguments.out)?;
        let Results { name, markdown, .. } = results;
        let folder = arguments.out.display();
        let _ = write!(out, "\n{markdown}\n{name} written to {folder}\n");
    }
    Ok(())
}
