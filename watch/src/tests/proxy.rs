//! Connections: through a proxy or past it, and given up when the peer vanishes.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::client::proxy::ProxyVariables;

/// A listener on a free port of this machine, and a task that serves each
/// connection.
async fn listen<F: Future<Output = std::io::Result<()>> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(serve(connection));
        }
    });
    address
}

/// The first line of a request and its headers.
async fn read_head(connection: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}

/// TLS with a certificate of its own that speaks these protocols (ALPN).
pub(super) fn tls_of(protocols: &[&str]) -> TlsAcceptor {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["api.invalid".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// TLS before the server at `plain`.
async fn terminate_tls(plain: SocketAddr) -> SocketAddr {
    let acceptor = tls_of(&[]);
    listen(move |connection| {
        let acceptor = acceptor.clone();
        async move {
            let mut connection = acceptor.accept(connection).await?;
            let mut server = TcpStream::connect(plain).await?;
            copy_bidirectional(&mut connection, &mut server).await?;
            Ok(())
        }
    })
    .await
}

/// A proxy whose tunnels all lead to `server`, whatever they are asked for; and the
/// first line and the credentials of each request for one.
async fn proxy_to(server: SocketAddr) -> (SocketAddr, watch::Receiver<Vec<String>>) {
    let (asked, requests) = watch::channel(Vec::new());
    let asked = Arc::new(asked);
    let address = listen(move |mut connection| {
        let asked = Arc::clone(&asked);
        async move {
            let head = read_head(&mut connection).await?;
            let told = |line: &&str| !line.starts_with("Host:") && !line.is_empty();
            let lines: Vec<&str> = head.lines().filter(told).collect();
            asked.send_modify(|asked| asked.push(lines.join("; ")));
            connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            let mut server = TcpStream::connect(server).await?;
            copy_bidirectional(&mut connection, &mut server).await?;
            Ok(())
        }
    });
    (address.await, requests)
}

fn answers() -> Vec<Answer> {
    vec![list_of::<Node>(&["a"], "9"), quiet()]
}

/// A watcher whose environment has these variables.
fn watcher(https_proxy: &str, no_proxy: &str) -> Watched<Node> {
    Watched::prepared(|watcher| {
        watcher.client.proxies = ProxyVariables {
            https_proxy: https_proxy.to_owned(),
            no_proxy: no_proxy.to_owned(),
        };
    })
}

fn write_https_kubeconfig(watched: &Watched<Node>, cluster: &Value) {
    let mut cluster = cluster.clone();
    cluster["insecure-skip-tls-verify"] = json!(true);
    write_kubeconfig_of(watched.folder.path(), cluster);
}

#[tokio::test]
async fn the_server_is_reached_through_the_proxy_of_the_environment() {
    let server = Server::start(answers()).await;
    let (proxy, requests) = proxy_to(terminate_tls(server.address).await).await;
    let mut watched = watcher(&format!("http://me:pass@{proxy}"), "example.org");
    write_https_kubeconfig(&watched, &json!({"server": "https://api.invalid:6443"}));
    watched.listed().await;
    assert_eq!(watched.known(), ["a"]);
    let asked = requests.borrow()[0].clone();
    let expected = "CONNECT api.invalid:6443 HTTP/1.1; Proxy-Authorization: Basic bWU6cGFzcw==";
    assert_eq!(asked, expected);
    watched.end().await;
}

#[tokio::test]
async fn the_server_is_reached_through_the_proxy_of_the_kubeconfig() {
    let server = Server::start(answers()).await;
    let (proxy, requests) = proxy_to(terminate_tls(server.address).await).await;
    let mut watched = watcher("http://192.0.2.1:1", "*");
    let cluster = json!({
        "server": "https://api.invalid:6443",
        "proxy-url": format!("http://{proxy}"),
    });
    write_https_kubeconfig(&watched, &cluster);
    watched.listed().await;
    assert_eq!(requests.borrow()[0], "CONNECT api.invalid:6443 HTTP/1.1");
    watched.end().await;
}

#[tokio::test]
async fn a_server_that_no_proxy_names_is_reached_directly() {
    let server = Server::start(answers()).await;
    let tls = terminate_tls(server.address).await;
    // An address of this machine that is not excepted by itself, as 127.0.0.1 is.
    let url = format!("https://0.0.0.0:{}", tls.port());
    for (no_proxy, direct) in [("0.0.0.0/8", true), ("10.0.0.0/8", false)] {
        let server = Server::start(answers()).await;
        let tls = if direct {
            tls
        } else {
            terminate_tls(server.address).await
        };
        let (proxy, requests) = proxy_to(tls).await;
        let mut watched = watcher(&proxy.to_string(), no_proxy);
        write_https_kubeconfig(&watched, &json!({"server": url}));
        watched.listed().await;
        assert_eq!(requests.borrow().is_empty(), direct, "{no_proxy}");
        watched.end().await;
    }
}

#[tokio::test]
async fn a_proxy_that_cannot_be_used_is_reported() {
    let mut watched = watcher("socks5://192.0.2.1:1080", "");
    write_https_kubeconfig(&watched, &json!({"server": "https://api.invalid:6443"}));
    let reason = watched.lost().await;
    assert!(reason.contains("HTTPS_PROXY"), "{reason}");
    assert!(reason.contains("socks5 is not supported"), "{reason}");
    watched.end().await;
}

#[tokio::test]
async fn the_credentials_of_the_kubeconfig_are_sent() {
    let (send, mut heads) = mpsc::channel(1);
    let address = listen(move |mut connection| {
        let send = send.clone();
        async move {
            let head = read_head(&mut connection).await?;
            send.send(head).await.map_err(std::io::Error::other)
        }
    });
    let watched = Watched::<Node>::without_kubeconfig();
    watched.write_kubeconfig(&format!("http://{}", address.await));
    let head = heads.recv().await.unwrap().to_lowercase();
    assert!(head.starts_with("get /api/v1/nodes?"), "{head}");
    assert!(head.contains("\r\nauthorization: bearer t\r\n"), "{head}");
    watched.end().await;
}

/// What `/proc/net/tcp` has as `tr`: 02 is the timer of keepalive.
#[tokio::test]
async fn the_kernel_asks_whether_a_silent_server_is_still_there() {
    let mut server = Server::start(answers()).await;
    let mut watched = Watched::<Node>::start(&server);
    watched.listed().await;
    server.asked(2).await;
    let port = format!("0100007F:{:04X}", server.address.port());
    let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // Remote address, state (01 is established), timer.
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let timers: Vec<String> = (connections.lines().map(fields))
        .filter(|fields: &Vec<String>| fields[2] == port && fields[3] == "01")
        .map(|fields| fields[5][..2].to_owned())
        .collect();
    assert_eq!(timers, ["02"], "{connections}");
    watched.end().await;
}

/// Who keeps the way to the server open has to know it, whichever way the server is named.
#[tokio::test]
async fn whom_it_connects_to_is_told_before_the_answer() {
    let server = Server::start(answers()).await;
    let port = server.address.port();
    let mut peers = None;
    let mut watched = Watched::<Node>::prepared(|watcher| peers = Some(watcher.client.peers()));
    let peers = peers.unwrap();
    assert!(peers.borrow().is_empty());
    watched.write_kubeconfig(&format!("http://localhost:{port}"));
    watched.listed().await;
    let found: Vec<_> = peers.borrow().iter().copied().collect();
    assert!(found.contains(&server.address), "{found:?}");
    assert!(found.iter().all(|at| at.port() == port), "{found:?}");
}

/// The server itself is the proxy's matter.
#[tokio::test]
async fn with_a_proxy_it_connects_to_that() {
    let server = Server::start(answers()).await;
    let (proxy, _requests) = proxy_to(terminate_tls(server.address).await).await;
    let mut peers = None;
    let mut watched = Watched::<Node>::prepared(|watcher| {
        peers = Some(watcher.client.peers());
        watcher.client.proxies = ProxyVariables {
            https_proxy: format!("http://{proxy}"),
            no_proxy: String::new(),
        };
    });
    write_https_kubeconfig(&watched, &json!({"server": "https://api.invalid:6443"}));
    watched.listed().await;
    let found: Vec<_> = peers.unwrap().borrow().iter().copied().collect();
    assert_eq!(found, [proxy]);
}
