//! CNI calls: many at once, some of them killed, stopped or repeated.

use std::time::Duration;

use nix::sys::signal::Signal;
use tweed_lab::{LabError, Node};

use super::{Kind, Run};
use crate::random::Random;
use crate::world::{Attached, Call, Known, Target, World, run_on};

/// Maximum time after which a call is killed or stopped: about twice what a call takes
/// on a busy machine.
const MOMENT: usize = 40;

pub const KINDS: &[Kind] = &[
    Kind {
        name: "ADD, DEL and GC at once, some killed",
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
];

/// A call, and the time after which it is killed.
type Timed = (Call, Option<Duration>);

/// Up to three calls in a row for each pod of a node, all pods at once, beside two GCs.
fn storm(world: &mut World, target: Target) -> Result<(), LabError> {
    let mut random = Random::new(target.number, 0);
    if random.below(2) == 0 && world.has_room() {
        world.create_pod(target.node)?;
    }
    let pods: Vec<usize> = (0..world.pods.len())
        .filter(|pod| world.pods[*pod].node == target.node)
        .collect();
    let mut rows: Vec<Vec<Timed>> = pods
        .iter()
        .map(|pod| calls_of(world, *pod, &mut random))
        .collect();
    if let Ok(gc) = world.gc(target.node) {
        let killed = (random.below(2) == 0).then(|| moment(&mut random));
        rows.push(vec![(gc.clone(), killed), (gc, None)]);
    }
    let node = &world.node(target.node)?.node;
    let outcomes: Vec<Vec<Known>> = std::thread::scope(|scope| {
        let run = |row: &Vec<Timed>| row.iter().map(|call| one(node, call)).collect();
        let threads: Vec<_> = rows
            .iter()
            .map(|row| scope.spawn(move || run(row)))
            .collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(Result::unwrap_or_default).collect()
    });
    for (pod, outcomes) in pods.into_iter().zip(outcomes) {
        for outcome in outcomes {
            world.note_outcome(pod, outcome);
        }
    }
    Ok(())
}

fn calls_of(world: &mut World, pod: usize, random: &mut Random) -> Vec<Timed> {
    // A sixth of the pods is left alone.
    let count = [0, 1, 1, 2, 2, 3][random.below(6)];
    let mut calls = Vec::new();
    for _ in 0..count {
        let verb = ["DEL", "ADD"][random.below(2)];
        let killed = (random.below(3) == 0).then(|| moment(random));
        if let Ok(call) = world.call(verb, pod) {
            calls.push((call, killed));
        }
    }
    calls
}

fn moment(random: &mut Random) -> Duration {
    Duration::from_millis(random.below(MOMENT).try_into().unwrap_or_default())
}

fn one(node: &Node, (call, killed): &Timed) -> Known {
    if let Some(after) = killed {
        if let Ok(mut running) = call.start(node) {
            std::thread::sleep(*after);
            let _ = running.stop(Signal::SIGKILL);
        }
        return Known::Detached;
    }
    let Ok(output) = run_on(node, call) else {
        return Known::Detached;
    };
    match (call.verb, output.code) {
        ("ADD", Some(0)) => {
            Attached::read(&output, &call.config).map_or(Known::Detached, Known::Attached)
        }
        ("ADD", _) if output.error_code() == Some(102) => Known::Unchanged,
        _ => Known::Detached,
    }
}

/// DEL of a pod, so that there is a link to finish.
pub fn detach_one(world: &mut World, target: Target) -> Result<(), LabError> {
    let Some(pod) = target.pod else {
        return Ok(());
    };
    world.pods[pod].attached = None;
    if let Ok(call) = world.call("DEL", pod) {
        run_on(&world.node(target.node)?.node, &call)?;
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
    let running = call.start(&world.node(target.node)?.node)?;
    std::thread::sleep(moment(&mut random));
    running.signal(Signal::SIGSTOP);
    world.held.push(running);
    Ok(())
}

/// A runtime that asks twice is refused, and nothing changes.
fn add_twice(world: &mut World, target: Target) -> Result<(), LabError> {
    let Some(pod) = target.pod else {
        return Ok(());
    };
    if let Ok(call) = world.call("ADD", pod) {
        let known = one(&world.node(target.node)?.node, &(call.clone(), None));
        if let Known::Attached(_) = known {
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
        run_on(&world.node(target.node)?.node, &call)?;
    }
    Ok(())
}
