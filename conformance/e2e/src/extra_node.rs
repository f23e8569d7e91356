//! A node that exists only during a scenario, so that the other nodes need not be
//! changed.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use tweed_lab_kubernetes::NodeSpec;

use crate::fixture::Fixture;
use crate::overlay;

/// Difference between the last bytes of the two addresses of such a node.
const OTHER_ADDRESS_OFFSET: u8 = 100;

/// Name and address of a node that the cluster does not have.
pub fn unused_spec(fixture: &Fixture<'_>) -> Result<NodeSpec> {
    let is_free = |spec: &NodeSpec| fixture.cluster.node(&spec.name).is_err();
    (1..u8::MAX)
        .map_while(|index| NodeSpec::worker(index).ok())
        .find(is_free)
        .context("the underlay has no room for another node")
}

/// The same name with another address, which no other node has.
pub fn with_other_address(spec: &NodeSpec) -> Result<NodeSpec> {
    let [a, b, c, d] = spec.address.octets();
    let other = d.checked_add(OTHER_ADDRESS_OFFSET);
    let last = other.context("the underlay has no other address")?;
    Ok(NodeSpec {
        name: spec.name.clone(),
        address: Ipv4Addr::new(a, b, c, last),
    })
}

/// Removes the machine and its Node, if they exist, and waits until no other node has
/// routes to it.
pub fn remove(fixture: &mut Fixture<'_>, name: &str) -> Result<()> {
    if fixture.cluster.node(name).is_ok() {
        fixture.cluster.destroy_machine(name)?;
    }
    let line = format!("delete node {name} --ignore-not-found");
    fixture.kubectl().sh(&line)?;
    // No kubelet reports their end, and the controllers wait a minute: whoever deletes pods
    // of that kind next, or their namespace, would wait for them.
    let line =
        format!("delete pods --all-namespaces --field-selector spec.nodeName={name} --force");
    fixture.kubectl().sh(&line)?;
    overlay::wait_until_correct(fixture.cluster)
}
