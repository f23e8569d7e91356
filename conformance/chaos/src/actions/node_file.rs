//! The node file is damaged; the end of the burst writes it again.

use std::fs;

use tweed_lab::LabError;

use super::{Kind, Run};
use crate::random::pick;
use crate::world::{Target, World};

pub const KINDS: &[Kind] = &[
    Kind {
        name: "node file garbage",
        weight: 3,
        run: Run::Code(garbage),
    },
    Kind {
        name: "node file empty",
        weight: 3,
        run: Run::Code(empty),
    },
    Kind {
        name: "node file half written in place",
        weight: 3,
        run: Run::Code(half),
    },
    Kind {
        name: "node file missing",
        weight: 3,
        run: Run::Code(remove),
    },
    Kind {
        name: "node file a folder",
        weight: 2,
        run: Run::Code(folder),
    },
    Kind {
        name: "node file without Nodes",
        weight: 3,
        run: Run::Code(no_nodes),
    },
    Kind {
        name: "one Node damaged",
        weight: 4,
        run: Run::Code(damaged_node),
    },
];

const GARBAGE: &[&str] = &[
    "\u{0}\u{1}\u{2}\u{3}",
    "{{{{",
    "kind: Node\nmetadata: [",
    "[1, 2, 3]",
    "apiVersion: v1\nkind: Secret\nmetadata: {name: node1}\n",
    "a: &a [*a, *a]\n",
    "---\n---\n---\n",
];

fn garbage(world: &mut World, target: Target) -> Result<(), LabError> {
    let text = GARBAGE[pick(target.number, GARBAGE.len())];
    world.nodes_file().write_text(text)
}

fn empty(world: &mut World, _: Target) -> Result<(), LabError> {
    world.nodes_file().write_text("")
}

fn half(world: &mut World, target: Target) -> Result<(), LabError> {
    let file = world.nodes_file();
    let path = file.path();
    let failed = |e| LabError::file("write", path, e);
    if let Ok(text) = fs::read(path) {
        fs::write(path, &text[..pick(target.number, text.len())]).map_err(failed)?;
    }
    Ok(())
}

fn remove(world: &mut World, _: Target) -> Result<(), LabError> {
    // It may be missing already.
    let _ = fs::remove_file(world.nodes_file().path());
    Ok(())
}

fn folder(world: &mut World, _: Target) -> Result<(), LabError> {
    let file = world.nodes_file();
    let _ = fs::remove_file(file.path());
    let _ = fs::create_dir(file.path());
    Ok(())
}

fn no_nodes(world: &mut World, _: Target) -> Result<(), LabError> {
    world.write_nodes([])
}

/// The others have to stay as they are.
fn damaged_node(world: &mut World, target: Target) -> Result<(), LabError> {
    let nodes = world.cluster.nodes().iter();
    let mut all: Vec<_> = nodes
        .map(|(index, entry)| (*index, entry.manifest.clone()))
        .collect();
    let chosen = all.iter_mut().find(|(index, _)| *index == target.node);
    if let Some((_, node)) = chosen {
        match target.number % 5 {
            0 => node.pod_cidrs = vec!["garbage".to_owned()],
            1 => node.pod_cidrs = vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()],
            2 => node.addresses = vec![("InternalIP".to_owned(), "127.0.0.1".to_owned())],
            3 => node.addresses = Vec::new(),
            _ => node.pod_cidrs = Vec::new(),
        }
    }
    world.write_nodes(all.iter().map(|(_, node)| node))
}
