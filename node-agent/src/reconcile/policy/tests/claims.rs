//! What the planner of policies gets of the claims of Nodes.

use tweed_core::object::node::Node;
use tweed_planner::overlay::host::HostFacts;
use tweed_planner::policy::Who;

use super::*;
use crate::config;

/// A Node with a pod CIDR.
fn node(name: &str, created: i64, cidr: &str) -> Node {
    Node {
        name: name.to_owned(),
        created: Some(created),
        pod_cidrs: vec![cidr.to_owned()],
        ..Node::default()
    }
}

/// A younger Node claims a part of an older one's range, and a kubelet there says that a pod
/// of its has an address in it.
#[test]
fn a_pod_cidr_that_is_refused_of_a_node_makes_no_pods() {
    let run_dir = tempfile::tempdir().unwrap();
    let mut policies = reconciler(PolicyMarker::new(run_dir.path()));
    let mut index = index();
    let deny = Event::Apply(policy());
    index.apply(&Collection::NetworkPolicies, deny);
    let config = config::of_line("--node-name alpha");
    let mut overlay = OverlayPlanner::new(config.overlay, None);
    let mut cluster = Cluster::new("alpha");
    let nodes = [
        node("alpha", 1, "10.244.1.0/24"),
        node("beta", 2, "10.244.2.0/24"),
        node("gamma", 3, "10.244.2.0/28"),
    ];
    let _ = cluster.apply(Event::Init);
    for node in nodes {
        let _ = cluster.apply(Event::InitApply(node));
    }
    let _ = cluster.apply(Event::InitDone);
    overlay.update(&mut cluster, HostFacts::default());
    policies.update_nodes(&mut index, &cluster, &overlay);
    let pods = Collection::Pods(PodScope::All);
    let pod = |name: &str, created, node: &str, address: &str| Pod {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        created: Some(created),
        node: node.to_owned(),
        addresses: vec![address.to_owned()],
        ..Pod::default()
    };
    index.apply::<Pod>(&pods, Event::Init);
    for pod in [
        pod("db", 1, "beta", "10.244.2.5"),
        pod("takes", 2, "gamma", "10.244.2.5"),
        pod("gives", 2, "gamma", "10.244.2.6"),
    ] {
        index.apply(&pods, Event::InitApply(pod));
    }
    index.apply::<Pod>(&pods, Event::InitDone);
    let who = |index: &PolicyIndex, address: &str| match index.planner.who(address.parse().unwrap())
    {
        Who::Pod { name, .. } => name.map(|name| name.name),
        Who::Node(_) | Who::Unknown => None,
    };
    assert_eq!(who(&index, "10.244.2.5").as_deref(), Some("db"));
    assert_eq!(who(&index, "10.244.2.6"), None);

    // Without the older Node the claim is accepted.
    let _ = cluster.apply(Event::Delete(ObjectKey::from("beta")));
    overlay.update(&mut cluster, HostFacts::default());
    policies.update_nodes(&mut index, &cluster, &overlay);
    assert_eq!(who(&index, "10.244.2.5").as_deref(), Some("takes"));
    assert_eq!(who(&index, "10.244.2.6").as_deref(), Some("gives"));
}
