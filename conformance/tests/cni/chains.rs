//! tweed in chains with reference plugins before and after it, called by `cnitool`. The
//! reference `ptp` is tested in the same chains.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use tweed_lab::{
    AddResult, EchoServer, OUTSIDE, PingOptions, Pod, Snapshot, Transport, ping, source_seen,
};

use crate::fixture::{Fixture, assert_silent, error_of};
use crate::observe::link;

subjects! {
    all: before_portmap, before_bandwidth, before_tuning, before_firewall, before_all_of_them,
        after_loopback, del_cleans_up_after_a_later_plugin_failed;
    tweed: before_sbr, gc_frees_what_a_missing_plugin_kept_from_its_del;
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

/// A runtime's arguments for the capabilities of the plugins above.
fn arguments() -> Value {
    json!({
        "portMappings": [{ "hostPort": 8080, "containerPort": 7000, "protocol": "tcp" }],
        "bandwidth": { "ingressRate": 8_000_000, "ingressBurst": 800_000,
                       "egressRate": 4_000_000, "egressBurst": 400_000 },
    })
}

/// Attaches a pod through a chain, and CHECKs it.
fn attach(fixture: &Fixture, pod: &Pod, later: &[Value]) -> AddResult {
    let chain = [&[fixture.config()], later].concat();
    fixture.write_chain("1.1.0", &chain);
    let tool = fixture.tool().capabilities(&arguments());
    let added = tool.add(pod).unwrap();
    tool.check(pod).unwrap();
    added
}

/// DEL, after which the node is as before. Only chains of rules that the reference
/// plugins keep for the next pod may stay, without rules for this pod.
fn detach(fixture: &Fixture, pod: &Pod, added: &AddResult, before: &Snapshot) {
    let tool = fixture.tool().capabilities(&arguments());
    tool.del(pod).unwrap();
    tool.del(pod).unwrap();
    let after = fixture.snapshot();
    let address = added.address().unwrap().to_string();
    let naming: Vec<_> = after
        .of_kind("nft")
        .filter(|l| l.contains(&address))
        .collect();
    assert_eq!(naming, [""; 0]);
    assert_eq!(fixture.reserved(), [].into());
    fixture.assert_same_kernel_without(before, |line| line.starts_with("nft "));
}

fn check_host_port(fixture: &Fixture, pod: &Pod) {
    let _server = EchoServer::start(pod.netns(), 7000).unwrap();
    let to = SocketAddr::new(fixture.node.address().into(), 8080);
    let outside = fixture.node.underlay().outside();
    let seen = source_seen(outside, to, Transport::Tcp).unwrap();
    assert_eq!(seen.ip(), IpAddr::from(OUTSIDE));
}

fn before_portmap(fixture: &Fixture) {
    let (before, pod) = (fixture.snapshot(), fixture.pod("pod"));
    let added = attach(fixture, &pod, &[portmap()]);
    check_host_port(fixture, &pod);
    detach(fixture, &pod, &added, &before);
}

/// The kinds of queueing disciplines on a link of the node.
fn queues(fixture: &Fixture, link: &str) -> Vec<String> {
    let found = fixture
        .node
        .netns()
        .json(&format!("tc -j qdisc show dev {link}"))
        .unwrap();
    let kinds = found.as_array().unwrap().iter();
    kinds
        .map(|queue| queue["kind"].as_str().unwrap().to_owned())
        .collect()
}

fn before_bandwidth(fixture: &Fixture) {
    let (before, pod) = (fixture.snapshot(), fixture.pod("pod"));
    let added = attach(fixture, &pod, &[bandwidth()]);
    let kinds = queues(fixture, added.host_link());
    for kind in ["tbf", "ingress"] {
        assert!(kinds.iter().any(|k| k == kind), "{kind}: {kinds:?}");
    }
    let report = ping(
        fixture.node.netns(),
        added.address().unwrap(),
        &PingOptions::default(),
    );
    assert_eq!(report.unwrap().lost(), 0);
    detach(fixture, &pod, &added, &before);
}

fn before_tuning(fixture: &Fixture) {
    let (before, pod) = (fixture.snapshot(), fixture.pod("pod"));
    let added = attach(fixture, &pod, &[tuning()]);
    let inside = link(pod.netns(), "eth0");
    assert_eq!(
        (&inside["mtu"], &inside["promiscuity"]),
        (&json!(1300), &json!(1))
    );
    let rp_filter = pod.netns().sysctl("ipv4/conf/eth0/rp_filter").unwrap();
    assert_eq!(rp_filter, "2");
    detach(fixture, &pod, &added, &before);
}

fn before_firewall(fixture: &Fixture) {
    let node = fixture.node.netns();
    node.sh("iptables -P FORWARD DROP").unwrap();
    let before = fixture.snapshot();
    let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
    let first = attach(fixture, &one, &[firewall()]);
    let second = attach(fixture, &two, &[firewall()]);
    // Only rules of the plugin `firewall` accept these packets.
    let report = ping(
        one.netns(),
        second.address().unwrap(),
        &PingOptions::default(),
    )
    .unwrap();
    assert_eq!(report.lost(), 0, "{report}");
    fixture.tool().del(&two).unwrap();
    detach(fixture, &one, &first, &before);
}

/// `sbr` moves the pod's routes into a table of their own, which only packets with the
/// pod's address look into.
fn before_sbr(fixture: &Fixture) {
    let (before, pod) = (fixture.snapshot(), fixture.pod("pod"));
    let added = attach(fixture, &pod, &[json!({ "type": "sbr" })]);
    let main = pod.netns().sh("ip route show table main").unwrap();
    assert_eq!(main.trim(), "");
    let to = added.address().unwrap();
    let report = ping(fixture.node.netns(), to, &PingOptions::default());
    assert_eq!(report.unwrap().lost(), 0);
    pod.netns().sh("ip route flush table 100").unwrap();
    let error = fixture.tool().check(&pod).unwrap_err().chain();
    assert!(
        error.contains("route 0.0.0.0/0 of eth0 is missing"),
        "{error}"
    );
    detach(fixture, &pod, &added, &before);
}

fn before_all_of_them(fixture: &Fixture) {
    let (before, pod) = (fixture.snapshot(), fixture.pod("pod"));
    let added = attach(
        fixture,
        &pod,
        &[portmap(), bandwidth(), tuning(), firewall()],
    );
    check_host_port(fixture, &pod);
    detach(fixture, &pod, &added, &before);
}

fn after_loopback(fixture: &Fixture) {
    let (before, pod) = (fixture.snapshot(), fixture.pod("pod"));
    fixture.write_chain("1.1.0", &[json!({ "type": "loopback" }), fixture.config()]);
    let tool = fixture.tool();
    let added = tool.add(&pod).unwrap();
    tool.check(&pod).unwrap();
    if fixture.is_tweed() {
        // Earlier interfaces come first, and addresses refer to their interfaces.
        assert_eq!(added.interfaces[0].name, "lo", "{added:?}");
    }
    let ours = added
        .ips
        .iter()
        .find(|ip| ip.address.to_string().starts_with("10.244.1."));
    let interface = ours.unwrap().interface.unwrap();
    assert_eq!(added.interfaces[interface].name, "eth0", "{added:?}");
    tool.del(&pod).unwrap();
    fixture.assert_nothing_left(&before);
}

fn del_cleans_up_after_a_later_plugin_failed(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let failing = json!({ "type": "tuning", "sysctl": { "net.ipv4.no_such_key": "1" } });
    fixture.write_chain("1.1.0", &[fixture.config(), failing]);
    let error = fixture.tool().add(&pod).unwrap_err().chain();
    assert!(error.contains("no_such_key"), "{error}");
    // After a failed ADD a runtime calls DEL without a result.
    fixture.tool().del(&pod).unwrap();
    fixture.assert_nothing_left(&before);
}

/// A runtime asks the plugins from the last to the first, and stops at the first error.
fn gc_frees_what_a_missing_plugin_kept_from_its_del(fixture: &Fixture) {
    let before = fixture.snapshot();
    let [stays, removed] = ["stays", "removed"].map(|name| fixture.pod(name));
    let kept = fixture.add(&stays);
    let without_removed = fixture.snapshot();
    let folder = fixture.node.cni_bin_dir();
    let missing = folder.join("missing");
    symlink(folder.join("tuning"), &missing).unwrap();
    fixture.write_chain("1.1.0", &[fixture.config(), json!({ "type": "missing" })]);
    let tool = fixture.tool();
    let added = tool.add(&removed).unwrap();
    fs::remove_file(missing).unwrap();
    let says_so = |error: String| assert!(error.contains("\"missing\""), "{error}");
    says_so(error_of(tool.del(&removed)));
    let [kept_address, address] = [&kept, &added].map(|one| one.address().unwrap());
    assert_eq!(fixture.reserved(), [kept_address, address].into());

    // The sandbox goes all the same.
    drop(removed);
    fixture.assert_same_kernel(&without_removed);
    says_so(error_of(tool.gc()));
    assert_eq!(fixture.reserved(), [kept_address].into());
    assert_silent(&fixture.check(&stays, &kept));
    fixture.del(&stays);
    fixture.assert_nothing_left(&before);
}
