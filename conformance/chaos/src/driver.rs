//! A run: bursts of actions, and after each the wait until everything is whole.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

use tweed_lab::LabError;

use crate::actions;
use crate::burst::Step;
use crate::burst::{Action, burst, selected};
use crate::checks::Checks;
use crate::world::World;

/// Maximum time until the cluster is whole after a burst. tweed promises 2 s for a
/// repair; the runtime's calls and a machine that compiles at the same time need more,
/// and what is not whole by then is a finding.
const WHOLE_LIMIT: Duration = Duration::from_secs(120);

/// Time between two looks at a cluster that is not whole yet.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Size of the cluster, and whether every action is printed.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Number of nodes at the start.
    pub nodes: u8,
    /// Number of pods.
    pub pods: usize,
    /// Whether actions are printed as they happen.
    pub is_verbose: bool,
}

/// What a run without a finding shows.
#[derive(Debug, Default)]
pub struct Figures {
    bursts: u64,
    /// How often each kind of action was done.
    done: BTreeMap<&'static str, u64>,
    /// Time until the cluster was whole, of each burst.
    whole: Vec<Duration>,
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

/// Bursts 0, 1, 2… until the time is over.
///
/// # Errors
/// The lab fails: no root, a missing program.
pub fn run(seed: u64, length: Duration, setup: Setup) -> Result<(Ending, Figures), LabError> {
    let start = Instant::now();
    let weights = actions::weights();
    let bursts = (0..).map(|number| (number, burst(seed, number, &weights)));
    play(bursts.take_while(|_| start.elapsed() < length), setup)
}

/// The bursts and actions of a selection.
///
/// # Errors
/// As [`run`].
pub fn replay(seed: u64, steps: &[Step], setup: Setup) -> Result<(Ending, Figures), LabError> {
    play(
        selected(seed, steps, &actions::weights()).into_iter(),
        setup,
    )
}

fn play(
    bursts: impl Iterator<Item = (u64, Vec<Action>)>,
    setup: Setup,
) -> Result<(Ending, Figures), LabError> {
    let mut world = World::start(setup.nodes, setup.pods)?;
    let mut checks = Checks::new(&world)?;
    let mut figures = Figures::default();
    let mut steps = Vec::new();
    if let Err(report) = wait_until_whole(&mut world, &mut checks)? {
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
        let start = Instant::now();
        world.end_burst()?;
        if let Err(report) = wait_until_whole(&mut world, &mut checks)? {
            let report = format!("{}\n{report}", story.join("\n"));
            return Ok((Ending::Finding { steps, report }, figures));
        }
        figures.bursts += 1;
        figures.whole.push(start.elapsed());
        if setup.is_verbose {
            say(&format!(
                "burst {number}: whole after {:?}",
                start.elapsed()
            ));
        }
    }
    Ok((Ending::Whole, figures))
}

/// Waits until the runtime has attached all pods and every check passes; what is missing
/// after the limit otherwise.
fn wait_until_whole(
    world: &mut World,
    checks: &mut Checks,
) -> Result<Result<(), String>, LabError> {
    let start = Instant::now();
    loop {
        let missing = match world.attach_all() {
            Ok(()) => checks.problems(world)?,
            Err(error) => vec![error],
        };
        if !world.findings.is_empty() {
            return Ok(Err(world.findings.join("\n")));
        }
        if missing.is_empty() {
            return Ok(Ok(()));
        }
        if start.elapsed() >= WHOLE_LIMIT {
            let missing = missing.join("\n");
            return Ok(Err(format!(
                "not whole after {WHOLE_LIMIT:?}:\n{missing}\n{}",
                world.logs()
            )));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Prints a line. If stdout is closed, there is nowhere to report it.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actions: u64 = self.done.values().sum();
        let mut whole = self.whole.clone();
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
        Ok(())
    }
}
