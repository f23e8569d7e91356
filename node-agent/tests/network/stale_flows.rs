//! Clients of UDP that keep their socket, while the endpoints of their Service change, and of
//! others that began before there was a Service. What conntrack has is seen with the eyes of
//! `conntrack`.

use std::collections::BTreeSet;
use std::net::UdpSocket;

use crate::node::{Agent, Node, eventually, ip, manifest, run};
use crate::script::write_script;
use crate::traffic_pod::TrafficPod;
use crate::udp_servers::{UdpServers, entries, entry_of, keep_entries};

const CLUSTER_IP: &str = "10.96.0.53:53";
const NODE_PORT: &str = "192.0.2.1:30053";
const BALANCER: &str = "203.0.113.53:53";

/// A node with a client and two pods, each with a server of UDP on two ports.
struct Scene {
    node: Node,
    client: TrafficPod,
    servers: UdpServers,
    _pods: [TrafficPod; 2],
}

impl Scene {
    fn new(objects: &[String]) -> Self {
        let node = Node::new();
        keep_entries();
        // The kernel translates what a node sends itself only after it has found a route.
        ip("route add default via 192.0.2.254");
        std::fs::create_dir_all(node.path("run")).unwrap();
        let client = TrafficPod::add(&node, "client", 5);
        let (b, c) = (
            TrafficPod::add(&node, "b", 6),
            TrafficPod::add(&node, "c", 7),
        );
        let at = |pod: &TrafficPod, port| pod.udp_socket(port);
        let servers = UdpServers(vec![
            ("b", at(&b, 5353)),
            ("c", at(&c, 5353)),
            ("c at the other port", at(&c, 5354)),
        ]);
        let scene = Self {
            node,
            client,
            servers,
            _pods: [b, c],
        };
        scene.apply(objects);
        scene
    }

    fn apply(&self, objects: &[String]) {
        let nodes = [manifest(1), manifest(2)].concat();
        let cidrs = "---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\n\
             metadata: {name: kubernetes}\nspec: {cidrs: [10.96.0.0/16]}\n";
        self.node.write_nodes(&(nodes + cidrs + &objects.concat()));
    }

    fn start(&self) -> Agent {
        let agent = self.node.start(&["--services", "on"]);
        agent.ready();
        agent
    }

    /// A socket of the client that sends to one address.
    fn client(&self, to: &str) -> UdpSocket {
        let socket = self.client.udp_socket(0);
        socket.connect(to).unwrap();
        socket
    }
}

fn dns() -> String {
    "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: dns}\n\
     spec: {type: NodePort, clusterIP: 10.96.0.53, clusterIPs: [10.96.0.53], \
     ports: [{name: dns, protocol: UDP, port: 53, nodePort: 30053}]}\n"
        .to_owned()
}

/// The same with the address of a load balancer.
fn balanced() -> String {
    let balancer = dns().replace("NodePort", "LoadBalancer");
    balancer + "status: {loadBalancer: {ingress: [{ip: 203.0.113.53}]}}\n"
}

/// The endpoints of the Service: this port of the pods with these numbers.
fn endpoints(hosts: &[u8], port: u16) -> String {
    let each = hosts.iter().map(|host| {
        format!("{{addresses: [10.0.1.{host}], nodeName: n1, conditions: {{ready: true}}}}")
    });
    let endpoints: Vec<String> = each.collect();
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{namespace: shop, name: dns-1, labels: {{kubernetes.io/service-name: dns}}}}\n\
         addressType: IPv4\nendpoints: [{}]\nports: [{{name: dns, protocol: UDP, port: {port}}}]\n",
        endpoints.join(", ")
    )
}

/// Those of the flows to an address and port.
fn entries_to(destination: &str) -> BTreeSet<String> {
    let (address, port) = destination.split_once(':').unwrap();
    let entries = run(
        "conntrack",
        &format!("-L -p udp -o id --orig-dst {address} --orig-port-dst {port}"),
    );
    let ids = entries.lines().map(|line| line.rsplit_once("id=").unwrap());
    ids.map(|(_, id)| id.to_owned()).collect()
}

#[test]
fn a_client_of_udp_that_keeps_its_socket_follows_the_endpoints() {
    let scene = Scene::new(&[]);
    let agent = scene.start();
    let clients = [CLUSTER_IP, NODE_PORT].map(|to| scene.client(to));
    let all_ask = |expected: Option<&str>| {
        for client in &clients {
            scene.servers.eventually_answer(client, expected);
        }
    };
    // Nobody translates what is sent to the node port yet.
    all_ask(None);
    assert_eq!(entries_to(NODE_PORT).len(), 1);
    for (objects, expected) in [
        (vec![dns(), endpoints(&[6], 5353)], Some("b")),
        (vec![dns(), endpoints(&[7], 5353)], Some("c")),
        (
            vec![dns(), endpoints(&[7], 5354)],
            Some("c at the other port"),
        ),
        (vec![dns(), endpoints(&[], 5353)], None),
        (vec![dns(), endpoints(&[6], 5353)], Some("b")),
        (vec![], None),
    ] {
        scene.apply(&objects);
        all_ask(expected);
        if expected.is_none() {
            // The cluster IP's clients are refused, so they leave no entry.
            assert_eq!(entries_to(CLUSTER_IP), BTreeSet::new());
        }
    }
    assert!(agent.metric("tweed_stale_flows_deleted_total") >= 5);
    agent.ready();
}

#[test]
fn flows_that_lead_somewhere_keep_their_entries_over_a_restart() {
    let scene = Scene::new(&[dns(), endpoints(&[6, 7], 5353)]);
    // Host ports as `portmap` has them: one beside the node port, and one of the same
    // number at an address that has no node ports.
    ip("address add 198.51.100.1/32 dev lo");
    run(
        "nft",
        "add table ip portmap; add chain ip portmap in { type nat hook prerouting priority -100; }; \
         add rule ip portmap in ip daddr 192.0.2.1 udp dport 30054 dnat to 10.0.1.7:5354; \
         add rule ip portmap in ip daddr 198.51.100.1 udp dport 30053 dnat to 10.0.1.7:5354",
    );
    let agent = scene.start();
    // The same client elsewhere, by the ports of the Service.
    let others = ["192.0.2.1:30054", "198.51.100.1:30053", "10.0.1.6:5353"];
    for other in others {
        let client = scene.client(other);
        assert!(scene.servers.answer(&client).is_some(), "{other}");
    }
    // Until both endpoints have a client.
    let (mut of_b, mut of_c) = (None, None);
    eventually(|| {
        let client = scene.client(CLUSTER_IP);
        match scene.servers.answer(&client).as_deref() {
            Some("b") => of_b = Some(client),
            Some("c") => of_c = Some(client),
            answer => panic!("{answer:?}"),
        }
        if of_b.is_some() && of_c.is_some() {
            Ok(())
        } else {
            Err("one endpoint has no client".to_owned())
        }
    });
    let sound = entry_of(of_c.as_ref().unwrap());
    let of_others: Vec<_> = others.map(entries_to).into();
    assert!(of_others.iter().all(|ids| ids.len() == 1), "{of_others:?}");
    agent.stop();

    // One endpoint ends while nobody looks.
    scene.apply(&[dns(), endpoints(&[7], 5353)]);
    let agent = scene.start();
    scene
        .servers
        .eventually_answer(of_b.as_ref().unwrap(), Some("c"));
    assert_eq!(entry_of(of_c.as_ref().unwrap()), sound);
    assert_eq!(Vec::from(others.map(entries_to)), of_others);
    agent.ready();
}

/// As it was killed, or its machine's API server was away.
#[test]
fn flows_of_a_service_that_is_deleted_while_the_agent_is_down_end() {
    let scene = Scene::new(&[balanced(), endpoints(&[6, 7], 5353)]);
    // A host port of one of the pods, and the same port of the load balancer elsewhere.
    run(
        "nft",
        "add table ip portmap; add chain ip portmap in { type nat hook prerouting priority -100; }; \
         add rule ip portmap in ip daddr 192.0.2.1 udp dport 30054 dnat to 10.0.1.7:5353; \
         add rule ip portmap in ip daddr 203.0.113.54 udp dport 53 dnat to 10.0.1.7:5353",
    );
    let agent = scene.start();
    let own = [CLUSTER_IP, NODE_PORT, BALANCER].map(|to| scene.client(to));
    let others = ["192.0.2.1:30054", "203.0.113.54:53"];
    let of_others = others.map(|to| scene.client(to));
    for client in own.iter().chain(&of_others) {
        assert!(
            scene.servers.answer(client).is_some(),
            "{client:?}\n{}",
            entries()
        );
    }
    let known = others.map(entries_to);
    agent.stop();

    scene.apply(&[]);
    let agent = scene.start();
    for client in &own {
        scene.servers.eventually_answer(client, None);
    }
    for client in &of_others {
        scene.servers.eventually_answer(client, Some("c"));
    }
    assert_eq!(others.map(entries_to), known);
    agent.ready();
}

/// The first plan has another endpoint of the Service, and cannot be written; the next one
/// has no Service.
#[test]
fn flows_of_an_earlier_run_end_though_the_first_plan_was_never_written() {
    let scene = Scene::new(&[balanced(), endpoints(&[6], 5353)]);
    let agent = scene.start();
    let client = scene.client(BALANCER);
    scene.servers.eventually_answer(&client, Some("b"));
    agent.stop();

    // Without the file the agent does not know the rules as its own, and writes them again.
    std::fs::remove_file(scene.node.path("run/nft-skeleton-services")).unwrap();
    let nft = scene.node.path("nft");
    write_script(&nft, "#!/bin/sh\nexit 1\n");
    scene.apply(&[balanced(), endpoints(&[7], 5353)]);
    let flags = ["--services", "on", "--nft", nft.to_str().unwrap()];
    let agent = scene.node.start(&flags);
    let has_services = |expected| {
        eventually(|| match agent.metric("tweed_services") {
            count if count == expected => Ok(()),
            count => Err(format!("{count} Services")),
        });
    };
    has_services(1);
    agent.complains("nftables");
    scene.apply(&[]);
    has_services(0);
    assert_eq!(scene.servers.answer(&client).as_deref(), Some("b"));
    write_script(&nft, "#!/bin/sh\nexec nft \"$@\"\n");
    agent.ready();
    scene.servers.eventually_answer(&client, None);
}

/// The entry is one that a client without further packets has left.
#[test]
fn flows_of_ipv6_are_looked_at_too() {
    let dual = dns().replace("[10.96.0.53]", "[10.96.0.53, \"fd00:96::53\"]");
    let scene = Scene::new(&[dual, endpoints(&[6], 5353)]);
    let entries = || run("conntrack", "-L -f ipv6 -p udp");
    run(
        "conntrack",
        "-I -p udp -s fd00::5 -d fd00:96::53 --sport 4000 --dport 53 \
         -r fd00::6 -q fd00::5 --reply-port-src 5353 --reply-port-dst 4000 -t 3600",
    );
    assert!(entries().contains("fd00:96::53"));
    let _agent = scene.start();
    eventually(|| match entries() {
        none if none.trim().is_empty() => Ok(()),
        left => Err(left),
    });
}

/// The ports of the clients of TCP, and then of SCTP, that conntrack has entries of.
fn clients_of_connections() -> Vec<String> {
    let mut ports = Vec::new();
    for (protocol, family) in [
        ("tcp", "ipv4"),
        ("tcp", "ipv6"),
        ("sctp", "ipv4"),
        ("sctp", "ipv6"),
    ] {
        let entries = run("conntrack", &format!("-L -f {family} -p {protocol}"));
        for entry in entries.lines() {
            let (_, port) = entry.split_once("sport=").unwrap();
            let (port, _) = port.split_once(' ').unwrap();
            ports.push(format!("{protocol} {family} {port}"));
        }
    }
    ports
}

/// One that tries again from the same port, as a client does that has to use it, would never
/// reach the Service. What somebody answers is a connection.
#[test]
fn connections_that_nobody_answered_before_their_service_came_are_forgotten() {
    let web = "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: web}\n\
         spec: {type: LoadBalancer, clusterIP: 10.96.0.80, \
         clusterIPs: [10.96.0.80, \"fd00:96::80\"], ports: [\
         {name: tcp, protocol: TCP, port: 80, nodePort: 30080}, \
         {name: sctp, protocol: SCTP, port: 80, nodePort: 30080}]}\n\
         status: {loadBalancer: {ingress: [{ip: 203.0.113.80}, {ip: \"2001:db8:9::80\"}]}}\n"
        .to_owned();
    let scene = Scene::new(&[]);
    let begin = || {
        for (client, [service, other]) in [
            ("10.0.1.5", ["203.0.113.80", "203.0.113.81"]),
            ("fd00::5", ["2001:db8:9::80", "2001:db8:9::81"]),
        ] {
            for (port, to, status) in [
                (4000, service, ""),
                (4001, service, "-u SEEN_REPLY"),
                (4002, other, ""),
            ] {
                for protocol in [
                    "tcp --state SYN_SENT",
                    "sctp --state COOKIE_WAIT --orig-vtag 1 --reply-vtag 2",
                ] {
                    let entry = format!("-s {client} -d {to} --sport {port} --dport 80");
                    run(
                        "conntrack",
                        &format!("-I -p {protocol} {entry} -t 3600 {status}"),
                    );
                }
            }
        }
    };
    let expected: Vec<String> = ["tcp ipv4", "tcp ipv6", "sctp ipv4", "sctp ipv6"]
        .iter()
        .flat_map(|of| [4001, 4002].map(|port| format!("{of} {port}")))
        .collect();
    let forgets = || {
        eventually(|| {
            let mut clients = clients_of_connections();
            clients.sort_by_key(|client| expected.iter().position(|one| one == client));
            if clients == expected {
                Ok(())
            } else {
                Err(format!("{clients:?}"))
            }
        });
    };
    begin();
    let agent = scene.start();
    scene.apply(std::slice::from_ref(&web));
    forgets();
    assert_eq!(agent.metric("tweed_stale_flows_deleted_total"), 4);
    agent.stop();

    // It comes while nobody looks.
    scene.apply(&[]);
    scene.start().stop();
    run("conntrack", "-F");
    begin();
    scene.apply(&[web]);
    let agent = scene.start();
    forgets();
    agent.ready();
}
