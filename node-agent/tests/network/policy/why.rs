//! What people see of policies at work: the drop log, and `tweedctl why`.

use tweed_core::ownership::POLICY_LOG_GROUP;
use tweed_netlink::nf::log::LogGroup;

use tweed_ctl::exit::Exit;

use super::Scene;
use super::manifests::{allow, default_deny};
use crate::node::{Agent, Node, eventually, tweedctl};

/// The series of logged drops: their labels.
fn logged(agent: &Agent) -> Vec<String> {
    let text = agent.text();
    let lines = text.lines();
    let series = lines.filter_map(|line| line.strip_prefix("tweed_policy_drops_logged_total{"));
    let mut labels: Vec<String> = series
        .filter_map(|line| Some(line.split_once('}')?.0.to_owned()))
        .collect();
    labels.sort();
    labels
}

fn eventually_logged(agent: &Agent, expected: &[&str]) {
    eventually(|| match logged(agent) {
        labels if labels == expected => Ok(()),
        labels => Err(format!("{labels:?}")),
    });
}

/// What `tweedctl` prints.
fn why(node: &Node, from: &str, to: &str) -> String {
    let (exit, text) = tweedctl(node, &["why", from, to]);
    assert_eq!(exit, Exit::Fine, "{text}");
    text
}

#[test]
fn a_dropped_packet_is_logged_with_its_policy_and_an_allowed_one_never_is() {
    let scene = Scene::new(&[default_deny(), allow("b", "a", 80)]);
    let (a, b) = (&scene.a, &scene.b);
    let agent = scene.start(&["--policy-log", "on"]);
    a.eventually_connects(b, 80, true);
    for _ in 0..20 {
        assert!(a.connects(b, 80));
    }
    assert!(!b.connects(a, 80));
    let by_deny = r#"policy="NetworkPolicy default/deny",reason="policy-ingress""#;
    eventually_logged(&agent, &[by_deny]);
    assert!(!a.connects(b, 81));
    let by_both = r#"policy="NetworkPolicy default/*",reason="policy-ingress""#;
    eventually_logged(&agent, &[by_both, by_deny]);
    agent.ready();
}

#[test]
fn without_the_flag_nothing_is_logged() {
    let scene = Scene::new(&[default_deny()]);
    let agent = scene.start(&[]);
    scene.a.eventually_connects(&scene.b, 80, false);
    assert_eq!(logged(&agent), Vec::<String>::new());
    // Nobody listens to the group.
    drop(LogGroup::open(POLICY_LOG_GROUP).unwrap());
}

#[test]
fn another_listener_of_the_log_is_a_problem_until_it_ends() {
    let scene = Scene::new(&[default_deny()]);
    let other = LogGroup::open(POLICY_LOG_GROUP).unwrap();
    let agent = scene.node.start(&["--policy-log", "on"]);
    let text = agent.complains("policy-log-taken");
    assert!(text.contains("log group 116"), "{text}");
    agent.serves();
    scene.a.eventually_connects(&scene.b, 80, false);
    drop(other);
    agent.ready();
}

#[test]
fn why_says_what_packets_meet() {
    let scene = Scene::new(&[]);
    let (a, b) = (&scene.a, &scene.b);
    let agent = scene.start(&[]);
    let shown = why(&scene.node, "default/a", "default/b:80");
    assert!(shown.contains("no policy exists"), "{shown}");

    scene.apply(&[default_deny(), allow("b", "a", 80)]);
    b.eventually_connects(a, 80, false);
    a.eventually_connects(b, 80, true);
    let shown = why(&scene.node, "default/a", "default/b:80");
    assert!(
        shown.contains("10.0.1.5 → 10.0.1.6 is allowed\n"),
        "{shown}"
    );
    let by = "ingress of the destination is allowed (NetworkPolicy default/allow): rule 1";
    assert!(shown.contains(by), "{shown}");

    assert!(!a.connects(b, 81));
    let shown = why(&scene.node, "default/a", "10.0.1.6:81/TCP");
    assert!(shown.contains("DENIED"), "{shown}");
    assert!(shown.contains("NetworkPolicy default/deny"), "{shown}");
    assert!(shown.contains("enforced, policed"), "{shown}");

    let shown = why(&scene.node, "192.0.2.1", "default/b:81");
    assert!(
        shown.contains("a node always reaches its own pods"),
        "{shown}"
    );
    // As a script asks, and by the node's name and the container's ID.
    let exit = |from: &str, to: &str| tweedctl(&scene.node, &["why", from, to, "--exit-code"]).0;
    assert_eq!(exit("default/a", "default/b:80"), Exit::Fine);
    assert_eq!(exit("default/a", "default/b:81"), Exit::Denied);
    assert_eq!(exit("node/n1", "default/b:81"), Exit::Fine);
    assert_eq!(exit("container/a", "default/b:81"), Exit::Denied);
    drop(agent);
}

#[test]
fn an_agent_that_does_not_run_cannot_be_asked() {
    let node = Node::new();
    let (exit, error) = tweedctl(&node, &["why", "default/a", "default/b:80"]);
    assert_eq!(exit, Exit::Undetermined);
    assert!(error.contains("is not running"), "{error}");
}
