//! Objects for tests, and a planner that was told of them.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ipnetwork::IpNetwork;
use tweed_component::explain::{Destination, Where, text};
use tweed_core::object::endpoint_slice::{Endpoint as SliceEndpoint, EndpointSlice, SlicePort};
use tweed_core::object::node::{Node, NodeAddress};
use tweed_core::object::service::{Service, ServicePort};
use tweed_core::object::{Event, Object};

use super::walk::{check, walk};
use crate::services::tests::evaluator::{Cluster, Flow, Verdict};
use crate::services::{
    ExplainError, NodePortAddresses, Options, OwnAddresses, Places, PodNetworks, ServicePlanner,
    Step,
};

pub fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

pub fn options() -> Options {
    Options {
        node_name: "me".to_owned(),
        node_port_addresses: NodePortAddresses {
            primary: true,
            networks: Vec::new(),
        },
        external_ips: false,
        load_balancer_cidrs: ["0.0.0.0/0", "::/0"].map(|all| all.parse().unwrap()).into(),
    }
}

/// A Service `shop/web` with one port, 80.
pub fn service(cluster_ips: &[&str]) -> Service {
    Service {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        kind: "ClusterIP".to_owned(),
        cluster_ips: texts(cluster_ips),
        ports: vec![port("http", "TCP", 80, 0)],
        ..Service::default()
    }
}

pub fn port(name: &str, protocol: &str, port: u16, node_port: u16) -> ServicePort {
    ServicePort {
        name: name.to_owned(),
        protocol: protocol.to_owned(),
        port,
        node_port,
    }
}

/// A slice of `shop/web` with port 8080.
pub fn slice(name: &str, endpoints: Vec<SliceEndpoint>) -> EndpointSlice {
    EndpointSlice {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        service: "web".to_owned(),
        not_ours: false,
        endpoints,
        ports: vec![SlicePort {
            name: "http".to_owned(),
            protocol: "TCP".to_owned(),
            port: 8080,
        }],
        triggered: None,
    }
}

/// A ready endpoint of node `me` or another one.
pub fn endpoint(address: &str, node: &str) -> SliceEndpoint {
    SliceEndpoint {
        address: address.to_owned(),
        ready: true,
        serving: true,
        terminating: false,
        node: node.to_owned(),
        zone_hints: Vec::new(),
        node_hints: Vec::new(),
    }
}

/// The same, about to end.
pub fn ending(address: &str, node: &str) -> SliceEndpoint {
    SliceEndpoint {
        ready: false,
        terminating: true,
        ..endpoint(address, node)
    }
}

pub fn node(name: &str, addresses: &[&str], cidrs: &[&str], zone: &str) -> Node {
    let address = |address: &&str| NodeAddress {
        kind: "InternalIP".to_owned(),
        address: (*address).to_owned(),
    };
    let label = ("topology.kubernetes.io/zone".to_owned(), zone.to_owned());
    Node {
        name: name.to_owned(),
        pod_cidrs: texts(cidrs),
        addresses: addresses.iter().map(address).collect(),
        labels: [label].into(),
        ..Node::default()
    }
}

/// The Node with these objects that is this one.
pub fn own_node(cluster: &Cluster) -> Option<&Node> {
    let mut nodes = cluster.nodes.iter();
    nodes.find(|node| node.name == cluster.options.node_name)
}

/// Two Nodes, and nothing else.
pub fn cluster(services: Vec<Service>, slices: Vec<EndpointSlice>) -> Cluster {
    Cluster {
        options: options(),
        services,
        slices,
        cidrs: Vec::new(),
        nodes: vec![
            node(
                "me",
                &["192.0.2.1", "2001:db8::1"],
                &["10.0.0.0/24", "fd00:0:0:1::/64"],
                "z1",
            ),
            node(
                "other",
                &["192.0.2.2"],
                &["10.0.1.0/24", "fd00:0:0:2::/64"],
                "z2",
            ),
        ],
        pods: pods(
            &["10.0.0.0/24", "fd00:0:0:1::/64"],
            &["10.0.1.0/24", "fd00:0:0:2::/64"],
        ),
        api_servers: BTreeSet::new(),
    }
}

/// The pods of this Node and of others.
pub fn pods(own: &[&str], others: &[&str]) -> PodNetworks {
    let networks = |texts: &[&str]| -> Vec<IpNetwork> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let own = networks(own);
    PodNetworks {
        cluster: own.iter().copied().chain(networks(others)).collect(),
        own,
    }
}

/// The events of a complete list.
pub fn list<T: Object>(objects: &[T]) -> Vec<Event<T>> {
    let applied = objects.iter().cloned().map(Event::InitApply);
    std::iter::once(Event::Init)
        .chain(applied)
        .chain([Event::InitDone])
        .collect()
}

/// A planner that was told of all objects and has not planned yet.
pub fn planner(cluster: &Cluster) -> ServicePlanner {
    let mut planner = ServicePlanner::new(cluster.options.clone());
    for event in list(&cluster.services) {
        planner.apply_services(event);
    }
    for event in list(&cluster.slices) {
        planner.apply_endpoint_slices(event);
    }
    for event in list(&cluster.cidrs) {
        planner.apply_service_cidrs(event);
    }
    planner.set_node(own_node(cluster));
    planner.set_nodes(&cluster.nodes);
    planner.set_pod_networks(cluster.pods.clone());
    planner.set_api_servers(&cluster.api_servers);
    planner
}

/// A flow of a pod of this node (`10.0.0.9`), unless it is changed.
pub fn flow(destination: &str, port: u16) -> Flow {
    Flow {
        source: "10.0.0.9".parse().unwrap(),
        is_own: false,
        destination: destination.parse().unwrap(),
        is_local: false,
        protocol: 6,
        port,
    }
}

/// A verdict that sends to these, all masqueraded or none.
pub fn send(endpoints: &[&str], masquerade: bool) -> Verdict {
    let endpoint = |text: &&str| {
        let at: std::net::SocketAddr = text.parse().unwrap();
        let endpoint = crate::services::desired::Endpoint {
            address: at.ip(),
            port: at.port(),
        };
        (endpoint, masquerade)
    };
    Verdict::Send(endpoints.iter().map(endpoint).collect())
}

/// What becomes of a flow by the plan, on which the evaluator agrees.
pub fn verdict(cluster: &Cluster, flow: &Flow) -> Verdict {
    let mut planner = planner(cluster);
    assert_eq!(planner.plan(), Step::Full);
    check(planner.desired());
    let verdict = walk(&planner, flow);
    assert_eq!(cluster.evaluate(flow), verdict, "{flow:?}");
    verdict
}

pub fn from(source: &str, flow: Flow) -> Flow {
    Flow {
        source: source.parse().unwrap(),
        ..flow
    }
}

/// From this node itself.
pub fn own(flow: Flow) -> Flow {
    Flow {
        is_own: true,
        ..from("192.0.2.1", flow)
    }
}

/// From outside the cluster.
pub fn outside(flow: Flow) -> Flow {
    from("198.51.100.1", flow)
}

/// To a node port of this node.
pub fn at_node(port: u16) -> Flow {
    Flow {
        is_local: true,
        ..flow("192.0.2.1", port)
    }
}

pub fn both() -> Vec<SliceEndpoint> {
    vec![endpoint("10.0.0.2", "me"), endpoint("10.0.1.2", "other")]
}

/// A Service with affinity, and its slice.
pub fn affine(name: &str, ip: &str) -> (Service, EndpointSlice) {
    let mut one = service(&[ip]);
    (one.name, one.affinity_seconds) = (name.to_owned(), Some(60));
    let mut slice = slice(name, both());
    slice.service = name.to_owned();
    (one, slice)
}

/// A load balancer with node ports.
pub fn balancer(external_local: bool) -> Service {
    Service {
        kind: "LoadBalancer".to_owned(),
        load_balancer_ips: texts(&["203.0.113.1"]),
        ports: vec![port("http", "TCP", 80, 30080)],
        external_local,
        ..service(&["10.96.0.1"])
    }
}

pub const BOTH: [&str; 2] = ["10.0.0.2:8080", "10.0.1.2:8080"];

/// What is asked of a destination; the client is left open.
pub fn asked(to: Destination) -> Where {
    let (from, all) = (None, false);
    Where { to, from, all }
}

/// The destination of TCP at an address.
pub fn destination(address: &str, port: u16) -> Destination {
    Destination::Address(SocketAddr::new(address.parse().unwrap(), port), 6)
}

/// All ports of a Service.
pub fn all_of(name: &str) -> Destination {
    Destination::Service {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        port: None,
        protocol: None,
    }
}

/// What people are told of a destination.
pub fn explain(planner: &ServicePlanner, asked: &Where) -> Result<String, ExplainError> {
    let nodes = [
        Node {
            name: "me".to_owned(),
            pod_cidrs: texts(&["10.0.0.0/24"]),
            ..Node::default()
        },
        Node {
            name: "other".to_owned(),
            pod_cidrs: texts(&["10.0.1.0/24"]),
            ..Node::default()
        },
    ];
    let explanation = planner.explain(asked, OwnAddresses::default(), &Places::of(&nodes))?;
    Ok(text(&explanation.steps))
}

/// Why flows to a destination are left as they are.
pub fn explain_untouched(cluster: &Cluster, address: &str, port: u16) -> String {
    let mut planner = planner(cluster);
    planner.plan();
    let said = explain(&planner, &asked(destination(address, port))).unwrap();
    let why = said
        .lines()
        .find_map(|line| line.strip_prefix("left as it is, nothing of Services: "));
    why.expect(&said).to_owned()
}
