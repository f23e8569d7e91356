//! What a change costs, counted in messages to the kernel.

use std::collections::BTreeSet;

use tweed_agent::reconcile::kernel::{Kernel, reconciler::OverlayReconciler};
use tweed_agent::reconcile::outcome::{ObjectKind, Outcome};
use tweed_core::object::Event;
use tweed_core::object::node::{Node as NodeObject, NodeAddress};
use tweed_planner::overlay::{OverlayPlanner, cluster::Cluster, vtep};

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
    let node = Node::new();
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
        eventually(|| match ip(&route).is_empty() != there {
            true => Ok(()),
            false => Err(what.to_owned()),
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
}

impl Overlay {
    fn new(node: &Node) -> Self {
        let mut overlay = Self {
            kernel: Kernel::open(vtep::mac("n1")).unwrap(),
            cluster: Cluster::new("n1"),
            planner: OverlayPlanner::new(node.config(&[]).overlay, None),
            reconciler: OverlayReconciler::default(),
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
            .reconcile(kernel, planner, network, BTreeSet::new());
        let Outcome {
            objects, problems, ..
        } = outcome.unwrap();
        (objects.into_keys().collect(), problems.len())
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
    // Nothing is to come by itself, as the link-local addresses of new links do.
    for place in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{place}/disable_ipv6");
        std::fs::write(path, "1").unwrap();
    }
    let mut overlay = Overlay::new(&node);
    let settles = |overlay: &mut Overlay, problems| {
        eventually(|| match overlay.reconcile() {
            (compared, found) if compared.is_empty() && found == problems => Ok(()),
            other => Err(format!("{other:?}")),
        });
    };
    settles(&mut overlay, 0);
    ip("route append 10.0.2.0/24 via 192.0.2.9");
    settles(&mut overlay, 1);

    let changed = vec![Route, Neighbour, Fdb];
    overlay.apply(Event::Apply(object(4)));
    assert_eq!(overlay.reconcile(), (changed.clone(), 1));
    assert!(ip("route show 10.0.4.0/24").contains("tweed.1"));
    assert_eq!(overlay.reconcile(), (vec![], 1));
    // What is gone with its Node is not named any more.
    overlay.apply(Event::Delete("n2".into()));
    assert_eq!(overlay.reconcile(), (changed, 0));
    settles(&mut overlay, 0);
}
