mod protobuf;
mod server;

use crate::fixture::NodeFixture as _;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use server::{Answer, End as StreamEnd, Server};
use tweed_planner::overlay::cluster::Cluster;

/// Longer than anything takes: a test that waits for what does not come fails.
const STUCK: Duration = Duration::from_secs(60);

/// The source at work on a server, and what an index makes of it.
struct Watched {
    folder: tempfile::TempDir,
    events: mpsc::Receiver<Event<Node>>,
    index: Cluster,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Watched {
    fn start(server: &Server) -> Self {
        let watched = Self::without_kubeconfig();
        watched.write_kubeconfig(&format!("http://{}", server.address));
        watched
    }

    fn without_kubeconfig() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut source =
            KubernetesSource::new(Access::Kubeconfig(folder.path().join("kubeconfig")));
        source.pauses = source.pauses.with_min_delay(Duration::from_millis(10));
        let (sender, events) = mpsc::channel(4);
        let stop = CancellationToken::new();
        Self {
            folder,
            events,
            index: Cluster::new("a"),
            task: tokio::spawn(source.run(sender, stop.clone())),
            stop,
        }
    }

    fn write_kubeconfig(&self, url: &str) {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        });
        let other = self.folder.path().join("other");
        std::fs::write(&other, kubeconfig.to_string()).unwrap();
        std::fs::rename(other, self.folder.path().join("kubeconfig")).unwrap();
    }

    /// Takes events until one of them is as `last` wants it; all of them.
    async fn until(&mut self, last: impl Fn(&Event<Node>) -> bool) -> Vec<Event<Node>> {
        let mut seen = Vec::new();
        let stuck = tokio::time::Instant::now() + STUCK;
        loop {
            let event = tokio::time::timeout_at(stuck, self.events.recv()).await;
            let event = event.expect("the event that was waited for").unwrap();
            let _ = self.index.apply(event.clone());
            seen.push(event);
            if seen.last().is_some_and(&last) {
                return seen;
            }
        }
    }

    async fn listed(&mut self) -> Vec<Event<Node>> {
        self.until(|event| *event == Event::InitDone).await
    }

    /// The next thing that is reported as lost.
    async fn lost(&mut self) -> String {
        let seen = self.until(|e| matches!(e, Event::Lost(_))).await;
        match seen.into_iter().next_back() {
            Some(Event::Lost(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    async fn restored(&mut self) -> Vec<Event<Node>> {
        self.until(|event| *event == Event::Restored).await
    }

    /// Names of the Nodes in the index, the own one, `a`, first.
    fn known(&self) -> Vec<String> {
        let snapshot = self.index.snapshot().unwrap();
        snapshot.nodes().map(|node| node.name.clone()).collect()
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn node(name: &str, version: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "uid": format!("uid-{name}"),
            "resourceVersion": version,
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "labels": {"kubernetes.io/hostname": name},
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
            "images": [{"names": ["registry/image"], "sizeBytes": 1}],
        },
    })
}

fn page(items: &[Value], version: &str, go_on: &str) -> Answer {
    let page = json!({
        "kind": "NodeList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": version, "continue": go_on},
        "items": items,
    });
    Answer::Whole(200, page.to_string())
}

/// A list of these Nodes, all of one version.
fn list(names: &[&str], version: &str) -> Answer {
    let nodes: Vec<Value> = names.iter().map(|name| node(name, version)).collect();
    page(&nodes, version, "")
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn bookmark(version: &str) -> String {
    line(
        "BOOKMARK",
        &json!({"kind": "Node", "metadata": {"resourceVersion": version}}),
    )
}

fn status(code: u16, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Because", "code": code,
    })
}

fn refusal(code: u16, message: &str) -> Answer {
    Answer::Whole(code, status(code, message).to_string())
}

/// A watch that stays open and says nothing.
fn quiet() -> Answer {
    Answer::Stream(vec![], StreamEnd::Open)
}

fn watch_from(version: &str) -> String {
    format!("/api/v1/nodes?&watch=true&allowWatchBookmarks=true&resourceVersion={version}")
}

const LIST: &str = "/api/v1/nodes?&limit=250";

#[tokio::test]
async fn a_list_in_pages_is_one_list() {
    let mut server = Server::start(vec![
        page(&[node("a", "3"), node("b", "4")], "9", "second"),
        page(&[node("c", "5")], "9", "third"),
        page(&[node("d", "6")], "9", ""),
        quiet(),
    ])
    .await;
    let mut watched = Watched::start(&server);
    let seen = watched.listed().await;
    assert_eq!(seen[0], Event::Init);
    let expected = crate::fixture::node("a")
        .uid("uid-a")
        .created(1_795_255_200)
        .cidr("10.244.1.0/24")
        .internal("192.0.2.1");
    assert_eq!(seen[1], Event::InitApply(expected));
    assert_eq!(seen.len(), 6);
    assert_eq!(watched.known(), ["a", "b", "c", "d"]);
    assert_eq!(
        server.asked(4).await,
        [
            LIST.to_owned(),
            format!("{LIST}&continue=second"),
            format!("{LIST}&continue=third"),
            watch_from("9"),
        ]
    );
    watched.end().await;
}

#[tokio::test]
async fn five_thousand_nodes_cost_ten_pages() {
    let pages = (0..10).map(|number| {
        let nodes: Vec<Value> = (0..500)
            .map(|of_page| node(&format!("n{}", number * 500 + of_page), "3"))
            .collect();
        let go_on = if number == 9 { "" } else { "more" };
        page(&nodes, "9", go_on)
    });
    let mut server = Server::start(pages.chain([quiet()]).collect()).await;
    let mut watched = Watched::start(&server);
    assert_eq!(watched.listed().await.len(), 5002);
    assert_eq!(server.asked(11).await[10], watch_from("9"));
    watched.end().await;
}

#[tokio::test]
async fn a_heartbeat_is_no_change() {
    let mut beat = node("b", "10");
    beat["status"]["conditions"] = json!([{"type": "Ready", "lastHeartbeatTime": "now"}]);
    beat["metadata"]["annotations"] = json!({"a": "b"});
    let server = Server::start(vec![
        list(&["a", "b"], "9"),
        Answer::Stream(vec![line("MODIFIED", &beat)], StreamEnd::Open),
    ])
    .await;
    let mut watched = Watched::start(&server);
    watched.listed().await;
    let event = watched.events.recv().await.unwrap();
    assert!(matches!(&event, Event::Apply(node) if node.name == "b"));
    assert!(!watched.index.apply(event));
    watched.end().await;
}

#[tokio::test]
async fn a_watch_tells_what_changes_and_is_resumed_from_the_last_version() {
    let mut moved = node("b", "11");
    moved["status"]["addresses"][0]["address"] = json!("192.0.2.9");
    let mut server = Server::start(vec![
        list(&["a", "b"], "9"),
        Answer::Stream(
            vec![
                line("ADDED", &node("c", "10")),
                line("MODIFIED", &moved),
                line("DELETED", &node("c", "12")),
            ],
            StreamEnd::Clean,
        ),
        Answer::Stream(vec![bookmark("20")], StreamEnd::Clean),
        Answer::Stream(vec![line("ADDED", &node("d", "21"))], StreamEnd::Open),
    ])
    .await;
    let mut watched = Watched::start(&server);
    watched.listed().await;
    let named = |event: &Event<Node>| match event {
        Event::Apply(node) => node.name.clone(),
        Event::Delete(name) => format!("not {name}"),
        other => format!("{other:?}"),
    };
    let seen = watched.until(|e| named(e) == "d").await;
    assert_eq!(
        seen.iter().map(named).collect::<Vec<_>>(),
        ["c", "b", "not c", "d"]
    );
    assert_eq!(watched.known(), ["a", "b", "d"]);
    let b = watched
        .index
        .snapshot()
        .unwrap()
        .nodes()
        .find(|n| n.name == "b");
    assert_eq!(b.unwrap().addresses[0].address, "192.0.2.9");
    assert_eq!(
        server.asked(4).await[1..],
        [watch_from("9"), watch_from("12"), watch_from("20")]
    );
    watched.end().await;
}

#[tokio::test]
async fn a_watch_that_breaks_within_a_line_is_resumed_without_a_word() {
    let next = line("ADDED", &node("c", "11"));
    for end in [StreamEnd::Cut, StreamEnd::Clean] {
        let mut server = Server::start(vec![
            list(&["a"], "9"),
            Answer::Stream(
                vec![
                    line("ADDED", &node("b", "10")),
                    next[..next.len() / 2].to_owned(),
                ],
                end,
            ),
            Answer::Stream(vec![next.clone()], StreamEnd::Open),
        ])
        .await;
        let mut watched = Watched::start(&server);
        watched.listed().await;
        let is_c = |e: &Event<Node>| matches!(e, Event::Apply(node) if node.name == "c");
        let seen = watched.until(is_c).await;
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!(watched.known(), ["a", "b", "c"]);
        assert_eq!(
            server.asked(3).await[1..],
            [watch_from("9"), watch_from("10")]
        );
        watched.end().await;
    }
}

#[tokio::test]
async fn a_watch_that_breaks_at_once_again_and_again_is_reported() {
    let server = Server::start(vec![
        list(&["a"], "9"),
        Answer::Stream(vec!["{".to_owned()], StreamEnd::Cut),
        quiet(),
    ])
    .await;
    let mut watched = Watched::start(&server);
    let reason = watched.lost().await;
    assert!(reason.contains("broke off"), "{reason}");
    watched.restored().await;
    assert_eq!(watched.known(), ["a"]);
    watched.end().await;
}

#[tokio::test]
async fn a_version_too_old_calls_for_a_list_without_a_word() {
    let expired = || line("ERROR", &status(410, "too old resource version"));
    let ways = [
        refusal(410, "too old resource version"),
        Answer::Whole(410, "Gone".to_owned()),
        Answer::Stream(vec![expired()], StreamEnd::Clean),
        Answer::Stream(vec![bookmark("10"), expired()], StreamEnd::Open),
    ];
    for way in ways {
        let mut server = Server::start(vec![
            list(&["a", "b"], "9"),
            way,
            list(&["a", "c"], "30"),
            quiet(),
        ])
        .await;
        let mut watched = Watched::start(&server);
        watched.listed().await;
        assert_eq!(watched.known(), ["a", "b"]);
        let seen = watched.listed().await;
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert_eq!(watched.known(), ["a", "c"]);
        assert_eq!(
            server.asked(4).await[1..],
            [watch_from("9"), LIST.to_owned(), watch_from("30")]
        );
        watched.end().await;
    }
}

#[tokio::test]
async fn pages_given_up_under_way_are_asked_for_in_one_piece() {
    let mut server = Server::start(vec![
        page(&[node("a", "3"), node("x", "4")], "9", "second"),
        refusal(410, "the provided continue parameter is too old"),
        list(&["a", "b"], "10"),
        quiet(),
    ])
    .await;
    let mut watched = Watched::start(&server);
    watched.listed().await;
    assert_eq!(watched.known(), ["a", "b"]);
    let asked = server.asked(4).await;
    assert_eq!(asked[2..], ["/api/v1/nodes?".to_owned(), watch_from("10")]);
    watched.end().await;
}

#[tokio::test]
async fn a_list_that_fails_half_way_changes_nothing() {
    let server = Server::start(vec![
        list(&["a", "b"], "9"),
        refusal(410, "too old"),
        page(&[node("a", "10")], "11", "second"),
        refusal(500, "etcd is away"),
        quiet(),
    ])
    .await;
    let mut watched = Watched::start(&server);
    let reason = watched.lost().await;
    assert!(reason.ends_with("answered 500: etcd is away"), "{reason}");
    assert_eq!(watched.known(), ["a", "b"]);
    watched.end().await;
}

#[tokio::test]
async fn what_the_server_answers_is_named_once_and_mends_itself() {
    let html = Answer::Whole(502, "<html>\nbad gateway</html>".to_owned());
    let mut server = Server::start(vec![
        refusal(500, "etcd is away"),
        refusal(500, "etcd is away"),
        html,
        list(&["a"], "9"),
        refusal(503, "shutting down"),
        quiet(),
    ])
    .await;
    let mut watched = Watched::start(&server);
    let url = format!("the API server http://{}/ ", server.address);
    assert_eq!(
        watched.lost().await,
        format!("{url}answered 500: etcd is away")
    );
    // The second of its kind is no news.
    assert_eq!(
        watched.lost().await,
        format!("{url}answered 502: <html> bad gateway</html>")
    );
    let seen = watched.restored().await;
    assert!(seen.contains(&Event::InitDone));
    assert_eq!(
        watched.lost().await,
        format!("{url}answered 503: shutting down")
    );
    assert_eq!(watched.known(), ["a"]);
    watched.restored().await;
    assert_eq!(
        server.asked(6).await[4..],
        [watch_from("9"), watch_from("9")]
    );
    watched.end().await;
}

#[tokio::test]
async fn refused_credentials_and_missing_rights_are_told_apart() {
    let server = Server::start(vec![
        refusal(401, "Unauthorized"),
        // Of a proxy in between.
        Answer::Whole(401, json!({"error": "who are you?"}).to_string()),
        refusal(403, "nodes is forbidden: User \"x\" cannot list resource"),
        list(&["a"], "9"),
        Answer::Stream(
            vec![line("ERROR", &status(403, "no watch"))],
            StreamEnd::Clean,
        ),
        quiet(),
    ])
    .await;
    let mut watched = Watched::start(&server);
    let reason = watched.lost().await;
    assert!(reason.contains("credentials (401)"), "{reason}");
    let reason = watched.lost().await;
    assert!(reason.contains("cannot list resource): RBAC"), "{reason}");
    watched.restored().await;
    let reason = watched.lost().await;
    assert!(reason.contains("(403: no watch): RBAC"), "{reason}");
    watched.restored().await;
    watched.end().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_and_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut watched = Watched::without_kubeconfig();
    let reason = watched.lost().await;
    assert!(reason.contains("/kubeconfig cannot be used: "), "{reason}");
    assert!(reason.contains("No such file"), "{reason}");
    watched.write_kubeconfig(&format!("http://{address}"));
    let reason = watched.lost().await;
    let expected = format!("the API server http://{address}/ cannot be reached: ");
    assert!(reason.starts_with(&expected), "{reason}");
    assert!(reason.contains("Connection refused"), "{reason}");
    // Not the same port: another test may have it by now.
    let server = Server::start(vec![list(&["a"], "9"), quiet()]).await;
    watched.write_kubeconfig(&format!("http://{}", server.address));
    watched.restored().await;
    assert_eq!(watched.known(), ["a"]);
    watched.end().await;
}

#[tokio::test]
async fn a_broken_kubeconfig_is_named() {
    let mut watched = Watched::without_kubeconfig();
    watched.lost().await;
    std::fs::write(watched.folder.path().join("kubeconfig"), "clusters: 7").unwrap();
    let reason = watched.lost().await;
    assert!(reason.contains("cannot be used"), "{reason}");
    watched.end().await;
}

#[tokio::test]
async fn garbage_instead_of_a_list_is_reported() {
    for garbage in [
        "",
        "{",
        "[]",
        "no JSON",
        "{\"items\": 7}",
        "{\"items\": []}",
    ] {
        let server = Server::start(vec![
            Answer::Whole(200, garbage.to_owned()),
            list(&["a"], "9"),
            quiet(),
        ])
        .await;
        let mut watched = Watched::start(&server);
        let reason = watched.lost().await;
        assert!(reason.contains("makes no sense"), "{reason}");
        watched.restored().await;
        assert_eq!(watched.known(), ["a"]);
        watched.end().await;
    }
}

#[tokio::test]
async fn garbage_in_a_watch_is_reported_and_calls_for_a_list() {
    for garbage in [
        "no JSON\n",
        "[]\n",
        "{\"type\": \"NEWS\", \"object\": {}}\n",
        "{\"type\": \"ADDED\"}\n",
    ] {
        let mut server = Server::start(vec![
            list(&["a"], "9"),
            Answer::Stream(
                vec![line("ADDED", &node("b", "10")), garbage.to_owned()],
                StreamEnd::Open,
            ),
            list(&["a", "c"], "20"),
            quiet(),
        ])
        .await;
        let mut watched = Watched::start(&server);
        let reason = watched.lost().await;
        assert!(reason.contains("makes no sense"), "{reason}");
        assert_eq!(watched.known(), ["a", "b"]);
        watched.restored().await;
        assert_eq!(watched.known(), ["a", "c"]);
        assert_eq!(
            server.asked(4).await[2..],
            [LIST.to_owned(), watch_from("20")]
        );
        watched.end().await;
    }
}

#[tokio::test]
async fn an_object_that_is_no_node_costs_no_other() {
    let mut odd = node("odd", "7");
    odd["spec"] = json!({"podCIDRs": 7});
    let mut server = Server::start(vec![
        page(
            &[
                json!({}),
                json!(7),
                json!({"metadata": "x"}),
                odd,
                node("a", "8"),
            ],
            "9",
            "",
        ),
        Answer::Stream(
            vec![
                "\n".to_owned(),
                line(
                    "ADDED",
                    &json!({"metadata": {"name": "no name", "resourceVersion": "10"}}),
                ),
                line("MODIFIED", &json!("x")),
                line("DELETED", &json!({})),
                line("ADDED", &node("b", "11")),
            ],
            StreamEnd::Clean,
        ),
        quiet(),
    ])
    .await;
    let mut watched = Watched::start(&server);
    watched.listed().await;
    assert_eq!(watched.known(), ["a", "odd"]);
    let odd = watched
        .index
        .snapshot()
        .unwrap()
        .nodes()
        .find(|n| n.name == "odd");
    assert_eq!(odd.unwrap().pod_cidrs, ["7"]);
    let seen = watched.until(|e| matches!(e, Event::Apply(_))).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(watched.known(), ["a", "b", "odd"]);
    assert_eq!(server.asked(3).await[2], watch_from("11"));
    watched.end().await;
}

#[tokio::test]
async fn it_stops_while_a_server_says_nothing() {
    let mut server = Server::start(vec![]).await;
    let watched = Watched::start(&server);
    server.asked(1).await;
    watched.end().await;
}

#[tokio::test]
async fn it_ends_when_nobody_listens() {
    let server = Server::start(vec![list(&["a"], "9")]).await;
    let mut watched = Watched::start(&server);
    watched.events.close();
    watched.task.await.unwrap();
    assert!(server.count() <= 1);
}

#[test]
fn attempts_are_put_off_longer_and_longer_up_to_half_a_minute() {
    let pauses: Vec<_> = KubernetesSource::new(Access::InCluster { server: None })
        .pauses
        .build()
        .take(1000)
        .collect();
    assert_eq!(pauses.len(), 1000);
    assert!(pauses[0] < Duration::from_secs(1));
    assert!(pauses.iter().all(|pause| *pause <= 2 * LONGEST_PAUSE));
    assert!(pauses[20..].iter().all(|pause| *pause >= LONGEST_PAUSE));
}
