//! Services on a node that has no pod CIDR yet: what gives it one, such as a cloud's
//! controller, may reach the API server by a Service alone.

use std::net::TcpListener;
use std::time::Duration;

use super::{CLUSTER_IP, ON, cidrs, service};
use crate::node::{Node, address, eventually, ip, manifest, run};
use crate::service_health::{NODE, answers};
use crate::traffic_pod::connects;

/// The own Node before it has a pod CIDR.
fn without_pod_cidr() -> String {
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n1}}\n\
         status: {{addresses: [{{type: InternalIP, address: {}}}]}}\n",
        address(1)
    )
}

/// The API server on this node, at this port.
fn api_server(port: u16) -> String {
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{namespace: shop, name: web-1, labels: {{kubernetes.io/service-name: web}}}}\n\
         addressType: IPv4\nendpoints: [{{addresses: [{}], nodeName: n1, conditions: {{ready: true}}}}]\n\
         ports: [{{name: http, protocol: TCP, port: {port}}}]\n",
        address(1)
    )
}

fn eventually_leads_to(server: &TcpListener) {
    eventually(|| {
        let connected = connects(CLUSTER_IP.parse().unwrap());
        match server.accept() {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("connected: {connected}; the server: {error}")),
        }
    });
}

#[test]
fn services_lead_to_their_endpoints_before_the_node_has_a_pod_cidr() {
    let node = Node::new();
    // The kernel translates what a node sends itself only after it has found a route.
    ip("route add default via 192.0.2.254");
    let [first, second] = [6443, 6444].map(|port| {
        let server = TcpListener::bind((address(1), port)).unwrap();
        server.set_nonblocking(true).unwrap();
        server
    });
    let write = |own: String, port| {
        let objects = [own, manifest(2), cidrs(), service(), api_server(port)];
        node.write_nodes(&objects.concat());
    };
    write(without_pod_cidr(), 6443);
    let agent = node.start(&ON);
    agent.complains("no-pod-cidr");
    eventually_leads_to(&first);
    // The node leads to no pod of another node, so load balancers are to leave it out.
    answers(NODE, "/healthz", 503, "");
    answers(NODE, "/livez", 200, "");
    write(without_pod_cidr(), 6444);
    eventually_leads_to(&second);
    // So it does after a restart: the table that was left protects no pods.
    agent.stop();
    write(without_pod_cidr(), 6443);
    let agent = node.start(&ON);
    agent.complains("no-pod-cidr");
    eventually_leads_to(&first);
    // With the network the same table goes on.
    let table = || run("nft", "-a list map inet tweed-services service_targets4");
    let before = table();
    write(manifest(1), 6443);
    agent.ready();
    eventually_leads_to(&first);
    assert_eq!(table(), before);
    answers(NODE, "/healthz", 200, "");
    agent.stop();
}

/// A table that protects pods stays as it is until there is a network. That it was just
/// opened is no reason to reconcile again and again meanwhile.
#[test]
fn an_agent_without_a_network_waits_beside_the_table_of_an_earlier_run() {
    let node = Node::new();
    let objects = |own: String| [own, manifest(2), cidrs(), service()].concat();
    node.write_nodes(&objects(manifest(1)));
    let agent = node.start(&ON);
    agent.ready();
    agent.stop();
    let table = || run("nft", "-a list set inet tweed-services local_cidrs4");
    let before = table();
    node.write_nodes(&objects(without_pod_cidr()));
    let agent = node.start(&ON);
    agent.complains("no-pod-cidr");
    let reconciles = || agent.metric("tweed_reconcile_duration_seconds_count");
    let begun = reconciles();
    std::thread::sleep(Duration::from_secs(2));
    let more = reconciles() - begun;
    assert!(more < 20, "{more} reconciles in two seconds");
    assert_eq!(table(), before);
    agent.stop();
}
