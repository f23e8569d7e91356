//! Flows are let in only while an agent is there, as nobody else tells the programs what changes.

use std::thread::sleep;
use std::time::Duration;

use aya::maps::{Array, Map, PerCpuArray};
use nix::sys::signal::Signal;
use tweed_lab::{LabError, wait_until};

use super::datagrams::Far;
use super::maps::{LEASE, Settings, pinned};
use super::scene::{LIMIT, Pods, Scene};

/// `WAY_VXLAN_IN`
const VXLAN_IN: u32 = 3;

#[test]
fn without_an_agent_flows_go_back_to_the_kernels_path() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Ipv4)?;
    let Far {
        datagrams,
        pods: _pods,
    } = Far::open(&mut scene)?;
    scene.wait_for(1, "vxlan-in")?;

    let node = &scene.cluster[1].node;
    let settings = Map::Array(pinned(node, "_settings")?);
    let mut settings: Array<_, Settings> = settings.try_into().unwrap();
    let counters = Map::PerCpuArray(pinned(node, "_counters")?);
    let counters: PerCpuArray<_, [u64; 2]> = counters.try_into().unwrap();
    let agent = &mut scene.cluster.entry(1)?.agent;
    agent.as_mut().unwrap().process().freeze()?;
    // As when it has been away for a minute.
    let mut value = settings.get(&0, 0).unwrap();
    value[LEASE] = 0;
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
