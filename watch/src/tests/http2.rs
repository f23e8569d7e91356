//! HTTP/2: all watches of an agent share one connection to a server that speaks it.

use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::sync::Arc;

use h2::server::{Connection, SendResponse, handshake};
use prost::bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;
use tweed_core::object::pod::Pod;

use super::proxy::tls_of;
use super::*;

/// A server that has an object of each kind, and whose watches stay open.
struct Http2Server {
    address: SocketAddr,
    /// How many connections are open.
    open: watch::Receiver<usize>,
    /// How many there have been.
    made: watch::Receiver<usize>,
    /// How many requests have come.
    asked: watch::Receiver<usize>,
    /// What becomes of the connections that are open.
    behaviour: watch::Sender<Behaviour>,
    /// Sends an event on all watches.
    tells: watch::Sender<usize>,
}

#[derive(Clone, Copy)]
enum Behaviour {
    Served,
    /// They are told to be used no more.
    GoingAway,
    Cut,
    /// They stay open, and the server does nothing more.
    Hung,
}

/// What the tasks of all connections share.
#[derive(Clone)]
struct Shared {
    open: watch::Sender<usize>,
    made: watch::Sender<usize>,
    asked: watch::Sender<usize>,
    behaviour: watch::Sender<Behaviour>,
    told: watch::Receiver<usize>,
}

impl Http2Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tells, told) = watch::channel(0);
        let shared = Shared {
            open: watch::Sender::new(0),
            made: watch::Sender::new(0),
            asked: watch::Sender::new(0),
            behaviour: watch::Sender::new(Behaviour::Served),
            told,
        };
        let server = Self {
            address,
            open: shared.open.subscribe(),
            made: shared.made.subscribe(),
            asked: shared.asked.subscribe(),
            behaviour: shared.behaviour.clone(),
            tells,
        };
        let tls = tls_of(&["h2", "http/1.1"]);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (tls, shared) = (tls.clone(), shared.clone());
                tokio::spawn(async move {
                    let connection = tls.accept(connection).await.unwrap();
                    assert_eq!(connection.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
                    shared.open.send_modify(|open| *open += 1);
                    shared.made.send_modify(|made| *made += 1);
                    serve(connection, &shared).await;
                    shared.open.send_modify(|open| *open -= 1);
                });
            }
        });
        server
    }

    /// Waits until so many connections are open.
    async fn has_open(&self, count: usize) {
        wait_for("open connections", &self.open, |open| open == count).await;
    }

    /// Waits until so many requests have come in all.
    async fn was_asked(&self, count: usize) {
        wait_for("requests", &self.asked, |asked| asked >= count).await;
    }

    /// A client of it, and the folder of its kubeconfig.
    fn client(&self) -> (ApiClient, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("https://{}", self.address);
        let cluster = json!({"server": url, "insecure-skip-tls-verify": true});
        write_kubeconfig_of(folder.path(), cluster);
        let access = Access::Kubeconfig(folder.path().join("kubeconfig"));
        (ApiClient::new(access), folder)
    }
}

async fn wait_for(what: &str, of: &watch::Receiver<usize>, is: impl Fn(usize) -> bool) {
    let mut changed = of.clone();
    let change = tokio::time::timeout(STUCK, changed.wait_for(|now| is(*now)));
    let in_time = change.await.is_ok();
    assert!(in_time, "{} {what}", *of.borrow());
}

/// Answers what comes by one connection until it ends.
async fn serve(connection: TlsStream<TcpStream>, shared: &Shared) {
    // That of those that are open from now on.
    let mut behaviour = shared.behaviour.subscribe();
    // A client that has another connection by now ends this one.
    let Ok(mut connection): Result<Connection<_, Bytes>, _> = handshake(connection).await else {
        return;
    };
    loop {
        let request = tokio::select! {
            Ok(()) = behaviour.changed() => match behaviour_of(&behaviour) {
                Behaviour::Cut => return,
                Behaviour::Hung => pending().await,
                Behaviour::GoingAway => {
                    connection.graceful_shutdown();
                    continue;
                }
                Behaviour::Served => continue,
            },
            request = connection.accept() => request,
        };
        let Some(Ok((request, respond))) = request else {
            return;
        };
        shared.asked.send_modify(|asked| *asked += 1);
        let uri = request.uri().to_string();
        tokio::spawn(answer(uri, respond, shared.told.clone()));
    }
}

/// A copy, which is not locked.
fn behaviour_of(behaviour: &watch::Receiver<Behaviour>) -> Behaviour {
    *behaviour.borrow()
}

async fn answer(uri: String, mut respond: SendResponse<Bytes>, mut told: watch::Receiver<usize>) {
    let response = http::Response::builder().header("content-type", "application/json");
    let mut body = respond
        .send_response(response.body(()).unwrap(), false)
        .unwrap();
    if let Some((_, digits)) = uri.split_once("large=") {
        let size = digits.parse().unwrap();
        body.send_data(vec![b' '; size].into(), true).unwrap();
    } else if uri.contains("watch=true") {
        let mut said = 0;
        loop {
            tokio::select! {
                _ = poll_fn(|context| body.poll_reset(context)) => return,
                told = told.wait_for(|told| *told > said) => match told {
                    Ok(now) => said = *now,
                    Err(_) => return,
                },
            }
            let event = line("ADDED", &object::<Node>(&format!("told-{said}"), "10"));
            body.send_data(event.into(), false).unwrap();
        }
    } else {
        let object = if uri.contains("nodes") {
            object::<Node>("a", "9")
        } else {
            object::<Pod>("a", "9")
        };
        let Answer::Whole(_, list) = page(&[object], "9", "") else {
            panic!("a page is a whole answer");
        };
        body.send_data(list.into(), true).unwrap();
    }
}

/// A watcher that shares `client`.
fn watcher<K: Kind>(client: &ApiClient) -> Watched<K> {
    Watched::prepared(|watcher| watcher.client = client.clone())
}

#[tokio::test]
async fn all_watches_share_one_connection_also_after_it_was_cut() {
    let server = Http2Server::start().await;
    let (client, _folder) = server.client();
    let (mut nodes, mut pods) = (watcher::<Node>(&client), watcher::<Pod>(&client));
    nodes.listed().await;
    pods.listed().await;
    server.was_asked(4).await;
    server.has_open(1).await;
    server.behaviour.send_replace(Behaviour::Cut);
    server.was_asked(6).await;
    server.has_open(1).await;
    nodes.end().await;
    pods.end().await;
}

/// As kube-apiserver does now and then (`--goaway-chance`), and before it ends.
#[tokio::test]
async fn a_server_that_goes_away_is_left_without_cutting_its_watches() {
    let server = Http2Server::start().await;
    let (client, _folder) = server.client();
    let mut nodes = watcher::<Node>(&client);
    nodes.listed().await;
    server.was_asked(2).await;
    server.behaviour.send_replace(Behaviour::GoingAway);
    // It is told before this is answered.
    let get = client::Request::Get;
    client.send::<Value>("/api/v1/nodes/a", get).await.unwrap();
    let mut pods = watcher::<Pod>(&client);
    pods.listed().await;
    server.has_open(2).await;
    server.tells.send_replace(1);
    let told = nodes.until(|event| matches!(event, Event::Apply(_))).await;
    assert_eq!(applied(told.last().unwrap()).unwrap(), "told-1");
    nodes.end().await;
    pods.end().await;
}

#[tokio::test]
async fn bodies_that_nobody_reads_do_not_hold_up_others() {
    let server = Http2Server::start().await;
    let (client, _folder) = server.client();
    let mut unread = Vec::new();
    for _ in 0..16 {
        let request = http::Request::get("/large=4000000").body(Vec::new());
        unread.push(client.open(request.unwrap(), STUCK).await.unwrap().0);
    }
    let mut nodes = watcher::<Node>(&client);
    nodes.listed().await;
    assert_eq!(nodes.known(), ["a"]);
    nodes.end().await;
    for mut response in unread {
        let body = response.body.rest(4_000_000).await.unwrap();
        assert_eq!(body.len(), 4_000_000);
    }
}

/// A proxy, a load balancer or the kernel of a machine that hangs acknowledges what is sent.
#[tokio::test]
async fn a_connection_whose_server_hangs_is_left_by_all_watches() {
    let server = Http2Server::start().await;
    let (mut client, _folder) = server.client();
    client.pings.after = Duration::from_millis(100);
    client.pings.timeout = Duration::from_secs(2);
    let (mut nodes, mut pods) = (watcher::<Node>(&client), watcher::<Pod>(&client));
    nodes.listed().await;
    pods.listed().await;
    server.was_asked(4).await;
    server.behaviour.send_replace(Behaviour::Hung);
    // They go on from where they were, by one connection.
    server.was_asked(6).await;
    server.has_open(2).await;
    server.tells.send_replace(1);
    nodes.until(|event| matches!(event, Event::Apply(_))).await;
    pods.until(|event| matches!(event, Event::Apply(_))).await;
    nodes.end().await;
    pods.end().await;
}

/// What ends HTTP/2 in front of a server answers pings itself.
#[tokio::test]
async fn a_watch_that_says_nothing_is_resumed_by_another_connection() {
    let server = Http2Server::start().await;
    let (client, _folder) = server.client();
    let mut nodes = Watched::<Node>::prepared(|watcher| {
        watcher.client = client;
        watcher.max_silence.without_bookmarks = Duration::from_millis(500);
    });
    nodes.listed().await;
    wait_for("connections", &server.made, |made| made >= 3).await;
    nodes.end().await;
}

/// Requests by one connection fail one after the other.
#[tokio::test]
async fn only_the_connection_that_failed_is_left() {
    let server = Http2Server::start().await;
    let (client, _folder) = server.client();
    let mut used = Vec::new();
    for _ in 0..3 {
        let request = http::Request::get("/api/v1/nodes")
            .body(Vec::new())
            .unwrap();
        used.push(client.open(request, STUCK).await.unwrap().1);
        client.leave_for(&used[0], &Failure::silent("https://api", STUCK));
        client.leave_for(
            used.last().unwrap(),
            &Failure::status("https://api", 503, "no"),
        );
    }
    assert!(!Arc::ptr_eq(&used[0], &used[1]));
    assert!(Arc::ptr_eq(&used[1], &used[2]));
}
