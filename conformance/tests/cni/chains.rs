//! tweed in a chain, before the reference's plugins and behind them, by
//! `cnitool` as a node has it. The reference `ptp` stands in the same chains.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use tweed_lab::{
    AddResult, EchoServer, OUTSIDE, PingOptions, Pod, Snapshot, Transport, ping, source_seen,
};

use crate::bench::Bench;
use crate::eyes::link;

subjects! {
    all: before_portmap, before_bandwidth, before_tuning, before_firewall, before_all_of_them,
        behind_loopback, a_failing_plugin_behind_it_is_cleaned_up_by_del;
}

fn portmap() -> Value {
    json!({ "type": "portmap", "capabilities": { "portMappings": true } })
}

fn bandwidth() -> Value {
    json!({ "type": "bandwidth", "capabilities": { "bandwidth": true } })
}

fn tuning() -> Value {
    json!({ "type": "tuning", "mtu": 1300, "promisc": true,
            "sysctl": { "net.ipv4.conf.IFNAME.rp_filter": "2" } })
}

fn firewall() -> Value {
    json!({ "type": "firewall", "backend": "iptables" })
}

/// What a runtime gives for the capabilities of the plugins above.
fn arguments() -> Value {
    json!({
        "portMappings": [{ "hostPort": 8080, "containerPort": 7000, "protocol": "tcp" }],
        "bandwidth": { "ingressRate": 8_000_000, "ingressBurst": 800_000,
                       "egressRate": 4_000_000, "egressBurst": 400_000 },
    })
}

/// Attaches a pod through a chain, and CHECKs it.
fn attach(bench: &Bench, pod: &Pod, behind: &[Value]) -> AddResult {
    let chain = [&[bench.config()], behind].concat();
    bench.write_chain("1.1.0", &chain);
    let tool = bench.tool().capabilities(&arguments());
    let added = tool.add(pod).unwrap();
    tool.check(pod).unwrap();
    added
}

/// DEL, after which the node is as it was: but for the chains of rules that the
/// reference's plugins leave for the next pod, empty of this one.
fn detach(bench: &Bench, pod: &Pod, added: &AddResult, before: &Snapshot) {
    let tool = bench.tool().capabilities(&arguments());
    tool.del(pod).unwrap();
    tool.del(pod).unwrap();
    let rules = |line: &str| line.starts_with("nft ");
    let after = bench.snapshot();
    let address = added.address().unwrap().to_string();
    let naming: Vec<_> = after
        .of_kind("nft")
        .filter(|l| l.contains(&address))
        .collect();
    assert_eq!(naming, [""; 0]);
    assert_eq!(bench.reserved(), [].into());
    let changes = before.clone().without(rules).changes(&after.without(rules));
    assert_eq!(changes, [""; 0]);
}

fn hostport_leads_to(bench: &Bench, pod: &Pod) {
    let _server = EchoServer::start(pod.netns(), 7000).unwrap();
    let to = SocketAddr::new(bench.node.address().into(), 8080);
    let outside = bench.node.underlay().outside();
    let seen = source_seen(outside, to, Transport::Tcp).unwrap();
    assert_eq!(seen.ip(), IpAddr::from(OUTSIDE));
}

fn before_portmap(bench: &Bench) {
    let (before, pod) = (bench.snapshot(), bench.pod("pod"));
    let added = attach(bench, &pod, &[portmap()]);
    hostport_leads_to(bench, &pod);
    detach(bench, &pod, &added, &before);
}

/// The kinds of queueing on a link of the node.
fn queues(bench: &Bench, link: &str) -> Vec<String> {
    let found = bench
        .node
        .netns()
        .json(&format!("tc -j qdisc show dev {link}"))
        .unwrap();
    let kinds = found.as_array().unwrap().iter();
    kinds
        .map(|queue| queue["kind"].as_str().unwrap().to_owned())
        .collect()
}

fn before_bandwidth(bench: &Bench) {
    let (before, pod) = (bench.snapshot(), bench.pod("pod"));
    let added = attach(bench, &pod, &[bandwidth()]);
    let kinds = queues(bench, added.host_link());
    for kind in ["tbf", "ingress"] {
        assert!(kinds.iter().any(|k| k == kind), "{kind}: {kinds:?}");
    }
    let report = ping(
        bench.node.netns(),
        added.address().unwrap(),
        &PingOptions::default(),
    );
    assert_eq!(report.unwrap().lost(), 0);
    detach(bench, &pod, &added, &before);
}

fn before_tuning(bench: &Bench) {
    let (before, pod) = (bench.snapshot(), bench.pod("pod"));
    let added = attach(bench, &pod, &[tuning()]);
    let inside = link(pod.netns(), "eth0");
    assert_eq!(
        (&inside["mtu"], &inside["promiscuity"]),
        (&json!(1300), &json!(1))
    );
    let rp_filter = pod.netns().sysctl("ipv4/conf/eth0/rp_filter").unwrap();
    assert_eq!(rp_filter, "2");
    detach(bench, &pod, &added, &before);
}

fn before_firewall(bench: &Bench) {
    let node = bench.node.netns();
    node.sh("iptables -P FORWARD DROP").unwrap();
    let before = bench.snapshot();
    let [one, two] = ["one", "two"].map(|name| bench.pod(name));
    let first = attach(bench, &one, &[firewall()]);
    let second = attach(bench, &two, &[firewall()]);
    // Only the plugin's rules let this through.
    let report = ping(
        one.netns(),
        second.address().unwrap(),
        &PingOptions::default(),
    )
    .unwrap();
    assert_eq!(report.lost(), 0, "{report}");
    bench.tool().del(&two).unwrap();
    detach(bench, &one, &first, &before);
}

fn before_all_of_them(bench: &Bench) {
    let (before, pod) = (bench.snapshot(), bench.pod("pod"));
    let added = attach(bench, &pod, &[portmap(), bandwidth(), tuning(), firewall()]);
    hostport_leads_to(bench, &pod);
    detach(bench, &pod, &added, &before);
}

fn behind_loopback(bench: &Bench) {
    let (before, pod) = (bench.snapshot(), bench.pod("pod"));
    bench.write_chain("1.1.0", &[json!({ "type": "loopback" }), bench.config()]);
    let tool = bench.tool();
    let added = tool.add(&pod).unwrap();
    tool.check(&pod).unwrap();
    if bench.is_tweed() {
        // What was there comes first, and addresses point to their interfaces.
        assert_eq!(added.interfaces[0].name, "lo", "{added:?}");
    }
    let ours = added
        .ips
        .iter()
        .find(|ip| ip.address.to_string().starts_with("10.244.1."));
    let interface = ours.unwrap().interface.unwrap();
    assert_eq!(added.interfaces[interface].name, "eth0", "{added:?}");
    tool.del(&pod).unwrap();
    bench.assert_nothing_left(&before);
}

fn a_failing_plugin_behind_it_is_cleaned_up_by_del(bench: &Bench) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    let failing = json!({ "type": "tuning", "sysctl": { "net.ipv4.no_such_key": "1" } });
    bench.write_chain("1.1.0", &[bench.config(), failing]);
    let said = bench.tool().add(&pod).unwrap_err().chain();
    assert!(said.contains("no_such_key"), "{said}");
    // A runtime calls DEL after an ADD that failed, without a result.
    bench.tool().del(&pod).unwrap();
    bench.assert_nothing_left(&before);
}
