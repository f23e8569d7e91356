//! Flows are let in only while an agent is there, as nobody else tells the programs what changes.

use std::fs;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use aya::maps::{Array, Map, MapData, PerCpuArray};
use nix::sys::signal::Signal;
use tweed_lab::{LabError, wait_until};

use super::datagrams::Datagrams;
use super::scene::{LIMIT, Pods, Scene};

const PORT: u16 = 7010;
const PAUSE: Duration = Duration::from_millis(1);
/// Where `lease` is in `struct settings`, and the size of that.
const LEASE: std::ops::Range<usize> = 16..24;
const SETTINGS: usize = 320;
/// `WAY_VXLAN_IN`
const VXLAN_IN: u32 = 3;

/// A pinned map of node 1.
fn map(scene: &Scene, name: &str) -> Result<MapData, LabError> {
    let folder = scene.cluster[1].node.bpf_dir()?.join("maps");
    let pins = fs::read_dir(folder).unwrap().map(|pin| pin.unwrap().path());
    let mut pins = pins.filter(|pin| pin.to_string_lossy().ends_with(name));
    Ok(MapData::from_pin(pins.next().unwrap()).unwrap())
}

#[test]
fn without_an_agent_flows_go_back_to_the_kernels_path() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Ipv4)?;
    let server = scene.cluster.pod(1, "server")?;
    let far = scene.cluster.pod(2, "far")?;
    let at = SocketAddr::new(server.address(), PORT);
    let datagrams = Datagrams::open(far.netns(), at, &server, PORT, PAUSE)?;
    scene.wait_for(1, "vxlan-in")?;

    let settings = Map::Array(map(&scene, "_settings")?);
    let mut settings: Array<_, [u8; SETTINGS]> = settings.try_into().unwrap();
    let counters = Map::PerCpuArray(map(&scene, "_counters")?);
    let counters: PerCpuArray<_, [u64; 2]> = counters.try_into().unwrap();
    let agent = &mut scene.cluster.entry(1)?.agent;
    agent.as_mut().unwrap().process().freeze()?;
    // As when it has been away for a minute.
    let mut value = settings.get(&0, 0).unwrap();
    value[LEASE].fill(0);
    settings.set(0, value, 0).unwrap();

    let taken = || -> u64 {
        let values = counters.get(&VXLAN_IN, 0).unwrap();
        values.iter().map(|[packets, _]| packets).sum()
    };
    wait_until("flows to take the kernel's path", LIMIT, || {
        let before = taken();
        sleep(Duration::from_secs(1));
        match taken() - before {
            0 => Ok(()),
            more => Err(format!("{more} more")),
        }
    })?;
    datagrams.wait()?;
    let agent = &mut scene.cluster.entry(1)?.agent;
    agent.as_mut().unwrap().process().signal(Signal::SIGCONT);
    scene.wait_for(1, "vxlan-in")?;
    let [sent, arrived, answered] = datagrams.end();
    assert_eq!((sent, sent), (arrived, answered));
    Ok(())
}
