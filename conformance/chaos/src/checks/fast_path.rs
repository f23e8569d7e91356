//! The programs of the fast path are attached at all links, where all agents have it.

use std::collections::BTreeSet;
use std::fs;

use tweed_lab::{LabError, Netns};

use super::differences;
use crate::plan::NodePlan;
use crate::world::World;

/// The programs that are missing, or attached to links that should have none, by their pins.
///
/// # Errors
/// There is no node of this number, or its links cannot be listed.
pub fn problems(world: &mut World, node: &NodePlan) -> Result<Vec<String>, LabError> {
    if !tweed_lab::all_have_fast_path() {
        return Ok(Vec::new());
    }
    let found = &world.node(node.index)?.node;
    let pins = found.bpf_dir()?.join("links");
    let entries = fs::read_dir(pins).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let expected = programs(found.netns(), node)?;
    Ok(differences("program", expected, names.collect()))
}

/// The name of each program with the index of its link.
fn programs(netns: &Netns, node: &NodePlan) -> Result<BTreeSet<String>, LabError> {
    let listed = netns.json("ip -j link show")?;
    let index = |name: &str| {
        let mut links = listed.as_array().into_iter().flatten();
        links.find(|link| link["ifname"] == name)?["ifindex"].as_u64()
    };
    let at = |program: &str, link: &str| Some(format!("{program}-{}", index(link)?));
    let own = [at("vxlan_out", "tweed.1"), at("nic_in", "eth0")];
    let links = node.pods.iter().map(|pod| &pod.link);
    let of_pods = links.flat_map(|link| [at("pod_in", link), at("pod_out", link)]);
    Ok(own.into_iter().chain(of_pods).flatten().collect())
}
