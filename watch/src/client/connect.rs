//! How connections to the API server are made: TCP that notices a dead peer, a
//! tunnel through a proxy where there is one, TLS, and HTTP/2 where the server speaks it.
//!
//! kube's own stack has no way to set options of a socket. Without them, a peer
//! that vanished without closing its connections (a node that lost its power, a
//! load balancer that forgot them) is noticed only when something is sent to it,
//! and a watch sends nothing.
//!
//! It speaks HTTP/1.1 alone, too, with which each watch has a connection of its own: with
//! policies and Services a dozen for each node. By HTTP/2 (RFC 9113) all of an agent's
//! requests share one. A server without TLS is asked by HTTP/1.1.
//!
//! TCP speaks with the nearest machine alone: a proxy or a load balancer answers for a server
//! that is gone, and so does the kernel of one that hangs. By HTTP/2 the server itself is asked
//! ([`Pings`]); by HTTP/1.1 a watch in which nothing comes ends its connection.

use std::error::Error;
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use tower::{BoxError, Service, ServiceBuilder};

use super::peers::Peers;
use super::proxy::Proxy;

/// Maximum time to establish a connection: TCP, tunnel and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to connect by TCP, to all addresses that a name has together: each gets an
/// equal part, so that a server that does not answer leaves time for the others, and for TLS.
const TCP_TIMEOUT: Duration = Duration::from_secs(8);
/// Time without a packet after which the kernel asks whether the peer is there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Time between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Time without an answer, to data or to such questions, after which the kernel
/// gives a connection up.
pub(super) const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// By HTTP/2: when the server is asked whether it is there, while it owes an answer or a watch
/// is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pings {
    /// Time without anything from it.
    pub after: Duration,
    /// Time for its answer, after which the connection and all that is open on it end.
    pub timeout: Duration,
}

/// Those that client-go has.
pub(super) const PINGS: Pings = Pings {
    after: Duration::from_secs(30),
    timeout: Duration::from_secs(15),
};

/// How many bytes of a response by HTTP/1.1 are read at once. A larger buffer makes no list
/// faster, and there are several of them for each connection.
const READ_BUFFER: usize = 64 << 10;

/// How many bytes of a response the server may send by HTTP/2 before they are read: what one
/// connection of TCP would buffer.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same for all responses of a connection together: so many that those which nobody
/// reads at the moment, one of each watch, do not hold up the others.
const CONNECTION_WINDOW: u32 = 64 * STREAM_WINDOW;

/// A client for the server of `config`, through `proxy` where there is one. Nothing
/// is sent yet. `peers` are told whom it connects to. Without `pings` it speaks HTTP/1.1 alone.
pub(super) fn client(
    config: &Config,
    proxy: Option<&Proxy>,
    pings: Option<Pings>,
    peers: &Peers,
) -> Result<Client, kube::Error> {
    let peer = proxy.map_or(&config.cluster_url, |proxy| &proxy.uri);
    let mut tcp = HttpConnector::new_with_resolver(peers.resolver(peer));
    // TLS is above it.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(TCP_TIMEOUT));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_tcp_user_timeout(Some(USER_TIMEOUT));
    let Some(proxy) = proxy else {
        return over(tcp, config, pings);
    };
    let tunnel = Tunnel::new(proxy.uri.clone(), tcp);
    let tunnel = match &proxy.authorization {
        Some(authorization) => tunnel.with_auth(authorization.clone()),
        None => tunnel,
    };
    over(tunnel, config, pings)
}

/// What is known of the server's certificate. kube reads the system's certificates where the
/// config has none, also for a server whose certificate is not verified, and an image without
/// any then has no client.
fn with_own_roots(config: &Config) -> Config {
    let mut config = config.clone();
    if config.accept_invalid_certs {
        config.root_cert.get_or_insert_default();
    }
    config
}

/// TLS over what `connector` connects to, which offers the server HTTP/1.1 and, if that is
/// wanted, HTTP/2.
fn tls<C>(
    connector: C,
    config: &Config,
    with_http2: bool,
) -> Result<HttpsConnector<C>, kube::Error> {
    let tls = with_own_roots(config).rustls_client_config()?;
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let server =
            (name.clone().try_into()).map_err(|error| kube::Error::Service(Box::new(error)))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(server));
    }
    Ok(if with_http2 {
        builder.enable_all_versions().wrap_connector(connector)
    } else {
        builder.enable_http1().wrap_connector(connector)
    })
}

/// A client over what `connector` connects to. The layers are those of kube's own
/// stack that this crate uses.
fn over<C>(connector: C, config: &Config, pings: Option<Pings>) -> Result<Client, kube::Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Error + Send + Sync + 'static,
{
    let mut connector = TimeoutConnector::new(tls(connector, config, pings.is_some())?);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let mut builder = HttpClient::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .http1_max_buf_size(READ_BUFFER);
    if let Some(pings) = pings {
        builder
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(pings.after)
            .http2_keep_alive_timeout(pings.timeout);
    }
    let http: HttpClient<_, Body> = builder.build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::*;

    /// In a process of its own, as the system's certificates are found by its environment.
    #[tokio::test]
    async fn a_server_that_is_not_verified_needs_no_certificates_of_the_system() {
        const HERE: &str = "TWEED_TEST_WITHOUT_CERTIFICATES";
        let name = "client::connect::tests::\
                    a_server_that_is_not_verified_needs_no_certificates_of_the_system";
        if env::var_os(HERE).is_none() {
            let output = Command::new(env::current_exe().unwrap())
                .args(["--exact", name])
                .envs([
                    (HERE, "1"),
                    ("SSL_CERT_FILE", "/proc/none"),
                    ("SSL_CERT_DIR", "/proc/none"),
                ])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && said.contains("1 passed"),
                "{said}"
            );
            return;
        }
        let mut config = Config::new("https://192.0.2.1:6443".parse().unwrap());
        let peers = Peers::default();
        assert!(client(&config, None, Some(PINGS), &peers).is_err());
        config.accept_invalid_certs = true;
        client(&config, None, Some(PINGS), &peers).unwrap();
    }
}
