use tweed_component::explain::text;
use tweed_core::attachment::PodName;
use tweed_core::object::cluster_network_policy::{self, ClusterNetworkPolicy, Subject};
use tweed_core::object::network_policy::{NetworkPolicy, Peer, Port, PortMatch, Rule};
use tweed_core::object::node::{Node, NodeAddress};
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::{LabelSelector, Labels};
use tweed_core::object::{Event, namespace::Namespace};

use super::*;
use crate::policy::{LocalPods, PodScope};

const TCP: u8 = 6;

fn labels(app: &str) -> Labels {
    [("app".to_owned(), app.to_owned())].into()
}

fn pod(name: &str, address: &str) -> Pod {
    Pod {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        labels: labels(name),
        node: if address == API {
            "n2".to_owned()
        } else {
            "n1".to_owned()
        },
        addresses: vec![address.to_owned()],
        ..Pod::default()
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const WEB: &str = "10.244.1.5";
const DB: &str = "10.244.1.6";
const API: &str = "10.244.2.7";

fn node(name: &str, cidr: &str, own: &str) -> Node {
    Node {
        name: name.to_owned(),
        pod_cidrs: vec![cidr.to_owned()],
        addresses: vec![NodeAddress {
            kind: "InternalIP".to_owned(),
            address: own.to_owned(),
        }],
        ..Node::default()
    }
}

fn set_nodes(planner: &mut PolicyPlanner) {
    let nodes = nodes();
    let with_cidrs = nodes.iter().map(|node| {
        let cidrs = node.pod_cidrs.iter().map(|cidr| cidr.parse().unwrap());
        (node, cidrs.collect())
    });
    planner.set_nodes(with_cidrs);
}

fn nodes() -> Vec<Node> {
    vec![
        node("n1", "10.244.1.0/24", "192.0.2.1"),
        node("n2", "10.244.2.0/24", "192.0.2.2"),
    ]
}

/// Node n1 with web and db; api is on n2. Only api may reach port 5432 of db.
fn planner(policies: Vec<NetworkPolicy>) -> PolicyPlanner {
    let mut planner = PolicyPlanner::new("n1");
    let listed = |planner: &mut PolicyPlanner, scope: PodScope, pods: Vec<Pod>| {
        planner.apply_pods(&scope, Event::Init);
        for pod in pods {
            planner.apply_pods(&scope, Event::InitApply(pod));
        }
        planner.apply_pods(&scope, Event::InitDone);
    };
    set_nodes(&mut planner);
    planner.apply_namespaces(Event::Init);
    planner.apply_namespaces(Event::InitApply(Namespace {
        name: "shop".to_owned(),
        ..Namespace::default()
    }));
    planner.apply_namespaces(Event::InitDone);
    planner.apply_network_policies(Event::Init);
    for policy in policies {
        planner.apply_network_policies(Event::InitApply(policy));
    }
    planner.apply_network_policies(Event::InitDone);
    planner.apply_cluster_network_policies(Event::Init);
    planner.apply_cluster_network_policies(Event::InitDone);
    listed(
        &mut planner,
        PodScope::Own,
        vec![pod("web", WEB), pod("db", DB)],
    );
    let all = vec![pod("web", WEB), pod("db", DB), pod("api", API)];
    listed(&mut planner, PodScope::All, all);
    let name = |name: &str| {
        let name = PodName {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        };
        Some(name.into())
    };
    planner.set_local(LocalPods {
        pods: [
            (address(WEB), name("web")),
            (address(DB), name("db")),
            (address("10.244.1.9"), name("new")),
        ]
        .into(),
        ..LocalPods::default()
    });
    planner.plan();
    planner
}

fn only_api() -> NetworkPolicy {
    NetworkPolicy {
        namespace: "shop".to_owned(),
        name: "db".to_owned(),
        pod_selector: LabelSelector {
            match_labels: labels("db").into_iter().collect(),
            ..LabelSelector::default()
        },
        policy_types: vec!["Ingress".to_owned()],
        ingress: vec![Rule {
            peers: vec![Peer::Pods {
                namespace: None,
                pod: Some(LabelSelector {
                    match_labels: labels("api").into_iter().collect(),
                    ..LabelSelector::default()
                }),
            }],
            ports: vec![Port {
                protocol: "TCP".to_owned(),
                port: PortMatch::Range(5432, 5432),
            }],
        }],
        ..NetworkPolicy::default()
    }
}

fn end(name: &str) -> End {
    match name.parse() {
        Ok(address) => End::Address(address),
        Err(_) => End::Pod {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        },
    }
}

fn why(planner: &PolicyPlanner, from: &str, to: &str, port: u16) -> Result<String, ExplainError> {
    let why = Why {
        from: end(from),
        to: end(to),
        protocol: TCP,
        port: Some(port),
    };
    planner.explain(&why).map(|said| text(&said.steps()))
}

/// Whether an answer has all of these lines, in this order.
fn assert_says(said: &Result<String, ExplainError>, expected: &[&str]) {
    let said = said.as_ref().unwrap();
    let mut lines = said.lines();
    for line in expected {
        assert!(lines.any(|one| one.trim_start() == *line), "{line}\n{said}");
    }
}

fn packet_dropped(
    planner: &PolicyPlanner,
    ends: (&str, &str),
    port: u16,
    reason: DropReason,
) -> Dropped {
    planner.dropped((address(ends.0), address(ends.1)), (TCP, port), reason)
}

#[test]
fn a_flow_that_no_rule_allows_names_the_policy_and_what_the_kernel_holds() {
    let planner = planner(vec![only_api()]);
    let identity = planner
        .desired()
        .verdicts
        .identity(address(DB), address(WEB));
    let of_web = planner
        .desired()
        .verdicts
        .identity(address(WEB), address(DB));
    let expected = format!(
        "\
shop/web → shop/db, TCP port 5432, as node n1 knows it
10.244.1.5 → 10.244.1.6 is DENIED
  egress of the source is allowed: no policy selects the pod in this direction
    the plan for the kernel: enforced, not policed, identity of the other end {of_web}, no profile
  ingress of the destination is DENIED (NetworkPolicy shop/db): no rule allows it
    policies that select it: NetworkPolicy shop/db
    the plan for the kernel: enforced, policed, identity of the other end {identity}, no profile
"
    );
    assert_eq!(why(&planner, "web", "db", 5432).unwrap(), expected);
}

#[test]
fn an_allowed_flow_names_the_rule_and_the_node_that_decides_the_other_end() {
    let planner = planner(vec![only_api()]);
    let said = why(&planner, "api", "db", 5432);
    assert_says(
        &said,
        &[
            "10.244.2.7 → 10.244.1.6 is allowed as far as this node decides",
            "egress of the source is not decided on this node",
            "ingress of the destination is allowed (NetworkPolicy shop/db): rule 1",
            "note: 10.244.2.7 is a pod of node n2: ask there, or with a kubeconfig, what its own policies say",
        ],
    );
    assert!(said.unwrap().contains(", profile 0x"));
    let denied = "10.244.2.7 → 10.244.1.6 is DENIED";
    assert_says(&why(&planner, "api", "db", 80), &[denied]);
}

#[test]
fn what_a_policy_says_in_vain_is_a_note() {
    let mut policy = only_api();
    policy.ingress[0]
        .peers
        .push(Peer::Unknown("service".to_owned()));
    let planner = planner(vec![policy]);
    let in_vain =
        "note: NetworkPolicy shop/db: not all of this policy can be carried out: peer service";
    assert_says(&why(&planner, "web", "db", 5432), &[in_vain]);
    let other = why(&planner, "web", "api", 5432).unwrap();
    assert!(!other.contains(in_vain), "{other}");
}

#[test]
fn a_pod_that_is_not_known_yet_is_isolated() {
    let planner = planner(vec![only_api()]);
    let said = why(&planner, "web", "10.244.1.9", 80);
    let isolated = "ingress of the destination is ISOLATED, policies are not enforced for the pod yet: \
                    Pod shop/new is not known yet";
    assert_says(&said, &["10.244.1.5 → 10.244.1.9 is DENIED", isolated]);
    assert!(
        said.unwrap()
            .contains("the plan for the kernel: not enforced, ")
    );
}

#[test]
fn while_a_policy_waits_what_is_in_force_is_told_with_what_it_waits_for() {
    let mut other = only_api();
    other.pod_selector.match_labels = labels("other").into_iter().collect();
    let mut planner = planner(vec![other]);
    planner.drop_scope(&PodScope::All);
    planner.plan();
    planner.apply_network_policies(Event::Apply(only_api()));
    planner.plan();
    // A pod that is listed waits for nothing.
    let said = why(&planner, "web", "db", 5432);
    assert_says(&said, &["10.244.1.5 → 10.244.1.6 is DENIED"]);
    for (port, verdict) in [(5432, "allowed"), (80, "DENIED")] {
        let said = why(&planner, API, "db", port);
        let waits = format!(
            "ingress of the destination is {verdict}: NetworkPolicy shop/db waits for the list of \
             the pods of Namespace shop; until then the rules before decide what depends on it"
        );
        assert_says(&said, &[&waits]);
    }
}

/// Whether the policy that waits allows the packet or not, it did not drop it; nor is it
/// known yet that its source is a pod.
#[test]
fn while_a_policy_waits_no_policy_is_blamed_for_a_dropped_packet() {
    let mut other = only_api();
    other.name = "before".to_owned();
    other.ingress.clear();
    let mut planner = planner(vec![other.clone()]);
    planner.drop_scope(&PodScope::All);
    planner.plan();
    planner.apply_network_policies(Event::Apply(only_api()));
    planner.plan();
    let of_listed = packet_dropped(&planner, (WEB, DB), 5432, DropReason::PolicyIngress);
    assert_eq!(of_listed.policy, "NetworkPolicy shop/*", "{of_listed:?}");
    for (source, port) in [(API, 5432), (API, 80)] {
        let found = packet_dropped(&planner, (source, DB), port, DropReason::PolicyIngress);
        assert_eq!(found.policy, "unknown", "{found:?}");
        let waits = "NetworkPolicy shop/db waits for the list of the pods of Namespace shop; ";
        assert!(found.rule.starts_with(waits), "{found:?}");
    }
}

/// As after a restart: the kernel has the rules of the run before.
#[test]
fn before_the_first_plan_nothing_is_said_of_policies() {
    let mut planner = PolicyPlanner::new("n1");
    let said = |planner: &PolicyPlanner| {
        let found = packet_dropped(planner, (API, DB), 5432, DropReason::PolicyIngress);
        (found.policy, found.rule)
    };
    let unknown = |rule: &str| ("unknown".to_owned(), rule.to_owned());
    let nothing = "the rules before decide; nothing is planned yet";
    assert_eq!(said(&planner), unknown(nothing));
    let not_listed = why(&planner, "web", "db", 80).unwrap_err();
    assert_eq!(not_listed, ExplainError::NotListed);
    set_nodes(&mut planner);
    for event in [Event::Init, Event::InitApply(only_api()), Event::InitDone] {
        planner.apply_network_policies(event);
    }
    for event in [Event::Init, Event::InitDone] {
        planner.apply_cluster_network_policies(event);
    }
    planner.plan();
    let text = why(&planner, "web", "db", 80).unwrap_err().to_string();
    assert!(
        text.starts_with("the rules before decide; not listed yet: "),
        "{text}"
    );
    assert_eq!(said(&planner), unknown(&text));
}

#[test]
fn the_own_node_and_the_own_address_are_never_asked_about() {
    let planner = planner(vec![only_api()]);
    let exempt = |why: &str| {
        format!("ingress of the destination is allowed, policies are never asked here: {why}")
    };
    let from_node = exempt("a node always reaches its own pods");
    assert_says(&why(&planner, "192.0.2.1", "db", 80), &[&from_node]);
    let itself = exempt("a pod always reaches itself through a Service");
    let note = format!("note: {TO_ITSELF}");
    assert_says(&why(&planner, "db", "db", 80), &[&itself, &note]);
}

/// The kernel drops it: ClusterNetworkPolicies are about a pod to itself through a Service.
#[test]
fn a_pod_to_itself_that_a_cluster_policy_denies_is_denied() {
    let mut planner = planner(vec![only_api()]);
    planner.apply_cluster_network_policies(Event::Apply(ClusterNetworkPolicy {
        name: "quiet".to_owned(),
        tier: "Admin".to_owned(),
        subject: Subject::Namespaces(LabelSelector::default()),
        ingress: vec![cluster_network_policy::Rule {
            action: "Deny".to_owned(),
            peers: vec![cluster_network_policy::Peer::Namespaces(
                LabelSelector::default(),
            )],
            ..cluster_network_policy::Rule::default()
        }],
        ..ClusterNetworkPolicy::default()
    }));
    planner.plan();
    let said = why(&planner, "db", "db", 80);
    let note = format!("note: {TO_ITSELF}");
    let expected = [
        "egress of the source is allowed: no policy selects the pod in this direction",
        "ingress of the destination is DENIED (ClusterNetworkPolicy quiet): rule 1",
        &note,
    ];
    assert_says(&said, &expected);
    let said = said.unwrap();
    assert!(
        !said.contains(", profile"),
        "the kernel allows something\n{said}"
    );
}

#[test]
fn without_policies_that_is_the_answer_and_what_is_unknown_is_an_error() {
    let none = planner(Vec::new());
    let said = why(&none, "nobody", "db", 80).unwrap();
    let expected = "\
shop/nobody → shop/db, TCP port 80, as node n1 knows it
allowed: no policy exists in the cluster
";
    assert_eq!(said, expected);
    let some = planner(vec![only_api()]);
    let error = why(&some, "nobody", "db", 80).unwrap_err();
    assert!(error.to_string().contains("shop/nobody"), "{error}");
    let families = why(&some, "fd00::1", "db", 80).unwrap_err();
    assert_eq!(families, ExplainError::NoCommonFamily);
}

/// Its object stays, with the address that another pod may have by now.
#[test]
fn a_pod_that_has_ended_is_not_taken_for_whoever_has_its_address() {
    let mut planner = planner(vec![only_api()]);
    let job = Pod {
        finished: true,
        ..pod("job", WEB)
    };
    planner.apply_pods(&PodScope::All, Event::Apply(job));
    planner.plan();
    let error = why(&planner, "job", "db", 5432).unwrap_err();
    assert!(matches!(error, ExplainError::Ended(_)), "{error}");
    let error = why(&planner, "web", "job", 80).unwrap_err();
    assert!(error.to_string().contains("shop/job has ended"), "{error}");
}

#[test]
fn a_pod_on_the_hosts_network_is_a_note() {
    let mut planner = planner(vec![only_api()]);
    let host = Pod {
        host_network: true,
        ..pod("host", "192.0.2.2")
    };
    planner.apply_pods(&PodScope::All, Event::Apply(host));
    planner.plan();
    let note = "note: shop/host is on the host's network: no policy applies to it, and to others \
                it is its node";
    assert_says(&why(&planner, "host", "db", 5432), &[note]);
}

#[test]
fn a_dropped_packet_names_both_pods_and_the_policy() {
    let planner = planner(vec![only_api()]);
    let found = |reason| packet_dropped(&planner, (WEB, DB), 80, reason);
    let expected = Dropped {
        from: "shop/web".to_owned(),
        to: "shop/db".to_owned(),
        policy: "NetworkPolicy shop/db".to_owned(),
        rule: "no rule allows it".to_owned(),
    };
    assert_eq!(found(DropReason::PolicyIngress), expected);
    for reason in [DropReason::NotEnforced, DropReason::SpoofedSource] {
        let found = found(reason);
        assert_eq!((&*found.policy, &*found.rule), ("none", reason.text()));
    }
    // It is allowed by now: no policy is blamed.
    assert_eq!(found(DropReason::PolicyEgress).policy, "unknown");
}
