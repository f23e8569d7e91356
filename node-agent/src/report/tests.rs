mod api;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::attempts::{LASTING, Pauses};
use super::condition::{self, Condition, SETTLED};
use super::events::EventWrite;
use super::problems::Subject;
use super::*;
use crate::testing::{Api, client};
use api::Held;
use tweed_core::problem::ProblemKind;

/// Longer than any step takes: a test that waits in vain fails.
const STUCK: Duration = Duration::from_secs(60);

const GET: &str = "GET /api/v1/nodes/n1";
const PATCH: &str = "PATCH /api/v1/nodes/n1/status";
const POST: &str = "POST /api/v1/namespaces/default/events";

/// A recorder and its board.
struct Recording {
    board: Arc<StatusBoard>,
    task: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Recording {
    fn start(address: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let board = Arc::new(StatusBoard::new(Instant::now()));
        let mut recorder = Recorder::new("n1", client(&folder, address), Arc::clone(&board));
        let pauses = Pauses {
            min: Duration::from_millis(10),
            max: Duration::from_millis(50),
        };
        (recorder.plan.pauses, recorder.plan.events.node_pauses) = (pauses, pauses);
        Self {
            board,
            task: tokio::spawn(recorder.run()),
            _folder: folder,
        }
    }

    fn ready(&self) {
        self.board
            .report(Reporter::Pass, Vec::new(), Instant::now());
    }

    /// Waits until the board's problems are of these kinds.
    async fn kinds(&self, expected: &[&str]) {
        let mut changes = self.board.changes();
        let kinds = || -> Vec<&str> {
            let problems = self.board.status(Instant::now()).problems;
            problems.iter().map(|problem| problem.kind.word()).collect()
        };
        let wait = async {
            while kinds() != expected {
                changes.changed().await.unwrap();
            }
        };
        let in_time = tokio::time::timeout(STUCK, wait).await;
        assert!(in_time.is_ok(), "{expected:?} and not {:?}", kinds());
    }

    async fn end(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

fn node(conditions: &[Value]) -> Held {
    Held {
        conditions: Some(conditions.to_vec()),
        ..Held::default()
    }
}

fn up() -> Value {
    json!({
        "type": "NetworkUnavailable", "status": "False", "reason": "TweedIsUp",
        "message": "tweed serves the pods of this node",
        "lastHeartbeatTime": "2026-11-21T10:00:00Z", "lastTransitionTime": "2026-11-21T10:00:00Z",
    })
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_node_that_comes_up_is_written_once_and_other_conditions_stay() {
    let ready = json!({"type": "Ready", "status": "True"});
    let mut api = Api::start(node(std::slice::from_ref(&ready))).await;
    let recording = Recording::start(&api.address.to_string());
    recording.board.own_node("uid-1");
    recording.ready();
    assert_eq!(api.asked(3).await, [GET, PATCH, POST]);
    {
        let held = api.held();
        let conditions = held.conditions.as_ref().unwrap();
        assert_eq!(conditions[0], ready);
        assert_eq!(text(&conditions[1], "type"), "NetworkUnavailable");
        assert_eq!(text(&conditions[1], "status"), "False");
        assert_eq!(text(&conditions[1], "reason"), "TweedIsUp");
        let event = held.events.values().next().unwrap();
        assert_eq!(text(event, "type"), "Normal");
        assert_eq!(text(event, "reason"), "TweedIsUp");
        assert_eq!(event["count"], 1);
        let about = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1"});
        assert_eq!(event["involvedObject"], about);
    }
    recording.end().await;
}

#[tokio::test]
async fn a_condition_that_exists_is_not_written_and_a_new_node_is_read_again() {
    let mut api = Api::start(node(&[up()])).await;
    let recording = Recording::start(&api.address.to_string());
    recording.board.own_node("uid-1");
    recording.ready();
    assert_eq!(api.asked(1).await, [GET]);
    // Deleted, and made again under the same name.
    api.held().conditions = Some(Vec::new());
    recording.board.own_node("uid-2");
    recording.ready();
    assert_eq!(api.asked(4).await, [GET, GET, PATCH, POST]);
    recording.end().await;
}

#[tokio::test]
async fn a_missing_node_is_not_written() {
    let mut api = Api::start(Held::default()).await;
    let recording = Recording::start(&api.address.to_string());
    recording.ready();
    assert_eq!(api.asked(1).await, [GET]);
    api.held().conditions = Some(Vec::new());
    recording.board.own_node("uid-1");
    recording.ready();
    assert_eq!(api.asked(3).await, [GET, GET, PATCH]);
    recording.end().await;
}

#[tokio::test]
async fn a_refusal_is_reported_until_it_ends() {
    let mut api = Api::start(node(&[])).await;
    api.held().refuse_events = Some(403);
    let recording = Recording::start(&api.address.to_string());
    recording.ready();
    recording.kinds(&["not-reported"]).await;
    let status = recording.board.status(Instant::now());
    assert!(status.ready());
    assert!(status.problems[0].message.contains("403"), "{status:?}");
    assert_eq!(api.asked(2).await, [GET, PATCH]);
    api.held().refuse_events = None;
    recording.kinds(&[]).await;
    recording.end().await;
}

/// As of a webhook that cannot be reached.
#[tokio::test]
async fn an_error_of_the_server_is_reported_if_it_lasts_while_the_nodes_can_be_read() {
    let api = Api::start(node(&[])).await;
    api.held().refuse_events = Some(500);
    let recording = Recording::start(&api.address.to_string());
    recording.ready();
    recording.kinds(&["not-reported"]).await;
    let problem = recording.board.status(Instant::now()).problems.remove(0);
    assert!(problem.message.contains("500"), "{problem}");
    assert!(problem.cure.contains("webhook"), "{problem}");
    // One reads the Node, one writes the condition.
    assert!(api.count() >= 2 + LASTING as usize, "{}", api.count());
    api.held().refuse_events = None;
    recording.kinds(&[]).await;
    recording.end().await;
}

/// The watch of Nodes says so already.
#[tokio::test]
async fn errors_of_a_server_that_cannot_be_read_either_are_not_reported() {
    let api = Api::start(node(&[])).await;
    api.held().refuse_events = Some(503);
    let folder = tempfile::tempdir().unwrap();
    let board = Arc::new(StatusBoard::new(Instant::now()));
    let client = client(&folder, &api.address.to_string());
    let mut recorder = Recorder::new("n1", client, Arc::clone(&board));
    let away = ProblemKind::NodesUnreadable;
    let problems = [away, ProblemKind::PortmapMissing].map(|kind| Problem::new(kind, "a", "so"));

    // As if the problems had begun long enough ago for their Event to be due.
    let now = Instant::now();
    board.report(Reporter::Pass, problems.to_vec(), now);
    let plan = &mut recorder.plan;
    plan.observe(&board.status(now), "uid-1", now - SETTLED);
    let write = plan.due(now).unwrap();
    for _ in 0..2 * LASTING {
        recorder.write(write.clone()).await;
    }
    assert_eq!(api.count(), 2 * LASTING as usize);
    recorder.show(now);
    let problems = board.status(now).problems;
    let mut kinds = problems.iter().map(|problem| problem.kind);
    assert!(kinds.all(|kind| kind != ProblemKind::NotReported));
}

#[tokio::test]
async fn a_refusal_of_a_write_that_is_no_longer_due_is_forgotten() {
    let api = Api::start(node(&[up()])).await;
    api.held().refuse_events = Some(403);
    let folder = tempfile::tempdir().unwrap();
    let board = Arc::new(StatusBoard::new(Instant::now()));
    let client = client(&folder, &api.address.to_string());
    let mut recorder = Recorder::new("n1", client, Arc::clone(&board));
    let trouble = Problem::new(ProblemKind::PortmapMissing, "a", "gone");
    let kinds = || -> Vec<&str> {
        let problems = board.status(Instant::now()).problems;
        problems.iter().map(|problem| problem.kind.word()).collect()
    };

    // As if the problem had begun long enough ago for its Event to be due.
    let now = Instant::now();
    board.report(Reporter::Pass, vec![trouble], now);
    let status = board.status(now);
    recorder.plan.observe(&status, "uid-1", now - SETTLED);
    while let Some(write) = recorder.plan.due(now) {
        recorder.write(write).await;
    }
    recorder.show(now);
    assert_eq!(kinds(), ["not-reported", "portmap-missing"]);

    board.report(Reporter::Pass, Vec::new(), now);
    recorder.plan.observe(&board.status(now), "uid-1", now);
    recorder.show(now);
    assert_eq!(kinds(), [""; 0]);
}

#[tokio::test]
async fn an_unreachable_api_server_is_not_reported() {
    // Nobody else gets the port, and nobody listens on it.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = held.local_addr().unwrap();
    let recording = Recording::start(&address.to_string());
    recording.board.own_node("uid-1");
    recording.ready();
    recording.kinds(&[]).await;
    // Time for an attempt or more.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(recording.board.status(Instant::now()).problems.is_empty());
    let listener = held.listen(16).unwrap();
    let mut api = Api::on(listener, node(&[]));
    assert_eq!(api.asked(3).await, [GET, PATCH, POST]);
    recording.end().await;
}

fn event(count: Option<i32>, message: &str) -> EventWrite {
    EventWrite {
        subject: Subject::Node,
        reason: "NoPodCidr",
        message: message.to_owned(),
        warning: true,
        count,
    }
}

#[tokio::test]
async fn an_event_is_one_object_across_restarts_and_is_created_again_if_it_expired() {
    let api = Api::start(node(&[])).await;
    let folder = tempfile::tempdir().unwrap();
    let client = client(&folder, &api.address.to_string());
    let writer = Writer::new("n1", client.clone());
    let tell = async |writer: &Writer, count, message| {
        let told = writer.write_event(&event(count, message), "uid-1").await;
        told.unwrap()
    };
    assert_eq!(tell(&writer, None, "first").await, 1);
    assert_eq!(tell(&writer, Some(2), "second").await, 2);
    let restarted = Writer::new("n1", client);
    assert_eq!(tell(&restarted, None, "third").await, 2);
    let events: Vec<Value> = api.held().events.values().cloned().collect();
    assert_eq!(events.len(), 1);
    assert_eq!(text(&events[0], "message"), "third");
    api.held().events.clear();
    assert_eq!(tell(&restarted, Some(3), "fourth").await, 3);
    assert_eq!(api.held().events.len(), 1);
    // Before the first list of Nodes an agent does not know the UID.
    let told = restarted.write_event(&event(None, "fifth"), "").await;
    assert_eq!(told.unwrap(), 3);
    assert_eq!(api.held().events.len(), 1);
    assert_eq!(api.count(), 9);
}

#[tokio::test]
async fn an_outage_is_written_with_its_reason_and_then_its_end() {
    let api = Api::start(node(&[up()])).await;
    let folder = tempfile::tempdir().unwrap();
    let writer = Writer::new("n1", client(&folder, &api.address.to_string()));
    let down = Condition {
        unavailable: true,
        reason: "NoPodCidr",
        message: "the own Node has no pod CIDR".to_owned(),
    };
    assert!(!writer.write_condition(&down).await.unwrap());
    let written = api.held().conditions.as_ref().unwrap()[0].clone();
    assert_eq!(text(&written, "status"), "True");
    assert_eq!(text(&written, "reason"), "NoPodCidr");
    assert_ne!(written["lastTransitionTime"], up()["lastTransitionTime"]);
    let up = Condition {
        unavailable: false,
        reason: condition::UP,
        message: condition::UP_MESSAGE.to_owned(),
    };
    assert!(writer.write_condition(&up).await.unwrap(), "it came up");
    assert!(
        !writer.write_condition(&up).await.unwrap(),
        "it was up already"
    );
}

#[tokio::test]
async fn a_policy_that_cannot_be_carried_out_has_one_event_whatever_nodes_write_it() {
    let mut api = Api::start(node(&[up()])).await;
    let folder = tempfile::tempdir().unwrap();
    let event = |kind: &str, namespace: &str, name: &str| EventWrite {
        subject: Subject::Policy {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        reason: "PolicyUnsupported",
        ..event(None, "so")
    };
    for name in ["n1", "n2", "n3"] {
        let writer = Writer::new(name, client(&folder, &api.address.to_string()));
        for event in [
            event("NetworkPolicy", "shop", "db"),
            event("ClusterNetworkPolicy", "", "admin"),
        ] {
            writer.write_event(&event, "uid-1").await.unwrap();
        }
    }
    let policy = "GET /apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/db";
    assert_eq!(
        api.asked(4).await,
        [
            policy,
            "POST /api/v1/namespaces/shop/events",
            "GET /apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies/admin",
            POST,
        ]
    );
    let held = api.held();
    assert_eq!(held.events.len(), 2);
    let about = held.events.values().map(|event| &event["involvedObject"]);
    let namespaces: Vec<&Value> = about.map(|about| &about["namespace"]).collect();
    assert!(namespaces.contains(&&json!("shop")) && namespaces.contains(&&Value::Null));
}

/// A namespace with a quota, or with a webhook that cannot be reached.
#[tokio::test]
async fn a_policy_whose_event_is_refused_delays_no_other() {
    let both = ["NetworkPolicy full/a", "NetworkPolicy shop/db"]
        .map(|policy| Problem::new(ProblemKind::PolicyUnsupported, policy, "so"));
    for (code, is_refusal) in [(403, true), (500, false)] {
        let api = Api::start(node(&[up()])).await;
        api.held().refuse_events_in = Some(("full".to_owned(), code));
        let folder = tempfile::tempdir().unwrap();
        let board = Arc::new(StatusBoard::new(Instant::now()));
        let client = client(&folder, &api.address.to_string());
        let mut recorder = Recorder::new("n1", client, Arc::clone(&board));
        let is_reported = || {
            let problems = board.status(Instant::now()).problems;
            let mut kinds = problems.iter().map(|problem| problem.kind);
            kinds.any(|kind| kind == ProblemKind::NotReported)
        };

        // As if the problems had begun long enough ago for their Events to be due.
        let now = Instant::now();
        let begin = now - Duration::from_secs(65);
        board.report(Reporter::Pass, both.to_vec(), now);
        recorder.plan.observe(&board.status(now), "uid-1", begin);
        let mut tried = Vec::new();
        // So that the pause after an error of the server's own is over.
        for now in [now, now + Duration::from_secs(3)] {
            while let Some(write) = recorder.plan.due(now) {
                if let Write::Event(event) = &write
                    && let Subject::Policy { namespace, .. } = &event.subject
                {
                    tried.push(namespace.clone());
                }
                recorder.write(write).await;
            }
        }
        tried.sort();
        assert_eq!(tried, ["full", "shop"]);
        recorder.show(now);
        assert_eq!(is_reported(), is_refusal);

        board.report(Reporter::Pass, Vec::new(), now);
        recorder.plan.observe(&board.status(now), "uid-1", now);
        recorder.show(now);
        assert!(!is_reported());
    }
}
