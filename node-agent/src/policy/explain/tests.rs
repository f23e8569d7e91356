use tweed_core::agent_socket::why::protocol_name;
use tweed_core::attachment::PodName;
use tweed_core::object::cluster_network_policy::{self, ClusterNetworkPolicy, Subject};
use tweed_core::object::network_policy::{NetworkPolicy, Peer, Port, PortMatch, Rule};
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::{LabelSelector, Labels};
use tweed_core::object::{Event, namespace::Namespace};
use tweed_planner::policy::{LocalPods, PodScope};

use super::*;
use crate::packet::{Detail, TCP};

fn labels(app: &str) -> Labels {
    [("app".to_owned(), app.to_owned())].into()
}

fn pod(name: &str, address: &str) -> Pod {
    Pod {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        labels: labels(name),
        node: match address == API {
            true => "n2".to_owned(),
            false => "n1".to_owned(),
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
        addresses: vec![tweed_core::object::node::NodeAddress {
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
            match_labels: labels("db"),
            ..LabelSelector::default()
        },
        policy_types: vec!["Ingress".to_owned()],
        ingress: vec![Rule {
            peers: vec![Peer::Pods {
                namespace: None,
                pod: Some(LabelSelector {
                    match_labels: labels("api"),
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

fn why(
    planner: &PolicyPlanner,
    from: &str,
    to: &str,
    port: u16,
) -> Result<Explained, ExplainError> {
    let why = Why {
        from: end(from),
        to: end(to),
        protocol: TCP,
        port: Some(port),
    };
    answer(planner, &nodes(), &why)
}

#[test]
fn a_flow_that_no_rule_allows_names_the_policy_and_what_the_kernel_holds() {
    let planner = planner(vec![only_api()]);
    let explained = why(&planner, "web", "db", 5432).unwrap();
    let flow = &explained.flows[0];
    assert_eq!((explained.node.as_str(), explained.in_force), ("n1", true));
    assert_eq!(flow.egress.verdict, Verdict::Open);
    assert_eq!(flow.ingress.verdict, Verdict::Denied);
    assert_eq!(flow.ingress.policies, ["NetworkPolicy shop/db"]);
    assert_eq!(
        flow.ingress.policy.as_deref(),
        Some("NetworkPolicy shop/db")
    );
    assert_eq!(flow.ingress.rule.as_deref(), Some("no rule allows it"));
    let held = flow.ingress.kernel.unwrap();
    assert!(held.judged && held.policed);
    assert_eq!(explained.hints, Vec::<String>::new());
}

#[test]
fn an_allowed_flow_names_the_rule_and_the_node_that_decides_the_other_end() {
    let planner = planner(vec![only_api()]);
    let explained = why(&planner, "api", "db", 5432).unwrap();
    let flow = &explained.flows[0];
    assert_eq!(flow.egress.verdict, Verdict::NotHere);
    assert_eq!(flow.ingress.verdict, Verdict::Allowed);
    assert_eq!(flow.ingress.rule.as_deref(), Some("rule 1"));
    assert!(flow.ingress.kernel.unwrap().profile.is_some());
    assert!(explained.hints[0].contains("shop/api is a pod of node n2"));
    let other = why(&planner, "api", "db", 80).unwrap();
    assert_eq!(other.flows[0].ingress.verdict, Verdict::Denied);
}

#[test]
fn what_a_policy_says_in_vain_is_a_hint() {
    let mut policy = only_api();
    policy.ingress[0]
        .peers
        .push(Peer::Unknown("service".to_owned()));
    let planner = planner(vec![policy]);
    let hints = |to| why(&planner, "web", to, 5432).unwrap().hints;
    let in_vain = "NetworkPolicy shop/db: not all of this policy can be carried out: peer service";
    assert_eq!(hints("db"), [in_vain]);
    assert!(!hints("api").iter().any(|hint| hint == in_vain));
}

#[test]
fn a_pod_that_is_not_known_yet_is_isolated() {
    let planner = planner(vec![only_api()]);
    let explained = why(&planner, "web", "10.244.1.9", 80).unwrap();
    assert_eq!(explained.flows[0].ingress.verdict, Verdict::Isolated);
    assert!(!explained.flows[0].ingress.kernel.unwrap().judged);
}

#[test]
fn while_a_policy_waits_what_is_in_force_is_told_with_what_it_waits_for() {
    let mut other = only_api();
    other.pod_selector.match_labels = labels("other");
    let mut planner = planner(vec![other]);
    planner.drop_scope(&PodScope::All);
    planner.plan();
    planner.apply_network_policies(Event::Apply(only_api()));
    planner.plan();
    let mut in_force = Vec::new();
    for port in [5432, 80] {
        let explained = why(&planner, "web", "db", port).unwrap();
        let ingress = &explained.flows[0].ingress;
        let rule = ingress.rule.as_deref().unwrap();
        let waits = "NetworkPolicy shop/db waits for the list of the pods of Namespace shop; ";
        assert!(rule.starts_with(waits), "{rule}");
        in_force.push(ingress.verdict);
        let egress = &explained.flows[0].egress;
        assert_eq!((egress.verdict, &egress.rule), (Verdict::Open, &None));
    }
    assert_eq!(in_force, [Verdict::Allowed, Verdict::Denied]);
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
    for (source, port) in [(API, 5432), (WEB, 5432), (API, 80)] {
        let headers = Headers {
            source: address(source),
            destination: address(DB),
            protocol: TCP,
            detail: Detail::Ports(1024, port),
        };
        let found = dropped(&planner, &headers, Some(Direction::In));
        assert_eq!(found.policy, "unknown", "{found:?}");
        let waits = "NetworkPolicy shop/db waits for the list of the pods of Namespace shop; ";
        assert!(found.rule.starts_with(waits), "{found:?}");
    }
}

/// As after a restart: the kernel has the rules of the run before.
#[test]
fn before_the_first_plan_nothing_is_said_of_policies() {
    let mut planner = PolicyPlanner::new("n1");
    let headers = Headers {
        source: address(API),
        destination: address(DB),
        protocol: TCP,
        detail: Detail::Ports(1024, 5432),
    };
    let said = |planner: &PolicyPlanner| {
        let found = dropped(planner, &headers, Some(Direction::In));
        (found.policy, found.rule)
    };
    let unknown = |rule: &str| ("unknown".to_owned(), rule.to_owned());
    let nothing = "the rules before decide; nothing is planned yet";
    assert_eq!(said(&planner), unknown(nothing));
    assert_eq!(unplanned(&planner), None);
    set_nodes(&mut planner);
    for event in [Event::Init, Event::InitApply(only_api()), Event::InitDone] {
        planner.apply_network_policies(event);
    }
    for event in [Event::Init, Event::InitDone] {
        planner.apply_cluster_network_policies(event);
    }
    planner.plan();
    let text = unplanned(&planner).unwrap();
    assert!(
        text.starts_with("the rules before decide; not listed yet: "),
        "{text}"
    );
    assert_eq!(said(&planner), unknown(&text));
}

#[test]
fn the_own_node_and_the_own_address_are_never_asked_about() {
    let planner = planner(vec![only_api()]);
    let from_node = why(&planner, "192.0.2.1", "db", 80).unwrap();
    assert_eq!(from_node.flows[0].ingress.verdict, Verdict::Exempt);
    let to_itself = why(&planner, "db", "db", 80).unwrap();
    assert_eq!(to_itself.flows[0].ingress.verdict, Verdict::Exempt);
    assert_eq!(to_itself.hints, [TO_ITSELF]);
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
    let explained = why(&planner, "db", "db", 80).unwrap();
    let Side {
        verdict,
        policy,
        kernel,
        ..
    } = &explained.flows[0].ingress;
    assert_eq!(*verdict, Verdict::Denied);
    assert_eq!(policy.as_deref(), Some("ClusterNetworkPolicy quiet"));
    assert_eq!(kernel.unwrap().profile, None, "the kernel allows nothing");
    assert_eq!(explained.flows[0].egress.verdict, Verdict::Open);
    assert_eq!(explained.hints, [TO_ITSELF]);
}

#[test]
fn without_policies_that_is_the_answer_and_what_is_unknown_is_an_error() {
    let none = planner(Vec::new());
    let explained = why(&none, "nobody", "db", 80).unwrap();
    assert!(!explained.in_force && explained.flows.is_empty());
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
    assert!(matches!(error, ExplainError::Ended { .. }), "{error}");
    let error = why(&planner, "web", "job", 80).unwrap_err();
    assert!(error.to_string().contains("shop/job has ended"), "{error}");
}

#[test]
fn a_dropped_packet_names_both_pods_and_the_policy() {
    let planner = planner(vec![only_api()]);
    let headers = Headers {
        source: address(WEB),
        destination: address(DB),
        protocol: TCP,
        detail: Detail::Ports(1024, 80),
    };
    let found = dropped(&planner, &headers, Some(Direction::In));
    let expected = Dropped {
        from: "shop/web".to_owned(),
        to: "shop/db".to_owned(),
        policy: "NetworkPolicy shop/db".to_owned(),
        rule: "no rule allows it".to_owned(),
    };
    assert_eq!(found, expected);
    assert_eq!(dropped(&planner, &headers, None).policy, "none");
    // It is allowed by now: no policy is blamed.
    let allowed = dropped(&planner, &headers, Some(Direction::Out));
    assert_eq!(allowed.policy, "unknown");
    assert_eq!(protocol_name(headers.protocol), "TCP");
}
