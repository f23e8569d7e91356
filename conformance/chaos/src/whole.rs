//! The wait until everything is whole, and what it says about itself.

use std::fmt;
use std::time::{Duration, Instant};

use tweed_lab::{LabError, Scheduled};

use crate::checks::Checks;
use crate::driver::say;
use crate::world::World;

/// Maximum time until the cluster is whole after its faults are undone. tweed promises 2 s for a
/// repair; the runtime's calls and a machine that compiles at the same time need more,
/// and what is not whole by then is a finding.
const LIMIT: Duration = Duration::from_secs(120);

/// Time between two looks at a cluster that is not whole yet.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A wait that took longer is reported if the machine does not explain it: the promise
/// of 2 s, and time for the runtime's calls and for a look.
const SLOW: Duration = Duration::from_secs(5);

/// The share of the time in percent that the driver waits for a processor at most on a
/// machine that is not starved.
const NOT_STARVED: u64 = 50;

/// How the cluster became whole.
#[derive(Debug, Clone)]
pub struct Whole {
    /// The time it took from the end of the burst.
    pub after: Duration,
    /// How much of the time in which the driver could have run it waited for a
    /// processor, in percent.
    waited: u64,
    /// What was seen last that was missing; empty if everything was whole at once.
    late: String,
}

impl Whole {
    /// Whether it took long although the machine had time.
    pub fn is_slow(&self) -> bool {
        self.after > SLOW && self.waited <= NOT_STARVED
    }
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            after,
            waited,
            late,
        } = self;
        let seconds = after.as_secs_f64();
        write!(
            f,
            "whole after {seconds:.1} s, {waited} % waiting for a processor"
        )?;
        match late.as_str() {
            "" => Ok(()),
            late => write!(f, ", last missing: {late}"),
        }
    }
}

/// Undoes what a burst did that tweed cannot mend, and waits until the runtime has
/// attached all pods and every check passes; what is missing after the limit otherwise.
/// `is_verbose` prints what is missing each time that it has changed.
///
/// # Errors
/// A program that looks fails.
pub fn wait(
    world: &mut World,
    checks: &mut Checks,
    is_verbose: bool,
) -> Result<Result<Whole, String>, LabError> {
    let scheduled = Scheduled::now();
    let start = Instant::now();
    world.end_burst()?;
    if is_verbose {
        say(&format!("  {}: faults are undone", since(start)));
    }
    let undone = Instant::now();
    let mut last = Vec::new();
    loop {
        let look = Instant::now();
        let attached = world.attach_all();
        world.publish_changes()?;
        let missing = match attached {
            Ok(()) => checks.problems(world)?,
            Err(error) => vec![error],
        };
        if !world.findings.is_empty() {
            return Ok(Err(world.findings.join("\n")));
        }
        if missing.is_empty() {
            world.is_untouched = true;
            return Ok(Ok(Whole {
                after: start.elapsed(),
                waited: Scheduled::now().waited_since(scheduled),
                late: last.into_iter().next().unwrap_or_default(),
            }));
        }
        if is_verbose && missing != last {
            let took = look.elapsed().as_millis();
            say(&format!(
                "  {}: a look of {took} ms misses\n    {}",
                since(start),
                missing.join("\n    ")
            ));
        }
        last = missing;
        if undone.elapsed() >= LIMIT {
            let missing = last.join("\n");
            return Ok(Err(format!(
                "not whole after {LIMIT:?}:\n{missing}\n{}",
                world.logs()
            )));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn since(start: Instant) -> String {
    format!("{:.2} s after the burst", start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(seconds: u64, waited: u64) -> Whole {
        Whole {
            after: Duration::from_secs(seconds),
            waited,
            late: "node1: link missing".to_owned(),
        }
    }

    #[test]
    fn a_wait_is_slow_if_the_machine_does_not_explain_it() {
        assert!(whole(6, 10).is_slow());
        assert!(!whole(6, 80).is_slow());
        assert!(!whole(4, 10).is_slow());
        assert_eq!(
            whole(6, 10).to_string(),
            "whole after 6.0 s, 10 % waiting for a processor, last missing: node1: link missing"
        );
    }
}
