//! What a change costs, counted in messages to the kernel.

use std::collections::BTreeSet;

use tweed_agent::reconcile::kernel::{Kernel, reconciler::OverlayReconciler};
use tweed_agent::reconcile::outcome::{ObjectKind, Outcome};
use tweed_core::object::Event;
use tweed_core::object::node::{Node as NodeObject, NodeAddress};
use tweed_planner::overlay::{OverlayPlanner, cluster::Cluster, desired::RouteKey, vtep};

use crate::node::{Node, address, eventually, ip, pod_cidr};

const CHANGES: &str = "tweed_kernel_changes_total";

#[test]
fn a_restart_with_nothing_to_do_sends_no_changing_message() {
    let node = Node::new();
    node.list(1..=20);
    let agent = node.start(&[]);
    agent.ready();
    assert!(agent.metric(CHANGES) > 57);
    agent.stop();

    let agent = node.start(&[]);
    agent.ready();
    agent.passes();
    assert_eq!(agent.metric(CHANGES), 0);
    assert_eq!(agent.drift_repaired(), 0);
}

#[test]
fn one_node_of_five_thousand_costs_three_messages() {
    const NODES: u32 = 5_000;
    let node = Node::routed();
    node.list(1..=NODES);
    let agent = node.start(&[]);
    agent.ready();
    let before = agent.metric(CHANGES);
    assert!(before >= u64::from(NODES - 1) * 3);

    for (nodes, what, there) in [
        (NODES + 1, "a Node more", true),
        (NODES, "a Node less", false),
    ] {
        let before = agent.metric(CHANGES);
        node.list(1..=nodes);
        let route = format!("route show {}", pod_cidr(NODES + 1));
        eventually(|| {
            if ip(&route).is_empty() != there {
                Ok(())
            } else {
                Err(what.to_owned())
            }
        });
        agent.passes();
        assert_eq!(agent.metric(CHANGES) - before, 3, "{what}");
        assert_eq!(agent.drift_repaired(), 0);
    }
}

/// The overlay's reconciler alone, whose outcomes say what it compared.
struct Overlay {
    kernel: Kernel,
    cluster: Cluster,
    planner: OverlayPlanner,
    reconciler: OverlayReconciler,
    /// Keys of the routes to local pods.
    kept: BTreeSet<RouteKey>,
}

impl Overlay {
    fn new(node: &Node) -> Self {
        // Nothing is to come by itself, as the link-local addresses of new links do.
        for place in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{place}/disable_ipv6");
            std::fs::write(path, "1").unwrap();
        }
        let mut overlay = Self {
            kernel: Kernel::open(vtep::mac("n1")).unwrap(),
            cluster: Cluster::new("n1"),
            planner: OverlayPlanner::new(node.config(&[]).overlay, None),
            reconciler: OverlayReconciler::default(),
            kept: BTreeSet::new(),
        };
        overlay.apply(Event::Init);
        for n in 1..=3 {
            overlay.apply(Event::InitApply(object(n)));
        }
        overlay.apply(Event::InitDone);
        overlay
    }

    fn apply(&mut self, event: Event<NodeObject>) {
        let _ = self.cluster.apply(event);
    }

    /// Reconciles once more, and gives the kinds of objects that were compared and how
    /// many problems there are.
    fn reconcile(&mut self) -> (Vec<ObjectKind>, usize) {
        self.kernel.observe().unwrap();
        for _ in 0..2 {
            let host = self.kernel.host_facts(&self.planner.path_targets());
            self.planner.update(&mut self.cluster, host.unwrap());
        }
        let (kernel, planner) = (&mut self.kernel, &self.planner);
        let network = planner.network().unwrap();
        let outcome = self
            .reconciler
            .reconcile(kernel, planner, network, self.kept.clone());
        let Outcome {
            objects, problems, ..
        } = outcome.unwrap();
        (objects.into_keys().collect(), problems.len())
    }

    /// Waits until nothing is compared any more and there are so many problems.
    fn settles(&mut self, problems: usize) {
        eventually(|| match self.reconcile() {
            (compared, found) if compared.is_empty() && found == problems => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

fn object(n: u32) -> NodeObject {
    let internal = NodeAddress {
        kind: "InternalIP".to_owned(),
        address: address(n),
    };
    NodeObject {
        name: format!("n{n}"),
        pod_cidrs: vec![pod_cidr(n)],
        addresses: vec![internal],
        ..NodeObject::default()
    }
}

/// Neither polls nor single Nodes cost a comparison of everything because of it.
#[test]
fn a_lasting_warning_of_a_foreign_route_costs_nothing() {
    use ObjectKind::{Fdb, Neighbour, Route};
    let node = Node::new();
    let mut overlay = Overlay::new(&node);
    overlay.settles(0);
    ip("route append 10.0.2.0/24 via 192.0.2.9");
    overlay.settles(1);

    let changed = vec![Route, Neighbour, Fdb];
    overlay.apply(Event::Apply(object(4)));
    assert_eq!(overlay.reconcile(), (changed.clone(), 1));
    assert!(ip("route show 10.0.4.0/24").contains("tweed.1"));
    assert_eq!(overlay.reconcile(), (vec![], 1));
    // What is gone with its Node is not named any more.
    overlay.apply(Event::Delete("n2".into()));
    assert_eq!(overlay.reconcile(), (changed, 0));
    overlay.settles(0);
}

#[test]
fn links_of_pods_and_of_others_have_nothing_of_the_overlay_compared() {
    let node = Node::new();
    let mut overlay = Overlay::new(&node);
    overlay.settles(0);
    for line in [
        "link add veth7 type veth peer name p7",
        "link set veth7 up",
        "link delete veth7",
        "address add 198.51.100.77/32 dev lo",
        "address delete 198.51.100.77/32 dev lo",
        "link add tw000000000009 group 116 type veth peer name p9",
        "link set tw000000000009 up",
        "route add 10.0.1.9/32 dev tw000000000009 proto 116",
        "neighbour add 10.0.1.9 lladdr 02:00:00:00:00:09 dev tw000000000009",
    ] {
        ip(line);
        assert_eq!(overlay.reconcile(), (vec![], 0), "{line}");
    }
    overlay.kept.insert(pod_route());
    assert_eq!(overlay.reconcile(), (vec![], 0));
    // A Node is followed, not planned and compared with all others.
    let changed = vec![ObjectKind::Route, ObjectKind::Neighbour, ObjectKind::Fdb];
    overlay.apply(Event::Apply(object(4)));
    assert_eq!(overlay.reconcile(), (changed, 0));
    overlay.kept.clear();
    ip("link delete tw000000000009");
    assert_eq!(overlay.reconcile(), (vec![], 0));
    ip("route delete 10.0.2.0/24");
    overlay.settles(0);
    assert!(ip("route show 10.0.2.0/24").contains("tweed.1"));
}

/// A route that was left alone for the sake of a pod.
#[test]
fn a_route_for_a_pod_that_is_gone_is_removed_where_it_leads_elsewhere() {
    let node = Node::new();
    let mut overlay = Overlay::new(&node);
    overlay.kept.insert(pod_route());
    overlay.settles(0);
    ip("route add 10.0.1.9/32 dev eth0 proto 116");
    overlay.settles(0);
    assert!(ip("route show 10.0.1.9").contains("eth0"));
    overlay.kept.clear();
    overlay.settles(0);
    assert_eq!(ip("route show 10.0.1.9"), "");
}

fn pod_route() -> RouteKey {
    RouteKey {
        destination: "10.0.1.9/32".parse().unwrap(),
        metric: 0,
    }
}
