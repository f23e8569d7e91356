//! What a large cluster costs the planner of policy: prints figures and asserts none.
//!
//! `cargo test --release -p tweed-planner --test policy_scale -- --ignored --nocapture`

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "a test: figures are for a person"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tweed_core::attachment::PodName;
use tweed_core::object::Event;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{NetworkPolicy, Peer, Port, PortMatch, Rule};
use tweed_core::object::node::Node;
use tweed_core::object::pod::{NamedPort, Pod};
use tweed_core::object::selector::{LabelSelector, Labels};
use tweed_planner::policy::{Delta, LocalPods, PodScope, PolicyPlanner, Step};

const NAMESPACES: usize = 50;
const LOCAL: usize = 110;

fn labels(labels: &[(&str, String)]) -> Labels {
    let own = |(key, value): &(&str, String)| ((*key).to_owned(), value.clone());
    labels.iter().map(own).collect()
}

fn selector(selected: &[(&str, String)]) -> LabelSelector {
    LabelSelector {
        match_labels: labels(selected).into_iter().collect(),
        ..LabelSelector::default()
    }
}

fn pod(number: usize, workload: usize, node: &str, address: IpAddr) -> Pod {
    Pod {
        namespace: format!("namespace-{}", workload % NAMESPACES),
        name: format!("workload-{workload}-7d4b9c6f5-{number:05}"),
        uid: String::new(),
        created: Some(1_760_000_000 + number as i64),
        labels: labels(&[
            ("app.kubernetes.io/name", format!("workload-{workload}")),
            ("app.kubernetes.io/managed-by", "Helm".to_owned()),
            ("team", format!("team-{}", workload % 20)),
            ("tier", format!("tier-{}", workload % 4)),
            ("pod-template-hash", format!("{:010x}", workload * 7919)),
        ]),
        node: node.to_owned(),
        ports: vec![NamedPort {
            name: "http".to_owned(),
            protocol: "TCP".to_owned(),
            port: 8080,
        }],
        addresses: vec![address.to_string()],
        ..Pod::default()
    }
}

fn peer(number: usize, workloads: usize) -> Pod {
    let address = IpAddr::from([
        10,
        1 + (number >> 16) as u8,
        (number >> 8) as u8,
        number as u8,
    ]);
    pod(number, number % workloads, "other", address)
}

fn local(number: usize) -> Pod {
    let address = IpAddr::from([10, 0, 0, 2 + number as u8]);
    pod(1_000_000 + number, number * 9, "me", address)
}

/// The records of the local pods, and of others.
fn records(others: &[Pod]) -> LocalPods {
    records_of((0..LOCAL).map(local).chain(others.iter().cloned()))
}

fn records_of(pods: impl Iterator<Item = Pod>) -> LocalPods {
    let record = |pod: Pod| {
        let name = PodName {
            namespace: pod.namespace,
            name: pod.name,
        };
        (pod.addresses[0].parse().unwrap(), Some(name.into()))
    };
    LocalPods {
        pods: pods.map(record).collect::<BTreeMap<_, _>>(),
        ..LocalPods::default()
    }
}

/// One more pod of the workload of a local pod.
fn replica(number: usize) -> Pod {
    let address = IpAddr::from([10, 0, 1, 0]);
    pod(2_000_000 + number, number * 9, "me", address)
}

fn policy(number: usize) -> NetworkPolicy {
    let of = number * 9 % (LOCAL * 9);
    let named =
        |workload: usize| selector(&[("app.kubernetes.io/name", format!("workload-{workload}"))]);
    let pods = |namespace, pod| Peer::Pods { namespace, pod };
    let team = selector(&[("team", format!("team-{}", number % 20))]);
    let port = |port| Port {
        protocol: "TCP".to_owned(),
        port,
    };
    let exact = 1024 + (number % 40) as u16;
    let workload = |number: usize| {
        selector(&[(
            "app.kubernetes.io/name",
            format!("workload-{}", number % 1_000),
        )])
    };
    let mut rules = vec![
        Rule {
            peers: vec![pods(Some(LabelSelector::default()), Some(workload(number)))],
            ports: vec![port(PortMatch::Range(9, 9))],
        },
        Rule {
            peers: vec![pods(Some(LabelSelector::default()), Some(team))],
            ports: vec![port(PortMatch::Range(exact, exact))],
        },
        Rule {
            peers: vec![pods(None, Some(named(of + NAMESPACES)))],
            ports: vec![
                port(PortMatch::Range(8000, 8100)),
                port(PortMatch::Named("http".to_owned())),
            ],
        },
    ];
    if number < LOCAL {
        rules.push(Rule {
            peers: vec![pods(Some(LabelSelector::default()), None)],
            ports: vec![port(PortMatch::Range(10, 10))],
        });
    }
    if number.is_multiple_of(5) {
        rules.push(Rule {
            peers: vec![Peer::Block {
                cidr: format!("172.16.{}.0/24", number / 5 % 200),
                except: vec![format!("172.16.{}.128/25", number / 5 % 200)],
            }],
            ports: Vec::new(),
        });
    }
    NetworkPolicy {
        namespace: format!("namespace-{}", of % NAMESPACES),
        name: format!("policy-{number}"),
        pod_selector: named(of),
        policy_types: vec!["Ingress".to_owned(), "Egress".to_owned()],
        ingress: rules.clone(),
        egress: rules,
        ..NetworkPolicy::default()
    }
}

fn list<T>(objects: impl Iterator<Item = T>, mut apply: impl FnMut(Event<T>) -> bool) {
    apply(Event::Init);
    for object in objects {
        apply(Event::InitApply(object));
    }
    apply(Event::InitDone);
}

fn planner(peers: usize, workloads: usize, policies: usize) -> PolicyPlanner {
    let mut planner = PolicyPlanner::new("me");
    let namespaces = (0..NAMESPACES).map(|number| Namespace {
        name: format!("namespace-{number}"),
        labels: labels(&[("team", format!("team-{}", number % 20))]),
        ..Namespace::default()
    });
    list(namespaces, |event| planner.apply_namespaces(event));
    list((0..LOCAL).map(local), |event| {
        planner.apply_pods(&PodScope::Own, event)
    });
    let all = (0..peers).map(|number| peer(number, workloads));
    list(all, |event| planner.apply_pods(&PodScope::All, event));
    list((0..policies).map(policy), |event| {
        planner.apply_network_policies(event)
    });
    list(std::iter::empty(), |event| {
        planner.apply_cluster_network_policies(event)
    });
    let node = |name: &str| Node {
        name: name.to_owned(),
        ..Node::default()
    };
    let (me, other) = (node("me"), node("other"));
    let of_peers = vec!["10.0.0.0/8".parse().unwrap()];
    planner.set_nodes([(&me, Vec::new()), (&other, of_peers)]);
    planner.set_local(records(&[]));
    planner
}

/// The time that this thread has had a CPU: other work of the machine is not in it.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Resident memory in MiB.
fn memory() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages / 256.0
}

fn size(Delta { verdicts, ports }: &Delta) -> usize {
    let addresses = verdicts.identities.len() + verdicts.networks.len() + verdicts.enforced.len();
    let pairs = verdicts.pairs.ingress.len() + verdicts.pairs.egress.len();
    addresses + pairs + ports.exact.len() + ports.ranges.len() + ports.range_profiles.len()
}

/// Times changes, and prints their mean: the kernel counts CPU time by ticks.
fn measure(
    what: &str,
    planner: &mut PolicyPlanner,
    times: usize,
    change: impl Fn(&mut PolicyPlanner, usize),
) {
    let mut elements = 0;
    let begun = cpu_time();
    for number in 0..times {
        change(planner, number);
        match planner.plan() {
            Step::Delta(delta) => elements = elements.max(size(&delta)),
            Step::Unchanged => {}
            other => panic!("{what}: {other:?}"),
        }
    }
    let mean = (cpu_time() - begun) / times as u32;
    println!("{what}: {mean:?}, at most {elements} elements");
}

#[test]
#[ignore = "prints figures for a person; it asserts nothing about them"]
fn a_node_of_110_pods_with_1000_policies_and_10000_peers() {
    let mut planner = planner(10_000, 1_000, 1_000);
    let begun = cpu_time();
    assert_eq!(planner.plan(), Step::Full);
    let took = cpu_time() - begun;
    let desired = planner.desired();
    let pairs = desired.verdicts.pairs.ingress.len() + desired.verdicts.pairs.egress.len();
    println!(
        "full plan: {took:?}; {} identities, {} networks, {pairs} pairs, {} exact, {} ranges; {:.0} MiB",
        desired.verdicts.identities.len(),
        desired.verdicts.networks.len(),
        desired.ports.exact.len(),
        desired.ports.ranges.len(),
        memory(),
    );
    measure(
        "a peer pod comes",
        &mut planner,
        1_000,
        |planner, number| {
            planner.apply_pods(&PodScope::All, Event::Apply(peer(20_000 + number, 1_000)));
        },
    );
    measure(
        "a peer pod of a new workload comes",
        &mut planner,
        200,
        |planner, number| {
            let mut pod = peer(30_000 + number, 1_000);
            pod.labels
                .insert("pod-template-hash".to_owned(), format!("new-{number}"));
            planner.apply_pods(&PodScope::All, Event::Apply(pod));
        },
    );
    measure("a peer pod goes", &mut planner, 1_000, |planner, number| {
        let key = tweed_core::object::Object::key(&peer(20_000 + number, 1_000));
        planner.apply_pods(&PodScope::All, Event::Delete(key));
    });
    measure("a policy comes", &mut planner, 100, |planner, number| {
        planner.apply_network_policies(Event::Apply(policy(1_000 + number)));
    });
    measure("a policy goes", &mut planner, 100, |planner, number| {
        let key = tweed_core::object::Object::key(&policy(1_000 + number));
        planner.apply_network_policies(Event::Delete(key));
    });
    measure(
        "a local pod gets other labels",
        &mut planner,
        50,
        |planner, number| {
            let mut pod = local(number);
            pod.labels.insert("version".to_owned(), "2".to_owned());
            planner.apply_pods(&PodScope::Own, Event::Apply(pod));
        },
    );
    for number in 0..LOCAL {
        planner.apply_pods(&PodScope::Own, Event::Apply(replica(number)));
    }
    planner.plan();
    measure(
        "a local pod is added, or deleted in the next change",
        &mut planner,
        2 * LOCAL,
        |planner, number| {
            let added = (number % 2 == 0).then(|| replica(number / 2));
            planner.set_local(records(added.as_slice()));
        },
    );
    measure(
        "a namespace gets other labels",
        &mut planner,
        50,
        |planner, number| {
            planner.apply_namespaces(Event::Apply(Namespace {
                name: format!("namespace-{number}"),
                ..Namespace::default()
            }));
        },
    );
}

/// Each of the policies here has a selector of namespaces of its own, which finds one.
#[test]
#[ignore = "prints figures for a person; it asserts nothing about them"]
fn a_cluster_of_10000_namespaces() {
    const SELECTORS: usize = 15;
    let tenant = |number: usize| {
        let keys = ["owner", "stage", "region", "cost-center", "class"];
        let others = keys.map(|key| (key, format!("{key}-{}", number % 7)));
        let own = [("tenant", format!("tenant-{number}"))];
        Namespace {
            name: format!("tenant-{number}"),
            labels: labels(&[&others[..], &own[..]].concat()),
            ..Namespace::default()
        }
    };
    let mut planner = planner(0, 1, 0);
    for number in 0..10_000 {
        planner.apply_namespaces(Event::Apply(tenant(number)));
    }
    let of_tenant = |number: usize| NetworkPolicy {
        ingress: vec![Rule {
            peers: vec![Peer::Pods {
                namespace: Some(selector(&[("tenant", format!("tenant-{number}"))])),
                pod: None,
            }],
            ports: Vec::new(),
        }],
        egress: Vec::new(),
        ..policy(number)
    };
    for number in 0..SELECTORS {
        planner.apply_network_policies(Event::Apply(of_tenant(number)));
    }
    assert_eq!(planner.plan(), Step::Full);
    measure(
        "one of 10,000 namespaces gets other labels",
        &mut planner,
        50,
        |planner, number| {
            let mut namespace = tenant(5_000 + number);
            namespace.labels.insert("a".to_owned(), "b".to_owned());
            planner.apply_namespaces(Event::Apply(namespace));
        },
    );
    measure("a policy changes", &mut planner, 50, |planner, number| {
        let mut policy = of_tenant(number % SELECTORS);
        policy.ingress[0].ports = vec![Port {
            protocol: "TCP".to_owned(),
            port: PortMatch::Range(80 + number as u16, 80 + number as u16),
        }];
        planner.apply_network_policies(Event::Apply(policy));
    });
}

#[test]
#[ignore = "prints figures for a person; it asserts nothing about them"]
fn the_index_of_150000_pods() {
    let before = memory();
    let mut planner = planner(150_000, 15_000, 100);
    let index = memory();
    let begun = cpu_time();
    assert_eq!(planner.plan(), Step::Full);
    let took = cpu_time() - begun;
    println!(
        "150,000 pods of 15,000 workloads: index {:.0} MiB; planned in {took:?}, {:.0} MiB",
        index - before,
        memory() - before,
    );
}

/// A policy of one namespace whose rules are each about everything but one address, with a
/// port of its own. Whoever may write policies can write it.
#[test]
#[ignore = "prints figures for a person; it asserts nothing about them"]
fn rules_of_which_each_has_all_addresses_but_one() {
    for rules in [250, 450, 1_000, 10_000] {
        let rule = |number: usize| {
            let but = IpAddr::from([198, 18, (number >> 8) as u8, number as u8]);
            Rule {
                peers: vec![Peer::Block {
                    cidr: "0.0.0.0/0".to_owned(),
                    except: vec![format!("{but}/32")],
                }],
                ports: vec![Port {
                    protocol: "TCP".to_owned(),
                    port: PortMatch::Range(1 + 2 * number as u16, 1 + 2 * number as u16),
                }],
            }
        };
        let mut planner = planner(0, 1, LOCAL);
        planner.plan();
        let before = memory();
        planner.apply_network_policies(Event::Apply(NetworkPolicy {
            policy_types: vec!["Ingress".to_owned()],
            ingress: (0..rules).map(rule).collect(),
            egress: Vec::new(),
            ..policy(0)
        }));
        let begun = cpu_time();
        planner.plan();
        let took = cpu_time() - begun;
        let desired = planner.desired();
        println!(
            "{rules} rules: {took:?}, {} networks, {} exact, {} ranges; {:.0} MiB more",
            desired.verdicts.networks.len(),
            desired.ports.exact.len(),
            desired.ports.ranges.len(),
            memory() - before,
        );
    }
}

/// Policies of one namespace of which each rule is about the pods with one value of one of
/// twelve labels, with a port of its own: a profile of thousands of ports for each pod.
#[test]
#[ignore = "prints figures for a person; it asserts nothing about them"]
fn rules_for_each_bit_of_the_labels_of_pods() {
    const BITS: usize = 12;
    for (policies, rules) in [(100, 100), (300, 200)] {
        let before = memory();
        let mut planner = planner(0, 1, 0);
        let of_tenant = |number: usize| {
            let bits =
                (0..BITS).map(|at| (format!("b{at}"), (((number * 37) >> at) & 1).to_string()));
            let mut pod = local(number);
            pod.namespace = "namespace-0".to_owned();
            pod.labels.extend(bits);
            pod
        };
        for number in 0..LOCAL {
            planner.apply_pods(&PodScope::Own, Event::Apply(of_tenant(number)));
        }
        planner.set_local(records_of((0..LOCAL).map(of_tenant)));
        let rule = |policy: usize, number: usize| {
            let key = format!("b{}", number % BITS);
            let value = ((policy + number / BITS) & 1).to_string();
            let port = 1 + (policy * rules + number) as u16;
            Rule {
                peers: vec![Peer::Pods {
                    namespace: None,
                    pod: Some(selector(&[(&key, value)])),
                }],
                ports: vec![Port {
                    protocol: "TCP".to_owned(),
                    port: PortMatch::Range(port, port),
                }],
            }
        };
        let policy = |number: usize| NetworkPolicy {
            namespace: "namespace-0".to_owned(),
            name: format!("policy-{number}"),
            policy_types: vec!["Ingress".to_owned()],
            ingress: (0..rules).map(|at| rule(number, at)).collect(),
            ..NetworkPolicy::default()
        };
        for number in 0..policies {
            planner.apply_network_policies(Event::Apply(policy(number)));
        }
        let begun = cpu_time();
        assert_eq!(planner.plan(), Step::Full);
        let (took, exact) = (cpu_time() - begun, planner.desired().ports.exact.len());
        let more = memory() - before;
        println!("{policies} policies of {rules} rules: {took:?}; {exact} exact; {more:.0} MiB");
        measure(
            "one of them changes",
            &mut planner,
            20,
            |planner, number| {
                let mut policy = policy(number);
                policy.ingress[0].ports[0].port = PortMatch::Range(60_001, 60_001);
                planner.apply_network_policies(Event::Apply(policy));
            },
        );
    }
}
