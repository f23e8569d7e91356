//! Nodes come, go, and change their names, addresses and CIDRs.

use std::time::Duration;

use tweed_lab::{LabError, NodeManifest};

use super::{Kind, Run};
use crate::random::pick;
use crate::world::{Target, World};

/// Numbers of nodes that there may be.
const NUMBERS: std::ops::RangeInclusive<u8> = 1..=6;

/// The fewest nodes that stay.
const MIN_NODES: usize = 4;

pub const KINDS: &[Kind] = &[
    Kind {
        name: "node joins",
        weight: 4,
        run: Run::Code(join),
    },
    Kind {
        name: "node leaves",
        weight: 4,
        run: Run::Code(leave),
    },
    Kind {
        name: "machine replaced",
        weight: 3,
        run: Run::Code(replace),
    },
    Kind {
        name: "node renamed",
        weight: 4,
        run: Run::Code(rename),
    },
    Kind {
        name: "pod CIDRs of two nodes swapped",
        weight: 4,
        run: Run::Code(swap),
    },
    Kind {
        name: "pod CIDR replaced",
        weight: 4,
        run: Run::Code(new_cidr),
    },
    Kind {
        name: "Node missing for a while",
        weight: 4,
        run: Run::Code(missing),
    },
    Kind {
        name: "Nodes in another order",
        weight: 2,
        run: Run::Code(reorder),
    },
    Kind {
        name: "Node that claims what others have",
        weight: 4,
        run: Run::Code(usurp),
    },
];

fn join(world: &mut World, _: Target) -> Result<(), LabError> {
    let free = NUMBERS
        .into_iter()
        .find(|index| !world.cluster.nodes().contains_key(index));
    let Some(index) = free else {
        return Ok(());
    };
    world.plug(index)?;
    world.remember_foreign(&[index])?;
    world.cluster.publish()?;
    world.cluster.start_agent(index)
}

fn leave(world: &mut World, target: Target) -> Result<(), LabError> {
    if world.cluster.nodes().len() > MIN_NODES {
        world.unplug(target.node)?;
    }
    Ok(())
}

/// Another machine takes the number, the name and the address.
fn replace(world: &mut World, target: Target) -> Result<(), LabError> {
    world.unplug(target.node)?;
    world.plug(target.node)?;
    world.remember_foreign(&[target.node])?;
    world.cluster.publish()?;
    world.cluster.start_agent(target.node)
}

fn rename(world: &mut World, target: Target) -> Result<(), LabError> {
    let name = format!("node{}-{}", target.node, target.number % 1000);
    let entry = world.node(target.node)?;
    entry.node.rename(&name);
    entry.manifest.uid = format!("uid-of-{name}");
    entry.manifest.name = name;
    entry.agent = None;
    // A renamed VXLAN device is known by the MAC that follows from the Node's name. That of
    // the former name counts as somebody else's, and the agent says how to remove it.
    world.undo_lines(target.node, vec![super::owned::REMOVE_HIDDEN.to_owned()]);
    world.cluster.publish()?;
    world.cluster.start_agent(target.node)
}

fn swap(world: &mut World, target: Target) -> Result<(), LabError> {
    let others: Vec<u8> = world
        .cluster
        .nodes()
        .keys()
        .copied()
        .filter(|other| *other != target.node)
        .collect();
    let Some(other) = others.get(pick(target.number, others.len())).copied() else {
        return Ok(());
    };
    let first = world.node(target.node)?.manifest.pod_cidrs.clone();
    let second = std::mem::replace(&mut world.node(other)?.manifest.pod_cidrs, first);
    world.node(target.node)?.manifest.pod_cidrs = second;
    world.cluster.publish()
}

fn new_cidr(world: &mut World, target: Target) -> Result<(), LabError> {
    let third = 100 + target.number % 100;
    let cidrs = vec![
        format!("10.244.{third}.0/24"),
        format!("fd00:10:244:{third}::/64"),
    ];
    if world
        .cluster
        .nodes()
        .values()
        .all(|entry| entry.manifest.pod_cidrs != cidrs)
    {
        world.node(target.node)?.manifest.pod_cidrs = cidrs;
        world.cluster.publish()?;
    }
    Ok(())
}

fn manifests(world: &World) -> Vec<NodeManifest> {
    world
        .cluster
        .nodes()
        .values()
        .map(|entry| entry.manifest.clone())
        .collect()
}

/// The end of the burst publishes all Nodes again.
fn missing(world: &mut World, target: Target) -> Result<(), LabError> {
    let absent = world.node(target.node)?.manifest.name.clone();
    let rest = manifests(world);
    world.write_nodes(rest.iter().filter(|manifest| manifest.name != absent))
}

fn reorder(world: &mut World, target: Target) -> Result<(), LabError> {
    let mut all = manifests(world);
    for _ in 0..4 {
        let count = all.len();
        all.rotate_left(pick(target.number, count));
        world.write_nodes(&all)?;
        std::thread::sleep(Duration::from_millis(target.number % 300));
        all.swap(0, count - 1);
    }
    Ok(())
}

/// A younger Node lists the CIDR of one node and the address of another.
fn usurp(world: &mut World, target: Target) -> Result<(), LabError> {
    let mut all = manifests(world);
    let victim = &all[pick(target.number, all.len())];
    let mut usurper = victim.clone();
    usurper.name = "usurper".to_owned();
    usurper.uid = "uid-of-usurper".to_owned();
    usurper.created = Some("2026-02-01T00:00:00Z".to_owned());
    if target.number & (1 << 30) != 0 {
        usurper.addresses = world.node(target.node)?.manifest.addresses.clone();
    }
    all.insert(pick(target.number >> 8, all.len()), usurper);
    world.write_nodes(&all)
}
