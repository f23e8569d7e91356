//! `tweed-bench`: tweed measured beside its peers, and beside another build of itself.
//!
//! ```text
//! attach     ADD and DEL
//! converge   from an API server with 5,000 Nodes, or as many as are asked for, to the kernel
//! carry      packets between pods, by iperf3 and sockperf
//! policies   load, changes, packets and ADD with policies
//! services   load, changes and packets with Services, beside kube-proxy
//! fairness   how long a change waits for what a tenant has very many of
//! cost       what programs and the kernel have used
//! stats      medians, intervals, the order of turns
//! report     tables of Markdown
//! ```
//!
//! All subjects of a benchmark take turns within a round, and a ratio is taken within a
//! round, so a machine that gets slower meanwhile harms all alike. Nothing is made
//! in the machine's own network namespace.

mod attach;
mod carry;
mod converge;
mod cost;
mod fairness;
mod policies;
mod report;
mod services;
mod stats;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use tweed_lab::{Lab, Programs, Underlay};

use report::Report;

/// Measures tweed beside its peers and writes tables of Markdown. Needs root.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// What to measure; without it everything.
    #[arg(value_enum)]
    benchmarks: Vec<Benchmark>,
    /// Folder for the tables [default: bench in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// How much is measured.
#[derive(Debug, clap::Args)]
struct Options {
    /// The release programs of another build of tweed: `attach` and `converge`
    /// measure it in the same rounds, in a column of its own.
    #[arg(long, value_name = "DIR")]
    before: Option<PathBuf>,
    /// Rounds, instead of each benchmark's own number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Numbers of Nodes for `converge`, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "5000",
          value_parser = clap::value_parser!(u16).range(1..=20_000))]
    nodes: Vec<u16>,
    /// The least of everything, to see that all works. The numbers mean nothing.
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
}

impl Options {
    fn rounds(&self, usual: usize) -> usize {
        if self.quick {
            return 1;
        }
        self.rounds.map_or(usual, usize::from)
    }

    /// The size of something in a full run or in a quick one.
    fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// One of the programs of the other build, where one was named.
    fn program_before(&self, name: &str) -> anyhow::Result<Option<PathBuf>> {
        let Some(folder) = &self.before else {
            return Ok(None);
        };
        // Without links and dots: it is run from other working directories.
        let path = folder.join(name);
        let resolved = std::fs::canonicalize(&path);
        let found = resolved.with_context(|| format!("--before: {}", path.display()))?;
        Ok(Some(found))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    /// ADD and DEL beside other plugins.
    Attach,
    /// An agent's start over 5,000 Nodes, one Node, heartbeats, memory.
    Converge,
    /// Streams, packets and requests between pods.
    Carry,
    /// Policies: load, one change, the cost of a packet, ADD.
    Policies,
    /// Services: load, one change, the cost of a packet, beside kube-proxy.
    Services,
    /// How long a change waits for a tenant's huge Service, or its many rules of policies.
    Fairness,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::progress(&format!("tweed-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments {
        benchmarks,
        out,
        options,
    } = arguments;
    let benchmarks = match benchmarks.as_slice() {
        [] => Benchmark::value_variants(),
        some => some,
    };
    let compares = [Benchmark::Attach, Benchmark::Converge];
    if options.before.is_some() && !benchmarks.iter().any(|one| compares.contains(one)) {
        anyhow::bail!("--before is for attach and converge: the others measure one build of tweed");
    }
    let out = match out {
        Some(folder) => folder,
        None => Programs::find()?.target().join("bench"),
    };
    for benchmark in benchmarks {
        let lab = Lab::new()?;
        let underlay = Underlay::new(&lab)?;
        let measure = match benchmark {
            Benchmark::Attach => attach::measure,
            Benchmark::Converge => converge::measure,
            Benchmark::Carry => carry::measure,
            Benchmark::Policies => policies::measure,
            Benchmark::Services => services::measure,
            Benchmark::Fairness => fairness::measure,
        };
        let report: Report = measure(&options, &underlay, out.clone())?;
        report.save()?;
        // A closed stdout is no failure: the tables are in files, too.
        let _ = writeln!(std::io::stdout(), "{}", report.markdown());
    }
    Ok(())
}
