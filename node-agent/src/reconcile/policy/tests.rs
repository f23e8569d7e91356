//! What a held plan does to the marker, to ADDs and to the problems.

use tweed_core::agent_socket::message::Judge;
use tweed_core::attachment::{ContainerId, IfName, NETWORK_NAME, NetworkName, PodName};
use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::network_policy::{Peer, Rule};
use tweed_core::object::selector::{LabelSelector, Labels};
use tweed_core::object::{Event, Loss, ObjectKey};
use tweed_core::object::{namespace::Namespace, network_policy::NetworkPolicy, pod::Pod};
use tweed_planner::policy::{PodScope, PolicyKinds, Step};

use super::*;
use crate::enforce::{Verdict, verdict};

mod claims;

/// All pods of the policy's namespace.
fn from_every_pod() -> Vec<Rule> {
    let (namespace, pod) = (None, None);
    vec![Rule {
        peers: vec![Peer::Pods { namespace, pod }],
        ports: Vec::new(),
    }]
}

fn judge() -> Judge {
    Judge {
        network: NetworkName::new(NETWORK_NAME).unwrap(),
        container_id: ContainerId::new("c1").unwrap(),
        ifname: IfName::new("eth0").unwrap(),
        pod: None,
        addresses: vec!["10.244.1.5".parse().unwrap()],
        wait_ms: 1000,
    }
}

fn reconciler(marker: PolicyMarker) -> PolicyReconciler {
    PolicyReconciler {
        metrics: Metrics::register().1,
        marker,
        wants: watch::channel(Wants::default()).0,
        unknown: Effect::Warning,
        nodes: None,
        progress: Progress::Unknown,
        enforces_later: false,
        complete: false,
        held_since: BTreeMap::new(),
        own: BTreeSet::new(),
        cidrs: BTreeSet::new(),
    }
}

/// An index in which it is known that there are no policies.
fn index() -> PolicyIndex {
    let mut index = PolicyIndex::new("alpha");
    for event in [Event::<NetworkPolicy>::Init, Event::InitDone] {
        index.apply(&Collection::NetworkPolicies, event);
    }
    for event in [Event::Init, Event::InitDone] {
        index.planner.apply_cluster_network_policies(event);
    }
    index
}

/// Has the planner plan.
fn plan(policies: &mut PolicyReconciler, index: &mut PolicyIndex, now: Instant) -> Step {
    let step = policies.plan_at(index, now);
    super::super::component::planned(policies, index, step).step
}

fn policy() -> NetworkPolicy {
    NetworkPolicy {
        namespace: "shop".to_owned(),
        name: "deny".to_owned(),
        policy_types: vec!["Ingress".to_owned()],
        ..NetworkPolicy::default()
    }
}

#[test]
fn while_the_first_plan_is_held_adds_ask_and_are_pending() {
    let run_dir = tempfile::tempdir().unwrap();
    let path = run_dir.path().join("policy");
    let marker = PolicyMarker::new(run_dir.path());
    let (mut policies, mut index) = (reconciler(marker), index());
    let now = Instant::now();
    plan(&mut policies, &mut index, now);
    policies.came_in_force(&index);
    assert_eq!(
        verdict(policies.progress, &index, &judge()),
        Verdict::NotInForce
    );

    index.apply(&Collection::NetworkPolicies, Event::Apply(policy()));
    let kinds = index.planner.policy_kinds();
    assert!(policies.marker.set(kinds).unwrap());
    for _ in 0..2 {
        assert!(matches!(
            plan(&mut policies, &mut index, now),
            Step::Hold(_)
        ));
        policies.came_in_force(&index);
        assert!(path.exists(), "an ADD would not ask");
        let told = verdict(policies.progress, &index, &judge());
        let Verdict::Pending(reason) = told else {
            panic!("{told:?}");
        };
        assert!(reason.starts_with("not listed yet: "), "{reason}");
        let of_another_network = Judge {
            network: NetworkName::new("storage").unwrap(),
            ..judge()
        };
        let told = verdict(policies.progress, &index, &of_another_network);
        assert_eq!(told, Verdict::NotInForce);
    }

    let key = ObjectKey {
        namespace: "shop".to_owned(),
        name: "deny".to_owned(),
    };
    let deleted = Event::<NetworkPolicy>::Delete(key);
    index.apply(&Collection::NetworkPolicies, deleted);
    plan(&mut policies, &mut index, now);
    policies.came_in_force(&index);
    assert!(!path.exists());
    assert_eq!(
        verdict(policies.progress, &index, &judge()),
        Verdict::NotInForce
    );
}

/// An index that knows this policy, and may not read the other kind.
fn index_without_cluster_policies() -> PolicyIndex {
    let mut index = PolicyIndex::new("alpha");
    let loss = Loss {
        reason: "403".to_owned(),
        forbidden: true,
    };
    let forbidden = Event::<ClusterNetworkPolicy>::Lost(loss);
    index.apply(&Collection::ClusterNetworkPolicies, forbidden);
    for event in [Event::Init, Event::InitApply(policy()), Event::InitDone] {
        index.apply(&Collection::NetworkPolicies, event);
    }
    for event in [Event::<Namespace>::Init, Event::InitDone] {
        index.apply(&Collection::Namespaces, event);
    }
    let own = Collection::Pods(PodScope::Own);
    for event in [Event::<Pod>::Init, Event::InitDone] {
        index.apply(&own, event);
    }
    index.planner.set_nodes([]);
    index.planner.set_local(LocalPods::default());
    index
}

/// The kinds and effects of the problems.
fn problems(policies: &PolicyReconciler, index: &PolicyIndex) -> Vec<(ProblemKind, Effect)> {
    let problems = policies.report(index, Instant::now()).problems.into_iter();
    problems.map(|one| (one.kind, one.effect)).collect()
}

/// The other kind is in force, and a node that was not ready says what keeps it so.
#[test]
fn a_kind_that_is_forbidden_keeps_new_nodes_from_pods_and_not_policies_from_nodes() {
    for unknown in [Effect::NewPods, Effect::Warning] {
        let run_dir = tempfile::tempdir().unwrap();
        let mut policies = reconciler(PolicyMarker::new(run_dir.path()));
        policies.unknown = unknown;
        let mut index = index_without_cluster_policies();
        policies.keep_earlier(&mut index);
        assert_eq!(plan(&mut policies, &mut index, Instant::now()), Step::Full);
        policies.came_in_force(&index);
        let forbidden = (ProblemKind::PoliciesForbidden, unknown);
        assert_eq!(problems(&policies, &index), [forbidden]);
        assert!(policies.has_reported(&index));
        for event in [
            Event::<ClusterNetworkPolicy>::Init,
            Event::InitDone,
            Event::Restored,
        ] {
            index.apply(&Collection::ClusterNetworkPolicies, event);
        }
        plan(&mut policies, &mut index, Instant::now());
        assert_eq!(problems(&policies, &index), []);
    }
}

#[test]
fn policies_of_an_earlier_run_are_not_lifted_because_they_cannot_be_read() {
    let run_dir = tempfile::tempdir().unwrap();
    let both = PolicyKinds {
        network: true,
        cluster: true,
    };
    let mut earlier = PolicyMarker::new(run_dir.path());
    earlier.set(both).unwrap();
    for _ in 0..2 {
        let mut policies = reconciler(PolicyMarker::new(run_dir.path()));
        let mut index = index_without_cluster_policies();
        policies.keep_earlier(&mut index);
        let step = plan(&mut policies, &mut index, Instant::now());
        assert!(matches!(step, Step::Hold(_)), "{step:?}");
        assert_eq!(policies.progress(), Progress::Unknown);
        // Nothing more will come, and what cannot be read says why.
        let forbidden = (ProblemKind::PoliciesForbidden, Effect::Warning);
        assert_eq!(problems(&policies, &index), [forbidden]);
        assert!(policies.has_reported(&index));
        // What the agent writes meanwhile tells the next one the same.
        let kinds = index.planner.policy_kinds();
        policies.marker.set(kinds).unwrap();
    }
}

/// Nothing else would have the rest taken up.
#[test]
fn policies_that_wait_for_their_turn_call_for_another_plan() {
    let run_dir = tempfile::tempdir().unwrap();
    let mut policies = reconciler(PolicyMarker::new(run_dir.path()));
    let mut index = index_without_cluster_policies();
    plan(&mut policies, &mut index, Instant::now());
    for name in ["first", "second", "third"] {
        let many = NetworkPolicy {
            name: name.to_owned(),
            ingress: vec![Rule::default(); 150],
            ..policy()
        };
        index.apply(&Collection::NetworkPolicies, Event::Apply(many));
    }
    for queued in [2, 1, 0] {
        assert!(index.take_changed());
        plan(&mut policies, &mut index, Instant::now());
        assert_eq!(index.planner.queued(), queued);
    }
    assert!(!index.take_changed());
}

#[test]
fn what_the_server_does_not_have_is_noted_until_it_has_it() {
    let mut index = PolicyIndex::new("alpha");
    let kind = Collection::ClusterNetworkPolicies;
    let list = [Event::<ClusterNetworkPolicy>::Init, Event::InitDone];
    for event in list.clone() {
        index.apply(&kind, event);
    }
    let none: [String; 0] = [];
    assert_eq!(index.absent().collect::<Vec<_>>(), none);
    let absent = Event::<ClusterNetworkPolicy>::Absent("the API server has none".to_owned());
    assert!(index.apply(&kind, absent), "the board is to show it");
    let note = "the API server has none: there are no ClusterNetworkPolicies";
    assert_eq!(index.absent().collect::<Vec<_>>(), [note]);
    for event in list {
        index.apply(&kind, event);
    }
    assert_eq!(index.absent().collect::<Vec<_>>(), none);
}

#[test]
fn what_is_held_for_long_is_told_though_a_plan_is_in_force() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let run_dir = tempfile::tempdir().unwrap();
    let mut policies = reconciler(PolicyMarker::new(run_dir.path()));
    let (one, other) = ("one".to_owned(), "other".to_owned());
    policies.held_since = [(&one, start), (&other, at(20))]
        .map(|(text, since)| (text.clone(), (since, text.clone())))
        .into();
    for state in [Progress::Unknown, Progress::Behind] {
        policies.progress = state;
        assert_eq!(policies.held_problems(start), [one.clone(), other.clone()]);
    }
    policies.progress = Progress::InForce;
    assert_eq!(policies.held_problems(start), [one.clone(), other.clone()]);
    policies.complete = true;
    assert_eq!(policies.held_problems(at(30)), [""; 0]);
    assert_eq!(policies.held_problems(at(31)), std::slice::from_ref(&one));
    assert_eq!(policies.held_problems(at(60)), [one, other]);
}

#[test]
fn a_policy_that_waits_holds_back_no_pod_that_it_does_not_select() {
    let run_dir = tempfile::tempdir().unwrap();
    let mut policies = reconciler(PolicyMarker::new(run_dir.path()));
    let mut index = index_without_cluster_policies();
    let shop = Namespace {
        name: "shop".to_owned(),
        ..Namespace::default()
    };
    index.apply(&Collection::Namespaces, Event::Apply(shop));
    let now = Instant::now();
    plan(&mut policies, &mut index, now);
    policies.came_in_force(&index);

    // Both pods are new, and the first one is selected by a policy with peers.
    let names = ["web", "db"].map(|name| PodName {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    });
    let mut local = LocalPods::default();
    for (host, name) in (5..).zip(&names) {
        let object = Pod {
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            labels: [("app".to_owned(), name.name.clone())].into(),
            ..Pod::default()
        };
        index.apply(&Collection::Pods(PodScope::Own), Event::Apply(object));
        let address = format!("10.244.1.{host}").parse().unwrap();
        local.pods.insert(address, Some(name.clone().into()));
    }
    index.planner.set_local(local);
    let mut with_peers = policy();
    with_peers.name = "peers".to_owned();
    with_peers.pod_selector.match_labels = [("app".to_owned(), "web".to_owned())].into();
    with_peers.ingress = from_every_pod();
    index.apply(&Collection::NetworkPolicies, Event::Apply(with_peers));
    assert!(matches!(
        plan(&mut policies, &mut index, now),
        Step::Delta(_)
    ));
    policies.came_in_force(&index);
    assert!(policies.has_reported(&index));
    let verdict = |policies: &PolicyReconciler, index: &PolicyIndex, host: u8| {
        let PodName { namespace, name } = names[usize::from(host - 5)].clone();
        let judge = Judge {
            pod: Some(tweed_core::agent_socket::message::Pod {
                namespace,
                name,
                uid: None,
            }),
            addresses: vec![format!("10.244.1.{host}").parse().unwrap()],
            ..judge()
        };
        verdict(policies.progress, index, &judge)
    };
    let waits = "NetworkPolicy shop/peers waits for the list of the pods of Namespace shop";
    let pending = Verdict::Pending(waits.to_owned());
    assert_eq!(verdict(&policies, &index, 5), pending);
    assert_eq!(verdict(&policies, &index, 6), Verdict::Enforced);
    let told = |seconds| {
        let at = now + Duration::from_secs(seconds);
        policies.held_problems(at)
    };
    assert_eq!(told(30), [""; 0]);
    assert_eq!(told(31), [waits]);

    let scope = Collection::Pods(PodScope::Namespace("shop".to_owned()));
    for event in [Event::<Pod>::Init, Event::InitDone] {
        index.apply(&scope, event);
    }
    plan(&mut policies, &mut index, now);
    policies.came_in_force(&index);
    assert_eq!(verdict(&policies, &index, 5), Verdict::Enforced);
    assert_eq!(
        policies.held_problems(now + Duration::from_secs(60)),
        [""; 0]
    );
}

/// As where jobs have a namespace each, and one begins every few seconds.
#[test]
fn a_policy_that_waits_for_one_list_after_another_is_told_after_the_same_time() {
    let run_dir = tempfile::tempdir().unwrap();
    let mut policies = reconciler(PolicyMarker::new(run_dir.path()));
    let mut index = index_without_cluster_policies();
    let labels = || -> Labels { [("job".to_owned(), "yes".to_owned())].into() };
    let begins = |index: &mut PolicyIndex, name: &str| {
        let namespace = Namespace {
            name: name.to_owned(),
            labels: labels(),
            ..Namespace::default()
        };
        index.apply(&Collection::Namespaces, Event::Apply(namespace));
    };
    begins(&mut index, "shop");
    let local = own_pod(&mut index);
    index.planner.set_local(local);
    let now = Instant::now();
    plan(&mut policies, &mut index, now);
    policies.came_in_force(&index);

    let mut with_peers = policy();
    with_peers.ingress = vec![Rule {
        peers: vec![Peer::Pods {
            namespace: Some(LabelSelector {
                match_labels: labels().into_iter().collect(),
                ..LabelSelector::default()
            }),
            pod: None,
        }],
        ports: Vec::new(),
    }];
    index.apply(&Collection::NetworkPolicies, Event::Apply(with_peers));
    for (name, seconds) in [("shop", 0), ("b", 20), ("c", 40)] {
        begins(&mut index, name);
        let at = now + Duration::from_secs(seconds);
        plan(&mut policies, &mut index, at);
        policies.came_in_force(&index);
        let waits =
            format!("NetworkPolicy shop/deny waits for the list of the pods of Namespace {name}");
        let expected = if seconds > 30 {
            vec![waits.clone()]
        } else {
            Vec::new()
        };
        assert_eq!(policies.held_problems(at), expected);
        assert_eq!(index.planner.held(), [waits]);
        let scope = Collection::Pods(PodScope::Namespace(name.to_owned()));
        for event in [Event::<Pod>::Init, Event::InitDone] {
            index.apply(&scope, event);
        }
    }
}

/// Tells the index of the pod `web` of this node, and gives its record.
fn own_pod(index: &mut PolicyIndex) -> LocalPods {
    let pod = PodName {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    let object = Pod {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        ..Pod::default()
    };
    index.apply(&Collection::Pods(PodScope::Own), Event::Apply(object));
    let mut local = LocalPods::default();
    let address = "10.244.1.5".parse().unwrap();
    local.pods.insert(address, Some(pod.into()));
    local
}

/// Of an agent that starts on a node without rules of policies, where there are some.
#[test]
fn a_node_waits_until_its_first_policies_have_their_lists() {
    let run_dir = tempfile::tempdir().unwrap();
    let mut policies = reconciler(PolicyMarker::new(run_dir.path()));
    policies.unknown = Effect::NewPods;
    let mut index = index_without_cluster_policies();
    for event in [Event::<ClusterNetworkPolicy>::Init, Event::InitDone] {
        index.apply(&Collection::ClusterNetworkPolicies, event);
    }
    index.apply(
        &Collection::ClusterNetworkPolicies,
        Event::<ClusterNetworkPolicy>::Restored,
    );
    let namespace = Namespace {
        name: "shop".to_owned(),
        ..Namespace::default()
    };
    index.apply(&Collection::Namespaces, Event::Apply(namespace));
    let local = own_pod(&mut index);
    index.planner.begin(local.pods.clone());
    index.planner.set_local(local);
    let mut with_peers = policy();
    with_peers.ingress = from_every_pod();
    index.apply(&Collection::NetworkPolicies, Event::Apply(with_peers));
    let now = Instant::now();
    let mut plan = |index: &mut PolicyIndex| {
        let step = plan(&mut policies, index, now);
        policies.came_in_force(index);
        let reported = policies.has_reported(index);
        (step, reported, problems(&policies, index))
    };
    let (step, reported, found) = plan(&mut index);
    assert_eq!((step, reported), (Step::Full, false));
    assert_eq!(found, [(ProblemKind::PoliciesNotListed, Effect::NewPods)]);
    let scope = Collection::Pods(PodScope::Namespace("shop".to_owned()));
    for event in [Event::<Pod>::Init, Event::InitDone] {
        index.apply(&scope, event);
    }
    let (_, reported, found) = plan(&mut index);
    assert_eq!((reported, found), (true, Vec::new()));
}
