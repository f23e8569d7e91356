//! Packets: the pod's ways over its link, and that nobody had to ask for them.

use std::net::{IpAddr, SocketAddr};

use tweed_lab::{
    Capture, EchoServer, Netns, OUTSIDE, PingOptions, Transport, capture, ping, source_seen,
};

use crate::bench::{Bench, NODE_V6};

subjects! {
    all: pod_and_node_reach_each_other, pods_of_a_node_reach_each_other,
        a_packet_of_the_mtu_passes_and_one_more_is_refused, a_pod_is_seen_with_its_own_address,
        both_families_work, an_add_needs_no_network_outside;
    tweed: the_first_packets_wait_for_nobody, the_node_is_seen_with_its_address,
        ipv6_works_the_moment_that_add_returns;
}

#[track_caller]
fn reaches(from: &Netns, to: impl Into<IpAddr>) {
    let to = to.into();
    let report = ping(from, to, &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{} to {to}: {report}", from.name());
}

fn pod_and_node_reach_each_other(bench: &Bench) {
    let pod = bench.pod("pod");
    let address = bench.tool().add(&pod).unwrap().address().unwrap();
    reaches(pod.netns(), bench.node.address());
    reaches(bench.node.netns(), address);
}

fn pods_of_a_node_reach_each_other(bench: &Bench) {
    let [one, two] = ["one", "two"].map(|name| bench.pod(name));
    let [first, second] = [&one, &two].map(|pod| bench.tool().add(pod).unwrap());
    reaches(one.netns(), second.address().unwrap());
    reaches(two.netns(), first.address().unwrap());
}

fn both_families_work(bench: &Bench) {
    let config = bench.dual_stack_config();
    let [one, two] = ["one", "two"].map(|name| bench.pod(name));
    bench.add_with(&one, &config);
    let second = bench.add_with(&two, &config);
    if !bench.is_tweed() {
        // The reference's pod waits for duplicate detection.
        return reaches(one.netns(), second.ips[0].address.ip());
    }
    for ip in &second.ips {
        reaches(one.netns(), ip.address.ip());
        reaches(bench.node.netns(), ip.address.ip());
    }
    reaches(one.netns(), NODE_V6.parse::<IpAddr>().unwrap());
}

fn ipv6_works_the_moment_that_add_returns(bench: &Bench) {
    let pod = bench.pod("pod");
    bench.add_with(&pod, &bench.dual_stack_config());
    let once = PingOptions {
        count: 1,
        ..PingOptions::default()
    };
    let to: IpAddr = NODE_V6.parse().unwrap();
    let report = ping(pod.netns(), to, &once).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
}

fn a_packet_of_the_mtu_passes_and_one_more_is_refused(bench: &Bench) {
    let pod = bench.pod("pod");
    let address = bench.add(&pod).address().unwrap();
    for (from, to) in [
        (pod.netns(), IpAddr::from(bench.node.address())),
        (bench.node.netns(), address),
    ] {
        let fits = ping(from, to, &PingOptions::packet(1437)).unwrap();
        assert_eq!(fits.lost(), 0, "{to}: {fits}");
        let long = ping(from, to, &PingOptions::packet(1438)).unwrap();
        let said = long.errors.first().unwrap();
        assert!(said.contains("mtu=1437"), "{to}: {long:?}");
    }
}

fn a_pod_is_seen_with_its_own_address(bench: &Bench) {
    let [client, server] = ["client", "server"].map(|name| bench.pod(name));
    let [own, to] = [&client, &server].map(|pod| bench.add(pod).address().unwrap());
    let inside = EchoServer::start(server.netns(), 7000).unwrap();
    let on_node = EchoServer::start(bench.node.netns(), 7001).unwrap();
    for (to, port) in [
        (to, inside.port()),
        (bench.node.address().into(), on_node.port()),
    ] {
        let seen = source_seen(client.netns(), SocketAddr::new(to, port), Transport::Tcp).unwrap();
        assert_eq!(seen.ip(), own, "seen by {to}");
    }
}

fn the_node_is_seen_with_its_address(bench: &Bench) {
    // Of all of the node's addresses, `hostSource` is the one that peers know.
    bench
        .node
        .netns()
        .ip([
            "addr add 192.0.2.77/32 dev lo",
            "addr add 172.16.9.9/32 dev lo",
        ])
        .unwrap();
    let pod = bench.pod("pod");
    let added = bench.add_with(&pod, &bench.dual_stack_config());
    let server = EchoServer::start(pod.netns(), 7000).unwrap();
    let to = SocketAddr::new(added.address().unwrap(), server.port());
    let seen = source_seen(bench.node.netns(), to, Transport::Udp).unwrap();
    assert_eq!(seen.ip(), bench.node.address());
}

/// Lines of a capture that ask who has an address, or for a router.
fn questions(lines: &[String]) -> Vec<&String> {
    let words = ["ethertype ARP", "neighbor ", "router "];
    let asks = |line: &&String| words.iter().any(|word| line.contains(word));
    lines.iter().filter(asks).collect()
}

fn the_first_packets_wait_for_nobody(bench: &Bench) {
    let config = bench.dual_stack_config();
    let [one, two] = ["one", "two"].map(|name| bench.pod(name));
    // Begun before there is a link: `any` sees links that come later.
    let listen = |netns| capture(netns, "any", "arp or icmp or icmp6").unwrap();
    let in_pods = [&one, &two].map(|pod| listen(pod.netns()));
    let on_node = listen(bench.node.netns());
    bench.add_with(&one, &config);
    let second = bench.add_with(&two, &config);
    for ip in &second.ips {
        reaches(one.netns(), ip.address.ip());
        reaches(bench.node.netns(), ip.address.ip());
    }
    let heard = |capture: Capture| {
        // What saw no answer would prove nothing.
        capture.wait_for("ICMP echo reply").unwrap();
        capture.wait_for("ICMP6, echo reply").unwrap();
        capture.stop().unwrap()
    };
    for lines in in_pods.map(heard) {
        assert_eq!(questions(&lines), [""; 0], "in a pod");
    }
    let mut lines = heard(on_node);
    // The underlay is another matter.
    lines.retain(|line| !line.contains(" eth0 "));
    assert_eq!(questions(&lines), [""; 0], "on the node");

    // The control: without its permanent neighbour a pod does ask.
    two.netns().ip(["neigh del 169.254.1.1 dev eth0"]).unwrap();
    let asking = listen(two.netns());
    ping(two.netns(), bench.node.address(), &PingOptions::packet(100)).unwrap();
    let asked = asking.wait_for("Request who-has 169.254.1.1").unwrap();
    assert_eq!(questions(&[asked]).len(), 1);
}

fn an_add_needs_no_network_outside(bench: &Bench) {
    let node = bench.node.netns();
    node.ip(["link set eth0 down"]).unwrap();
    let pod = bench.pod("pod");
    let mut config = bench.config();
    // An address of a link that is down is no source for routes.
    config.as_object_mut().unwrap().remove("hostSource");
    let address = bench.add_with(&pod, &config).address().unwrap();
    reaches(node, address);
    bench.del(&pod);
    let gone = ping(
        node,
        OUTSIDE,
        &PingOptions {
            count: 1,
            ..PingOptions::default()
        },
    )
    .unwrap();
    assert!(gone.answered.is_empty(), "the control: {gone}");
}
