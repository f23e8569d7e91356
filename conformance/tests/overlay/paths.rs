//! Paths between pods, nodes and the host outside: source addresses and packet sizes.

use std::net::IpAddr;
use std::time::Duration;

use tweed_lab::{
    Cluster, ClusterPod, EchoServer, LabError, Netns, OUTSIDE, PingOptions, Transport, ping,
    source_seen, wait_until,
};

fn reaches(from: &Netns, to: IpAddr) -> Result<(), LabError> {
    let report = ping(from, to, &PingOptions::default())?;
    assert_eq!(report.lost(), 0, "{} to {to}: {report}", from.name());
    Ok(())
}

/// Three nodes with two pods each.
fn three_nodes() -> Result<(Cluster, Vec<(u8, ClusterPod)>), LabError> {
    let mut cluster = Cluster::start(3)?;
    let mut pods = Vec::new();
    for node in 1..=3 {
        for name in ["a", "b"] {
            pods.push((node, cluster.pod(node, &format!("{name}{node}"))?));
        }
    }
    Ok((cluster, pods))
}

#[test]
fn every_pod_and_node_reaches_every_other_and_the_host_outside() -> Result<(), LabError> {
    let (cluster, pods) = three_nodes()?;
    for (_, from) in &pods {
        for (_, to) in &pods {
            reaches(from.netns(), to.address())?;
        }
        for node in cluster.nodes().values() {
            reaches(from.netns(), node.node.address().into())?;
            reaches(node.node.netns(), from.address())?;
        }
        reaches(from.netns(), OUTSIDE.into())?;
    }
    assert_eq!(
        cluster.underlay().foreign_frames()?,
        0,
        "the switch dropped frames with foreign sources"
    );
    Ok(())
}

#[test]
fn servers_see_the_pod_but_other_nodes_and_outside_see_its_node() -> Result<(), LabError> {
    let (cluster, pods) = three_nodes()?;
    let (_, client) = &pods[0];
    let node = cluster[1].node.address().into();
    let (same, across) = (&pods[1].1, &pods[2].1);
    let inside: [(&str, &Netns, IpAddr, IpAddr); 5] = [
        (
            "pod, same node",
            same.netns(),
            same.address(),
            client.address(),
        ),
        (
            "pod, across",
            across.netns(),
            across.address(),
            client.address(),
        ),
        ("own node", cluster[1].node.netns(), node, client.address()),
        (
            "other node",
            cluster[2].node.netns(),
            cluster[2].node.address().into(),
            node,
        ),
        (
            "outside",
            cluster.underlay().outside(),
            OUTSIDE.into(),
            node,
        ),
    ];
    for (what, netns, address, expected) in inside {
        let _server = EchoServer::start(netns, 7000)?;
        for transport in [Transport::Udp, Transport::Tcp] {
            let seen = source_seen(client.netns(), (address, 7000).into(), transport)?;
            assert_eq!(seen.ip(), expected, "{what}, {transport:?}");
        }
    }
    let _server = EchoServer::start(client.netns(), 7000)?;
    let to_client = (client.address(), 7000).into();
    let seen = source_seen(cluster[1].node.netns(), to_client, Transport::Tcp)?;
    assert_eq!(seen.ip(), node, "a probe comes from the node's address");
    let seen = source_seen(cluster[2].node.netns(), to_client, Transport::Tcp)?;
    assert_eq!(
        seen.ip(),
        IpAddr::from([10, 244, 2, 0]),
        "another node comes from its VTEP"
    );
    Ok(())
}

#[test]
fn a_packet_of_the_mtu_passes_and_one_more_byte_is_refused() -> Result<(), LabError> {
    let (_cluster, pods) = three_nodes()?;
    let (from, same, across) = (&pods[0].1, &pods[1].1, &pods[2].1);
    for to in [same, across] {
        let fits = ping(from.netns(), to.address(), &PingOptions::packet(1450))?;
        assert_eq!(fits.lost(), 0, "{fits}");
        let large = ping(from.netns(), to.address(), &PingOptions::packet(1451))?;
        assert_eq!(large.answered.len(), 0, "{large}");
        assert!(
            large.errors.iter().any(|e| e.contains("too long")),
            "{large}"
        );
    }
    Ok(())
}

/// As a chained `tuning` does it. The veth pair would drop such packets, and nobody would tell
/// their sender.
#[test]
fn senders_are_told_of_a_lower_mtu_of_the_pods_end() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (pod, far) = (cluster.pod(1, "pod")?, cluster.pod(2, "far")?);
    Cluster::wait_for_path(far.netns(), pod.address())?;
    pod.netns().sh("ip link set eth0 mtu 1300")?;
    // Longer than the agent's resync.
    let limit = Duration::from_secs(60);
    wait_until("the sender is told", limit, || {
        let options = PingOptions {
            wait: Duration::from_millis(500),
            ..PingOptions::packet(1301)
        };
        let report = ping(far.netns(), pod.address(), &options).map_err(|e| e.to_string())?;
        let is_told = report.errors.iter().any(|e| e.contains("1300"));
        if is_told {
            Ok(())
        } else {
            Err(report.to_string())
        }
    })?;
    let fits = ping(far.netns(), pod.address(), &PingOptions::packet(1300))?;
    assert_eq!(fits.lost(), 0, "{fits}");
    Ok(())
}

#[test]
fn an_unused_address_is_unreachable_and_no_packet_to_it_leaves_the_node() -> Result<(), LabError> {
    let mut cluster = Cluster::start_with(2, |options| {
        options.arg("--cluster-cidr").arg("10.244.0.0/16")
    })?;
    let pod = cluster.pod(1, "pod")?;
    let outside = tweed_lab::capture(cluster.underlay().router(), "any", "net 10.244.0.0/16")?;
    for unused in [[10, 244, 1, 200], [10, 244, 2, 200], [10, 244, 77, 7]].map(IpAddr::from) {
        for from in [pod.netns(), cluster[1].node.netns()] {
            let report = ping(
                from,
                unused,
                &PingOptions {
                    count: 1,
                    ..PingOptions::default()
                },
            )?;
            assert!(report.answered.is_empty(), "{report}");
            assert!(
                report
                    .errors
                    .iter()
                    .any(|e| e.contains("Unreachable") || e.contains("No route to host")),
                "{} to {unused}: {report}",
                from.name()
            );
        }
    }
    assert_eq!(outside.stop()?, Vec::<String>::new());
    Ok(())
}
