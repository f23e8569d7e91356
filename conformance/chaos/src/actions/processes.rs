//! The agent and the plugin's finisher are killed, stopped, started twice.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tweed_lab::{Agent, LabError};

use super::{Kind, Run};
use crate::world::{Target, World};

pub const KINDS: &[Kind] = &[
    Kind {
        name: "agent killed",
        weight: 8,
        run: Run::Code(kill_agent),
    },
    Kind {
        name: "agent killed and started",
        weight: 8,
        run: Run::Code(restart_agent),
    },
    Kind {
        name: "agent told to end, and started",
        weight: 5,
        run: Run::Code(stop_agent),
    },
    Kind {
        name: "agent stopped for the rest of the burst",
        weight: 6,
        run: Run::Code(freeze_agent),
    },
    Kind {
        name: "all agents killed and started",
        weight: 3,
        run: Run::Code(restart_all),
    },
    Kind {
        name: "finisher killed",
        weight: 6,
        run: Run::Code(kill_finisher),
    },
    Kind {
        name: "finisher stopped",
        weight: 4,
        run: Run::Code(freeze_finisher),
    },
];

/// It is started at the end of the burst.
fn kill_agent(world: &mut World, target: Target) -> Result<(), LabError> {
    world.node(target.node)?.agent = None;
    Ok(())
}

fn restart_agent(world: &mut World, target: Target) -> Result<(), LabError> {
    world.cluster.start_agent(target.node)
}

fn stop_agent(world: &mut World, target: Target) -> Result<(), LabError> {
    if let Some(mut agent) = world.node(target.node)?.agent.take() {
        // A stopped process ends only when it continues.
        agent.process().signal(Signal::SIGCONT);
        agent.stop()?;
    }
    world.cluster.start_agent(target.node)
}

fn freeze_agent(world: &mut World, target: Target) -> Result<(), LabError> {
    if let Some(process) = world.node(target.node)?.agent.as_mut().map(Agent::process) {
        process.signal(Signal::SIGSTOP);
    }
    Ok(())
}

fn restart_all(world: &mut World, _: Target) -> Result<(), LabError> {
    let nodes: Vec<u8> = world.cluster.nodes().keys().copied().collect();
    for index in nodes {
        world.cluster.start_agent(index)?;
    }
    Ok(())
}

fn kill_finisher(world: &mut World, target: Target) -> Result<(), LabError> {
    super::calls::detach_one(world, target)?;
    for pid in plugins(world, target.node)? {
        // It may have ended meanwhile.
        let _ = kill(pid, Signal::SIGKILL);
    }
    Ok(())
}

fn freeze_finisher(world: &mut World, target: Target) -> Result<(), LabError> {
    super::calls::detach_one(world, target)?;
    let frozen = plugins(world, target.node)?;
    for pid in &frozen {
        let _ = kill(*pid, Signal::SIGSTOP);
    }
    world.undo_later(move |_| {
        for pid in frozen {
            let _ = kill(pid, Signal::SIGCONT);
        }
        Ok(())
    });
    Ok(())
}

/// The plugin's processes that run in the namespace of a node of this lab.
fn plugins(world: &mut World, index: u8) -> Result<Vec<Pid>, LabError> {
    let path = world.node(index)?.node.netns().path();
    let netns = fs::metadata(&path)
        .map_err(|e| LabError::file("find", &path, e))?
        .ino();
    let is_plugin = |process: &std::path::Path| {
        let exe = fs::read_link(process.join("exe")).unwrap_or_default();
        let own = fs::metadata(process.join("ns/net")).map(|file| file.ino());
        exe.ends_with("tweed") && own.is_ok_and(|own| own == netns)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    Ok(processes
        .filter(|process| is_plugin(&process.path()))
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .map(Pid::from_raw)
        .collect())
}
