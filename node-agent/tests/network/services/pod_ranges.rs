//! ServiceCIDRs that have ranges of pods, as kubeadm's 10.96.0.0/12 has those of a cluster
//! whose pods are in 10.100.0.0/16.

use super::ON;
use crate::families;
use crate::node::{Agent, Node, eventually, ip, run};
use crate::traffic_pod::TrafficPod;

/// A node with two pods of both families, and the ranges of another node's pods.
struct Scene {
    node: Node,
    client: TrafficPod,
    _server: TrafficPod,
}

impl Scene {
    fn new(cidrs: &str) -> Self {
        let node = Node::new();
        ip("address add 2001:db8::1/64 dev eth0 nodad");
        ip("route add default via 192.0.2.254");
        ip("route add default via 2001:db8::fe");
        std::fs::create_dir_all(node.path("run")).unwrap();
        let client = TrafficPod::add_dual(&node, "client", 5);
        let server = TrafficPod::add_dual(&node, "server", 6);
        let scene = Self {
            node,
            client,
            _server: server,
        };
        scene.apply(cidrs);
        scene
    }

    /// There is a ServiceCIDR with these, or none.
    fn apply(&self, cidrs: &str) {
        let object = match cidrs {
            "" => String::new(),
            _ => format!(
                "---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\n\
                 metadata: {{name: wide}}\nspec: {{cidrs: [{cidrs}]}}\n"
            ),
        };
        let nodes = [families::node(1), families::node(2)].concat();
        self.node.write_nodes(&(nodes + &object));
    }

    fn start(&self) -> Agent {
        let agent = self.node.start(&ON);
        agent.serves();
        agent
    }

    /// The other pod is reached, in both families.
    fn is_whole(&self) {
        for to in ["10.0.1.6:80", "[fd00:0:0:1::6]:80"] {
            assert!(self.client.connects_to(to), "{to}");
        }
    }

    /// Whether a first packet of the client's to an address is dropped as one to nobody's.
    fn is_dropped(&self, to: &str) -> bool {
        let before = dropped();
        self.client.connects_to(to);
        dropped() > before
    }
}

/// How many packets to addresses that no Service has were dropped.
fn dropped() -> u64 {
    let text = run("nft", "list counter inet tweed-services unknown-address");
    let count = text.split("packets ").nth(1).unwrap();
    count.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_service_cidr_that_has_all_pods_cuts_none_off() {
    let scene = Scene::new("10.0.0.0/12, 'fd00::/48'");
    let agent = scene.start();
    let told = agent.complains("service-cidr-overlap");
    for part in [
        "ServiceCIDR wide",
        "10.0.0.0/12",
        "10.0.2.0/24",
        " and 1 more",
    ] {
        assert!(told.contains(part), "{told}");
    }
    scene.is_whole();
    for of_other_node in ["10.0.2.7:80", "[fd00:0:0:2::7]:80"] {
        assert!(!scene.is_dropped(of_other_node), "{of_other_node}");
    }
    for of_nobody in ["10.5.0.7:80", "[fd00:0:0:9::7]:80"] {
        assert!(scene.is_dropped(of_nobody), "{of_nobody}");
    }
}

#[test]
fn a_service_cidr_of_another_nodes_pods_cuts_none_off() {
    let scene = Scene::new("10.0.2.0/24, 'fd00:0:0:2::/112'");
    let agent = scene.start();
    let told = agent.complains("service-cidr-overlap");
    assert!(!told.contains("10.0.1.0/24"), "{told}");
    scene.is_whole();
    for to in ["10.0.2.7:80", "[fd00:0:0:2::7]:80"] {
        assert!(!scene.is_dropped(to), "{to}");
    }
}

#[test]
fn a_service_cidr_that_comes_later_cuts_no_pod_off() {
    let scene = Scene::new("");
    let agent = scene.start();
    agent.ready();
    scene.apply("10.0.0.0/12, 'fd00::/48'");
    eventually(|| {
        if scene.is_dropped("10.5.0.7:80") {
            Ok(())
        } else {
            Err("the ServiceCIDR is not in force".to_owned())
        }
    });
    scene.is_whole();
    assert!(!scene.is_dropped("10.0.2.7:80"));
    scene.apply("10.96.0.0/16");
    agent.ready();
    scene.is_whole();
}
