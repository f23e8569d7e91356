//! Nodes are added, removed and changed, and Nodes have invalid values.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tweed_lab::{Cluster, LabError, Snapshot, Underlay, wait_until};

use crate::state::{settled_state, state, wait_for_readyz};

/// Waits until `/readyz` of node `index` has this status and contains this word.
fn wait_for_word(cluster: &Cluster, index: u8, status: u16, word: &str) -> Result<(), LabError> {
    let what = format!("answer {status} with {word:?}");
    wait_for_readyz(cluster, index, &what, |code, body| {
        code == status && body.contains(word)
    })
}

/// Waits until `/readyz` of node `index` answers 200 and does not contain `word`.
fn wait_until_readyz_lacks(cluster: &Cluster, index: u8, word: &str) -> Result<(), LabError> {
    let what = format!("be ready without {word:?}");
    wait_for_readyz(cluster, index, &what, |code, body| {
        code == 200 && !body.contains(word)
    })
}

fn vtep(node: u8) -> IpAddr {
    [10, 244, node, 0].into()
}

#[test]
fn an_added_node_is_reached_and_a_removed_one_leaves_nothing() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let pod = cluster.pod(1, "pod")?;
    let before = settled_state(cluster[1].node.netns())?;
    cluster.add_node(3)?;
    let new = cluster.pod(3, "new")?;
    Cluster::wait_for_path(pod.netns(), new.address())?;
    drop(new);
    cluster.remove_node(3)?;
    crate::state::wait_for_state(cluster[1].node.netns(), &before)
}

/// The other node has just used the old MAC, and does not ask again for minutes.
#[test]
fn a_machine_that_is_replaced_at_its_address_is_reached_by_its_new_mac() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let here = cluster.pod(1, "here")?;
    let other = cluster[1].node.netns();
    other.set_sysctl("ipv4/neigh/eth0/base_reachable_time_ms", "1200000")?;
    let address = cluster[2].node.address();
    other.ip([format!("neigh flush to {address} dev eth0")])?;
    Cluster::wait_for_path(here.netns(), vtep(2))?;
    let old = Underlay::mac(cluster[2].node.netns())?;
    cluster.replace_machine(2)?;
    assert_ne!(Underlay::mac(cluster[2].node.netns())?, old);
    Cluster::wait_for_path(here.netns(), vtep(2))
}

#[test]
fn a_node_with_a_new_address_is_reached() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (here, there) = (cluster.pod(1, "here")?, cluster.pod(2, "there")?);
    Cluster::wait_for_path(here.netns(), there.address())?;
    let entry = cluster.entry(2)?;
    entry.node.change_address(Ipv4Addr::new(192, 0, 2, 99))?;
    entry.manifest = entry.node.manifest();
    cluster.publish()?;
    Cluster::wait_for_path(here.netns(), there.address())?;
    Cluster::wait_for_path(cluster[2].node.netns(), there.address())
}

#[test]
fn a_name_that_is_used_again_leads_to_the_new_node() -> Result<(), LabError> {
    let mut cluster = Cluster::start(3)?;
    let here = cluster.pod(1, "here")?;
    let there = cluster.pod(3, "there")?;
    // In one batch, node 2 is removed and node 3 gets another UID.
    let mut replaced = cluster[3].manifest.clone();
    replaced.uid = "another".to_owned();
    let keep = cluster[1].manifest.clone();
    cluster.nodes_file().write([&keep, &replaced])?;
    Cluster::wait_for_path(here.netns(), there.address())?;
    wait_until(
        "nothing of node 2 to be left",
        Duration::from_secs(30),
        || {
            let text = Snapshot::of(cluster[1].node.netns())
                .map_err(|e| e.to_string())?
                .to_string();
            if text.contains("10.244.2.0") {
                Err(text)
            } else {
                Ok(())
            }
        },
    )
}

#[test]
fn cidrs_swapped_in_one_batch_lead_to_the_right_nodes() -> Result<(), LabError> {
    let mut cluster = Cluster::start(3)?;
    let macs = |cluster: &Cluster| -> Result<Vec<String>, LabError> {
        [2, 3]
            .map(|node| {
                let line = format!("ip -j neigh show {} dev tweed.1", vtep(node));
                let entry = cluster[1].node.netns().json(&line)?;
                Ok(entry[0]["lladdr"].as_str().unwrap_or_default().to_owned())
            })
            .into_iter()
            .collect()
    };
    let before = macs(&cluster)?;
    let (second, third) = (
        cluster[2].manifest.pod_cidrs.clone(),
        cluster[3].manifest.pod_cidrs.clone(),
    );
    cluster.entry(2)?.manifest.pod_cidrs = third;
    cluster.entry(3)?.manifest.pod_cidrs = second;
    cluster.publish()?;
    wait_until(
        "the neighbours to be swapped",
        Duration::from_secs(30),
        || {
            let now = macs(&cluster).map_err(|e| e.to_string())?;
            if now.iter().rev().eq(before.iter()) {
                Ok(())
            } else {
                Err(format!("{before:?} {now:?}"))
            }
        },
    )?;
    Cluster::wait_for_path(cluster[1].node.netns(), vtep(2))?;
    Cluster::wait_for_path(cluster[1].node.netns(), vtep(3))
}

#[test]
fn an_implausible_list_removes_nothing() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (here, there) = (cluster.pod(1, "here")?, cluster.pod(2, "there")?);
    Cluster::wait_for_path(here.netns(), there.address())?;
    let before = settled_state(cluster[1].node.netns())?;
    let other = cluster[2].manifest.clone();
    let lists: [(&str, &str); 4] = [
        ("", "empty"),
        ("apiVersion: v1\nkind: List\nitems: []\n", "empty"),
        ("apiVersion: v1\nkind: List\nitems: [{\"metad", "nodes.yaml"),
        ("\0\u{1}\u{2}binary", "nodes.yaml"),
    ];
    for (text, word) in lists {
        cluster.nodes_file().write_text(text)?;
        wait_for_word(&cluster, 1, 200, word)?;
    }
    cluster.nodes_file().write([&other])?;
    wait_for_word(&cluster, 1, 200, "node1")?;
    assert_eq!(
        before.changes(&state(cluster[1].node.netns())?),
        Vec::<String>::new()
    );
    Cluster::wait_for_path(here.netns(), there.address())?;
    cluster.publish()?;
    wait_until_readyz_lacks(&cluster, 1, "node1 ")
}

#[test]
fn a_node_without_pod_cidr_reports_it_and_starts_when_it_has_one() -> Result<(), LabError> {
    let mut cluster = Cluster::start(1)?;
    cluster.plug(2)?;
    let cidrs = std::mem::take(&mut cluster.entry(2)?.manifest.pod_cidrs);
    cluster.publish()?;
    cluster.start_agent(2)?;
    wait_for_word(&cluster, 2, 503, "pod CIDR")?;
    assert!(!cluster[2].node.run_dir().join("ready").exists());
    assert!(
        !cluster[2]
            .node
            .cni_conf_dir()
            .join("10-tweed.conflist")
            .exists()
    );
    cluster.entry(2)?.manifest.pod_cidrs = cidrs;
    cluster.publish()?;
    cluster.wait_ready()?;
    let pod = cluster.pod(2, "pod")?;
    Cluster::wait_for_path(cluster[1].node.netns(), pod.address())
}

#[test]
fn a_node_address_that_no_interface_has_is_reported() -> Result<(), LabError> {
    let mut cluster = Cluster::start(1)?;
    cluster.plug(2)?;
    let right = cluster[2].manifest.addresses.clone();
    cluster.entry(2)?.manifest.addresses = vec![("InternalIP".to_owned(), "192.0.2.77".to_owned())];
    cluster.publish()?;
    cluster.start_agent(2)?;
    wait_for_word(&cluster, 2, 503, "192.0.2.77")?;
    cluster.entry(2)?.manifest.addresses = right;
    cluster.publish()?;
    cluster.wait_ready()?;
    Cluster::wait_for_path(cluster[1].node.netns(), vtep(2))
}

#[test]
fn the_older_of_two_owners_of_a_cidr_keeps_it_and_the_other_is_reported() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (here, there) = (cluster.pod(1, "here")?, cluster.pod(2, "there")?);
    Cluster::wait_for_path(here.netns(), there.address())?;
    cluster.plug(3)?;
    let third = cluster.entry(3)?;
    third.manifest.pod_cidrs = vec!["10.244.2.0/24".to_owned()];
    third.manifest.created = Some("2026-06-01T00:00:00Z".to_owned());
    cluster.publish()?;
    wait_for_word(&cluster, 1, 200, "node3")?;
    Cluster::wait_for_path(here.netns(), there.address())?;
    cluster.start_agent(3)?;
    wait_for_word(&cluster, 3, 503, "10.244.2.0/24")?;
    cluster.entry(3)?.manifest.pod_cidrs = vec!["10.244.3.0/24".to_owned()];
    cluster.publish()?;
    cluster.wait_ready()?;
    wait_until_readyz_lacks(&cluster, 1, "node3")?;
    Cluster::wait_for_path(here.netns(), vtep(3))
}

/// Each CIDR is refused and reported with the node's name, nothing of it is in the
/// kernel, and the other nodes still work.
#[test]
fn a_node_with_a_forbidden_cidr_harms_no_other_node() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let before = settled_state(cluster[1].node.netns())?;
    cluster.plug(3)?;
    for claim in [
        "0.0.0.0/0",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "192.0.2.0/24",
        "192.0.0.0/16",
        "10.244.0.0/16",
        "10.244.1.128/25",
        "nonsense",
        "10.244.3.7/24",
    ] {
        let third = cluster.entry(3)?;
        third.manifest.pod_cidrs = vec![claim.to_owned()];
        third.manifest.created = Some("2026-06-01T00:00:00Z".to_owned());
        cluster.publish()?;
        wait_for_word(&cluster, 1, 200, claim)?;
        // Its address is valid and accepted; nothing of its CIDR is in the kernel.
        let changes = before.changes(&state(cluster[1].node.netns())?);
        let routes = changes
            .iter()
            .any(|line| line.contains("route") || line.contains("neighbour"));
        assert!(!routes, "{claim}: {changes:#?}");
    }
    Cluster::wait_for_path(cluster[1].node.netns(), vtep(2))
}

/// A stale Node that is older than all others has the address of node 2: where two
/// VTEP MACs share an address the machine that has it drops what is not its own.
#[test]
fn an_older_node_with_the_address_of_another_harms_nobody() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (here, there) = (cluster.pod(1, "here")?, cluster.pod(2, "there")?);
    cluster.plug(3)?;
    let second = cluster[2].manifest.addresses.clone();
    let third = cluster.entry(3)?;
    third.manifest.addresses = second;
    third.manifest.created = Some("2025-01-01T00:00:00Z".to_owned());
    cluster.publish()?;
    for node in [1, 2] {
        wait_for_word(&cluster, node, 200, "node-address-shared")?;
    }
    wait_for_word(&cluster, 2, 200, "an address of this machine")?;
    Cluster::wait_for_path(here.netns(), there.address())?;
    Cluster::wait_for_path(there.netns(), here.address())?;
    // It is the same if a new agent, on either side, has never seen it otherwise.
    for node in [1, 2] {
        cluster.start_agent(node)?;
    }
    cluster.wait_ready()?;
    Cluster::wait_for_path(here.netns(), there.address())?;
    let routes = cluster[1].node.netns().sh("ip route show proto 116")?;
    for node in [2, 3] {
        let route = format!("10.244.{node}.0/24 via");
        assert!(routes.contains(&route), "{routes}");
    }
    Ok(())
}

/// The broadcast address of the underlay, and over VXLAN a pod CIDR that begins with
/// an address of the machine: no gateway for the kernel, and no harm to the others.
#[test]
fn a_node_that_the_kernel_would_refuse_harms_no_other_node() -> Result<(), LabError> {
    for backend in ["direct", "cross-subnet", "vxlan"] {
        let mut cluster = Cluster::start_with(2, |options| options.arg("--backend").arg(backend))?;
        cluster.plug(3)?;
        let third = cluster.entry(3)?;
        third.manifest.addresses = vec![("InternalIP".to_owned(), "192.0.2.255".to_owned())];
        cluster.publish()?;
        for node in [1, 2] {
            wait_for_word(&cluster, node, 200, "192.0.2.255")?;
        }
        reaches_as_pods_do(&mut cluster)?;
        let right = cluster[3].node.manifest();
        cluster.entry(3)?.manifest = right;
        let netns = cluster[1].node.netns();
        netns.ip(["addr add 10.244.3.0/32 dev lo"])?;
        cluster.publish()?;
        if backend == "vxlan" {
            wait_for_word(&cluster, 1, 200, "one of this machine")?;
        }
        wait_until_readyz_lacks(&cluster, 1, "192.0.2.255")?;
        reaches_as_pods_do(&mut cluster)?;
    }
    Ok(())
}

/// A pod of node 1 and one of node 2 reach each other.
fn reaches_as_pods_do(cluster: &mut Cluster) -> Result<(), LabError> {
    let (here, there) = (cluster.pod(1, "here")?, cluster.pod(2, "there")?);
    // Direct routes need an underlay that carries the pods' addresses.
    for (node, pod) in [(1, &here), (2, &there)] {
        if let IpAddr::V4(address) = pod.address() {
            let port = cluster[node].node.name();
            cluster.underlay().allow(port, address)?;
        }
    }
    Cluster::wait_for_path(here.netns(), there.address())?;
    Cluster::wait_for_path(there.netns(), here.address())
}

/// Pods have a part of the network that the machines are in.
#[test]
fn pods_inside_of_a_wide_network_of_their_nodes_are_reached() -> Result<(), LabError> {
    let mut cluster = Cluster::empty(&tweed_lab::Lab::new()?, |options| options)?;
    for node in [1, 2] {
        cluster.plug(node)?;
        let address = format!("addr add 10.9.9.{node}/8 dev eth0");
        cluster[node].node.netns().ip([address])?;
    }
    cluster.publish()?;
    for node in [1, 2] {
        cluster.start_agent(node)?;
    }
    cluster.wait_ready()?;
    wait_for_word(&cluster, 1, 200, "10.0.0.0/8")?;
    reaches_as_pods_do(&mut cluster)
}

#[test]
fn after_a_change_of_the_own_cidr_the_pods_that_need_a_restart_are_reported() -> Result<(), LabError>
{
    let mut cluster = Cluster::start(2)?;
    let (old, there) = (cluster.pod(1, "old")?, cluster.pod(2, "there")?);
    Cluster::wait_for_path(old.netns(), there.address())?;
    cluster.entry(1)?.manifest.pod_cidrs = vec!["10.244.9.0/24".to_owned()];
    cluster.publish()?;
    wait_for_word(&cluster, 1, 200, &old.address().to_string())?;
    let new = cluster.pod(1, "new")?;
    assert!(
        new.address().to_string().starts_with("10.244.9."),
        "{}",
        new.address()
    );
    Cluster::wait_for_path(new.netns(), there.address())
}
