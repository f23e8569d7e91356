//! CNI calls: many at once, some of them killed, stopped or repeated.

use std::time::Duration;

use nix::sys::signal::Signal;
use tweed_lab::{LabError, Node};

use super::{Kind, Run};
use crate::random::Random;
use crate::world::{Attached, Call, Held, Known, Target, World, panicked, run_on, unclean};

/// Maximum time after which a call is killed or stopped: about twice what a call takes
/// on a busy machine.
const MOMENT: usize = 40;

pub const KINDS: &[Kind] = &[
    Kind {
        name: "ADD, DEL, CHECK and GC at once, some killed",
        weight: 25,
        run: Run::Code(storm),
    },
    Kind {
        name: "pod deleted",
        weight: 5,
        run: Run::Code(delete),
    },
    Kind {
        name: "pod's namespace gone without a DEL",
        weight: 4,
        run: Run::Code(vanish),
    },
    Kind {
        name: "call stopped while it runs",
        weight: 6,
        run: Run::Code(freeze),
    },
    Kind {
        name: "ADD twice",
        weight: 3,
        run: Run::Code(add_twice),
    },
    Kind {
        name: "GC",
        weight: 3,
        run: Run::Code(collect),
    },
    Kind {
        name: "CHECK of all pods of a node at once",
        weight: 4,
        run: Run::Code(check_all),
    },
    Kind {
        name: "run folder read-only for the plugin, with ADD, DEL and GC at once",
        weight: 5,
        run: Run::Code(read_only_storm),
    },
];

/// A call, and the time after which it is killed.
type Timed = (Call, Option<Duration>);

/// The end of a call.
struct Ended {
    /// What a runtime knows now.
    known: Known,
    /// Its exit code; `None` if it was killed, or could not be run.
    code: Option<i32>,
    /// What was wrong with its answer.
    unclean: Option<String>,
}

impl Ended {
    /// The end of a whole row of calls whose thread has panicked.
    fn of_panic(row: &[Timed]) -> Self {
        Self {
            known: Known::Detached,
            code: None,
            unclean: Some(panicked(row.iter().map(|(call, _)| call))),
        }
    }
}

/// Up to three calls in a row for each pod of a node, all pods at once, beside CHECKs of
/// some of them and two GCs.
fn storm(world: &mut World, target: Target) -> Result<(), LabError> {
    let mut random = Random::new(target.number, 0);
    if random.below(2) == 0 && world.has_room() {
        world.create_pod(target.node)?;
    }
    let pods = pods_of(world, target.node);
    let mut rows: Vec<Vec<Timed>> = pods
        .iter()
        .map(|pod| calls_of(world, *pod, &mut random))
        .collect();
    for pod in &pods {
        if random.below(3) == 0 {
            rows.push(one_call(world, "CHECK", *pod, &mut random));
        }
    }
    if let Ok(gc) = world.gc(target.node) {
        let killed = (random.below(2) == 0).then(|| moment(&mut random));
        rows.push(vec![(gc.clone(), killed), (gc, None)]);
    }
    let outcomes = all_at_once(world, target.node, &rows)?;
    for (pod, outcomes) in pods.into_iter().zip(outcomes) {
        for outcome in outcomes {
            world.note_outcome(pod, outcome);
        }
    }
    Ok(())
}

/// Makes the calls of each row one after the other, and all rows at once. The outcomes
/// are in the order of the rows.
fn all_at_once(
    world: &mut World,
    index: u8,
    rows: &[Vec<Timed>],
) -> Result<Vec<Vec<Known>>, LabError> {
    let node = &world.node(index)?.node;
    let ended: Vec<Vec<Ended>> = std::thread::scope(|scope| {
        let run = |row: &Vec<Timed>| row.iter().map(|call| one(node, call)).collect();
        let threads: Vec<_> = rows
            .iter()
            .map(|row| scope.spawn(move || run(row)))
            .collect();
        let joined = threads.into_iter().zip(rows).map(|(thread, row)| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| vec![Ended::of_panic(row)])
        });
        joined.collect()
    });
    let count = |is_counted: fn(&Ended) -> bool| {
        let all = ended.iter().flatten();
        all.filter(|end| is_counted(end)).count()
    };
    let succeeded = count(|end| end.code == Some(0));
    let killed = count(|end| end.code.is_none());
    let failed = count(|_| true) - succeeded - killed;
    world.note(&format!(
        "{succeeded} calls succeeded, {failed} failed, {killed} were killed"
    ));
    let mut outcomes = Vec::new();
    for row in ended {
        let mut known = Vec::new();
        for end in row {
            world.findings.extend(end.unclean);
            known.push(end.known);
        }
        outcomes.push(known);
    }
    Ok(outcomes)
}

fn pods_of(world: &World, index: u8) -> Vec<usize> {
    (0..world.pods.len())
        .filter(|pod| world.pods[*pod].node == index)
        .collect()
}

fn calls_of(world: &mut World, pod: usize, random: &mut Random) -> Vec<Timed> {
    // A sixth of the pods is left alone.
    let count = [0, 1, 1, 2, 2, 3][random.below(6)];
    let mut calls = Vec::new();
    for _ in 0..count {
        let verb = ["DEL", "ADD"][random.below(2)];
        calls.extend(one_call(world, verb, pod, random));
    }
    calls
}

/// A call, which is killed in a third of all cases; none if there is no config.
fn one_call(world: &mut World, verb: &'static str, pod: usize, random: &mut Random) -> Vec<Timed> {
    let killed = (random.below(3) == 0).then(|| moment(random));
    let call = world.call(verb, pod).ok();
    call.map(|call| (call, killed)).into_iter().collect()
}

fn moment(random: &mut Random) -> Duration {
    Duration::from_millis(random.below(MOMENT).try_into().unwrap_or_default())
}

fn one(node: &Node, (call, killed): &Timed) -> Ended {
    let unknown = match call.verb {
        "CHECK" => Known::Unchanged,
        _ => Known::Detached,
    };
    let mut end = Ended {
        known: unknown,
        code: None,
        unclean: None,
    };
    if let Some(after) = killed {
        if let Ok(mut running) = call.start(node) {
            std::thread::sleep(*after);
            let _ = running.stop(Signal::SIGKILL);
        }
        return end;
    }
    match run_on(node, call) {
        Ok(output) => {
            end.code = output.code;
            end.unclean = unclean(call, &output);
            match (call.verb, output.code) {
                ("ADD", Some(0)) => {
                    if let Ok(attached) = Attached::read(&output, &call.config) {
                        end.known = Known::Attached(attached);
                    }
                }
                ("ADD", _) if output.error_code() == Some(102) => end.known = Known::Unchanged,
                _ => {}
            }
        }
        Err(error) => end.unclean = Some(error.chain()),
    }
    end
}

/// DEL of a pod, so that there is a link to finish.
pub fn detach_one(world: &mut World, target: Target) -> Result<(), LabError> {
    let Some(pod) = target.pod else {
        return Ok(());
    };
    world.pods[pod].attached = None;
    if let Ok(call) = world.call("DEL", pod) {
        run(world, &call, target.node);
    }
    Ok(())
}

fn delete(world: &mut World, target: Target) -> Result<(), LabError> {
    detach_one(world, target)?;
    if let Some(pod) = target.pod {
        world.forget(pod);
    }
    Ok(())
}

/// The runtime comes too late: its DEL finds no namespace, or there is only a GC.
fn vanish(world: &mut World, target: Target) -> Result<(), LabError> {
    if let Some(pod) = target.pod {
        world.forget(pod);
        collect(world, target)?;
    }
    Ok(())
}

fn freeze(world: &mut World, target: Target) -> Result<(), LabError> {
    let Some(pod) = target.pod else {
        return Ok(());
    };
    let mut random = Random::new(target.number, 1);
    world.pods[pod].attached = None;
    let verb = ["DEL", "ADD"][random.below(2)];
    if verb == "ADD" {
        detach_one(world, target)?;
    }
    let Ok(call) = world.call(verb, pod) else {
        return Ok(());
    };
    world.note(verb);
    let running = call.start(&world.node(target.node)?.node)?;
    std::thread::sleep(moment(&mut random));
    running.signal(Signal::SIGSTOP);
    world.held.push(Held { call, running });
    Ok(())
}

/// A runtime that asks twice is refused, and nothing changes.
fn add_twice(world: &mut World, target: Target) -> Result<(), LabError> {
    let Some(pod) = target.pod else {
        return Ok(());
    };
    if let Ok(call) = world.call("ADD", pod) {
        let end = one(&world.node(target.node)?.node, &(call.clone(), None));
        world.findings.extend(end.unclean);
        if let Known::Attached(_) = end.known {
            let name = &world.pods[pod].name;
            world
                .findings
                .push(format!("a second ADD of {name} succeeded"));
        }
    }
    Ok(())
}

fn collect(world: &mut World, target: Target) -> Result<(), LabError> {
    if let Ok(call) = world.gc(target.node) {
        run(world, &call, target.node);
    }
    Ok(())
}

/// Runs a call to its end. It may fail on a node that was damaged, but has to answer.
fn run(world: &mut World, call: &Call, node: u8) {
    if let Err(error) = world.run(call, node) {
        world.findings.push(error);
    }
}

/// Whatever they find on a node that was damaged, they say it in an error document.
fn check_all(world: &mut World, target: Target) -> Result<(), LabError> {
    let mut random = Random::new(target.number, 2);
    let pods = pods_of(world, target.node);
    let rows: Vec<Vec<Timed>> = pods
        .into_iter()
        .map(|pod| one_call(world, "CHECK", pod, &mut random))
        .collect();
    all_at_once(world, target.node, &rows).map(drop)
}

/// As [`storm`], while no call can write into the run folder; for later calls of the
/// burst it is read-only too.
fn read_only_storm(world: &mut World, target: Target) -> Result<(), LabError> {
    world.read_only.insert(target.node);
    world.undo_later(move |world| {
        world.read_only.remove(&target.node);
        Ok(())
    });
    storm(world, target)
}
