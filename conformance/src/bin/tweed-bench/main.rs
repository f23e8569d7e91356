//! `tweed-bench`: tweed measured beside its peers and beside the kernel's floor.
//!
//! ```text
//! subject   who is measured: the config, the program, its calls
//! call      one call as a runtime makes it: fork, exec, stdin, stdout
//! stage     a node of its own for each subject, with its pods
//! attach    the scenarios: all subjects in turn, round after round
//! stats     medians, spreads, ratios
//! report    the results as JSON and Markdown; plot: as SVG
//! ```
//!
//! What always holds: nothing is made in the machine's own network namespace;
//! subjects take turns within a round, and a ratio is taken within a round, so
//! that a machine that gets slower or faster meanwhile harms all alike.

mod attach;
mod call;
mod footprint;
mod plot;
mod report;
mod stage;
mod stats;
mod subject;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

/// Measures ADD and DEL of tweed beside other plugins and beside the kernel's
/// floor; writes attach.json, attach.md and attach.svg. Needs root.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Folder for the results.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Pods on the node that is not empty.
    #[arg(long, value_name = "N", default_value_t = 250)]
    crowd: usize,
    /// Calls at once, in the order in which they are measured.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 8, 32, 110])]
    at_once: Vec<usize>,
    /// Rounds with one call at a time; with N at once there are fewer.
    #[arg(long, value_name = "N", default_value_t = 40)]
    rounds: usize,
    /// One round, two calls at once, two pods: to see that the bench works.
    /// Its numbers say nothing.
    #[arg(long)]
    smoke: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr leaves nowhere to tell of it.
            let _ = writeln!(std::io::stderr(), "tweed-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = if arguments.smoke {
        attach::Plan {
            crowd: 2,
            at_once: vec![1, 2],
            rounds: 1,
        }
    } else {
        attach::Plan {
            crowd: arguments.crowd,
            at_once: arguments.at_once.clone(),
            rounds: arguments.rounds,
        }
    };
    let mut out = std::io::stdout();
    let report = attach::run(&plan, |line| {
        // A closed stdout is no reason to stop: the results go to files.
        let _ = writeln!(out, "{line}");
    })?;
    let markdown = report.markdown();
    let json = serde_json::to_string_pretty(&report).context("the results as JSON")?;
    fs::create_dir_all(&arguments.out).with_context(|| arguments.out.display().to_string())?;
    write(&arguments.out.join("attach.md"), &markdown)?;
    write(&arguments.out.join("attach.json"), &format!("{json}\n"))?;
    write(&arguments.out.join("attach.svg"), &plot::render(&report))?;
    let _ = write!(
        out,
        "\n{markdown}\nwritten to {}\n",
        arguments.out.display()
    );
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}
