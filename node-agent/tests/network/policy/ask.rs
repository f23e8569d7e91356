//! What the agent answers an ADD over its socket, while policies are in force.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tweed_core::agent_socket::client::Connection;
use tweed_core::agent_socket::message::{Answer, Judge, Pod as Asking, Request};
use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName, PodName};
use tweed_ipam::record::{Owner, Process, Record};
use tweed_ipam::store::Held;

use super::Scene;
use super::gate::Gate;
use super::manifests::{allow, default_deny, pod};
use crate::node::{Node, eventually};
use crate::pod::{Pod, WAIT, only};
use crate::traffic_pod::TrafficPod;

/// For a wait that a test expects to be ended by an answer.
const LONG: Duration = Duration::from_secs(60);
/// For a wait that a test expects to end without success.
const SHORT: Duration = Duration::from_millis(200);

fn attachment(name: &str) -> Attachment {
    Attachment {
        network: NetworkName::new("tweed").unwrap(),
        container_id: ContainerId::new(name).unwrap(),
        ifname: IfName::new("eth0").unwrap(),
    }
}

/// Asks as the ADD of a pod does, in a thread of its own.
fn ask(node: &Node, name: &str, host: u8, wait: Duration) -> JoinHandle<Answer> {
    let attachment = attachment(name);
    let request = Request::Judge(Judge {
        network: attachment.network,
        container_id: attachment.container_id,
        ifname: attachment.ifname,
        pod: Some(Asking {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: Some(format!("uid-{name}")),
        }),
        addresses: vec![format!("10.0.1.{host}").parse().unwrap()],
        wait_ms: wait.as_millis().try_into().unwrap(),
    });
    let connection = Connection::ask(&node.path("run"), &request).unwrap();
    std::thread::spawn(move || connection.answer(Instant::now() + wait + LONG).unwrap())
}

/// An ADD that finds the file that an agent with policies has left does not wait.
pub(super) fn is_told_that_no_policy_is_in_force(node: &Node) {
    let told = ask(node, "new", 77, LONG).join().unwrap();
    assert_eq!(told, Answer::NotInForce {});
}

/// Asks until the answer at the end of a short wait is this one.
fn eventually_answers(node: &Node, name: &str, host: u8, expected: &Answer) {
    eventually(|| match ask(node, name, host, SHORT).join().unwrap() {
        answer if answer == *expected => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
}

fn pending(reason: &str) -> Answer {
    Answer::Pending {
        reason: reason.to_owned(),
    }
}

/// The manifest of a pod with a UID.
fn pod_with_uid(name: &str, host: u8, uid: &str) -> String {
    let key = format!("name: {name},");
    pod(name, host).replacen(&key, &format!("{key} uid: {uid},"), 1)
}

#[test]
fn an_add_is_told_when_its_pod_is_enforced_and_that_no_policy_exists() {
    let scene = Scene::new(&[default_deny()]);
    let _agent = scene.start(&[]);
    let answer = ask(&scene.node, "a", 5, LONG).join().unwrap();
    assert_eq!(answer, Answer::Judged {});
    scene.apply(&[]);
    eventually_answers(&scene.node, "a", 5, &Answer::NotInForce {});
}

#[test]
fn an_add_waits_until_its_pod_is_known_and_then_packets_pass() {
    // A policy that selects no pod but `b`.
    let elsewhere = allow("b", "a", 80);
    let scene = Scene::new(std::slice::from_ref(&elsewhere));
    let _agent = scene.start(&[]);
    let c = TrafficPod::add(&scene.node, "c", 7);
    let not_known = pending("Pod default/c is not known yet");
    eventually_answers(&scene.node, "c", 7, &not_known);
    // What the API server still says of an earlier pod of the name is no answer.
    scene.apply(&[pod_with_uid("c", 7, "uid-earlier"), elsewhere.clone()]);
    let waiting = ask(&scene.node, "c", 7, LONG);
    eventually_answers(&scene.node, "c", 7, &not_known);
    assert!(!waiting.is_finished());
    assert!(!scene.a.connects(&c, 80));
    scene.apply(&[pod_with_uid("c", 7, "uid-c"), elsewhere]);
    assert_eq!(waiting.join().unwrap(), Answer::Judged {});
    assert!(scene.a.connects(&c, 80) && c.connects(&scene.a, 80));
}

#[test]
fn a_record_that_goes_while_its_add_waits_is_said() {
    let scene = Scene::new(&[default_deny()]);
    let _agent = scene.start(&[]);
    let c = TrafficPod::add(&scene.node, "c", 7);
    let waiting = ask(&scene.node, "c", 7, Duration::from_secs(2));
    c.delete();
    let gone = pending("no record has 10.0.1.7 any more");
    eventually_answers(&scene.node, "c", 7, &gone);
    let answer = waiting.join().unwrap();
    assert!(matches!(answer, Answer::Pending { .. }), "{answer:?}");
}

/// Pods that are added at once, by their hosts' numbers: more than a node usually has.
const MANY: std::ops::Range<u8> = 20..130;

/// A record as the ADD of a pod makes it; it is held while the ADD works.
fn reserve(node: &Node, host: u8) -> Held {
    let name = format!("many-{host}");
    let by = Process::current().unwrap();
    let mut seed = Record::adding(attachment(&name), Owner::Tweed, by);
    seed.pod_uid = Some(format!("uid-{name}"));
    seed.pod = Some(PodName {
        namespace: "default".to_owned(),
        name,
    });
    let store = Pod::store(node);
    let mut locked = store.lock(WAIT).unwrap();
    let range = only(&[format!("10.0.1.{host}")]);
    locked.reserve(&seed, &range, &[]).unwrap()
}

/// Reconciles answer for the pods that asked before they began; an ADD in between is not
/// left to the next one, which may have much to do.
#[test]
fn an_add_that_asks_within_a_reconcile_does_not_wait_for_the_next_one() {
    let host = MANY.start;
    let name = format!("many-{host}");
    let scene = Scene::new(&[
        default_deny(),
        pod_with_uid(&name, host, &format!("uid-{name}")),
    ]);
    let gate = Gate::new(&scene.node);
    let agent = scene.start(&["--sysctl-dir", gate.folder().to_str().unwrap()]);
    gate.close();
    let first = gate.holds();
    let record = reserve(&scene.node, host);
    let waiting = ask(&scene.node, &name, host, LONG);
    // When this one has its answer, the agent has the other question too.
    let later = ask(&scene.node, "unknown", 9, SHORT).join().unwrap();
    assert_eq!(later, pending("the agent has not handled it yet"));
    assert!(!waiting.is_finished());
    gate.close();
    first.release();
    let second = gate.holds();
    assert_eq!(waiting.join().unwrap(), Answer::Judged {});
    drop(second);
    agent.ready();
    drop(record);
}

#[test]
fn many_adds_at_once_are_all_answered() {
    let scene = Scene::new(&[default_deny()]);
    let agent = scene.start(&[]);
    let records: Vec<Held> = MANY.map(|host| reserve(&scene.node, host)).collect();
    let asks = MANY.map(|host| ask(&scene.node, &format!("many-{host}"), host, LONG));
    let waiting: Vec<_> = asks.collect();
    agent.passes();
    assert!(waiting.iter().all(|asked| !asked.is_finished()));
    let pods =
        MANY.map(|host| pod_with_uid(&format!("many-{host}"), host, &format!("uid-many-{host}")));
    let documents: Vec<String> = [default_deny()].into_iter().chain(pods).collect();
    scene.apply(&documents);
    for asked in waiting {
        assert_eq!(asked.join().unwrap(), Answer::Judged {});
    }
    drop(records);
}
