//! Changes of the underlay: links, addresses and MTU; and other programs that use the same
//! device name, VNI, port or route.

use std::net::UdpSocket;
use std::time::Duration;

use tweed_lab::{Cluster, LabError, Netns, PingOptions, Snapshot, ping, wait_until};

use crate::state::{settled_state, wait_for_readyz, wait_for_state};

#[test]
fn everything_is_restored_after_a_link_flap() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (here, there) = (cluster.pod(1, "here")?, cluster.pod(2, "there")?);
    let node = cluster[1].node.netns();
    let before = settled_state(node)?;
    node.ip(["link set eth0 down"])?;
    std::thread::sleep(Duration::from_millis(300));
    node.ip(["link set eth0 up", "route replace default via 192.0.2.1"])?;
    Cluster::wait_for_path(here.netns(), there.address())?;
    wait_for_state(node, &before)
}

#[test]
fn a_lost_underlay_address_is_reported_and_its_return_restores_everything() -> Result<(), LabError>
{
    let mut cluster = Cluster::start(2)?;
    let (here, there) = (cluster.pod(1, "here")?, cluster.pod(2, "there")?);
    let node = cluster[1].node.netns();
    let before = settled_state(node)?;
    node.ip(["addr del 192.0.2.11/24 dev eth0"])?;
    wait_for_readyz(&cluster, 1, "report the lost address", |code, body| {
        code == 503 && body.contains("192.0.2.11")
    })?;
    node.ip([
        "addr add 192.0.2.11/24 dev eth0",
        "route replace default via 192.0.2.1",
    ])?;
    Cluster::wait_for_path(here.netns(), there.address())?;
    wait_for_state(node, &before)?;
    Cluster::wait_for_path(node, here.address())
}

#[test]
fn the_mtu_follows_the_underlay() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    for node in [1, 2] {
        cluster[node].node.netns().ip(["link set eth0 mtu 1400"])?;
    }
    for node in [1, 2] {
        let conflist = cluster[node].node.cni_conf_dir().join("10-tweed.conflist");
        wait_until(
            "the config to have MTU 1350",
            Duration::from_secs(30),
            || {
                let text = std::fs::read_to_string(&conflist).map_err(|e| e.to_string())?;
                if text.contains("\"mtu\": 1350") || text.contains("\"mtu\":1350") {
                    Ok(())
                } else {
                    Err(text)
                }
            },
        )?;
    }
    let (here, there) = (cluster.pod(1, "here")?, cluster.pod(2, "there")?);
    Cluster::wait_for_path(here.netns(), there.address())?;
    let fits = ping(here.netns(), there.address(), &PingOptions::packet(1350))?;
    assert_eq!(fits.lost(), 0, "{fits}");
    let large = ping(here.netns(), there.address(), &PingOptions::packet(1351))?;
    assert!(large.answered.is_empty(), "{large}");
    Ok(())
}

/// Starts a cluster after `before` has prepared its first node.
fn start_after(before: impl FnOnce(&Netns) -> Result<(), LabError>) -> Result<Cluster, LabError> {
    let mut cluster = Cluster::empty(&tweed_lab::Lab::new()?, |options| options)?;
    cluster.plug(1)?;
    cluster.plug(2)?;
    before(cluster[1].node.netns())?;
    cluster.publish()?;
    cluster.start_agent(1)?;
    cluster.start_agent(2)?;
    Ok(cluster)
}

fn wait_after_cure(cluster: &mut Cluster, cure: &str) -> Result<(), LabError> {
    cluster[1].node.netns().sh(cure)?;
    cluster.wait_ready()?;
    Cluster::wait_for_path(cluster[1].node.netns(), [10, 244, 2, 0].into())
}

#[test]
fn another_device_for_the_same_packets_is_reported() -> Result<(), LabError> {
    for (name, device) in [
        ("flannel.1", "id 1 dstport 8472 local 192.0.2.11 nolearning"),
        ("other", "external dstport 8472"),
    ] {
        let mut cluster = start_after(|node| {
            node.ip([
                format!("link add {name} type vxlan {device}"),
                format!("link set {name} up"),
            ])
        })?;
        wait_for_readyz(&cluster, 1, "report the other device", |code, body| {
            code == 503 && body.contains(name)
        })?;
        wait_after_cure(&mut cluster, &format!("ip link del {name}"))?;
    }
    Ok(())
}

#[test]
fn a_taken_port_is_named_and_wait_after_cure_itself() -> Result<(), LabError> {
    let mut held = None;
    let mut cluster = start_after(|node| {
        let socket = node.enter(|| UdpSocket::bind("0.0.0.0:8472"))?;
        held = socket.ok();
        Ok(())
    })?;
    assert!(held.is_some(), "the port could not be bound");
    wait_for_readyz(&cluster, 1, "report the port", |code, body| {
        code == 503 && body.contains("8472")
    })?;
    drop(held);
    cluster.wait_ready()?;
    Cluster::wait_for_path(cluster[1].node.netns(), [10, 244, 2, 0].into())
}

#[test]
fn a_foreign_device_of_the_same_name_is_left_alone() -> Result<(), LabError> {
    let mut cluster = start_after(|node| node.ip(["link add tweed.1 type veth peer name other"]))?;
    wait_for_readyz(&cluster, 1, "report tweed.1", |code, body| {
        code == 503 && body.contains("tweed.1")
    })?;
    let link = cluster[1].node.netns().json("ip -j -d link show tweed.1")?;
    assert_eq!(link[0]["linkinfo"]["info_kind"], "veth");
    wait_after_cure(&mut cluster, "ip link del tweed.1")
}

#[test]
fn a_conflicting_foreign_route_is_reported_and_kept() -> Result<(), LabError> {
    let mut cluster = start_after(|node| node.ip(["route add 10.244.2.0/24 via 192.0.2.1"]))?;
    wait_for_readyz(&cluster, 1, "report the route", |_, body| {
        body.contains("10.244.2.0/24")
    })?;
    let routes = cluster[1].node.netns().sh("ip route show 10.244.2.0/24")?;
    assert!(routes.contains("via 192.0.2.1"), "{routes}");
    wait_after_cure(&mut cluster, "ip route del 10.244.2.0/24 via 192.0.2.1")
}

#[test]
fn a_table_that_drops_forwarded_packets_is_reported_with_its_cure() -> Result<(), LabError> {
    let cluster = start_after(|node| {
        node.nft("table ip filter {\n chain FORWARD {\n type filter hook forward priority 0; policy drop;\n }\n }")
    })?;
    wait_for_readyz(&cluster, 1, "report the table", |code, body| {
        code == 200 && body.contains("FORWARD")
    })?;
    cluster[1].node.netns().sh("nft delete table ip filter")?;
    wait_for_readyz(&cluster, 1, "end the warning", |code, body| {
        code == 200 && !body.contains("FORWARD")
    })
}

/// Objects of an administrator stay exactly the same.
#[test]
fn foreign_objects_are_never_changed() -> Result<(), LabError> {
    let other = |node: &Netns| -> Result<(), LabError> {
        node.ip([
            "link add other0 type veth peer name other1",
            "link set other0 up",
            "link set other1 up",
            "link set other1 group 116",
            "addr add 203.0.113.1/24 dev other0",
            "route add 203.0.113.128/25 dev other0 proto static",
            "route add 10.50.0.0/16 via 192.0.2.1 proto 17",
            "rule add from 203.0.113.7 lookup 100 pref 77",
            "route add default via 192.0.2.1 table 100",
            "neigh add 203.0.113.9 lladdr 02:00:00:00:00:09 dev other0 nud permanent",
            "link add other.5 type vxlan id 5 dstport 4790 local 192.0.2.11 nolearning",
        ])?;
        node.nft("table inet other {\n set s { type ipv4_addr; elements = { 10.244.1.0 }; }\n chain c {\n type filter hook input priority 0;\n counter accept\n }\n }")
    };
    let mut cluster = Cluster::empty(&tweed_lab::Lab::new()?, |options| options)?;
    cluster.plug(1)?;
    cluster.plug(2)?;
    other(cluster[1].node.netns())?;
    let before = Snapshot::settled(cluster[1].node.netns())?;
    cluster.publish()?;
    cluster.start_agent(1)?;
    cluster.start_agent(2)?;
    cluster.wait_ready()?;
    let pod = cluster.pod(1, "pod")?;
    Cluster::wait_for_path(cluster[2].node.netns(), pod.address())?;
    cluster.delete_pod(1, pod)?;
    // `accept_redirects` follows `ip_forward` in the kernel.
    let ours = |line: &str| {
        ["ip_forward", "/forwarding", "conf/all/accept_redirects"]
            .iter()
            .any(|key| line.contains(key))
    };
    let removed: Vec<_> = before
        .without(ours)
        .changes(&Snapshot::of(cluster[1].node.netns())?)
        .into_iter()
        .filter(|line| line.starts_with('-'))
        .collect();
    assert_eq!(removed, Vec::<String>::new());
    Ok(())
}
