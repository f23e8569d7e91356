//! Answers without an end take a bounded amount of memory. This test has a process of
//! its own, whose memory it looks at.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tweed_core::object::{Event, node::Node};
use tweed_watch::client::{Access, ApiClient};
use tweed_watch::{Scope, Source, Watcher};

/// The most that this process may ever have taken, in KiB. A page in JSON is held as a
/// whole, up to 256 MiB of it.
const MAX_MEMORY: u64 = 640 << 10;
/// Longer than any step takes.
const STUCK: Duration = Duration::from_secs(60);

/// An answer without an end: its media type, how it begins, and what follows again and
/// again until the client has enough.
struct Endless {
    /// A page for those that list, where only the watch has no end.
    list: Option<&'static str>,
    media: &'static str,
    begin: &'static [u8],
    again: &'static [u8],
    /// What is said about it.
    failure: &'static str,
}

const LIST: &str = r#"{"metadata": {"resourceVersion": "1"}, "items": []}"#;

const ENDLESS: [Endless; 6] = [
    Endless {
        list: Some(LIST),
        media: "application/json",
        begin: b"",
        // One line.
        again: b"garbage",
        failure: "an object of 1",
    },
    Endless {
        list: Some(LIST),
        media: "application/vnd.kubernetes.protobuf;stream=watch",
        // One frame of 4 GiB.
        begin: b"\xff\xff\xff\xff",
        again: b"garbage",
        failure: "an object of 4294967295 bytes",
    },
    Endless {
        list: None,
        media: "application/json",
        begin: b"",
        again: b"garbage",
        failure: "bytes",
    },
    Endless {
        list: None,
        media: "application/json",
        begin: br#"{"metadata": {"resourceVersion": "1"}, "items": [{}"#,
        again: br#", {"metadata": {"name": "n"}}"#,
        failure: "bytes",
    },
    Endless {
        list: None,
        media: "application/vnd.kubernetes.protobuf",
        begin: b"",
        again: b"garbage",
        failure: "invalid answer",
    },
    Endless {
        list: None,
        media: "application/vnd.kubernetes.protobuf",
        // An envelope, and in it a list of 1 TiB with one object of 512 GiB.
        begin: b"k8s\0\x12\x80\x80\x80\x80\x80\x20\x12\x80\x80\x80\x80\x80\x10",
        again: b"garbage",
        failure: "an object of 549755813888 bytes",
    },
];

async fn serve(mut connection: TcpStream, answer: &'static Endless) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match connection.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let is_watch = head.windows(5).any(|word| word == b"watch");
    if let Some(list) = answer.list.filter(|_| !is_watch) {
        let length = list.len();
        let text = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{list}"
        );
        let _ = connection.write_all(text.as_bytes()).await;
        return;
    }
    let begin = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nConnection: close\r\n\r\n",
        answer.media
    );
    let piece = answer.again.repeat(1 << 12);
    let _ = connection.write_all(begin.as_bytes()).await;
    let _ = connection.write_all(answer.begin).await;
    while connection.write_all(&piece).await.is_ok() {}
}

/// The most memory that this process has had, in KiB.
fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words = line.unwrap().split_whitespace();
    words.into_iter().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn answers_without_an_end_take_little_memory() {
    for answer in &ENDLESS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, answer));
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {{server: \"http://{address}\"}}}}], \
             users: [{{name: u, user: {{token: t}}}}]}}"
        );
        fs::write(&kubeconfig, text).unwrap();
        let (sender, mut events) = mpsc::channel::<Event<Node>>(4);
        let watcher = Watcher::new(ApiClient::new(Access::Kubeconfig(kubeconfig)), Scope::All);
        let task = tokio::spawn(watcher.run(sender));
        let reason = loop {
            let event = tokio::time::timeout(STUCK, events.recv()).await;
            match event.unwrap_or_else(|_| panic!("no end of {:?}", answer.again)) {
                Some(Event::Lost(loss)) => break loss.reason,
                Some(_) => {}
                None => panic!("the watcher has ended"),
            }
        };
        assert!(reason.contains(answer.failure), "{reason}");
        let most = most_memory();
        assert!(most < MAX_MEMORY, "{most} KiB after {reason}");

        task.abort();
        server.abort();
    }
}
