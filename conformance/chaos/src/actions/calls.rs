//! CNI calls: many at once, some of them killed, stopped or repeated.

use std::time::Duration;

use nix::sys::signal::Signal;
use tweed_lab::LabError;

use super::{Kind, Run};
use crate::random::Random;
use crate::world::{Attached, Call, Target, World, run_on};

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

/// One to three calls in a row for each pod of a node, all pods at once, beside GCs.
fn storm(world: &mut World, target: Target) -> Result<(), LabError> {
    let mut random = Random::new(target.number, 0);
    if random.below(2) == 0 {
        world.create_pod(target.node)?;
    }
    let pods: Vec<usize> = (0..world.pods.len())
        .filter(|pod| world.pods[*pod].node == target.node)
        .collect();
    let mut rows: Vec<(Option<usize>, Vec<(Call, Option<Duration>)>)> = Vec::new();
    for pod in pods {
        let mut calls = Vec::new();
        // A sixth of the pods is left alone.
        for _ in 0..[0, 1, 1, 2, 2, 3][random.below(6)] {
            let verb = ["DEL", "ADD"][random.below(2)];
            let killed = (random.below(3) == 0).then(|| moment(&mut random));
            if let Ok(call) = world.call(verb, pod) {
                calls.push((call, killed));
            }
        }
        rows.push((Some(pod), calls));
    }
    if let Ok(gc) = world.gc(target.node) {
        let killed = (random.below(2) == 0).then(|| moment(&mut random));
        rows.push((None, vec![(gc.clone(), killed), (gc, None)]));
    }
    let node = &world.node(target.node)?.node;
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = rows
            .iter()
            .map(|(_, calls)| scope.spawn(|| calls.iter().map(|call| one(node, call)).collect()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_default())
            .collect()
    });
    for ((pod, calls), outcomes) in rows.into_iter().zip(outcomes) {
        let Some(pod) = pod else { continue };
        for ((call, _), outcome) in calls.iter().zip::<Vec<Known>>(outcomes) {
            note(world, pod, call, outcome);
        }
    }
    Ok(())
}

fn moment(random: &mut Random) -> Duration {
    Duration::from_millis(random.below(MOMENT).try_into().unwrap_or_default())
}

/// What a runtime knows after a call.
#[derive(Debug)]
enum Known {
    /// It was killed, or it failed.
    Nothing,
    /// A DEL succeeded.
    Detached,
    /// An ADD succeeded.
    Attached(Attached),
    /// An ADD was refused because the pod is attached.
    Unchanged,
}

fn one(node: &tweed_lab::Node, (call, killed): &(Call, Option<Duration>)) -> Known {
    if let Some(after) = killed {
        if let Ok(mut running) = call.start(node) {
            std::thread::sleep(*after);
            let _ = running.stop(Signal::SIGKILL);
        }
        return Known::Nothing;
    }
    match run_on(node, call) {
        Ok(output) if output.code == Some(0) && call.verb == "DEL" => Known::Detached,
        Ok(output) if output.code == Some(0) && call.verb == "ADD" => {
            Attached::read(&output, &call.config).map_or(Known::Nothing, Known::Attached)
        }
        Ok(output) if call.verb == "ADD" && output.error_code() == Some(102) => Known::Unchanged,
        _ => Known::Nothing,
    }
}

fn note(world: &mut World, pod: usize, call: &Call, outcome: Known) {
    match outcome {
        Known::Attached(attached) => world.pods[pod].attached = Some(attached),
        Known::Unchanged => {}
        Known::Detached | Known::Nothing if call.verb == "GC" => {}
        Known::Detached | Known::Nothing => world.pods[pod].attached = None,
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
