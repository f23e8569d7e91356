//! Files of tweed on a node are damaged, and what they need is taken away: space, the
//! right to write, file descriptors.

use std::fs;
use std::io::Write;

use tweed_lab::{LabError, run};

use super::{Kind, Run};
use crate::random::pick;
use crate::world::{Target, World};

pub const KINDS: &[Kind] = &[
    Kind {
        name: "run folder full",
        weight: 5,
        run: Run::Code(fill),
    },
    Kind {
        name: "run folder read-only for the agent",
        weight: 4,
        run: Run::Code(run_read_only),
    },
    Kind {
        name: "/proc/sys read-only for the agent",
        weight: 4,
        run: Run::Code(sys_read_only),
    },
    Kind {
        name: "no more file descriptors for the agent",
        weight: 4,
        run: Run::Code(no_files),
    },
    Kind {
        name: "file of the agent removed",
        weight: 5,
        run: Run::Code(remove),
    },
    Kind {
        name: "file of the agent damaged",
        weight: 5,
        run: Run::Code(garble),
    },
    Kind {
        name: "CNI config removed",
        weight: 3,
        run: Run::Code(remove_config),
    },
    Kind {
        name: "CNI config damaged",
        weight: 3,
        run: Run::Code(garble_config),
    },
    Kind {
        name: "address store removed",
        weight: 3,
        run: Run::Code(wipe_store),
    },
    Kind {
        name: "record of a pod damaged",
        weight: 3,
        run: Run::Code(garble_record),
    },
];

/// Maximum number of blocks of 4096 bytes that fill a disk: more than it holds.
const MAX_BLOCKS: usize = 4096;

/// The agent's files in its run folder.
const FILES: &[&str] = &[
    "agent.json",
    "ready",
    "nodes.jsonl",
    "nft-skeleton",
    "sysctls.json",
    "policy",
];

fn fill(world: &mut World, target: Target) -> Result<(), LabError> {
    let path = world.node(target.node)?.node.run_dir().join("filler");
    if let Ok(mut file) = fs::File::create(&path) {
        // Bounded, should the folder ever not be on the small disk.
        let block = [0; 4096];
        let _ = (0..MAX_BLOCKS).try_for_each(|_| file.write_all(&block));
    }
    world.undo_later(move |_| {
        let _ = fs::remove_file(path);
        Ok(())
    });
    Ok(())
}

/// Runs a command in the mount namespace of a node's agent, which no other process has;
/// what is mounted there ends with the agent.
fn in_agent(world: &mut World, index: u8, command: &str) {
    if let Some(pid) = world.agent_pid(index) {
        let mut nsenter = std::process::Command::new("nsenter");
        nsenter.args([
            "--target",
            &pid.to_string(),
            "--mount",
            "--",
            "sh",
            "-c",
            command,
        ]);
        // The agent may have ended meanwhile.
        let _ = run(&mut nsenter);
    }
}

fn read_only(world: &mut World, index: u8, folder: &str) {
    in_agent(
        world,
        index,
        &format!("mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}"),
    );
    let undo = format!("umount {folder}");
    world.undo_later(move |world| {
        in_agent(world, index, &undo);
        Ok(())
    });
}

fn run_read_only(world: &mut World, target: Target) -> Result<(), LabError> {
    let folder = world.node(target.node)?.node.run_dir();
    let folder = fs::canonicalize(&folder).map_err(|e| LabError::file("find", &folder, e))?;
    read_only(world, target.node, &folder.display().to_string());
    Ok(())
}

fn sys_read_only(world: &mut World, target: Target) -> Result<(), LabError> {
    read_only(world, target.node, "/proc/sys");
    Ok(())
}

fn no_files(world: &mut World, target: Target) -> Result<(), LabError> {
    let limit = move |world: &mut World, count: &str| {
        if let Some(pid) = world.agent_pid(target.node) {
            let mut prlimit = std::process::Command::new("prlimit");
            prlimit.args(["--pid", &pid.to_string(), &format!("--nofile={count}:")]);
            // The agent may have ended meanwhile.
            let _ = run(&mut prlimit);
        }
    };
    limit(world, "3");
    world.undo_later(move |world| {
        limit(world, "1024");
        Ok(())
    });
    Ok(())
}

fn one_file(world: &mut World, target: Target) -> Result<std::path::PathBuf, LabError> {
    let name = FILES[pick(target.number, FILES.len())];
    world.note(name);
    Ok(world.node(target.node)?.node.run_dir().join(name))
}

fn remove(world: &mut World, target: Target) -> Result<(), LabError> {
    // It may be missing already, here and below.
    let _ = fs::remove_file(one_file(world, target)?);
    Ok(())
}

fn garble(world: &mut World, target: Target) -> Result<(), LabError> {
    let path = one_file(world, target)?;
    let text = fs::read(&path).unwrap_or_default();
    let half = &text[..text.len() / 2];
    let _ = fs::write(
        &path,
        if target.number & 256 == 0 {
            half
        } else {
            b"\0garbage\xff"
        },
    );
    Ok(())
}

fn config_file(world: &mut World, target: Target) -> Result<std::path::PathBuf, LabError> {
    Ok(world
        .node(target.node)?
        .node
        .cni_conf_dir()
        .join("10-tweed.conflist"))
}

fn remove_config(world: &mut World, target: Target) -> Result<(), LabError> {
    let _ = fs::remove_file(config_file(world, target)?);
    Ok(())
}

fn garble_config(world: &mut World, target: Target) -> Result<(), LabError> {
    let _ = fs::write(config_file(world, target)?, "{\"plugins\": [");
    Ok(())
}

/// Pods keep running; the runtime attaches them again one by one.
fn wipe_store(world: &mut World, target: Target) -> Result<(), LabError> {
    let _ = fs::remove_dir_all(world.store(target.node)?);
    for pod in world.pods.iter_mut().filter(|pod| pod.node == target.node) {
        pod.attached = None;
    }
    Ok(())
}

fn garble_record(world: &mut World, target: Target) -> Result<(), LabError> {
    let Some(pod) = target.pod else {
        return Ok(());
    };
    let folder = world.store(target.node)?.join("attachments");
    let link = world.pods[pod]
        .attached
        .as_ref()
        .map(|attached| attached.link.clone())
        .unwrap_or_default();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // The record and the link are named by the same hash.
        let name = entry.file_name().to_string_lossy().into_owned();
        if link
            .strip_prefix("tw")
            .is_some_and(|hash| name.starts_with(hash))
        {
            let _ = fs::write(entry.path(), "{\"version\": 1, \"netw");
        }
    }
    world.pods[pod].attached = None;
    Ok(())
}
