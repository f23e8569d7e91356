//! Policies on a node with local pods: packets pass or are dropped as they say,
//! whatever happens to the agent and the table.

mod ask;
mod follow;
mod gate;
pub mod manifests;
pub mod refused;
mod why;

use std::io::{Read as _, Write as _};
use std::time::Duration;

use tweed_agent::agent::Ending;

use crate::node::{Agent, Node, eventually, run};
use crate::traffic_pod::{TrafficPod, connects};
use manifests::{admin_deny, allow, cluster, default_deny, pod, policy};

/// A node with two local pods, `a` and `b`, that its source describes.
struct Scene {
    node: Node,
    a: TrafficPod,
    b: TrafficPod,
}

impl Scene {
    fn new(policies: &[String]) -> Self {
        let node = Node::new();
        std::fs::create_dir_all(node.path("run")).unwrap();
        let scene = Self {
            a: TrafficPod::add(&node, "a", 5),
            b: TrafficPod::add(&node, "b", 6),
            node,
        };
        scene.apply(policies);
        scene
    }

    /// Writes the manifests of both pods and `documents`.
    fn apply(&self, documents: &[String]) {
        let pods = [pod("a", 5), pod("b", 6)];
        self.node
            .write_nodes(&cluster(&[&pods, documents].concat()));
    }

    fn start(&self, flags: &[&str]) -> Agent {
        let agent = self.node.start(flags);
        agent.ready();
        agent
    }
}

/// The table without counters, with the handles that show what was made anew.
fn table() -> String {
    run("nft", "-s -a list table inet tweed-policy")
}

#[test]
fn a_policy_that_comes_changes_and_goes_decides_on_packets() {
    let scene = Scene::new(&[]);
    let (a, b) = (&scene.a, &scene.b);
    let agent = scene.start(&[]);
    a.eventually_connects(b, 80, true);
    let tables = run("nft", "list tables");
    assert!(!tables.contains("tweed-policy"), "{tables}");
    scene.apply(&[default_deny()]);
    a.eventually_connects(b, 80, false);
    assert!(connects(b.socket(80)), "the node reaches its own pods");
    scene.apply(&[default_deny(), allow("b", "a", 80)]);
    a.eventually_connects(b, 80, true);
    assert!(!a.connects(b, 81));
    assert!(!b.connects(a, 80));
    scene.apply(&[default_deny(), allow("b", "a", 81)]);
    a.eventually_connects(b, 80, false);
    a.eventually_connects(b, 81, true);
    scene.apply(&[allow("b", "a", 81)]);
    b.eventually_connects(a, 80, true);
    assert!(!a.connects(b, 80));
    scene.apply(&[allow("b", "a", 81), admin_deny("b")]);
    a.eventually_connects(b, 81, false);
    scene.apply(&[]);
    a.eventually_connects(b, 80, true);
    assert!(b.connects(a, 80));
    agent.ready();
}

/// What a policy takes away is taken from flows that are open, and nothing else is.
#[test]
fn open_flows_are_cut_only_if_they_are_no_longer_allowed() {
    let scene = Scene::new(&[default_deny(), allow("b", "a", 80)]);
    let (a, b) = (&scene.a, &scene.b);
    let agent = scene.start(&[]);
    a.eventually_connects(b, 80, true);
    let (mut client, mut server) = a.connection(b);
    server
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let mut echo = || client.write_all(b"x").is_ok() && matches!(server.read(&mut [0; 8]), Ok(1..));
    assert!(echo());
    let other = [default_deny(), allow("a", "b", 80), allow("b", "a", 80)];
    let other = [&other[0], &other[1].replace("allow", "more"), &other[2]].map(Clone::clone);
    scene.apply(&other);
    b.eventually_connects(a, 80, true);
    assert!(echo(), "a flow that is still allowed");
    scene.apply(&[default_deny(), allow("a", "b", 80)]);
    a.eventually_connects(b, 80, false);
    assert!(!echo(), "a flow that is no longer allowed");
    drop(agent);
}

#[test]
fn ready_is_published_when_the_policies_are_in_force() {
    let scene = Scene::new(&[default_deny()]);
    let agent = scene.node.start(&[]);
    scene.node.publishes("run/ready", "n1");
    assert!(!scene.a.connects(&scene.b, 80));
    drop(agent);
}

#[test]
fn a_single_run_ends_when_the_policies_are_in_force() {
    let scene = Scene::new(&[default_deny()]);
    assert_eq!(scene.node.start(&["--once"]).ending(), Ending::Converged);
    assert!(!scene.a.connects(&scene.b, 80));
}

#[test]
fn a_restart_keeps_policies_in_force_and_writes_nothing() {
    let scene = Scene::new(&[default_deny(), allow("b", "a", 80)]);
    let (a, b) = (&scene.a, &scene.b);
    let agent = scene.start(&[]);
    a.eventually_connects(b, 80, true);
    let before = table();
    agent.stop();
    assert!(a.connects(b, 80) && !b.connects(a, 80));
    let agent = scene.start(&[]);
    agent.passes();
    assert_eq!(table(), before);
    assert_eq!(agent.drift_repaired(), 0);
    agent.stop();
    // Now without a source: nothing is known of policies.
    let nodes = scene.node.path("nodes.yaml");
    let kept = scene.node.path("kept.yaml");
    std::fs::rename(&nodes, &kept).unwrap();
    let agent = scene.node.start(&[]);
    agent.complains("policies-unreadable");
    agent.serves();
    agent.passes();
    assert_eq!(table(), before);
    assert!(a.connects(b, 80) && !b.connects(a, 80));
    agent.stop();
    // Other rules come with the first plan.
    let agent = scene.node.start(&["--policy-log", "on"]);
    agent.complains("policies-unreadable");
    agent.passes();
    assert_eq!(table(), before);
    assert!(a.connects(b, 80) && !b.connects(a, 80));
    agent.stop();
    std::fs::rename(&kept, &nodes).unwrap();
    let _agent = scene.start(&[]);
    assert!(a.connects(b, 80) && !b.connects(a, 80));
    scene.apply(&[]);
    b.eventually_connects(a, 80, true);
}

/// The API server may delete them before the pods. An agent that starts then does not know what
/// there was.
#[test]
fn policies_of_a_namespace_that_is_being_deleted_outlast_themselves_and_a_restart_isolates() {
    let signal = policy(
        "signal",
        "{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress], ingress: [\
         {from: [{namespaceSelector: {matchLabels: {going: \"yes\"}}}], \
         ports: [{protocol: TCP, port: 81}]}]}",
    );
    let all = [default_deny(), allow("b", "a", 80), signal];
    let scene = Scene::new(&all);
    let (a, b) = (&scene.a, &scene.b);
    let agent = scene.start(&[]);
    a.eventually_connects(b, 80, true);
    let terminating = |documents: &[String]| {
        let pods = [pod("a", 5), pod("b", 6)];
        let text = cluster(&[&pods, documents].concat());
        let from = "name: default, labels: {";
        let to =
            "name: default, deletionTimestamp: \"2026-01-01T00:00:00Z\", labels: {going: \"yes\", ";
        scene.node.write_nodes(&text.replacen(from, to, 1));
    };
    terminating(&all);
    a.eventually_connects(b, 81, true);
    let elsewhere = default_deny().replace("namespace: default", "namespace: elsewhere");
    terminating(&[elsewhere]);
    eventually(
        || match agent.metric(r#"tweed_policies{kind="NetworkPolicies"}"#) {
            4 => Ok(()),
            count => Err(format!("{count} policies")),
        },
    );
    agent.passes();
    assert!(a.connects(b, 80) && !b.connects(a, 80));
    terminating(&[]);
    agent.passes();
    agent.stop();
    let agent = scene.start(&[]);
    a.eventually_connects(b, 80, false);
    assert!(!a.connects(b, 81) && !b.connects(a, 80));
    agent.ready();
    scene.apply(&[]);
    a.eventually_connects(b, 80, true);
}

/// An agent that starts while the API server is away does not know which policies there are.
#[test]
fn rules_that_somebody_breaks_come_back_before_policies_are_known() {
    let scene = Scene::new(&[default_deny(), allow("b", "a", 80)]);
    let (a, b) = (&scene.a, &scene.b);
    let agent = scene.start(&[]);
    a.eventually_connects(b, 80, true);
    agent.stop();
    // Rules that were made again have other handles.
    let sets = || table().split_once("\tchain ").unwrap().0.to_owned();
    let before = sets();
    std::fs::remove_file(scene.node.path("nodes.yaml")).unwrap();
    let agent = scene.node.start(&[]);
    agent.complains("policies-unreadable");
    for repaired in 1..=2 {
        run("nft", "flush table inet tweed-policy");
        eventually(|| match agent.drift_repaired() {
            now if now >= repaired => Ok(()),
            now => Err(format!("{now} put back")),
        });
        assert!(!b.connects(a, 80), "nothing is denied");
        assert!(a.connects(b, 80), "what the sets hold is lost");
        assert_eq!(sets(), before);
    }
    agent.stop();
}

#[test]
fn a_new_pod_is_isolated_until_it_is_enforced() {
    // A policy that selects neither of the new pods.
    let elsewhere = allow("b", "a", 80);
    let scene = Scene::new(std::slice::from_ref(&elsewhere));
    let agent = scene.start(&[]);
    // Its Pod object is not known.
    let c = TrafficPod::add(&scene.node, "c", 7);
    agent.passes();
    assert!(!scene.a.connects(&c, 80) && !c.connects(&scene.a, 80));
    scene.apply(&[pod("c", 7), elsewhere.clone()]);
    scene.a.eventually_connects(&c, 80, true);
    assert!(c.connects(&scene.a, 80));
    agent.stop();
    // Nobody judges it.
    let d = TrafficPod::add(&scene.node, "d", 8);
    scene.apply(&[pod("c", 7), pod("d", 8), elsewhere.clone()]);
    assert!(!scene.a.connects(&d, 80) && !d.connects(&scene.a, 80));
    let _agent = scene.start(&[]);
    scene.a.eventually_connects(&d, 80, true);
    // An address that is free again is nobody's.
    d.delete();
    eventually(
        || match run("nft", "list set inet tweed-policy policy_judged4") {
            set if set.contains("10.0.1.8") => Err(set),
            _ => Ok(()),
        },
    );
}

/// Everything in the table but for the generation in force and the order of elements.
fn content() -> Vec<String> {
    let is_generation = |word: &str| {
        let number = word.strip_prefix("policy_");
        number.is_some_and(|number| number.parse::<u8>().is_ok())
    };
    let text = run("nft", "-s list table inet tweed-policy");
    let parts = text.split(|c: char| c.is_whitespace() || c == ',');
    let lasting = parts.filter(|part| !part.is_empty() && !is_generation(part));
    let mut words: Vec<String> = lasting.map(str::to_owned).collect();
    words.sort_unstable();
    words
}

#[test]
fn what_is_broken_of_policies_comes_back() {
    let scene = Scene::new(&[default_deny(), allow("b", "a", 80)]);
    let (a, b) = (&scene.a, &scene.b);
    let agent = scene.start(&[]);
    a.eventually_connects(b, 80, true);
    agent.passes();
    let whole = content();
    for (kind, name) in [
        ("set", "policy_judged4"),
        ("set", "policy_in4"),
        ("map", "policy_ids4"),
        ("map", "policy_pairs_in4"),
        ("set", "policy_exact"),
        ("map", "policy_entry"),
        ("chain", "policy_judge"),
        ("chain", "forward"),
    ] {
        let repaired = agent.drift_repaired();
        run("nft", &format!("flush {kind} inet tweed-policy {name}"));
        eventually(|| {
            if agent.drift_repaired() > repaired {
                Ok(())
            } else {
                Err(format!("{kind} {name} was not noticed"))
            }
        });
        eventually(|| match content() {
            now if now == whole => Ok(()),
            now => Err(format!("after {name}: {now:?}")),
        });
        assert!(a.connects(b, 80) && !a.connects(b, 81), "after {name}");
    }
    run("nft", "delete table inet tweed-policy");
    b.eventually_connects(a, 80, false);
    a.eventually_connects(b, 80, true);
    agent.ready();
}

#[test]
fn switched_off_nothing_of_policies_is_left() {
    let scene = Scene::new(&[default_deny()]);
    let agent = scene.start(&[]);
    scene.a.eventually_connects(&scene.b, 80, false);
    agent.stop();
    let agent = scene.start(&["--policy", "off"]);
    scene.a.eventually_connects(&scene.b, 80, true);
    let tables = run("nft", "list tables");
    assert!(!tables.contains("tweed-policy"), "{tables}");
    assert!(!agent.text().contains(r#"kind="NetworkPolicies""#));
    ask::is_told_that_no_policy_is_in_force(&scene.node);
}

#[test]
fn only_what_policies_need_is_watched_and_counted() {
    let scene = Scene::new(&[]);
    let agent = scene.start(&[]);
    let watched = |agent: &Agent| {
        let text = agent.text();
        let lines = text.lines();
        let series = lines.filter(|line| line.starts_with("tweed_watch_silence_seconds{"));
        series
            .filter_map(|line| Some(line.split('"').nth(1)?.to_owned()))
            .collect::<Vec<_>>()
    };
    let policies = ["ClusterNetworkPolicies", "NetworkPolicies", "Nodes"];
    assert_eq!(watched(&agent), policies);
    scene.apply(&[default_deny()]);
    scene.a.eventually_connects(&scene.b, 80, false);
    agent.passes();
    let all = [
        "ClusterNetworkPolicies",
        "Namespaces",
        "NetworkPolicies",
        "Nodes",
        "Pods",
    ];
    assert_eq!(watched(&agent), all);
    let count = |name: &str| agent.metric(name);
    assert_eq!(count(r#"tweed_policies{kind="NetworkPolicies"}"#), 1);
    assert_eq!(count(r#"tweed_policies{kind="ClusterNetworkPolicies"}"#), 0);
    assert_eq!(count(r#"tweed_policed_pods{direction="ingress"}"#), 2);
    assert_eq!(count(r#"tweed_policed_pods{direction="egress"}"#), 0);
    assert!(count("tweed_policy_elements") > 0);
    eventually(
        || match count(r#"tweed_dropped_packets_total{reason="policy-ingress"}"#) {
            0 => Err("no drop is counted".to_owned()),
            _ => Ok(()),
        },
    );
}
