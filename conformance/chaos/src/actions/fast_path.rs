//! What the fast path needs is taken from it, where the agents have it.

use std::fs;

use tweed_lab::LabError;

use super::{Kind, Run};
use crate::random::pick;
use crate::world::{Target, World};

pub const KINDS: &[Kind] = &[
    Kind {
        name: "program of the fast path detached",
        weight: 4,
        run: Run::Code(unpin_one),
    },
    Kind {
        name: "all programs and maps of the fast path unpinned",
        weight: 3,
        run: Run::Code(unpin_all),
    },
    Kind {
        name: "conntrack judges TCP windows",
        weight: 3,
        run: Run::Lines(&[
            "sysctl netfilter/nf_conntrack_tcp_be_liberal=0",
            "sysctl netfilter/nf_conntrack_tcp_ignore_invalid_rst=0",
        ]),
    },
];

fn unpin_one(world: &mut World, target: Target) -> Result<(), LabError> {
    let links = world.node(target.node)?.node.bpf_dir()?.join("links");
    let pins: Vec<_> = fs::read_dir(links)
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    if !pins.is_empty() {
        let pin = &pins[pick(target.number, pins.len())];
        world.note(&pin.file_name().to_string_lossy());
        // The agent may have removed it meanwhile.
        let _ = fs::remove_file(pin.path());
    }
    Ok(())
}

fn unpin_all(world: &mut World, target: Target) -> Result<(), LabError> {
    let folder = world.node(target.node)?.node.bpf_dir()?;
    let _ = fs::remove_dir_all(folder);
    Ok(())
}
