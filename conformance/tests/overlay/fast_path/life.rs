//! Agents that die, start again and are switched off, under traffic.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use aya::programs::TcAttachType;
use tweed_lab::{AgentOptions, LabError, wait_until};

use super::datagrams::Far;
use super::scene::{LIMIT, Pods, Scene, programs_at};
use super::three::Three;

const SYSCTLS: [&str; 2] = [
    "netfilter/nf_conntrack_tcp_be_liberal",
    "netfilter/nf_conntrack_tcp_ignore_invalid_rst",
];

/// How often agents are killed and upgraded; more of it on request.
const KILLS: u32 = 10;

fn kills() -> u32 {
    let asked = std::env::var("TWEED_FAST_PATH_KILLS").ok();
    asked.map_or(KILLS, |count| count.parse().unwrap())
}

/// The pins of a node's links, by name.
pub fn pins(scene: &Scene, index: u8) -> Vec<String> {
    pins_in(scene, index, "links")
}

/// The pins in a folder of a node's bpffs, by name.
fn pins_in(scene: &Scene, index: u8, folder: &str) -> Vec<String> {
    let folder = scene.cluster[index].node.bpf_dir().unwrap().join(folder);
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn an_agent_is_killed_again_and_again() -> Result<(), LabError> {
    let mut three = Three::new()?;
    let scene = &mut three.scene;
    // Both pods, the device and the wire.
    scene.wait_for_hooks(1, 6)?;
    let before = pins(scene, 1);
    for _ in 0..kills() {
        restart(scene, &before, |options| options)?;
    }
    three.end();
    Ok(())
}

/// Maps of another layout cannot be taken over: as those of another size, which are told by
/// their names in the same way.
#[test]
fn an_agent_of_another_layout_loads_anew() -> Result<(), LabError> {
    let mut three = Three::new()?;
    let scene = &mut three.scene;
    scene.wait_for_hooks(1, 6)?;
    let before = pins(scene, 1);
    for number in 0..kills() {
        let flows = if number % 2 == 0 { "1024" } else { "2048" };
        restart(scene, &before, |options| {
            options.arg("--fast-path-flows").arg(flows)
        })?;
        let maps = pins_in(scene, 1, "maps");
        let version = format!("_{flows}_");
        let is_new = maps.iter().all(|name| name.contains(&version));
        assert!(is_new && maps.len() == 5, "{maps:?}");
    }
    three.end();
    Ok(())
}

/// Kills the agent of node 1. The next one has the same pins, one program at each of six hooks,
/// and flows that take it.
fn restart(
    scene: &mut Scene,
    before: &[String],
    with: impl FnOnce(AgentOptions) -> AgentOptions,
) -> Result<(), LabError> {
    scene.cluster.kill_agent(1)?;
    scene.start_one_with(1, "on", with)?;
    scene.cluster.wait_ready()?;
    for way in ["local", "vxlan-in"] {
        scene.wait_for(1, way)?;
    }
    assert_eq!(pins(scene, 1), before);
    let attached = attached(scene, 1)?;
    let is_once = attached.values().all(|count| *count == 1);
    assert!(is_once && attached.len() == 6, "{attached:?}");
    Ok(())
}

/// How many programs there are at each hook of a node's links, by link and direction.
pub fn attached(scene: &Scene, index: u8) -> Result<BTreeMap<String, usize>, LabError> {
    let node = scene.node(index);
    let links = node.json("ip -j link show")?;
    let mut all = BTreeMap::new();
    for link in links.as_array().unwrap() {
        let name = link["ifname"].as_str().unwrap();
        for direction in [TcAttachType::Ingress, TcAttachType::Egress] {
            let count = programs_at(node, name, direction)?.len();
            if count > 0 {
                all.insert(format!("{name} {direction:?}"), count);
            }
        }
    }
    Ok(all)
}

#[test]
fn switched_off_it_leaves_only_sysctls() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Ipv4)?;
    let sysctls = |scene: &Scene| SYSCTLS.map(|key| scene.node(1).sysctl(key).unwrap());
    let Far {
        datagrams,
        pods: _pods,
    } = Far::open(&mut scene)?;
    scene.wait_for(1, "vxlan-in")?;
    scene.start("off")?;
    wait_until("the pins to be gone", LIMIT, || {
        let now = pins(&scene, 1);
        if now.is_empty() {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    })?;
    // Connections that were on it need these.
    assert_eq!(sysctls(&scene), ["1", "1"].map(str::to_owned));
    let passed = scene.sum(1, "tweed_fast_path_packets_total")?;
    assert!(passed < 1.0, "{passed}");
    datagrams.wait()?;
    let [sent, arrived, answered] = datagrams.end();
    assert_eq!((sent, sent), (arrived, answered));
    Ok(())
}

#[test]
fn a_pin_that_somebody_removes_comes_back() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Ipv4)?;
    let Far {
        datagrams,
        pods: _pods,
    } = Far::open(&mut scene)?;
    scene.wait_for(1, "vxlan-in")?;
    let folder = scene.cluster[1].node.bpf_dir()?.join("links");
    let before = pins(&scene, 1);
    for name in &before {
        fs::remove_file(folder.join(name)).unwrap();
        wait_until("the pin to be back", LIMIT, || {
            let now = pins(&scene, 1);
            if now == before {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        })?;
    }
    sleep(Duration::from_millis(100));
    for way in ["vxlan-in", "vxlan-out"] {
        scene.wait_for(1, way)?;
    }
    let [sent, arrived, answered] = datagrams.end();
    assert_eq!((sent, sent), (arrived, answered));
    Ok(())
}
