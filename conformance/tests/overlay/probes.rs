//! Nodes ask each other over the way that pods' packets take, and say what does not answer.

use std::net::Ipv4Addr;
use std::time::Duration;

use tweed_lab::{AgentOptions, Cluster, LabError, wait_until};

use crate::state::wait_for_readyz;

/// Drops packets of the tunnel that come in by these ports of the switch.
fn filter(cluster: &Cluster, ports: &str) -> Result<(), LabError> {
    let rules = format!(
        "table bridge probes {{}}
        delete table bridge probes
        table bridge probes {{
          chain filter {{
            type filter hook prerouting priority -200;
            iifname {{ {ports} }} ether type ip udp dport 8472 drop
          }}
        }}"
    );
    cluster.underlay().switch().nft(&rules)
}

fn mend(cluster: &Cluster) -> Result<(), LabError> {
    let rules = "delete table bridge probes";
    cluster.underlay().switch().nft(rules)
}

fn probing(options: AgentOptions) -> AgentOptions {
    options.env("TWEED_PROBE_PEERS", "on")
}

/// Waits until the node says all of this, and is ready.
fn wait_for(cluster: &Cluster, node: u8, words: &[&str]) -> Result<(), LabError> {
    wait_for_readyz(cluster, node, &format!("say {words:?}"), |code, body| {
        code == 200 && words.iter().all(|word| body.contains(word))
    })
}

/// Waits until the node finds nothing wrong with so many others.
fn wait_for_answers(cluster: &Cluster, node: u8, peers: f64) -> Result<(), LabError> {
    wait_for_readyz(
        cluster,
        node,
        "find nothing wrong with its peers",
        |code, body| {
            let agent = cluster[node].agent.as_ref();
            let answers = agent.map(|agent| agent.metric("tweed_peers{state=\"answers\"}"));
            code == 200
                && !body.contains("peer-")
                && matches!(answers, Some(Ok(Some(count))) if count == peers)
        },
    )
}

#[test]
fn a_filtered_tunnel_is_named_with_both_addresses_and_the_port() -> Result<(), LabError> {
    let cluster = Cluster::start_with(2, probing)?;
    wait_for_answers(&cluster, 1, 1.0)?;
    filter(&cluster, "\"node1\", \"node2\"")?;
    let tunnel = "VXLAN, UDP port 8472";
    let words = ["peer-silent", "node2", "192.0.2.12", "10.244.2.0", tunnel];
    wait_for(&cluster, 1, &words)?;
    let words = ["peer-silent", "node1", "192.0.2.11", "10.244.1.0", tunnel];
    wait_for(&cluster, 2, &words)?;
    mend(&cluster)?;
    for node in [1, 2] {
        wait_for_answers(&cluster, node, 1.0)?;
    }
    // What node 1 sends is lost, and both know it.
    filter(&cluster, "\"node1\"")?;
    let words = [
        "peer-one-way",
        "node2 is heard",
        "from here to 192.0.2.12 are lost",
    ];
    wait_for(&cluster, 1, &words)?;
    let words = [
        "peer-one-way",
        "node1 hears",
        "from 192.0.2.11 to here are lost",
    ];
    wait_for(&cluster, 2, &words)?;
    mend(&cluster)?;
    wait_for_answers(&cluster, 1, 1.0)
}

#[test]
fn a_port_with_a_small_mtu_is_named_with_the_size_that_passes() -> Result<(), LabError> {
    let cluster = Cluster::start_with(2, probing)?;
    wait_for_answers(&cluster, 1, 1.0)?;
    let switch = cluster.underlay().switch();
    switch.ip(["link set node2 mtu 1400"])?;
    // The kernel leaves room for a VLAN tag, 4 bytes, beyond the MTU of a port.
    let words = ["peer-mtu", "node2", "1450 bytes", "up to 1354 do"];
    wait_for(&cluster, 1, &words)?;
    switch.ip(["link set node2 mtu 1500"])?;
    wait_for_answers(&cluster, 1, 1.0)
}

#[test]
fn a_node_that_is_gone_is_a_problem_until_its_node_is_not_ready() -> Result<(), LabError> {
    let mut cluster = Cluster::start_with(3, probing)?;
    wait_for_answers(&cluster, 1, 2.0)?;
    let port = |state| {
        cluster
            .underlay()
            .switch()
            .ip([format!("link set node2 {state}")])
    };
    port("down")?;
    wait_for(
        &cluster,
        1,
        &["peer-unreachable", "node2", "192.0.2.12", "10.244.2.0"],
    )?;
    cluster.entry(2)?.manifest.not_ready = true;
    cluster.publish()?;
    wait_for_answers(&cluster, 1, 1.0)?;
    let agent = cluster[1].agent.as_ref();
    let counted = agent.map(|agent| agent.metric("tweed_peers{state=\"not-ready\"}"));
    assert_eq!(counted.transpose()?.flatten(), Some(1.0));
    cluster.underlay().switch().ip(["link set node2 up"])?;
    cluster.entry(2)?.manifest.not_ready = false;
    cluster.publish()?;
    wait_for_answers(&cluster, 1, 2.0)
}

/// Without a tunnel nobody would have the addresses that are asked.
#[test]
fn with_direct_routes_the_nodes_have_the_first_addresses_of_their_ranges() -> Result<(), LabError> {
    let cluster = Cluster::start_with(2, |options| probing(options).arg("--backend=direct"))?;
    wait_for(
        &cluster,
        1,
        &["peer-silent", "node2", "over a direct route"],
    )?;
    for node in [1, 2] {
        let port = cluster[node].node.name();
        cluster
            .underlay()
            .allow(port, Ipv4Addr::new(10, 244, node, 0))?;
    }
    for node in [1, 2] {
        wait_for_answers(&cluster, node, 1.0)?;
    }
    let node = cluster[1].node.netns();
    // Again and again, as all routes are read by the clock now and then, too.
    for _ in 0..3 {
        node.sh("ip route del local 10.244.1.0 dev lo table local proto 116")?;
        wait_until("the route to be back", Duration::from_secs(4), || {
            let line = "ip route show table local proto 116";
            let routes = node.sh(line).map_err(|error| error.to_string())?;
            let is_back = routes.contains("local 10.244.1.0 dev lo");
            is_back.then_some(()).ok_or(routes)
        })?;
    }
    Ok(())
}

/// Whoever filters echoes has the agents' port.
#[test]
fn filtered_echoes_are_no_problem() -> Result<(), LabError> {
    let cluster = Cluster::start_with(2, probing)?;
    for node in [1, 2] {
        let netns = cluster[node].node.netns();
        netns.set_sysctl("ipv4/icmp_echo_ignore_all", "1")?;
    }
    let received = |node: u8| -> Result<f64, LabError> {
        let agent = cluster[node].agent.as_ref();
        let count = agent.map(|agent| agent.metric("tweed_peer_round_trip_seconds_count"));
        Ok(count.transpose()?.flatten().unwrap_or_default())
    };
    let before = received(1)?;
    wait_for_readyz(&cluster, 1, "get answers by UDP", |code, body| {
        code == 200 && !body.contains("peer-") && received(1).is_ok_and(|now| now > before + 8.0)
    })?;
    wait_for_answers(&cluster, 1, 1.0)
}

/// What nobody mends, because the agent of that node does not run.
#[test]
fn what_is_broken_beside_a_dead_agent_is_named_by_the_others() -> Result<(), LabError> {
    let mut cluster = Cluster::start_with(2, probing)?;
    let broken = [
        "ip link set tweed.1 down",
        "ip link set tweed.1 address 02:00:00:00:00:01",
        "ip route add unreachable 10.244.1.0/25",
    ];
    for what in broken {
        wait_for_answers(&cluster, 1, 1.0)?;
        cluster.kill_agent(2)?;
        cluster[2].node.netns().sh(what)?;
        let words = ["peer-silent", "node2", "192.0.2.12", "10.244.2.0"];
        wait_for(&cluster, 1, &words)?;
        cluster.start_agent(2)?;
    }
    // A route of others stays, is named where it is, and by whom its packets do not reach.
    wait_for(&cluster, 2, &["route-taken", "10.244.1.0/25"])?;
    wait_for(&cluster, 1, &["node2"])?;
    let node = cluster[2].node.netns();
    node.sh("ip route del unreachable 10.244.1.0/25")?;
    wait_for_answers(&cluster, 1, 1.0)
}
