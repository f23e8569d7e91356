//! The plan that comes into force with the first policy, before anything else is listed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tweed_core::attachment::PodName;
use tweed_core::object::Event;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{NetworkPolicy, Peer, Rule};
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::LabelSelector;

use super::walk::{Flow, passes};
use crate::policy::model::local::{LocalPod, LocalPods};
use crate::policy::model::pods::PodScope;
use crate::policy::planner::{PolicyPlanner, Step};
use crate::policy::verdicts::Direction;

const OLD: &str = "10.0.0.2";
const NEW: &str = "10.0.0.3";
const OWN: &str = "10.0.0.0";
const OTHER: &str = "10.0.1.9";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn records(addresses: &[&str]) -> BTreeMap<IpAddr, Option<LocalPod>> {
    let pod = |address: &&str| {
        let name = PodName {
            namespace: "shop".to_owned(),
            name: (*address).to_owned(),
        };
        (ip(address), Some(LocalPod::from(name)))
    };
    addresses.iter().map(pod).collect()
}

fn set_records(planner: &mut PolicyPlanner, addresses: &[&str]) {
    planner.set_local(LocalPods {
        cidrs: Default::default(),
        pods: records(addresses),
        own: [ip(OWN)].into(),
    });
}

/// A planner whose cluster has one policy, of the pods of all namespaces, and of which nothing
/// else is known.
fn planner() -> PolicyPlanner {
    let mut planner = PolicyPlanner::new("me");
    let any = Peer::Pods {
        namespace: Some(LabelSelector::default()),
        pod: None,
    };
    let policy = NetworkPolicy {
        namespace: "shop".to_owned(),
        name: "all".to_owned(),
        policy_types: vec!["Ingress".to_owned()],
        ingress: vec![Rule {
            peers: vec![any],
            ports: Vec::new(),
        }],
        ..NetworkPolicy::default()
    };
    for event in [Event::Init, Event::InitApply(policy), Event::InitDone] {
        planner.apply_network_policies(event);
    }
    for event in [Event::Init, Event::InitDone] {
        planner.apply_cluster_network_policies(event);
    }
    planner
}

fn list_own(planner: &mut PolicyPlanner, addresses: &[&str]) {
    // So many that pods of all namespaces are watched.
    let fillers = (0..20).map(|number| format!("filler{number}"));
    planner.apply_namespaces(Event::Init);
    for name in ["shop".to_owned()].into_iter().chain(fillers) {
        let labels = Default::default();
        planner.apply_namespaces(Event::InitApply(Namespace {
            name,
            labels,
            ..Namespace::default()
        }));
    }
    planner.apply_namespaces(Event::InitDone);
    planner.apply_pods(&PodScope::Own, Event::Init);
    for address in addresses {
        planner.apply_pods(&PodScope::Own, Event::InitApply(pod(address, "me")));
    }
    planner.apply_pods(&PodScope::Own, Event::InitDone);
    planner.set_nodes([]);
}

fn pod(address: &str, node: &str) -> Pod {
    Pod {
        namespace: "shop".to_owned(),
        name: address.to_owned(),
        node: node.to_owned(),
        addresses: vec![address.to_owned()],
        ..Pod::default()
    }
}

/// Whether a connection to this address passes in its own direction.
fn is_open(planner: &PolicyPlanner, to: &str) -> bool {
    let desired = planner.desired();
    assert!(desired.verdicts.active);
    let flow = Flow {
        from: ip(OTHER),
        to: ip(to),
        protocol: 6,
        port: 80,
    };
    desired.verdicts.enforced.contains(&flow.to) && passes(desired, Direction::In, flow)
}

#[test]
fn with_the_first_policy_new_pods_are_isolated_before_anything_is_listed() {
    let mut planner = planner();
    planner.begin(records(&[OLD]));
    // An ADD that has seen that there are policies.
    set_records(&mut planner, &[OLD, NEW]);
    assert_eq!(planner.plan(), Step::Full);
    assert!(planner.holds_all());
    assert!(is_open(&planner, OLD), "a pod that was there is cut");
    assert!(is_open(&planner, OWN), "the node is cut off");
    assert!(!is_open(&planner, NEW), "a new pod is not isolated");

    // The pods of others are not listed: the policy waits.
    list_own(&mut planner, &[OLD, NEW]);
    let Step::Delta(delta) = planner.plan() else {
        panic!("no plan was made");
    };
    assert!(!delta.verdicts.takes_away);
    assert!(!planner.holds_all());
    assert!(is_open(&planner, OLD));
    assert!(!is_open(&planner, NEW));
    let own: Vec<_> = [OLD, NEW].map(|one| pod(one, "me")).into();
    let others = vec![pod("10.0.1.8", "other")];
    planner.apply_pods(&PodScope::All, Event::Init);
    for pod in own.into_iter().chain(others) {
        planner.apply_pods(&PodScope::All, Event::InitApply(pod));
    }
    planner.apply_pods(&PodScope::All, Event::InitDone);
    let Step::Delta(delta) = planner.plan() else {
        panic!("no plan was made");
    };
    // Nobody has the address of the other end.
    assert!(delta.verdicts.takes_away);
    assert!(!is_open(&planner, OLD) && !is_open(&planner, NEW));
    assert!(planner.desired().verdicts.enforced.contains(&ip(NEW)));
}

#[test]
fn an_address_that_goes_to_another_pod_before_anything_is_listed_is_isolated() {
    let mut planner = planner();
    planner.begin(records(&[OLD, NEW]));
    set_records(&mut planner, &[OLD]);
    assert_eq!(planner.plan(), Step::Full);
    assert!(
        !planner.desired().verdicts.enforced.contains(&ip(NEW)),
        "its pod is gone"
    );
    let mut local = LocalPods {
        cidrs: Default::default(),
        pods: records(&[OLD]),
        own: [ip(OWN)].into(),
    };
    local.pods.insert(ip(OLD), None);
    planner.set_local(local.clone());
    let Step::Delta(delta) = planner.plan() else {
        panic!("the address is not taken back");
    };
    // Flows of the pod before are evaluated once more.
    assert!(delta.verdicts.takes_away);
    assert!(!is_open(&planner, OLD));
    // The node's own addresses are no pods, also those that come later.
    local.own.insert(ip("10.0.0.1"));
    planner.set_local(local);
    let Step::Delta(delta) = planner.plan() else {
        panic!("the address is not taken up");
    };
    assert!(!delta.verdicts.takes_away);
    assert!(is_open(&planner, "10.0.0.1") && is_open(&planner, OWN));
}

/// The kernel has policies of an earlier run: an open plan would lift them.
#[test]
fn after_an_earlier_run_the_first_plan_is_held() {
    let mut planner = planner();
    set_records(&mut planner, &[OLD]);
    assert!(matches!(planner.plan(), Step::Hold(_)));
    list_own(&mut planner, &[OLD]);
    assert!(matches!(planner.plan(), Step::Hold(_)));
    assert!(!planner.desired().verdicts.active);
}
