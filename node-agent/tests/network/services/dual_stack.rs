//! Services of both families and of IPv6 alone, on a node with both: each family has its
//! own endpoints, and what happens to one is nothing to the other.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};

use super::ON;
use crate::families;
use crate::namespace::Namespace;
use crate::node::{Agent, Node, eventually, ip};
use crate::traffic_pod::{CONNECT, TrafficPod};
use crate::udp_servers::{UdpServers, entry_of, keep_entries};

/// Where the Service is, of TCP and UDP alike: cluster IP, node port, and the address of a
/// load balancer, which is of IPv6 only.
const OVER_IPV4: [&str; 2] = ["10.96.0.53:53", "192.0.2.1:30053"];
const OVER_IPV6: [&str; 3] = [
    "[fd00:96::53]:53",
    "[2001:db8::1]:30053",
    "[2001:db8:1::53]:53",
];

/// Where flows begin.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Pod,
    Node,
    /// Another node, by its address in the underlay.
    OtherNode,
}

const ORIGINS: [Origin; 3] = [Origin::Pod, Origin::Node, Origin::OtherNode];

/// A node with a client and two pods that can be endpoints, and a second node beside it.
struct Scene {
    node: Node,
    other_node: Namespace,
    client: TrafficPod,
    pods: [(&'static str, TrafficPod); 2],
    servers: UdpServers,
}

impl Scene {
    fn new(documents: &[String]) -> Self {
        let node = Node::new();
        keep_entries();
        let other_node = Namespace::new();
        ip(&format!("link set wire netns {}", other_node.pid()));
        other_node.run(|| {
            ip("link set wire up");
            ip("address add 192.0.2.2/24 dev wire");
            ip("address add 2001:db8::2/64 dev wire nodad");
            ip("route add default via 192.0.2.1");
            ip("route add default via 2001:db8::1");
        });
        ip("address add 2001:db8::1/64 dev eth0 nodad");
        // The kernel translates what a node sends itself only after it has found a route.
        ip("route add default via 192.0.2.2");
        ip("route add default via 2001:db8::2");
        std::fs::create_dir_all(node.path("run")).unwrap();
        let client = TrafficPod::add_dual(&node, "client", 5);
        let pods = [("b", 6), ("c", 7)]
            .map(|(name, host)| (name, TrafficPod::add_dual(&node, name, host)));
        let servers = pods.iter().map(|(name, pod)| (*name, pod.udp_socket(80)));
        let servers = UdpServers(servers.collect());
        let scene = Self {
            node,
            other_node,
            client,
            pods,
            servers,
        };
        scene.apply(documents);
        scene
    }

    fn apply(&self, documents: &[String]) {
        let nodes = [families::node(1), families::node(2)].concat();
        let cidrs = "---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\n\
             metadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.0/16, 'fd00:96::/112']}\n";
        self.node
            .write_nodes(&(nodes + cidrs + &documents.concat()));
    }

    fn start(&self) -> Agent {
        let agent = self.node.start(&ON);
        agent.ready();
        agent
    }

    fn run<T: Send + 'static>(
        &self,
        origin: Origin,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        match origin {
            Origin::Pod => self.client.run(work),
            Origin::Node => work(),
            Origin::OtherNode => self.other_node.run(work),
        }
    }

    /// The pod to which a connection leads, or why there is none.
    fn connects(&self, origin: Origin, to: &str) -> Result<&'static str, ErrorKind> {
        for (_, pod) in &self.pods {
            pod.accept_all();
        }
        let to: SocketAddr = to.parse().unwrap();
        let connect = move || TcpStream::connect_timeout(&to, CONNECT);
        let _open = self.run(origin, connect).map_err(|error| error.kind())?;
        let mut found = "";
        eventually(|| {
            let arrived = |(_, pod): &&(_, TrafficPod)| !pod.accept_all().is_empty();
            let pod = self.pods.iter().find(arrived);
            found = pod.ok_or("it connects, and arrives nowhere")?.0;
            Ok(())
        });
        Ok(found)
    }

    /// A socket of UDP that sends to one address, and never waits.
    fn udp_client(&self, origin: Origin, to: &str) -> UdpSocket {
        let to: SocketAddr = to.parse().unwrap();
        let any = match to {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let client = self.run(origin, move || UdpSocket::bind(any).unwrap());
        client.connect(to).unwrap();
        client.set_nonblocking(true).unwrap();
        client
    }

    /// Waits until new flows to all these addresses, from everywhere, come about. They lead
    /// to this pod and to no other one.
    fn all_lead_to(&self, pod: &'static str, addresses: &[&str]) {
        for (origin, to) in everywhere(addresses) {
            eventually(|| match self.connects(origin, to) {
                Ok(found) => {
                    assert_eq!(found, pod, "{origin:?} to {to}");
                    Ok(())
                }
                Err(error) => Err(format!("{origin:?} to {to}: {error}")),
            });
            let client = self.udp_client(origin, to);
            eventually(|| match self.servers.answer(&client) {
                Some(found) => {
                    assert_eq!(found, pod, "{origin:?} to {to} by UDP");
                    Ok(())
                }
                None => Err(format!("{origin:?} to {to}: nobody answers by UDP")),
            });
        }
    }

    /// Waits until new flows to all these addresses, from everywhere, are refused.
    fn all_are_refused(&self, addresses: &[&str]) {
        for (origin, to) in everywhere(addresses) {
            eventually(|| match self.connects(origin, to) {
                Err(ErrorKind::ConnectionRefused) => Ok(()),
                found => Err(format!("{origin:?} to {to}: {found:?}")),
            });
            let client = self.udp_client(origin, to);
            eventually(
                || match client.send(b"?").and_then(|_| client.recv(&mut [0])) {
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
                    other => Err(format!("{origin:?} to {to} by UDP: {other:?}")),
                },
            );
        }
    }
}

fn everywhere<'a>(addresses: &[&'a str]) -> Vec<(Origin, &'a str)> {
    let from = |origin| addresses.iter().map(move |to| (origin, *to));
    ORIGINS.into_iter().flat_map(from).collect()
}

/// The Service with these cluster IPs.
fn service(cluster_ips: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: dns}}\n\
         spec: {{type: LoadBalancer, clusterIPs: [{cluster_ips}], ports: [\
         {{name: tcp, protocol: TCP, port: 53, nodePort: 30053}}, \
         {{name: udp, protocol: UDP, port: 53, nodePort: 30053}}]}}\n\
         status: {{loadBalancer: {{ingress: [{{ip: '2001:db8:1::53'}}]}}}}\n"
    )
}

/// The endpoints of the Service in one family: port 80 of these pods.
fn slice(family: &str, pods: &[&str]) -> String {
    let network = match family {
        "IPv4" => "10.0.1.",
        _ => "fd00:0:0:1::",
    };
    let endpoints = pods.iter().map(|pod| {
        let host = if *pod == "b" { 6 } else { 7 };
        format!("{{addresses: ['{network}{host}'], nodeName: n1, conditions: {{ready: true}}}}")
    });
    let (endpoints, name) = (endpoints.collect::<Vec<_>>(), family.to_lowercase());
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{namespace: shop, \
         name: dns-{name}, labels: {{kubernetes.io/service-name: dns}}}}\n\
         addressType: {family}\nendpoints: [{}]\nports: [\
         {{name: tcp, protocol: TCP, port: 80}}, {{name: udp, protocol: UDP, port: 80}}]\n",
        endpoints.join(", ")
    )
}

#[test]
fn each_family_of_a_service_follows_its_own_endpoints() {
    let of_ipv6 = |pods: &[&str]| {
        let service = service("10.96.0.53, 'fd00:96::53'");
        [service, slice("IPv4", &["b"]), slice("IPv6", pods)]
    };
    let scene = Scene::new(&of_ipv6(&["b"]));
    let agent = scene.start();
    scene.all_lead_to("b", &OVER_IPV4);
    scene.all_lead_to("b", &OVER_IPV6);
    let flows = |addresses| {
        let open = |(origin, to)| scene.udp_client(origin, to);
        let flows: Vec<UdpSocket> = everywhere(addresses).into_iter().map(open).collect();
        let ask = |flow| scene.servers.eventually_answer(flow, Some("b"));
        flows.iter().for_each(ask);
        flows
    };
    let (over_ipv4, over_ipv6) = (flows(&OVER_IPV4), flows(&OVER_IPV6));
    let entries = |flows: &[UdpSocket]| flows.iter().map(entry_of).collect::<Vec<_>>();
    let (of_ipv4, with_b) = (entries(&over_ipv4), entries(&over_ipv6));
    let ipv4_is_untouched = || {
        scene.all_lead_to("b", &OVER_IPV4);
        let ask = |flow| scene.servers.eventually_answer(flow, Some("b"));
        over_ipv4.iter().for_each(ask);
        assert_eq!(entries(&over_ipv4), of_ipv4);
    };

    // One more endpoint: new flows lead to both, and those that are open stay.
    scene.apply(&of_ipv6(&["b", "c"]));
    for (origin, to) in everywhere(&OVER_IPV6) {
        let mut found = BTreeSet::new();
        eventually(|| {
            found.extend(scene.connects(origin, to));
            if found == BTreeSet::from(["b", "c"]) {
                Ok(())
            } else {
                Err(format!("{origin:?} to {to}: {found:?}"))
            }
        });
    }
    assert_eq!(entries(&over_ipv6), with_b);

    // The endpoint that the open flows have goes: they move on.
    scene.apply(&of_ipv6(&["c"]));
    for flow in &over_ipv6 {
        scene.servers.eventually_answer(flow, Some("c"));
    }
    scene.all_lead_to("c", &OVER_IPV6);
    ipv4_is_untouched();

    scene.apply(&of_ipv6(&[]));
    scene.all_are_refused(&OVER_IPV6);
    for flow in &over_ipv6 {
        scene.servers.eventually_answer(flow, None);
    }
    ipv4_is_untouched();
    agent.ready();
}

/// A slice of the family that it has not leads nowhere.
#[test]
fn a_service_of_ipv6_alone_has_nothing_of_ipv4() {
    let service = service("'fd00:96::53'");
    let objects = [service, slice("IPv4", &["c"]), slice("IPv6", &["b"])];
    let scene = Scene::new(&objects);
    let agent = scene.start();
    scene.all_lead_to("b", &OVER_IPV6);
    scene.all_are_refused(&["192.0.2.1:30053"]);
    agent.ready();
}
