//! `tweed-chaos`: random faults in a cluster of namespaces, and checks that it is whole
//! after each burst of them.
//!
//! ```text
//! random, burst    what happens, as a function of a seed
//! actions          everything that is done to a cluster, a table by area
//! world            the cluster, its pods, the container runtime
//! plan             what each kernel should hold
//! policy           policies and labels, and what they say
//! services         Services, and where they lead to
//! checks           what has to hold after every burst
//! driver           a run of bursts
//! whole            the wait until everything is whole
//! shrink           a failing list of bursts made shorter
//! repairs          instead of bursts: how long each damage lasts, one at a time
//! ```
//!
//! A burst is a function of the seed and its number, and what an action works on is
//! chosen among what there is, so that any selection of actions can be repeated.

mod actions;
mod burst;
mod checks;
mod driver;
mod plan;
mod policy;
mod random;
mod repairs;
mod services;
mod shrink;
mod whole;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use tweed_lab::LabError;

use burst::Step;
use driver::{Ending, Setup, say};

/// Does random things to a small cluster and checks that it is whole after each burst.
/// Needs root.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// How long bursts are started, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// What happens follows from this number; without it from the clock.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only these bursts (12) and actions of bursts (12.3), instead of a time.
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "seed")]
    only: Vec<Step>,
    /// Only actions whose names have these words in them; may be repeated.
    #[arg(long, value_name = "WORDS", value_parser = actions::part_of_a_name)]
    kind: Vec<String>,
    /// Number of nodes at the start.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(4..=6))]
    nodes: u8,
    /// Number of pods.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100))]
    pods: u8,
    /// After a finding, how long a shorter list of actions is looked for, in seconds.
    #[arg(long, value_name = "N", default_value_t = 600)]
    shrink_seconds: u64,
    /// Instead of bursts: damage each kind of tweed's objects N times, one at a time, and
    /// print how long until it was put back.
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "only", "kind"])]
    repairs: Option<u32>,
    /// Print each action, and what is missing while the driver waits.
    #[arg(long, short)]
    verbose: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("tweed-chaos: {}", error.chain()));
            ExitCode::FAILURE
        }
    }
}

/// Whether everything was whole after every burst.
fn run(arguments: &Arguments) -> Result<bool, LabError> {
    let setup = Setup {
        nodes: arguments.nodes,
        pods: arguments.pods.into(),
        weights: actions::weights(&arguments.kind),
        is_verbose: arguments.verbose,
    };
    let seed = arguments.seed.unwrap_or_else(seed_of_the_clock);
    say(&format!("seed {seed}"));
    if let Some(rounds) = arguments.repairs {
        let measured = repairs::measure(seed, rounds, &setup)?;
        return Ok(match measured {
            Ok(figures) => {
                say(&figures.to_string());
                figures.is_promise_kept()
            }
            Err(report) => {
                say(&format!("FINDING with seed {seed}:\n{report}"));
                false
            }
        });
    }
    let (ending, figures) = match arguments.only.as_slice() {
        [] => driver::run(seed, Duration::from_secs(arguments.seconds), &setup)?,
        only => driver::replay(seed, only, &setup)?,
    };
    let Ending::Finding { steps, report } = ending else {
        say(&format!("no finding: {figures}"));
        return Ok(true);
    };
    say(&format!("FINDING with seed {seed}:\n{report}"));
    let steps = if arguments.only.is_empty() {
        steps
    } else {
        arguments.only.clone()
    };
    let limit = Duration::from_secs(arguments.shrink_seconds);
    let shortest = shorter(seed, steps, &setup, limit)?;
    let only: Vec<String> = shortest.iter().map(ToString::to_string).collect();
    say(&format!(
        "repeat the shortest list that failed: tweed-chaos --seed {seed} --nodes {} --pods {} \
         --verbose --only {}{}",
        setup.nodes,
        setup.pods,
        only.join(","),
        // What the number of a burst means depends on them.
        arguments
            .kind
            .iter()
            .map(|words| format!(" --kind {words:?}"))
            .collect::<String>()
    ));
    Ok(false)
}

/// The shortest list of actions that fails again, as far as it is found in time. What
/// depends on a moment may not come back; then the list stays as it is.
fn shorter(
    seed: u64,
    steps: Vec<Step>,
    setup: &Setup,
    limit: Duration,
) -> Result<Vec<Step>, LabError> {
    let start = Instant::now();
    let mut failure = None;
    let mut fails = |steps: &[Step]| {
        if start.elapsed() >= limit {
            return None;
        }
        match driver::replay(seed, steps, setup) {
            Ok((ending, _)) => {
                // A fresh cluster that was not whole before its first burst says nothing
                // about the list.
                let failed = matches!(&ending, Ending::Finding { steps, .. } if !steps.is_empty());
                let outcome = if failed { "fail" } else { "pass" };
                say(&format!("shrinking: {} steps {outcome}", steps.len()));
                // A shorter list may fail for another reason: the reader has to see it.
                if let Ending::Finding { report, .. } = ending {
                    let lines = report.lines().take_while(|line| !line.starts_with("---"));
                    lines.for_each(|line| say(&format!("  {line}")));
                }
                Some(failed)
            }
            Err(error) => {
                failure = Some(error);
                None
            }
        }
    };
    let bursts = match steps.last() {
        // Most often the last burst is enough.
        Some(last) if steps.len() > 1 && fails(&[*last]) == Some(true) => vec![*last],
        _ => shrink::shrink(&steps, &mut fails),
    };
    let actions: Vec<Step> = bursts
        .iter()
        .flat_map(|step| {
            let whole = burst::selected(seed, &[*step], &setup.weights);
            let actions = whole.into_iter().flat_map(|(_, actions)| actions);
            actions.map(|action| Step {
                action: Some(action.number),
                ..*step
            })
        })
        .collect();
    let shortest = shrink::shrink(&actions, &mut fails);
    match failure {
        Some(error) => Err(error),
        None => Ok(shortest),
    }
}

fn seed_of_the_clock() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    // Short enough to be typed.
    u64::from(now.subsec_nanos()) ^ (now.as_secs() & 0xffff)
}
