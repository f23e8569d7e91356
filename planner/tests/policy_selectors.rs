//! What thousands of selectors cost that a tenant may write into policies.
//!
//! `cargo test --release -p tweed-planner --test policy_selectors -- --ignored --nocapture`

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test: figures are for a person"
)]

use std::net::IpAddr;
use std::time::Duration;

use tweed_core::attachment::PodName;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{NetworkPolicy, Peer, Rule};
use tweed_core::object::node::Node;
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::{LabelSelector, Operator, Requirement};
use tweed_core::object::{Event, Object as _};
use tweed_planner::policy::{LocalPods, PodScope, PolicyPlanner, Step};

/// The time that this thread has had a CPU: other work of the machine is not in it.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn pod(number: usize) -> Pod {
    let address = IpAddr::from([10, 0, 1 + (number >> 8) as u8, number as u8]);
    let node = if number == 0 { "me" } else { "other" };
    Pod {
        namespace: "tenant".to_owned(),
        name: format!("pod-{number}"),
        labels: [("set".to_owned(), number.to_string())].into(),
        node: node.to_owned(),
        addresses: vec![address.to_string()],
        ..Pod::default()
    }
}

/// Each peer is another one, and any pod may be meant: all are asked for.
fn policy(number: usize, peers: usize) -> NetworkPolicy {
    let requirement = |key: &str, operator, values: [String; 2]| Requirement {
        key: key.to_owned(),
        operator,
        values: values.into(),
    };
    let peer = |at: usize| Peer::Pods {
        namespace: None,
        pod: Some(LabelSelector {
            match_expressions: vec![
                requirement("set", Operator::NotIn, ["x".to_owned(), at.to_string()]),
                requirement(
                    "tier",
                    Operator::In,
                    [at, number].map(|one| one.to_string()),
                ),
            ],
            ..LabelSelector::default()
        }),
    };
    NetworkPolicy {
        namespace: "tenant".to_owned(),
        name: format!("policy-{number}"),
        policy_types: vec!["Ingress".to_owned()],
        ingress: vec![Rule {
            peers: (0..peers).map(peer).collect(),
            ports: Vec::new(),
        }],
        ..NetworkPolicy::default()
    }
}

fn planner(sets: usize) -> PolicyPlanner {
    let mut planner = PolicyPlanner::new("me");
    planner.apply_namespaces(Event::Init);
    planner.apply_namespaces(Event::InitApply(Namespace {
        name: "tenant".to_owned(),
        ..Namespace::default()
    }));
    planner.apply_namespaces(Event::InitDone);
    for scope in [PodScope::Own, PodScope::All] {
        planner.apply_pods(&scope, Event::Init);
        let own = if scope == PodScope::Own { 1 } else { sets };
        for number in 0..own {
            planner.apply_pods(&scope, Event::InitApply(pod(number)));
        }
        planner.apply_pods(&scope, Event::InitDone);
    }
    for event in [Event::Init, Event::InitDone] {
        planner.apply_network_policies(event);
    }
    for event in [Event::Init, Event::InitDone] {
        planner.apply_cluster_network_policies(event);
    }
    let node = |name: &str| Node {
        name: name.to_owned(),
        ..Node::default()
    };
    let cidrs = vec!["10.0.0.0/8".parse().unwrap()];
    let (me, other) = (node("me"), node("other"));
    planner.set_nodes([(&me, Vec::new()), (&other, cidrs)]);
    let name = PodName {
        namespace: "tenant".to_owned(),
        name: "pod-0".to_owned(),
    };
    planner.set_local(LocalPods {
        pods: [(pod(0).addresses[0].parse().unwrap(), Some(name.into()))].into(),
        ..LocalPods::default()
    });
    planner
}

/// Plans policies with that many peers each, where pods have that many sets of labels: the most
/// CPU time that one policy took that came, that all took at once, that a pod with new labels
/// took, and that one policy took that went.
fn measure(policies: usize, peers: usize, sets: usize) -> [Duration; 4] {
    let mut planner = planner(sets);
    let mut timed = |change: &dyn Fn(&mut PolicyPlanner) -> bool| {
        assert!(change(&mut planner));
        let begun = cpu_time();
        assert!(!matches!(planner.plan(), Step::Hold(_)));
        cpu_time() - begun
    };
    let first = timed(&|planner| {
        let mut all = (0..policies).map(|number| policy(number, peers));
        all.all(|policy| planner.apply_network_policies(Event::Apply(policy)))
    });
    let times = (policies..policies + 3).map(|number| {
        timed(&|planner| planner.apply_network_policies(Event::Apply(policy(number, peers))))
    });
    let comes = times.max().unwrap();
    let pod = timed(&|planner| planner.apply_pods(&PodScope::All, Event::Apply(pod(sets))));
    let goes =
        timed(&|planner| planner.apply_network_policies(Event::Delete(policy(0, peers).key())));
    let all = [comes, first, pod, goes];
    println!(
        "{policies} policies of {peers} peers, {sets} sets of labels: one comes {comes:?}, \
         all at once {first:?}, a pod with new labels {pod:?}, one goes {goes:?}"
    );
    all
}

/// With each peer asked of each pod this takes many times as long.
#[test]
fn a_policy_costs_what_it_says_and_not_that_times_the_pods() {
    let [few, ..] = measure(3, 4_000, 20);
    let [many, ..] = measure(3, 4_000, 600);
    assert!(many < 4 * few, "{few:?}, {many:?}");
}

#[test]
#[ignore = "prints figures for a person; it asserts nothing about them"]
fn policies_of_16000_peers() {
    for policies in [1, 10, 40] {
        measure(policies, 16_000, 300);
    }
}
