//! A node that comes in a scenario and is gone at its end, so that the others
//! can be as they always are.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use tweed_lab_kubernetes::NodeSpec;

use crate::overlay;
use crate::stage::Stage;

/// The last byte of another address for such a node is that much larger.
const ELSEWHERE: u8 = 100;

/// A node that the cluster does not have.
pub fn spec(stage: &Stage<'_>) -> Result<NodeSpec> {
    let is_free = |spec: &NodeSpec| stage.cluster.node(&spec.name).is_err();
    (1..u8::MAX)
        .map_while(|index| NodeSpec::worker(index).ok())
        .find(is_free)
        .context("the underlay has no room for another node")
}

/// The same name at another address, which is no other node's.
pub fn elsewhere(spec: &NodeSpec) -> Result<NodeSpec> {
    let [a, b, c, last] = spec.address.octets();
    let last = last.checked_add(ELSEWHERE);
    let last = last.context("the underlay has no other address")?;
    Ok(NodeSpec {
        name: spec.name.clone(),
        address: Ipv4Addr::new(a, b, c, last),
    })
}

/// Takes the machine and its Node away, as far as they are there, and waits until
/// no other node knows of them.
pub fn send_away(stage: &mut Stage<'_>, name: &str) -> Result<()> {
    if stage.cluster.node(name).is_ok() {
        stage.cluster.take_node_away(name)?;
    }
    let line = format!("delete node {name} --ignore-not-found");
    stage.kubectl().sh(&line)?;
    overlay::settle(stage.cluster)
}
