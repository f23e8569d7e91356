//! Policies while reconciles are put off, as they are after a failure of anything: what has
//! changed is written all the same.

use tweed_agent::index::policy::Collection;
use tweed_core::agent_socket::message::Judge;
use tweed_core::attachment::{ContainerId, IfName, NetworkName};
use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{NetworkPolicy, Rule};
use tweed_core::object::pod::Pod;
use tweed_core::object::{Event, Object};
use tweed_planner::policy::PodScope;

use super::Scene;
use crate::thread::Thread;
use crate::traffic_pod::TrafficPod;

/// What the ADD of a pod with this name and address asks.
fn judge(name: &str, host: u8) -> Judge {
    Judge {
        network: NetworkName::new("tweed").unwrap(),
        container_id: ContainerId::new(name).unwrap(),
        ifname: IfName::new("eth0").unwrap(),
        pod: None,
        addresses: vec![[10, 0, 1, host].into()],
        wait_ms: 1000,
    }
}

fn pod(name: &str, host: u8) -> Pod {
    Pod {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        node: "n1".to_owned(),
        addresses: vec![format!("10.0.1.{host}")],
        ..Pod::default()
    }
}

/// Isolates all pods of the namespace for ingress, but for these rules.
fn policy(name: &str, ingress: Vec<Rule>) -> NetworkPolicy {
    NetworkPolicy {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        policy_types: vec!["Ingress".to_owned()],
        ingress,
        ..NetworkPolicy::default()
    }
}

#[test]
fn a_changed_policy_needs_no_reconcile_to_come_into_force() {
    let scene = Scene::new(&[]);
    let (a, b) = (&scene.a, &scene.b);
    let mut thread = Thread::new(&scene.node, &[]);
    thread.list_node();
    let namespace = Namespace {
        name: "default".to_owned(),
        ..Namespace::default()
    };
    thread.list(&Collection::Namespaces, vec![namespace]);
    let pods = vec![pod("a", 5), pod("b", 6)];
    thread.list(&Collection::Pods(PodScope::Own), pods);
    let policies = Collection::NetworkPolicies;
    thread.list(&policies, vec![policy("deny", Vec::new())]);
    thread.list::<ClusterNetworkPolicy>(&Collection::ClusterNetworkPolicies, Vec::new());
    assert!(
        !thread.reconcilers.follow(),
        "the first plan needs a reconcile"
    );
    thread.reconcile();
    thread.reconcile();
    assert!(!a.connects(b, 80));
    assert!(!thread.reconcilers.follow(), "nothing has changed");

    let open = policy("open", vec![Rule::default()]);
    thread.apply(&policies, Event::Apply(open.clone()));
    assert!(thread.reconcilers.follow());
    assert!(a.connects(b, 80));
    thread.apply::<NetworkPolicy>(&policies, Event::Delete(open.key()));
    assert!(thread.reconcilers.follow());
    assert!(!a.connects(b, 80));
    assert!(!thread.reconcilers.can_follow());
}

/// The first policy of the cluster comes, and nothing that it is about is listed: what runs goes
/// on, and whatever is added is isolated.
#[test]
fn with_the_first_policy_new_pods_are_isolated_whatever_is_not_listed() {
    let scene = Scene::new(&[]);
    let (a, b) = (&scene.a, &scene.b);
    let mut thread = Thread::new(&scene.node, &[]);
    thread.list_node();
    let policies = Collection::NetworkPolicies;
    thread.list::<NetworkPolicy>(&policies, Vec::new());
    thread.list::<ClusterNetworkPolicy>(&Collection::ClusterNetworkPolicies, Vec::new());
    thread.reconcile();
    thread.reconcile();
    assert!(a.connects(b, 80));

    // As a run has left it that was killed before it wrote any rules.
    std::fs::write(scene.node.path("run/policy"), "").unwrap();
    thread.apply(&policies, Event::Apply(policy("deny", Vec::new())));
    // The ADD of a pod that has its record already.
    let d = TrafficPod::add(&scene.node, "d", 8);
    let _answer = thread.state.waiting_pods().ask(judge("d", 8));
    thread.reconcile();
    let c = TrafficPod::add(&scene.node, "c", 7);
    assert!(
        !d.connects(b, 80),
        "a pod that asks to be enforced is taken for one that runs"
    );
    assert!(
        a.connects(b, 80),
        "what runs is cut before it is known whom a policy is about"
    );
    assert!(!c.connects(b, 80), "a new pod sends before it is enforced");
    assert!(
        !a.connects(&c, 80),
        "a new pod is reached before it is enforced"
    );

    let namespace = Namespace {
        name: "default".to_owned(),
        ..Namespace::default()
    };
    thread.list(&Collection::Namespaces, vec![namespace]);
    let pods = vec![pod("a", 5), pod("b", 6), pod("c", 7)];
    thread.list(&Collection::Pods(PodScope::Own), pods);
    thread.reconcile();
    assert!(!a.connects(b, 80) && !a.connects(&c, 80));
    thread.apply::<NetworkPolicy>(&policies, Event::Delete(policy("deny", Vec::new()).key()));
    thread.reconcile();
    assert!(a.connects(&c, 80) && c.connects(b, 80));
}

/// Whatever the files of the run before say, its rules stay until it is known what there is.
#[test]
fn policies_of_an_earlier_run_stay_in_force_without_its_file() {
    let scene = Scene::new(&[super::default_deny()]);
    let (a, b) = (&scene.a, &scene.b);
    let agent = scene.start(&[]);
    a.eventually_connects(b, 80, false);
    agent.stop();
    std::fs::remove_file(scene.node.path("run/policy")).unwrap();
    let mut thread = Thread::new(&scene.node, &[]);
    thread.list_node();
    let policies = Collection::NetworkPolicies;
    thread.list(&policies, vec![policy("deny", Vec::new())]);
    thread.list::<ClusterNetworkPolicy>(&Collection::ClusterNetworkPolicies, Vec::new());
    thread.reconcile();
    thread.reconcile();
    assert!(!a.connects(b, 80), "the rules are gone");
}
