//! How long a damage to one of tweed's objects lasts: each kind of damage in turn, on a
//! cluster in which nothing else happens.
//!
//! The agent of the node is stopped while the damage is done and looked at, so that it is
//! there when the clock begins, which is when the agent runs again.

use std::fmt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tweed_lab::{Agent, LabError, Scheduled, Snapshot};

use crate::actions::{damages, lines};
use crate::checks::Checks;
use crate::driver::{Setup, say};
use crate::policy::{NetworkPolicy, POLICIES};
use crate::random::Random;
use crate::services::{SERVICES, Service};
use crate::whole;
use crate::world::{Target, World};

/// What is put back later is a finding, unless the driver waited for a processor for half of
/// that time: DESIGN.md promises this.
const PROMISE: Duration = Duration::from_secs(2);

/// How long is waited for what is late.
const LIMIT: Duration = Duration::from_secs(60);

/// Maximum pause before a damage, in milliseconds: longer than the shortest period at which
/// the agent looks without being told, so that a damage meets any moment of it.
const MAX_PAUSE: usize = 2000;

/// On how many nodes and pods a damage is tried until it changes something.
const DRAWS: usize = 10;

/// How long each kind of damage has lasted.
#[derive(Debug, Default)]
pub struct Figures {
    /// The kind of damage, and how long it lasted each time.
    lasted: Vec<(String, Vec<Duration>)>,
    /// Of each look at a node to which nothing had been done: no figure can be shorter.
    looks: Vec<Duration>,
    /// Kinds that were put back too late although there was time for it, and when.
    late: Vec<(String, Duration)>,
}

impl Figures {
    /// Whether everything was put back in the time that is promised.
    pub fn is_promise_kept(&self) -> bool {
        self.late.is_empty()
    }
}

/// Does each damage `rounds` times. What was not put back, otherwise.
///
/// # Errors
/// The lab fails.
pub fn measure(seed: u64, rounds: u32, setup: &Setup) -> Result<Result<Figures, String>, LabError> {
    let mut random = Random::new(seed, 0);
    let mut world = World::start(setup.nodes, setup.pods)?;
    // So that there is something in the sets and maps that are damaged.
    for slot in 0..POLICIES {
        let policy = NetworkPolicy::drawn(random.next());
        world.policies.namespaced.insert(slot, policy);
    }
    for slot in 0..SERVICES {
        let service = Service::drawn(random.next());
        world.services.all.insert(slot, service);
    }
    world.publish()?;
    let mut checks = Checks::new(&world)?;
    if let Err(report) = whole::wait(&mut world, &mut checks, setup.is_verbose)? {
        return Ok(Err(format!("before the first damage: {report}")));
    }
    let mut figures = Figures::default();
    for (name, words) in damages(&world)? {
        let mut lasted = Vec::new();
        for _ in 0..rounds {
            let Some(damage) = Damage::draw(&mut world, &mut random, &words, &mut figures)? else {
                break;
            };
            let scheduled = Scheduled::now();
            match damage.until_put_back(&mut world)? {
                Ok((time, last)) => {
                    lasted.push(time);
                    let waited = Scheduled::now().time_waited_since(scheduled);
                    if time > PROMISE && waited < time / 2 {
                        let (node, last) = (damage.target.node, last.join("\n"));
                        let logs = world.logs();
                        say(&format!(
                            "{name}: node{node} was late, and last missed\n{last}\n{logs}"
                        ));
                        figures.late.push((name.clone(), time));
                    }
                }
                Err(report) => return Ok(Err(format!("{name}: {report}"))),
            }
        }
        if setup.is_verbose {
            say(&format!("{name}: {lasted:.2?}"));
        }
        figures.lasted.push((name, lasted));
    }
    match whole::wait(&mut world, &mut checks, setup.is_verbose)? {
        Ok(_) => Ok(Ok(figures)),
        Err(report) => Ok(Err(format!("after the last damage: {report}"))),
    }
}

/// A node that is damaged, and whose agent is stopped.
struct Damage {
    target: Target,
    /// The node without the damage.
    before: Snapshot,
}

impl Damage {
    /// Does a damage on a node where it changes something; none if there is no such node. Not
    /// every node has what each damage needs.
    fn draw(
        world: &mut World,
        random: &mut Random,
        words: &[String],
        figures: &mut Figures,
    ) -> Result<Option<Self>, LabError> {
        let milliseconds = random.below(MAX_PAUSE).try_into().unwrap_or_default();
        std::thread::sleep(Duration::from_millis(milliseconds));
        for _ in 0..DRAWS {
            let target = world.target([random.next(), random.next(), random.next()]);
            let lines = lines::filled(world, target, words)?;
            if lines.is_empty() {
                continue;
            }
            let look = Instant::now();
            let before = state(world, target)?;
            figures.looks.push(look.elapsed());
            if let Some(agent) = world.node(target.node)?.agent.as_mut() {
                agent.process().freeze()?;
            }
            world.in_node(target.node, &lines);
            world.take_notes();
            let damage = Self { target, before };
            if !damage.changes(world)?.is_empty() {
                return Ok(Some(damage));
            }
            damage.resume(world)?;
        }
        Ok(None)
    }

    fn resume(&self, world: &mut World) -> Result<(), LabError> {
        let agent = world.node(self.target.node)?.agent.as_mut();
        if let Some(process) = agent.map(Agent::process) {
            process.signal(Signal::SIGCONT);
        }
        Ok(())
    }

    fn changes(&self, world: &World) -> Result<Vec<String>, LabError> {
        Ok(self.before.changes(&state(world, self.target)?))
    }

    /// Lets the agent run again. Returns the time until the end of the first look that finds
    /// the node as before, and what was different in the look before; what is different after
    /// [`LIMIT`], otherwise.
    fn until_put_back(
        &self,
        world: &mut World,
    ) -> Result<Result<(Duration, Vec<String>), String>, LabError> {
        self.resume(world)?;
        let start = Instant::now();
        let mut last = Vec::new();
        loop {
            // A look fails if an object goes while it is read.
            let changes = self.changes(world);
            let after = start.elapsed();
            match changes {
                Ok(changes) if changes.is_empty() => return Ok(Ok((after, last))),
                Ok(changes) if after >= LIMIT => {
                    let (node, changes) = (self.target.node, changes.join("\n"));
                    return Ok(Err(format!(
                        "node{node} is not as before after {LIMIT:?}:\n{changes}\n{}",
                        world.logs()
                    )));
                }
                Err(error) if after >= LIMIT => return Err(error),
                Ok(changes) => last = changes,
                Err(_) => {}
            }
        }
    }
}

/// Maps that packets fill: which endpoint a client had. Nobody can put that back.
const OF_CLIENTS: &str = "\"name\":\"service_clients";

/// What a node has in the kernel. The number of the chain of policies that is in use is left
/// out: there may be another one each time that the rules are made anew.
fn state(world: &World, target: Target) -> Result<Snapshot, LabError> {
    let all = Snapshot::of(world.cluster[target.node].node.netns())?;
    let lasting = all.without(|line| line.contains(OF_CLIENTS));
    Ok(lasting.without_identity().with(|line| {
        if !line.contains("\"policy_entry\"") {
            return line.to_owned();
        }
        let parts = line.split("policy_");
        let numberless = parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
        numberless.collect::<Vec<_>>().join("policy_")
    }))
}

/// The middle of these times, the one below which 99 of 100 are, and the longest.
fn of(times: &[Duration]) -> [f64; 3] {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    [last / 2, last * 99 / 100, last].map(|at| sorted.get(at).map_or(0.0, Duration::as_secs_f64))
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| damage | put back after, median | longest |\n|---|--:|--:|"
        )?;
        let (done, idle): (Vec<_>, Vec<_>) =
            self.lasted.iter().partition(|(_, times)| !times.is_empty());
        let mut rows: Vec<_> = done.iter().map(|(name, times)| (name, of(times))).collect();
        rows.sort_by(|(_, [one, ..]), (_, [other, ..])| other.total_cmp(one));
        for (name, [median, _, longest]) in rows {
            writeln!(f, "| {name} | {median:.2} s | {longest:.2} s |")?;
        }
        for (name, _) in idle {
            writeln!(f, "changed nothing: {name}")?;
        }
        for (name, time) in &self.late {
            let after = time.as_secs_f64();
            writeln!(
                f,
                "FINDING: put back after {after:.2} s, later than promised: {name}"
            )?;
        }
        let all: Vec<_> = done.iter().flat_map(|(_, times)| times).copied().collect();
        let ([median, most, longest], [look, ..]) = (of(&all), of(&self.looks));
        write!(
            f,
            "{} damages of {} kinds: put back after {median:.2} s (median), {most:.2} s (99 of \
             100), {longest:.2} s (longest); a look at a node takes {look:.2} s",
            all.len(),
            done.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_begins_with_what_lasted_longest() {
        let times = |list: &[u64]| list.iter().map(|ms| Duration::from_millis(*ms)).collect();
        let figures = Figures {
            lasted: vec![
                ("short".to_owned(), times(&[120, 110, 130])),
                ("long".to_owned(), times(&[900, 200, 2700])),
                ("none".to_owned(), Vec::new()),
            ],
            looks: times(&[100]),
            late: vec![("long".to_owned(), Duration::from_millis(2700))],
        };
        assert!(!figures.is_promise_kept());
        assert_eq!(
            figures.to_string(),
            "| damage | put back after, median | longest |\n|---|--:|--:|\n\
             | long | 0.90 s | 2.70 s |\n| short | 0.12 s | 0.13 s |\nchanged nothing: none\n\
             FINDING: put back after 2.70 s, later than promised: long\n\
             6 damages of 2 kinds: put back after 0.13 s (median), 0.90 s (99 of 100), 2.70 s \
             (longest); a look at a node takes 0.10 s"
        );
    }
}
