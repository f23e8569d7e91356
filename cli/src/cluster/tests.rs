//! Against an API server of these tests: what a real one does seldom, or not on demand. The
//! end-to-end tests ask a real one.

use std::sync::Arc;

use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

/// How `pods/exec` is answered: frames of a channel each, or a refusal.
enum Exec {
    Frames(Vec<Vec<u8>>),
    Refusal(u16, &'static str),
    Silence,
}

fn frame(channel: u8, text: &str) -> Vec<u8> {
    [&[channel], text.as_bytes()].concat()
}

const SUCCESS: &str = r#"{"status":"Success"}"#;

fn failure(message: &str) -> String {
    serde_json::json!({ "status": "Failure", "reason": "InternalError", "message": message })
        .to_string()
}

/// Serves one connection after the other, each with one request.
async fn serve(listener: TcpListener, exec: Arc<Exec>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(answer(stream, Arc::clone(&exec)));
    }
}

async fn answer(mut stream: TcpStream, exec: Arc<Exec>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    if !head.contains("/exec?") {
        let (code, body) = object(&head);
        return reply(stream, code, &body).await;
    }
    match &*exec {
        Exec::Refusal(code, message) => {
            let body = serde_json::json!({ "kind": "Status", "status": "Failure", "code": code, "message": message });
            reply(stream, *code, &body.to_string()).await;
        }
        Exec::Silence => std::future::pending().await,
        Exec::Frames(frames) => {
            let key = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("sec-websocket-key")
                    .then(|| value.trim())
            });
            let accept = derive_accept_key(key.unwrap().as_bytes());
            let switch = format!(
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: {accept}\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n\r\n"
            );
            stream.write_all(switch.as_bytes()).await.unwrap();
            let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
            for frame in frames {
                let message = Message::binary(frame.clone());
                socket.send(message).await.unwrap();
            }
            let _ = socket.close(None).await;
            while let Some(Ok(_)) = socket.next().await {}
        }
    }
}

async fn reply(mut stream: TcpStream, code: u16, body: &str) {
    let text = format!(
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes()).await;
}

/// Nodes in two pages, one agent, and no right to read Events.
fn object(head: &str) -> (u16, String) {
    let node = |name: &str| {
        serde_json::json!({ "metadata": { "name": name },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] } })
    };
    let object = if head.contains("/nodes?limit=500&continue=next") {
        serde_json::json!({ "metadata": {}, "items": [node("b")] })
    } else if head.contains("/nodes?") {
        serde_json::json!({ "metadata": { "continue": "next" }, "items": [node("a")] })
    } else if head.contains("/pods?") {
        serde_json::json!({ "items": [{
            "metadata": { "name": "tweed-a", "namespace": "kube-system" },
            "spec": { "nodeName": "a", "containers": [{ "name": "agent", "image": "tweed:0.0.9" }] },
            "status": { "containerStatuses": [{ "name": "agent", "state": { "running": {} } }] },
        }] })
    } else {
        let message = "events is forbidden";
        let status = serde_json::json!({ "kind": "Status", "status": "Failure", "code": 403, "message": message });
        return (403, status.to_string());
    };
    (200, object.to_string())
}

/// Calls `test` with a cluster whose agents are asked so.
fn with(exec: Exec, test: impl FnOnce(Cluster)) {
    let folder = tempfile::tempdir().unwrap();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let kubeconfig = serde_json::json!({
        "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        "clusters": [{ "name": "k", "cluster": { "server": format!("http://{}", server.local_addr().unwrap()) } }],
        "users": [{ "name": "u", "user": {} }],
    });
    let path = folder.path().join("config");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let common = Common {
        kubeconfig: Some(path),
        namespace: "kube-system".to_owned(),
        ..Common::default()
    };
    let cluster = Cluster::connect(&common).unwrap();
    let listener = {
        let _entered = cluster.runtime.enter();
        TcpListener::from_std(server).unwrap()
    };
    cluster.runtime.spawn(serve(listener, Arc::new(exec)));
    test(cluster);
}

/// What the agent of the one Node answers.
fn asked(exec: Exec) -> Result<Output, Unanswered> {
    let mut asked = None;
    with(exec, |cluster| {
        let places = cluster.places().unwrap();
        let words = ["status".to_owned()];
        let answers = cluster.ask_all(&places[..1], &words, Duration::from_millis(500));
        asked = answers.into_iter().next();
    });
    asked.unwrap()
}

#[test]
fn all_pages_of_nodes_are_places_with_their_agents() {
    with(Exec::Silence, |cluster| {
        let places = cluster.places().unwrap();
        let found = places
            .iter()
            .map(|place| (place.node.as_str(), place.agent.is_some()));
        assert_eq!(found.collect::<Vec<_>>(), [("a", true), ("b", false)]);
        let error = cluster.warnings().unwrap_err().to_string();
        let expected =
            "you lack the right to list events in namespace default: events is forbidden";
        assert_eq!(error, expected);
    });
}

#[test]
fn a_program_that_runs_gives_its_output_and_its_exit_code() {
    let long = "x".repeat(300_000);
    let frames = vec![
        frame(1, &long),
        frame(2, "but\n"),
        frame(1, "y"),
        frame(3, SUCCESS),
    ];
    let output = asked(Exec::Frames(frames)).unwrap();
    assert_eq!(output.stdout, format!("{long}y").as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, "but"));
    let exit = r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"4"}]}}"#;
    let output = asked(Exec::Frames(vec![frame(1, "z"), frame(3, exit)])).unwrap();
    assert_eq!(
        (output.code, output.stdout.as_slice()),
        (4, b"z".as_slice())
    );
}

#[test]
fn who_cannot_be_asked_is_told_apart() {
    let status = |message: &str| Exec::Frames(vec![frame(3, &failure(message))]);
    let missing = r#"exec failed: "tweedctl": executable file not found in $PATH"#;
    let usage =
        r#"{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"2"}]}}"#;
    for (exec, expected) in [
        (
            status(missing),
            "its agent is of another version (0.0.9), which",
        ),
        (
            Exec::Frames(vec![frame(3, usage)]),
            "its agent is of another version (0.0.9), which",
        ),
        (
            status("container not found (\"agent\")"),
            "its agent is down: container not found",
        ),
        (
            Exec::Refusal(404, "pods \"tweed-a\" not found"),
            "its agent is down: its pod is gone",
        ),
        (
            Exec::Refusal(500, "error dialing backend: no route to host"),
            "the API server does not reach the kubelet there: error dialing",
        ),
        (
            Exec::Refusal(403, "pods is forbidden"),
            "you lack the right to get and, from Kubernetes 1.35 on, create pods/exec in namespace kube-system: pods is forbidden",
        ),
        (Exec::Silence, "no answer within 0 s: its node may be down"),
    ] {
        let error = asked(exec).unwrap_err().error;
        assert!(error.starts_with(expected), "{error}");
    }
}

/// For a machine with nothing else to do: `--ignored`, release.
#[test]
#[ignore = "measures: 1,000 agents that answer on a socket each"]
fn fan_out_over_a_thousand_sockets() {
    const AGENTS: usize = 1000;
    let folder = tempfile::tempdir().unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let paths: Vec<_> = (0..AGENTS)
        .map(|number| folder.path().join(number.to_string()))
        .collect();
    let begun = runtime.block_on(async {
        for path in &paths {
            let listener = tokio::net::UnixListener::bind(path).unwrap();
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut line = [0; 256];
                let _ = stream.read(&mut line).await.unwrap();
                stream
                    .write_all(b"{\"version\":1,\"version\":\"0.1.0\"}\n")
                    .await
                    .unwrap();
            });
        }
        let begun = std::time::Instant::now();
        let ask = async |path: &std::path::PathBuf| {
            let mut stream = tokio::net::UnixStream::connect(path).await.unwrap();
            stream
                .write_all(b"{\"version\":1,\"version\":{}}\n")
                .await
                .unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            answer.len()
        };
        let answers = fan_out(&paths, PARALLEL, ask, || ()).await;
        assert_eq!(answers.len(), AGENTS);
        assert!(answers.iter().all(|length| *length > 0));
        begun
    });
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
}
