//! Packets of a pod over its link, and that they need no ARP or neighbour discovery.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tweed_lab::{
    Capture, EchoServer, Netns, OUTSIDE, PingOptions, Transport, capture, ping, source_seen,
};

use crate::fixture::{Fixture, NODE_V6, assert_refused_with};

subjects! {
    all: pod_and_node_reach_each_other, pods_of_a_node_reach_each_other,
        a_packet_of_the_mtu_passes_and_one_more_is_refused, a_pod_is_seen_with_its_own_address,
        both_families_work, an_add_needs_no_underlay;
    tweed: first_packets_need_no_arp_and_no_neighbour_discovery, a_pod_sees_the_node_by_its_host_source,
        ipv6_works_as_soon_as_add_returns, without_an_agent_the_node_forwards,
        a_node_that_cannot_forward_is_refused, with_an_agent_forwarding_is_its_own;
}

/// The switches of the node's forwarding.
const FORWARDING: [&str; 2] = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"];

fn forwarding(fixture: &Fixture) -> [String; 2] {
    FORWARDING.map(|key| fixture.node.netns().sysctl(key).unwrap())
}

fn switch_forwarding_off(fixture: &Fixture) {
    for key in FORWARDING {
        fixture.node.netns().set_sysctl(key, "0").unwrap();
    }
}

#[track_caller]
fn reaches(from: &Netns, to: impl Into<IpAddr>) {
    let to = to.into();
    let report = ping(from, to, &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{} to {to}: {report}", from.name());
}

fn pod_and_node_reach_each_other(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let address = fixture.tool().add(&pod).unwrap().address().unwrap();
    reaches(pod.netns(), fixture.node.address());
    reaches(fixture.node.netns(), address);
}

fn pods_of_a_node_reach_each_other(fixture: &Fixture) {
    let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
    let [first, second] = [&one, &two].map(|pod| fixture.tool().add(pod).unwrap());
    reaches(one.netns(), second.address().unwrap());
    reaches(two.netns(), first.address().unwrap());
}

fn both_families_work(fixture: &Fixture) {
    let config = fixture.dual_stack_config();
    let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
    fixture.add_with(&one, &config);
    let second = fixture.add_with(&two, &config);
    if !fixture.is_tweed() {
        // The reference's pod waits for duplicate address detection.
        return reaches(one.netns(), second.ips[0].address.ip());
    }
    for ip in &second.ips {
        reaches(one.netns(), ip.address.ip());
        reaches(fixture.node.netns(), ip.address.ip());
    }
    reaches(one.netns(), NODE_V6.parse::<IpAddr>().unwrap());
}

fn ipv6_works_as_soon_as_add_returns(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    fixture.add_with(&pod, &fixture.dual_stack_config());
    let once = PingOptions {
        count: 1,
        ..PingOptions::default()
    };
    let to: IpAddr = NODE_V6.parse().unwrap();
    let report = ping(pod.netns(), to, &once).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
}

fn a_packet_of_the_mtu_passes_and_one_more_is_refused(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let address = fixture.add(&pod).address().unwrap();
    for (from, to) in [
        (pod.netns(), IpAddr::from(fixture.node.address())),
        (fixture.node.netns(), address),
    ] {
        let fits = ping(from, to, &PingOptions::packet(1437)).unwrap();
        assert_eq!(fits.lost(), 0, "{to}: {fits}");
        let long = ping(from, to, &PingOptions::packet(1438)).unwrap();
        let said = long.errors.first().unwrap();
        assert!(said.contains("mtu=1437"), "{to}: {long:?}");
    }
}

fn a_pod_is_seen_with_its_own_address(fixture: &Fixture) {
    let [client, server] = ["client", "server"].map(|name| fixture.pod(name));
    let [own, to] = [&client, &server].map(|pod| fixture.add(pod).address().unwrap());
    let inside = EchoServer::start(server.netns(), 7000).unwrap();
    let on_node = EchoServer::start(fixture.node.netns(), 7001).unwrap();
    for (to, port) in [
        (to, inside.port()),
        (fixture.node.address().into(), on_node.port()),
    ] {
        let seen = source_seen(client.netns(), SocketAddr::new(to, port), Transport::Tcp).unwrap();
        assert_eq!(seen.ip(), own, "as seen by {to}");
    }
}

fn a_pod_sees_the_node_by_its_host_source(fixture: &Fixture) {
    // Of all addresses of the node, `hostSource` is the one that peers know.
    fixture
        .node
        .netns()
        .ip([
            "addr add 192.0.2.77/32 dev lo",
            "addr add 172.16.9.9/32 dev lo",
        ])
        .unwrap();
    let pod = fixture.pod("pod");
    let added = fixture.add_with(&pod, &fixture.dual_stack_config());
    let server = EchoServer::start(pod.netns(), 7000).unwrap();
    let to = SocketAddr::new(added.address().unwrap(), server.port());
    let seen = source_seen(fixture.node.netns(), to, Transport::Udp).unwrap();
    assert_eq!(seen.ip(), fixture.node.address());
}

/// Lines of a capture that are ARP, neighbour or router requests.
fn requests(lines: &[String]) -> Vec<&String> {
    let words = ["ethertype ARP", "neighbor ", "router "];
    let is_request = |line: &&String| words.iter().any(|word| line.contains(word));
    lines.iter().filter(is_request).collect()
}

fn first_packets_need_no_arp_and_no_neighbour_discovery(fixture: &Fixture) {
    let config = fixture.dual_stack_config();
    let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
    // Started before the link exists: `any` includes later links.
    let listen = |netns| capture(netns, "any", "arp or icmp or icmp6").unwrap();
    let in_pods = [&one, &two].map(|pod| listen(pod.netns()));
    let on_node = listen(fixture.node.netns());
    fixture.add_with(&one, &config);
    let second = fixture.add_with(&two, &config);
    for ip in &second.ips {
        reaches(one.netns(), ip.address.ip());
        reaches(fixture.node.netns(), ip.address.ip());
    }
    let captured = |capture: Capture| {
        // Without answers, the capture would prove nothing.
        capture.wait_for("ICMP echo reply").unwrap();
        capture.wait_for("ICMP6, echo reply").unwrap();
        capture.stop().unwrap()
    };
    for lines in in_pods.map(captured) {
        assert_eq!(requests(&lines), [""; 0], "in a pod");
    }
    let mut lines = captured(on_node);
    // The underlay uses ARP.
    lines.retain(|line| !line.contains(" eth0 "));
    assert_eq!(requests(&lines), [""; 0], "on the node");

    // The control: without its permanent neighbour a pod sends ARP requests.
    two.netns().ip(["neigh del 169.254.1.1 dev eth0"]).unwrap();
    let asking = listen(two.netns());
    ping(
        two.netns(),
        fixture.node.address(),
        &PingOptions {
            wait: Duration::from_millis(200),
            ..PingOptions::packet(100)
        },
    )
    .unwrap();
    let asked = asking.wait_for("Request who-has 169.254.1.1").unwrap();
    assert_eq!(requests(&[asked]).len(), 1);
}

fn without_an_agent_the_node_forwards(fixture: &Fixture) {
    switch_forwarding_off(fixture);
    let node = fixture.node.netns();
    node.set_sysctl("ipv6/conf/eth0/accept_ra", "1").unwrap();
    let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
    // Only for the families of the pod.
    fixture.add(&one);
    assert_eq!(forwarding(fixture), ["1", "0"]);
    fixture.del(&one);
    assert_eq!(node.sysctl("ipv6/conf/eth0/accept_ra").unwrap(), "1");
    fixture.add_with(&one, &fixture.dual_stack_config());
    assert_eq!(forwarding(fixture), ["1", "1"]);
    // A node that lives on router advertisements goes on taking them.
    assert_eq!(node.sysctl("ipv6/conf/eth0/accept_ra").unwrap(), "2");
    let second = fixture.add_with(&two, &fixture.dual_stack_config());
    for ip in &second.ips {
        reaches(one.netns(), ip.address.ip());
    }
}

fn a_node_that_cannot_forward_is_refused(fixture: &Fixture) {
    let read_only = fixture.wrapper(
        "read_only",
        "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec $PLUGIN",
    );
    switch_forwarding_off(fixture);
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let output = fixture.call("ADD", &pod).run(&fixture.node, &read_only);
    let words = ["IPv4 forwarding", "net.ipv4.ip_forward=1"];
    assert_refused_with(&output.unwrap(), 103, &words);
    fixture.assert_nothing_left(&before);
}

fn with_an_agent_forwarding_is_its_own(fixture: &Fixture) {
    switch_forwarding_off(fixture);
    let ready = fixture.node.run_dir().join("ready");
    std::fs::write(&ready, "{}").unwrap();
    let mut config = fixture.dual_stack_config();
    config["readyFile"] = ready.display().to_string().into();
    fixture.add_with(&fixture.pod("pod"), &config);
    assert_eq!(forwarding(fixture), ["0", "0"]);
}

fn an_add_needs_no_underlay(fixture: &Fixture) {
    let node = fixture.node.netns();
    node.ip(["link set eth0 down"]).unwrap();
    let pod = fixture.pod("pod");
    let mut config = fixture.config();
    // An address of a link that is down cannot be the source of a route.
    config.as_object_mut().unwrap().remove("hostSource");
    let address = fixture.add_with(&pod, &config).address().unwrap();
    reaches(node, address);
    fixture.del(&pod);
    let outside = ping(
        node,
        OUTSIDE,
        &PingOptions {
            count: 1,
            ..PingOptions::default()
        },
    )
    .unwrap();
    assert!(outside.answered.is_empty(), "the control: {outside}");
}
