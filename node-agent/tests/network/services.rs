//! Services on a node with local pods: connections to a Service come about as its source
//! says, whatever happens to the agent and the table.

mod api_server;
mod before_network;
mod dual_stack;
mod places;
mod pod_ranges;

use std::net::TcpListener;

use tweed_agent::agent::Ending;
use tweed_core::problem::Problem;

use crate::node::{Agent, Node, eventually, ip, manifest, run};
use crate::policy::manifests::{allow, default_deny, namespace, pod};
use crate::policy::refused::nft_that_refuses_policy;
use crate::traffic_pod::{TrafficPod, connects};

/// Where the Service is.
const CLUSTER_IP: &str = "10.96.0.10:8080";
const ON: [&str; 2] = ["--services", "on"];

/// A node with a client and two pods that can be endpoints.
struct Scene {
    node: Node,
    client: TrafficPod,
    b: TrafficPod,
    c: TrafficPod,
}

impl Scene {
    fn new(documents: &[String]) -> Self {
        let node = Node::new();
        // The kernel translates what a node sends itself only after it has found a route.
        ip("route add default via 192.0.2.254");
        std::fs::create_dir_all(node.path("run")).unwrap();
        let scene = Self {
            client: TrafficPod::add(&node, "client", 5),
            b: TrafficPod::add(&node, "b", 6),
            c: TrafficPod::add(&node, "c", 7),
            node,
        };
        scene.apply(documents);
        scene
    }

    fn apply(&self, documents: &[String]) {
        let nodes = [manifest(1), manifest(2)].concat();
        self.node.write_nodes(&(nodes + &documents.concat()));
    }

    fn start(&self) -> Agent {
        let agent = self.node.start(&ON);
        agent.ready();
        agent
    }

    /// Whether the client connects; the connections before are ended.
    fn connects(&self, to: &str) -> bool {
        self.b.accept_all();
        self.c.accept_all();
        self.client.connects_to(to)
    }

    fn eventually_connects(&self, expected: bool) {
        eventually(|| match self.connects(CLUSTER_IP) {
            connects if connects == expected => Ok(()),
            connects => Err(format!("connects: {connects}, expected {expected}")),
        });
    }
}

/// The table without counters, with the handles that show what was made anew.
fn table() -> String {
    run("nft", "-s -a list table inet tweed-services")
}

fn service() -> String {
    "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: web}\n\
     spec: {type: NodePort, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], \
     ports: [{name: http, protocol: TCP, port: 8080, nodePort: 30080}]}\n"
        .to_owned()
}

/// The endpoints of the Service: port 80 of the pods with these numbers.
fn endpoints(hosts: &[u8]) -> String {
    let each = hosts.iter().map(|host| {
        format!("{{addresses: [10.0.1.{host}], nodeName: n1, conditions: {{ready: true}}}}")
    });
    let endpoints: Vec<String> = each.collect();
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{namespace: shop, name: web-1, labels: {{kubernetes.io/service-name: web}}}}\n\
         addressType: IPv4\nendpoints: [{}]\nports: [{{name: http, protocol: TCP, port: 80}}]\n",
        endpoints.join(", ")
    )
}

fn cidrs() -> String {
    "---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: kubernetes}\n\
     spec: {cidrs: [10.96.0.0/16]}\n"
        .to_owned()
}

#[test]
fn a_service_that_comes_changes_and_goes_leads_to_its_endpoints() {
    let scene = Scene::new(&[cidrs()]);
    let agent = scene.start();
    assert!(!scene.connects(CLUSTER_IP));
    scene.apply(&[cidrs(), service(), endpoints(&[6])]);
    scene.eventually_connects(true);
    assert!(!scene.b.accept_all().is_empty(), "it is the endpoint");
    assert!(scene.connects("192.0.2.1:30080"), "by the node port");
    assert!(connects(CLUSTER_IP.parse().unwrap()), "from the node");
    scene.apply(&[cidrs(), service(), endpoints(&[])]);
    scene.eventually_connects(false);
    scene.apply(&[cidrs(), service(), endpoints(&[7])]);
    scene.eventually_connects(true);
    assert!(scene.b.accept_all().is_empty(), "it is none any more");
    scene.apply(&[cidrs()]);
    scene.eventually_connects(false);
    agent.ready();
}

/// By a mistake that the API server takes. Whoever switches Services on must not lose the
/// nodes by it.
#[test]
fn a_service_cidr_that_has_the_nodes_own_addresses_cuts_nobody_off() {
    let wide = cidrs().replace("10.96.0.0/16", "192.0.0.0/16");
    let scene = Scene::new(&[wide]);
    ip("address add 192.0.3.7/32 dev lo");
    let listen = |address: &str| TcpListener::bind((address, 22)).unwrap();
    let _listeners = ["192.0.2.1", "192.0.3.7"].map(listen);
    let agent = scene.node.start(&ON);
    agent.complains("service-cidr-overlap");
    agent.serves();
    for to in ["192.0.2.1:22", "192.0.3.7:22"] {
        assert!(scene.client.connects_to(to), "from a pod to {to}");
        assert!(connects(to.parse().unwrap()), "from the node to {to}");
    }
    let networks = run("nft", "list set inet tweed-services service_networks4");
    for part in ["192.0.0.0-192.0.2.0", "192.0.2.3-192.0.255.255"] {
        assert!(networks.contains(part), "{networks}");
    }
}

#[test]
fn a_policy_evaluates_the_pod_behind_the_service() {
    let objects = [service(), endpoints(&[6])];
    let scene = Scene::new(&objects);
    let agent = scene.start();
    scene.eventually_connects(true);
    let pods = [pod("client", 5), pod("b", 6), namespace()];
    let denied = [default_deny(), allow("b", "client", 8080)];
    scene.apply(&[&objects[..], &pods, &denied].concat());
    scene.eventually_connects(false);
    let allowed = [default_deny(), allow("b", "client", 80)];
    scene.apply(&[&objects[..], &pods, &allowed].concat());
    scene.eventually_connects(true);
    agent.ready();
}

/// A kernel, or a version of nft, that does not take a rule of policy.
#[test]
fn services_go_on_while_the_rules_of_policy_are_refused() {
    let objects = [cidrs(), service(), endpoints(&[6])];
    let scene = Scene::new(&objects);
    let nft = nft_that_refuses_policy(&scene.node);
    let agent = scene.node.start(&[&ON[..], &["--nft", &nft]].concat());
    agent.ready();
    scene.eventually_connects(true);
    let pods = [pod("client", 5), pod("b", 6), namespace(), default_deny()];
    scene.apply(&[&objects[..], &pods].concat());
    agent.complains("nftables");
    let moved = [cidrs(), service(), endpoints(&[7])];
    scene.apply(&[&moved[..], &pods].concat());
    eventually(|| {
        if scene.connects(CLUSTER_IP) && !scene.c.accept_all().is_empty() {
            Ok(())
        } else {
            Err("connections do not lead to the new endpoint".to_owned())
        }
    });
    agent.complains("nftables");
    (scene.node).publishes("run/agent.json", "\"services\": true");
}

#[test]
fn a_restart_keeps_services_and_writes_nothing() {
    let scene = Scene::new(&[cidrs(), service(), endpoints(&[7])]);
    let agent = scene.start();
    scene.eventually_connects(true);
    // The endpoint that comes later has the second slot, though it is the lower one.
    scene.apply(&[cidrs(), service(), endpoints(&[6, 7])]);
    eventually(|| {
        if table().contains(" . 1 : 10.0.1.6 . 80") {
            Ok(())
        } else {
            Err(table())
        }
    });
    let before = table();
    agent.stop();
    assert!(scene.connects(CLUSTER_IP));
    let agent = scene.start();
    agent.passes();
    assert_eq!(table(), before);
    assert_eq!(agent.drift_repaired(), 0);
}

/// An agent that starts while the API server is away does not know which Services there are.
#[test]
fn rules_that_somebody_breaks_come_back_before_services_are_known() {
    let scene = Scene::new(&[cidrs(), service(), endpoints(&[6, 7])]);
    let agent = scene.start();
    scene.eventually_connects(true);
    agent.stop();
    let slots = || run("nft", "list map inet tweed-services service_slots4");
    let before = slots();
    std::fs::remove_file(scene.node.path("nodes.yaml")).unwrap();
    let agent = scene.node.start(&ON);
    agent.complains("services-unreadable");
    run("nft", "flush table inet tweed-services");
    scene.eventually_connects(true);
    assert_eq!(slots(), before);
    agent.stop();
}

const MAP_OF_SERVICES: (&str, &[&str]) = ("service_affinity_groups", &["service_pick"]);

/// A table in which one endpoint serves, as another version would have left it: one that has
/// none of these maps, each of which some chains look numbers up in.
fn left_by_another_version(scene: &Scene, maps: &[(&str, &[&str])]) {
    let agent = scene.start();
    scene.eventually_connects(true);
    agent.stop();
    for (map, users) in maps {
        for user in *users {
            run("nft", &format!("flush chain inet tweed-services {user}"));
        }
        run("nft", &format!("delete map inet tweed-services {map}"));
    }
    let known = scene.node.path("run/nft-skeleton-services");
    let own = std::fs::read_to_string(&known).unwrap();
    let (version, _) = own.split_once(' ').unwrap();
    let other = own.replacen(version, "0-other", 1);
    let of_others = |line: &str| {
        let word = line.split(' ').next().unwrap();
        word == "chain" || maps.iter().any(|(map, _)| *map == word)
    };
    let lines = other.lines().filter(|line| !of_others(line));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    std::fs::write(&known, text).unwrap();
}

fn has_own_rules() -> bool {
    table().contains("map service_affinity_groups {")
}

/// An upgrade from a version with other sets, while the source does not answer: until then
/// nobody knows which Services the new sets should hold.
#[test]
fn the_rules_of_another_version_serve_until_services_are_known() {
    let scene = Scene::new(&[cidrs(), service(), endpoints(&[6])]);
    left_by_another_version(&scene, &[MAP_OF_SERVICES]);
    std::fs::remove_file(scene.node.path("nodes.yaml")).unwrap();
    let before = table();

    let agent = scene.node.start(&ON);
    agent.complains("services-");
    agent.passes();
    assert!(table() == before, "the table was changed");
    assert!(scene.connects(CLUSTER_IP));
    scene.apply(&[cidrs(), service(), endpoints(&[7])]);
    agent.ready();
    assert!(has_own_rules());
    assert!(scene.connects(CLUSTER_IP));
    assert!(!scene.c.accept_all().is_empty(), "it is the endpoint");
}

#[test]
fn a_single_run_replaces_the_rules_of_another_version_once_it_knows_services() {
    let scene = Scene::new(&[cidrs(), service(), endpoints(&[6])]);
    left_by_another_version(&scene, &[MAP_OF_SERVICES]);
    let nodes = scene.node.path("nodes.yaml");
    let away = scene.node.path("nodes.away");
    std::fs::rename(&nodes, &away).unwrap();
    let before = table();

    let once = [&ON[..], &["--once"]].concat();
    let agent = scene.node.start(&once);
    let Ending::NotConverged(problems) = agent.ending() else {
        panic!("it does not know of any Service");
    };
    let names_services = |it: &Problem| it.kind.to_string().starts_with("services-");
    assert!(problems.iter().any(names_services), "{problems:?}");
    assert!(table() == before, "the table was changed");
    assert!(scene.connects(CLUSTER_IP));

    std::fs::rename(&away, &nodes).unwrap();
    let agent = scene.node.start(&once);
    assert_eq!(agent.ending(), Ending::Converged);
    assert!(has_own_rules());
    assert!(scene.connects(CLUSTER_IP));
}

#[test]
fn services_that_somebody_flushes_come_back() {
    let scene = Scene::new(&[service(), endpoints(&[6])]);
    let agent = scene.start();
    scene.eventually_connects(true);
    run("nft", "flush map inet tweed-services service_targets4");
    scene.eventually_connects(true);
    run("nft", "delete table inet tweed-services");
    scene.eventually_connects(true);
    agent.ready();
}

#[test]
fn a_single_run_ends_when_the_services_are_in_force() {
    let scene = Scene::new(&[service(), endpoints(&[6])]);
    let agent = scene.node.start(&[&ON[..], &["--once"]].concat());
    assert_eq!(agent.ending(), Ending::Converged);
    assert!(scene.connects(CLUSTER_IP));
}

#[test]
fn switched_off_the_table_has_nothing_of_services() {
    let scene = Scene::new(&[service(), endpoints(&[6])]);
    let agent = scene.start();
    scene.eventually_connects(true);
    agent.stop();
    let agent = scene.node.start(&[]);
    agent.ready();
    let tables = run("nft", "list tables");
    assert!(!tables.contains("tweed-services"), "{tables}");
    assert!(!scene.connects(CLUSTER_IP));
}

/// What a kube-proxy left is named while the agent serves Services, and only then.
#[test]
fn rules_of_kube_proxy_are_named_where_services_are_served() {
    let scene = Scene::new(&[service(), endpoints(&[6])]);
    run("nft", "add table ip kube-proxy");
    let agent = scene.node.start(&[]);
    agent.ready();
    agent.passes();
    let named = |problem: &String| problem.starts_with("kube-proxy-rules");
    assert!(!agent.problems().iter().any(named));
    scene
        .node
        .publishes("run/agent.json", "\"services\": false");
    agent.stop();
    let agent = scene.node.start(&ON);
    let problem = agent.complains("kube-proxy-rules");
    assert!(
        problem.contains("nftables table ip kube-proxy"),
        "{problem}"
    );
    scene.node.publishes("run/agent.json", "\"services\": true");
}
