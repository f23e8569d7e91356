//! Policy judges the pod behind the Service.

use tweed_core::family::Family;
use tweed_nft::inet_tweed::{Components, Wanted};
use tweed_planner::policy::desired::{Desired as Policies, Direction, Span};
use tweed_planner::services::desired::Target;

use super::lab::{Answer, FAMILIES, Lab, NEIGHBOUR, POD, SERVICE, Servers};
use super::plan::{PROTOCOLS, Plan, TCP, UDP, endpoint, group};
use crate::node::NOTHING;
use crate::policy::plan::{Plan as PolicyPlan, identity, profile};
use crate::script::write_script;
use crate::wires::ruleset;

/// Two frontends that lead to two ports of one pod.
pub(super) fn services() -> Plan {
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        for (port, real) in [(80, 8080), (81, 8081)] {
            let target = group(4 * number + u32::from(port - 80));
            plan = plan.endpoints(target, &[endpoint(NEIGHBOUR.of(family), real)]);
            for protocol in PROTOCOLS {
                plan = plan.cluster_ip(protocol, SERVICE.port(family, port), target);
            }
        }
    }
    plan
}

/// What answers at these two ports.
pub(super) fn servers(lab: &Lab) -> Servers {
    let mut servers = Servers::new();
    for family in FAMILIES {
        for port in [8080, 8081] {
            servers = servers.add(&lab.0.neighbour, "neighbour", NEIGHBOUR.port(family, port));
        }
    }
    servers
}

/// The pod may reach the port 8080 behind, and no other.
pub(super) fn policies() -> Policies {
    let both = |address: super::lab::Addresses| FAMILIES.map(|family| address.of(family));
    let judged = [both(POD), both(NEIGHBOUR)].concat();
    let plan = PolicyPlan::new(&judged)
        .identity(&both(POD), identity(0))
        .identity(&both(NEIGHBOUR), identity(1))
        .policed(Direction::In, &both(NEIGHBOUR))
        .pair(Direction::In, &both(NEIGHBOUR), identity(0), profile(0))
        .policed(Direction::Out, &both(POD))
        .pair(Direction::Out, &both(POD), identity(1), profile(0));
    plan.exact(profile(0), TCP, 8080)
        .exact(profile(0), UDP, 8080)
        .0
}

/// Makes the table so, of which nothing is trusted. Gives the error, and whether what is
/// planned of policy and of Services is known to be in the table.
fn make(lab: &Lab, policy: Policies, services: Plan) -> (Option<String>, [bool; 2]) {
    lab.0.with(move |table| {
        table.forget_policy();
        table.forget_services();
        let components = Components {
            policy: Wanted::As(&policy),
            log: false,
            services: Wanted::As(&services.0),
        };
        let made = table.reconcile_all(&ruleset(), &components, false);
        let error = made.err().map(|error| error.to_string());
        (error, [table.knows_policy(), table.knows_services()])
    })
}

/// As long as that lasts, endpoints that are gone must not stay in the maps.
#[test]
fn services_are_written_though_policy_is_refused() {
    let lab = Lab::new();
    let addresses = || lab.0.node.sh("nft list map inet tweed service_targets4");
    assert_eq!(make(&lab, policies(), services()), (None, [true, true]));
    assert!(addresses().contains("10.96.0.1"), "{}", addresses());
    // No kernel takes networks that overlap.
    let mut refused = policies();
    for (last, number) in [("10.1.255.255", identity(0)), ("10.2.0.7", identity(1))] {
        let (first, last) = ("10.1.0.9".parse().unwrap(), last.parse().unwrap());
        refused.networks.insert(Span { first, last }, number);
    }
    let (error, knows) = make(&lab, refused, Plan::new());
    assert!(error.is_some());
    assert_eq!(knows, [false, true]);
    assert!(!addresses().contains("10.96.0.1"), "{}", addresses());
    // A change does not wait for the next look at all of it.
    lab.follow(&Plan::new().0, &services().0);
    assert!(addresses().contains("10.96.0.1"), "{}", addresses());
}

/// What tells the client has the Service's address, which no policy can name.
#[test]
fn a_pod_that_may_not_send_there_is_told_that_a_service_has_no_endpoints() {
    let lab = Lab::new();
    let mut plan = Plan::new();
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let empty = SERVICE.port(family, 82);
            plan = plan.cluster_ip(protocol, empty, Target::Reject);
        }
    }
    assert_eq!(make(&lab, policies(), plan), (None, [true, true]));
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let to = SERVICE.port(family, 82);
            assert_eq!(lab.ask(&lab.0.pod, protocol, to), Answer::Refused, "{to}");
        }
    }
}

/// A version of nft, or a kernel, that does not take rules with this word: another agent
/// works with it from now on.
fn refuse(lab: &Lab, word: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let nft = folder.path().join("nft");
    let input = folder.path().join("input").display().to_string();
    let script = format!(
        "#!/bin/sh\ncat >{input}\nif grep {word} {input} >&2; then exit 1; fi\n\
         exec nft -f {input}\n"
    );
    write_script(&nft, &script);
    lab.0.restart_with(&nft);
    folder
}

#[test]
fn policy_is_written_though_the_rules_of_services_are_refused() {
    let lab = Lab::new();
    let _folder = refuse(&lab, "service_affinity_groups");
    let judged = |policy: Policies| {
        let (error, knows) = make(&lab, policy, services());
        assert!(error.unwrap().contains("service_affinity_groups"));
        assert_eq!(knows, [true, false]);
        lab.0.node.sh("nft list set inet tweed policy_judged4")
    };
    assert!(judged(policies()).contains("10.244.1.6"));
    let entry = || lab.0.node.sh("nft list map inet tweed policy_entry");
    let before = entry();
    judged(policies());
    // What is refused has replaced nothing, so no flow has to be judged anew.
    assert_eq!(entry(), before);
    let mut fewer = policies();
    fewer.judged.remove(&NEIGHBOUR.of(Family::V4));
    assert!(!judged(fewer).contains("10.244.1.6"));
}

/// The sets of a new table are filled before its rules come: those that no rule uses must not
/// be taken for Services that are in force.
#[test]
fn a_new_table_whose_rules_of_services_are_refused_has_nothing_of_them() {
    let lab = Lab::new();
    lab.0.node.sh("nft delete table inet tweed");
    let _folder = refuse(&lab, "service_unsettled.drop");
    let (error, knows) = make(&lab, policies(), services());
    assert!(error.unwrap().contains("service_unsettled"));
    assert_eq!(knows, [true, false]);
    let table = lab.0.node.sh("nft list table inet tweed");
    assert!(!table.contains("service_targets4"), "{table}");
    assert!(table.contains("goto from_pod"), "{table}");
}

#[test]
fn services_are_written_though_the_rules_of_policy_are_refused() {
    let lab = Lab::new();
    lab.reconcile(&Plan::new());
    let _folder = refuse(&lab, "policy_entry");
    lab.reconcile(&Plan::new());
    let sets = || {
        let text = lab.0.node.sh("nft -s -a list table inet tweed");
        let is_set = |line: &&str| line.contains("# handle") && line.contains("service_");
        let sets = text.lines().filter(is_set).map(str::to_owned);
        sets.collect::<Vec<_>>()
    };
    let before = sets();
    let addresses = |services: Plan| {
        let (error, knows) = make(&lab, policies(), services);
        assert!(error.unwrap().contains("policy_entry"));
        assert_eq!(knows, [false, true]);
        lab.0.node.sh("nft list map inet tweed service_targets4")
    };
    assert!(addresses(services()).contains("10.96.0.1"));
    assert!(!addresses(Plan::new()).contains("10.96.0.1"));
    lab.follow(&Plan::new().0, &services().0);
    assert_eq!(sets(), before, "the table stays");
}

/// Its elements alone are not what is planned.
#[test]
fn policy_is_not_known_as_planned_while_its_new_rules_are_refused() {
    let lab = Lab::new();
    let _folder = refuse(&lab, "log.prefix");
    let with_log = |log: bool| {
        lab.0.with(move |table| {
            let components = Components {
                policy: Wanted::As(&policies()),
                log,
                ..Components::default()
            };
            let made = table.reconcile_all(&ruleset(), &components, false);
            (made.is_ok(), table.knows_policy())
        })
    };
    assert_eq!(with_log(false), (true, true));
    assert_eq!(with_log(true), (false, false));
    assert_eq!(with_log(false), (true, true));
}

#[test]
fn the_pod_behind_a_service_is_judged_and_both_are_kept_over_a_restart() {
    let lab = Lab::new();
    let servers_of_pod = servers(&lab);
    let (plan, policy) = (services(), policies());
    let reconcile = |wanted: bool| {
        let (services, policy) = (plan.0.clone(), policy.clone());
        lab.0.with(move |table| {
            let components = Components {
                policy: if wanted {
                    Wanted::As(&policy)
                } else {
                    Wanted::AsItIs
                },
                log: false,
                services: if wanted {
                    Wanted::As(&services)
                } else {
                    Wanted::AsItIs
                },
            };
            table.reconcile_all(&ruleset(), &components, false).unwrap()
        })
    };
    let dropped = || {
        let dropped = lab.0.with(|table| table.dropped().unwrap()).unwrap();
        dropped.ingress + dropped.egress
    };
    let holds = || {
        for family in FAMILIES {
            for protocol in PROTOCOLS {
                let to = |port| SERVICE.port(family, port);
                assert_eq!(lab.name(&lab.0.pod, protocol, to(80)), "neighbour");
                let before = dropped();
                assert!(!answers(&lab, to(81), || dropped() > before));
            }
        }
    };
    reconcile(true);
    holds();
    assert_eq!(reconcile(true), NOTHING);
    lab.0.restart();
    // Nothing is known yet: both stay as they are.
    assert_eq!(reconcile(false), NOTHING);
    holds();
    assert_eq!(reconcile(true), NOTHING);
    holds();
    // Without one of them the other goes on, in the same sets: what is made anew has another
    // handle.
    let sets = |of: &str| {
        let sets = format!("nft -a list table inet tweed | grep -E '^.(set|map) {of}_'");
        lab.0.node.sh(sets)
    };
    let without = |policy: Option<Policies>, services: Option<Plan>| {
        lab.0.with(move |table| {
            let components = Components {
                policy: policy.as_ref().map_or(Wanted::No, Wanted::As),
                log: false,
                services: services
                    .as_ref()
                    .map_or(Wanted::No, |plan| Wanted::As(&plan.0)),
            };
            table.reconcile_all(&ruleset(), &components, false).unwrap()
        })
    };
    let kept = sets("service");
    without(None, Some(plan.clone()));
    assert_eq!(sets("service"), kept);
    reconcile(true);
    let kept = sets("policy");
    without(Some(policy.clone()), None);
    assert_eq!(sets("policy"), kept);
    let table = lab.0.node.sh("nft -s list table inet tweed");
    assert!(!table.contains("service") && table.contains("policy_judged4"));
    let direct = |port| NEIGHBOUR.port(Family::V4, port);
    let before = dropped();
    assert!(!answers(&lab, direct(8081), || dropped() > before));
    assert!(answers(&lab, direct(8080), || false));
    drop(servers_of_pod);
}

/// Whether a connection from the pod is answered, before `drops` says that it was dropped.
pub(super) fn answers(
    lab: &Lab,
    to: std::net::SocketAddr,
    mut drops: impl FnMut() -> bool,
) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < super::lab::PATIENCE {
        if let Some(answer) = lab.0.pod.run(move || super::lab::ask_tcp(to)) {
            assert!(matches!(answer, Answer::From(..)), "{answer:?}");
            return true;
        }
        if drops() {
            return false;
        }
    }
    panic!("neither answered nor dropped: {to}");
}
