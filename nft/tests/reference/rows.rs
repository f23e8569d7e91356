//! What neither kube-proxy's own tests nor random Services show by packets: which objects
//! count, which endpoints of them do, and which addresses.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use tweed_core::object::endpoint_slice::SERVICE_LABEL;
use tweed_core::object::service::{HEADLESS_LABEL, OTHER_PROXY_LABEL};

use crate::cluster::Cluster;
use crate::outcome::Outcome;
use crate::packet::TCP;
use crate::prober::{Probe, Prober, Sender};
use crate::tweed::Tweed;

const NODE: &str = "this-node";
/// The addresses of the Node object.
const NODE_IPS: [&str; 2] = ["192.168.0.2", "2001:db8::2"];
/// The node has this address too, which its object does not name.
const SECOND_IP: &str = "192.168.1.2";

/// Where the Service is.
const CLUSTER_IP: &str = "172.30.0.41:80";
const BALANCER: &str = "192.0.2.41:80";
const NODE_PORT: u16 = 30_080;

/// A pod of this node, and one of another node.
const HERE: &str = "10.1.0.10";
const THERE: &str = "10.2.0.10";
const TARGET_PORT: u16 = 8080;

/// The conditions of an endpoint: ready, serving, terminating.
type Conditions = [bool; 3];
const READY: Conditions = [true, true, false];
const ENDING: Conditions = [false, true, true];
/// As `publishNotReadyAddresses` makes it: the pod was never ready, and is about to end.
const READY_AND_ENDING: Conditions = [true, false, true];

/// The labels with which tweed leaves an object to others.
const LABELS: [(&str, &str); 2] = [(OTHER_PROXY_LABEL, "other"), (HEADLESS_LABEL, "")];

/// It keeps its clients' addresses, so that nothing is masqueraded here.
fn service() -> Value {
    json!({
        "metadata": { "namespace": "shop", "name": "web", "labels": {} },
        "spec": {
            "type": "LoadBalancer", "clusterIPs": ["172.30.0.41"],
            "externalTrafficPolicy": "Local",
            "ports": [{ "port": 80, "nodePort": NODE_PORT }],
        },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.41" }] } },
    })
}

fn slice(name: &str, endpoints: &[(&str, Conditions)]) -> Value {
    let is_v4 = endpoints.iter().all(|(address, _)| address.contains('.'));
    let entries = endpoints.iter().map(|(address, conditions)| {
        let [ready, serving, terminating] = conditions;
        json!({
            "addresses": [address],
            "nodeName": if *address == THERE { "another-node" } else { NODE },
            "conditions": { "ready": ready, "serving": serving, "terminating": terminating },
        })
    });
    json!({
        "metadata": { "namespace": "shop", "name": name, "labels": { SERVICE_LABEL: "web" } },
        "addressType": if is_v4 { "IPv4" } else { "IPv6" },
        "endpoints": entries.collect::<Vec<_>>(),
        "ports": [{ "port": TARGET_PORT }],
    })
}

/// New connections that a node is asked for.
fn connections(sender: Sender, to: SocketAddr) -> Probe {
    let source = match (sender, to) {
        (Sender::Pod, _) => "10.1.0.2",
        (Sender::Node, _) => NODE_IPS[0],
        (Sender::World, SocketAddr::V4(_)) => "203.0.113.5",
        (Sender::World, SocketAddr::V6(_)) => "2600:5200::5",
    };
    Probe {
        sender,
        source: source.parse().unwrap(),
        protocol: TCP,
        destination: to,
    }
}

/// That the connections are spread over these pods, with their own source.
fn sent(pods: &[&str]) -> Outcome {
    let addresses = pods.iter().map(|ip| ip.parse::<IpAddr>().unwrap());
    Outcome::sent(addresses.map(|ip| SocketAddr::new(ip, TARGET_PORT)), false)
}

/// The same outcome at all frontends.
fn everywhere(outcome: Outcome) -> [Outcome; 3] {
    [outcome.clone(), outcome.clone(), outcome]
}

/// A node, and the cluster as it was last told to serve it.
struct Lab {
    prober: Prober,
    tweed: Tweed,
    cluster: Cluster,
}

impl Lab {
    /// With the Service, and with these slices.
    fn new(slices: Vec<Value>) -> Self {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let node_ips = NODE_IPS.map(|ip| ip.parse().unwrap()).to_vec();
        let prober = Prober::of_node(&node_ips);
        prober.add_address(SECOND_IP.parse().unwrap());
        let mut lab = Self {
            tweed: Tweed::new(prober.netns(), ["10.1.0.0/16", "fd00:10:1::/48"]),
            prober,
            cluster: Cluster {
                node_name: NODE.to_owned(),
                node_ips,
                zone: String::new(),
                cluster_cidrs: texts(&["10.0.0.0/8", "fd00:10::/32"]),
                service_cidrs: texts(&["172.30.0.0/16"]),
                node_port_addresses: texts(&["primary", "192.168.7.0/24"]),
                external_ips: false,
                services: vec![service()],
                slices,
            },
        };
        lab.serve();
        lab
    }

    /// Takes up what has changed of the cluster.
    fn serve(&mut self) {
        self.tweed.serve(self.prober.netns(), &self.cluster);
    }

    /// What becomes of connections to an address and port.
    fn outcome(&mut self, sender: Sender, to: &str) -> Outcome {
        Outcome::seen(&mut self.prober, connections(sender, to.parse().unwrap()))
    }

    /// The same for the node port at an address, from outside.
    fn node_port(&mut self, ip: &str) -> Outcome {
        let at = SocketAddr::new(ip.parse().unwrap(), NODE_PORT);
        Outcome::seen(&mut self.prober, connections(Sender::World, at))
    }

    /// The same for the cluster IP, the load balancer's address and the node port.
    fn frontends(&mut self) -> [Outcome; 3] {
        [
            self.outcome(Sender::Pod, CLUSTER_IP),
            self.outcome(Sender::World, BALANCER),
            self.node_port(NODE_IPS[0]),
        ]
    }
}

#[test]
fn row_4_an_endpoint_that_is_ready_and_about_to_end_is_ready() {
    let mut lab = Lab::new(vec![]);
    for (here, there, all, local) in [
        (READY, READY_AND_ENDING, &[HERE, THERE][..], HERE),
        (READY_AND_ENDING, READY, &[HERE, THERE], HERE),
        (READY_AND_ENDING, ENDING, &[HERE], HERE),
        // The one here is used for the policy `Local`, which has no ready one.
        (ENDING, READY_AND_ENDING, &[THERE], HERE),
    ] {
        lab.cluster.slices = vec![slice("s", &[(HERE, here), (THERE, there)])];
        lab.serve();
        let expected = [sent(all), sent(&[local]), sent(&[local])];
        assert_eq!(lab.frontends(), expected, "{here:?} {there:?}");
    }
}

#[test]
fn row_6_an_address_in_two_slices_is_as_the_one_says_that_is_not_about_to_end() {
    for [ending, ready] in [["s1", "s2"], ["s2", "s1"]] {
        let old = slice(ending, &[(HERE, ENDING)]);
        let new = slice(ready, &[(HERE, READY), (THERE, READY)]);
        let mut lab = Lab::new(vec![old.clone(), new.clone()]);
        let both = || [sent(&[HERE, THERE]), sent(&[HERE]), sent(&[HERE])];
        assert_eq!(lab.frontends(), both(), "{ending} is about to end");
        // The one that prevails goes, and comes back.
        lab.cluster.slices = vec![old.clone(), slice(ready, &[(THERE, READY)])];
        lab.serve();
        assert_eq!(lab.outcome(Sender::Pod, CLUSTER_IP), sent(&[THERE]));
        lab.cluster.slices = vec![old, new.clone()];
        lab.serve();
        assert_eq!(lab.frontends(), both(), "{ready} has come back");
        lab.cluster.slices = vec![new];
        lab.serve();
        assert_eq!(lab.frontends(), both(), "{ending} is gone");
    }
}

#[test]
fn row_6_a_slice_of_a_family_that_the_service_has_not_counts_for_nothing() {
    let v4 = slice("v4", &[(HERE, READY)]);
    let v6 = slice("v6", &[("fd00:10:1::10", READY)]);
    let mut lab = Lab::new(vec![v4, v6.clone()]);
    assert_eq!(lab.frontends(), everywhere(sent(&[HERE])));
    assert_eq!(lab.node_port(NODE_IPS[1]), Outcome::Untouched);
    lab.cluster.slices = vec![v6];
    lab.serve();
    assert_eq!(lab.frontends(), everywhere(Outcome::Rejected));
    assert_eq!(lab.node_port(NODE_IPS[1]), Outcome::Untouched);
}

#[test]
fn row_7_a_service_of_another_proxy_or_of_none_is_not_served() {
    let mut lab = Lab::new(vec![slice("s", &[(HERE, READY)])]);
    for (label, value) in LABELS {
        lab.cluster.services[0]["metadata"]["labels"][label] = json!(value);
        lab.serve();
        // Its cluster IP is not dropped as one of a ServiceCIDR that no Service has.
        let untouched = everywhere(Outcome::Untouched);
        assert_eq!(lab.frontends(), untouched, "{label}");
        lab.cluster.services = vec![service()];
        lab.serve();
        assert_eq!(lab.frontends(), everywhere(sent(&[HERE])), "{label}");
    }
}

#[test]
fn row_7_a_slice_of_another_proxy_or_of_none_has_no_endpoints() {
    let mut lab = Lab::new(vec![slice("s", &[(HERE, READY)])]);
    for (label, value) in LABELS {
        let served = lab.cluster.slices.clone();
        lab.cluster.slices[0]["metadata"]["labels"][label] = json!(value);
        lab.serve();
        let rejected = everywhere(Outcome::Rejected);
        assert_eq!(lab.frontends(), rejected, "{label}");
        lab.cluster.slices = served;
        lab.serve();
        assert_eq!(lab.frontends(), everywhere(sent(&[HERE])), "{label}");
    }
}

#[test]
fn row_7_a_service_that_becomes_an_external_name_is_not_served() {
    let mut lab = Lab::new(vec![slice("s", &[(HERE, READY)])]);
    assert_eq!(lab.frontends(), everywhere(sent(&[HERE])));
    lab.cluster.services[0]["spec"]["type"] = json!("ExternalName");
    lab.serve();
    // Its cluster IP is one that no Service has.
    let expected = [Outcome::Dropped, Outcome::Untouched, Outcome::Untouched];
    assert_eq!(lab.frontends(), expected);
}

#[test]
fn row_16_node_ports_follow_the_address_in_the_node_object() {
    let mut lab = Lab::new(vec![slice("s", &[(HERE, READY)])]);
    assert_eq!(lab.node_port(NODE_IPS[0]), sent(&[HERE]));
    assert_eq!(lab.node_port(SECOND_IP), Outcome::Untouched);
    lab.cluster.node_ips[0] = SECOND_IP.parse().unwrap();
    lab.serve();
    assert_eq!(lab.node_port(NODE_IPS[0]), Outcome::Untouched);
    assert_eq!(lab.node_port(SECOND_IP), sent(&[HERE]));
}

#[test]
fn row_16_an_address_that_a_link_gets_has_node_ports_at_once() {
    let new = "192.168.7.2";
    let mut lab = Lab::new(vec![slice("s", &[(HERE, READY)])]);
    assert_eq!(lab.node_port(new), Outcome::Untouched);
    lab.prober.add_address(new.parse().unwrap());
    assert_eq!(lab.node_port(new), sent(&[HERE]));
}

#[test]
fn row_17_external_ips_are_intercepted_only_if_they_are_switched_on() {
    let at = "198.51.100.7:80";
    let mut lab = Lab::new(vec![slice("s", &[(HERE, READY)])]);
    lab.cluster.services[0]["spec"]["externalIPs"] = json!(["198.51.100.7"]);
    lab.serve();
    assert_eq!(lab.frontends(), everywhere(sent(&[HERE])));
    for sender in [Sender::Pod, Sender::World, Sender::Node] {
        assert_eq!(lab.outcome(sender, at), Outcome::Untouched, "{sender:?}");
    }
    lab.cluster.external_ips = true;
    lab.tweed.forget();
    lab.serve();
    for sender in [Sender::Pod, Sender::World] {
        assert_eq!(lab.outcome(sender, at), sent(&[HERE]), "{sender:?}");
    }
}
