//! A run: bursts of actions, after each of which everything has to become whole.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

use tweed_lab::LabError;

use crate::actions;
use crate::burst::Step;
use crate::burst::{Action, burst, selected};
use crate::checks::Checks;
use crate::whole::{self, Whole};
use crate::world::World;

/// Size of the cluster, what is done to it, and whether every action is printed.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Number of nodes at the start.
    pub nodes: u8,
    /// Number of pods.
    pub pods: usize,
    /// How often each kind of action is chosen.
    pub weights: Vec<usize>,
    /// Whether actions are printed as they happen.
    pub is_verbose: bool,
}

/// What a run without a finding shows.
#[derive(Debug, Default)]
pub struct Figures {
    bursts: u64,
    /// How often each kind of action was done.
    done: BTreeMap<&'static str, u64>,
    /// How the cluster became whole after each burst, by the burst's number.
    whole: Vec<(u64, Whole)>,
}

/// The end of a run.
#[derive(Debug)]
pub enum Ending {
    /// Everything was whole after every burst.
    Whole,
    /// It was not after the last of these bursts.
    Finding {
        /// All bursts up to that one.
        steps: Vec<Step>,
        /// What was not whole, and the actions of the last burst.
        report: String,
    },
}

/// Bursts 0, 1, 2… until the time is over, which begins with the first one.
///
/// # Errors
/// The lab fails: no root, a missing program.
pub fn run(seed: u64, length: Duration, setup: &Setup) -> Result<(Ending, Figures), LabError> {
    let mut start = None;
    let is_time = |_: &u64| start.get_or_insert_with(Instant::now).elapsed() < length;
    let bursts = (0..).take_while(is_time);
    play(
        bursts.map(|number| (number, burst(seed, number, &setup.weights))),
        setup,
    )
}

/// The bursts and actions of a selection.
///
/// # Errors
/// As [`run`].
pub fn replay(seed: u64, steps: &[Step], setup: &Setup) -> Result<(Ending, Figures), LabError> {
    play(selected(seed, steps, &setup.weights).into_iter(), setup)
}

fn play(
    bursts: impl Iterator<Item = (u64, Vec<Action>)>,
    setup: &Setup,
) -> Result<(Ending, Figures), LabError> {
    let mut world = World::start(setup.nodes, setup.pods)?;
    let mut checks = Checks::new(&world)?;
    let mut figures = Figures::default();
    let mut steps = Vec::new();
    if let Err(report) = whole::wait(&mut world, &mut checks, setup.is_verbose)? {
        let report = format!("before the first burst: {report}");
        return Ok((Ending::Finding { steps, report }, figures));
    }
    for (number, burst) in bursts {
        let mut story = Vec::new();
        for action in &burst {
            let done = actions::perform(&mut world, action)?;
            let line = format!("burst {number}.{}: {done}", action.number);
            if setup.is_verbose {
                say(&line);
            }
            story.push(line);
            if let Some(kind) = actions::kinds().get(action.kind) {
                *figures.done.entry(kind.name).or_default() += 1;
            }
        }
        steps.push(Step::burst(number));
        match whole::wait(&mut world, &mut checks, setup.is_verbose)? {
            Err(report) => {
                let report = format!("{}\n{report}", story.join("\n"));
                return Ok((Ending::Finding { steps, report }, figures));
            }
            Ok(whole) => {
                figures.bursts += 1;
                if setup.is_verbose {
                    say(&format!("burst {number}: {whole}"));
                }
                figures.whole.push((number, whole));
            }
        }
    }
    Ok((Ending::Whole, figures))
}

/// Prints a line. If stdout is closed, there is nowhere to report it.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actions: u64 = self.done.values().sum();
        let mut whole: Vec<Duration> = self.whole.iter().map(|(_, whole)| whole.after).collect();
        whole.sort_unstable();
        let at = |part: usize| {
            whole
                .get(whole.len() * part / 100)
                .copied()
                .unwrap_or_default()
        };
        let last = whole.last().copied().unwrap_or_default();
        writeln!(
            f,
            "{} bursts, {actions} actions of {} kinds; whole after a burst in {:.1} s \
             (median), {:.1} s (95 of 100), {:.1} s (longest)",
            self.bursts,
            self.done.len(),
            at(50).as_secs_f64(),
            at(95).as_secs_f64(),
            last.as_secs_f64(),
        )?;
        for (name, count) in &self.done {
            writeln!(f, "{count:6} {name}")?;
        }
        for (number, whole) in self.whole.iter().filter(|(_, whole)| whole.is_slow()) {
            writeln!(f, "slow: burst {number}: {whole}")?;
        }
        Ok(())
    }
}
