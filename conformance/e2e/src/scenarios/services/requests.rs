//! All requests to the Services: which servers must answer, and which source they must see.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};
use tweed_lab::Transport;

use super::setup::{Server, Setup};
use crate::endpoint::Endpoint;
use crate::netexec::{TRANSPORTS, expect_no_reply, request};
use crate::node::NodeEndpoint;
use crate::service::Frontend;

/// Maximum number of requests until both of two servers have answered. The probability
/// that it is too small by chance is 2^-63.
const MAX_REQUESTS: usize = 64;

/// Number of requests that the same server must answer with session affinity.
const AFFINITY_REQUESTS: usize = 16;

/// A kind of request to a Service.
struct Request<'a> {
    what: &'static str,
    from: &'a Endpoint,
    frontend: Frontend,
    /// All of these servers must answer, and no other.
    by: &'a [Server],
    source: Source<'a>,
}

/// The source that a server sees.
enum Source<'a> {
    Address(IpAddr),
    /// A node, whose address replaces that of the client.
    Node(&'a NodeEndpoint),
}

/// Sends all requests by TCP and UDP, and returns the number of answers.
///
/// # Errors
/// All failures, one line each.
pub fn send_all(setup: &Setup) -> Result<usize> {
    let mut count = 0;
    let mut wrong = Vec::new();
    let mut note = |what: &str, outcome: Result<usize>| match outcome {
        Ok(answers) => count += answers,
        Err(error) => wrong.push(format!("{what}: {error:#}")),
    };
    for transport in TRANSPORTS {
        for request in requests(setup) {
            note(request.what, request.send(transport));
        }
        for from in [&setup.local_client, &setup.remote_client] {
            note("session affinity", check_affinity(setup, from, transport));
        }
        let closed = setup
            .local
            .node_port(setup.node_without_server.endpoint.address)
            .socket_address(transport);
        let silence = expect_no_reply(&setup.outside, transport, closed);
        note("policy Local, no server on the node", silence.map(|()| 0));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(count)
}

/// What Kubernetes promises. In addition tweed promises, over VXLAN, that another node
/// sees a pod by the address of the pod's node.
fn requests(setup: &Setup) -> Vec<Request<'_>> {
    let mut requests = cluster_ip_requests(setup);
    requests.extend(node_port_requests(setup));
    requests.extend(local_policy_requests(setup));
    requests
}

fn cluster_ip_requests(setup: &Setup) -> Vec<Request<'_>> {
    let [first, _] = &setup.servers;
    let request = |what, from, source| Request {
        what,
        from,
        frontend: setup.web.cluster_ip(),
        by: &setup.servers,
        source,
    };
    let pods = [
        ("a pod beside a server", &setup.local_client),
        ("a pod on another node", &setup.remote_client),
        ("a server itself", &first.endpoint),
    ];
    let by_pods = pods.map(|(what, pod)| request(what, pod, Source::Address(pod.address)));
    let nodes = [
        ("a server's node", &first.node),
        ("another node", &setup.node_without_server),
    ];
    let by_nodes = nodes.map(|(what, node)| request(what, &node.endpoint, Source::Node(node)));
    by_pods.into_iter().chain(by_nodes).collect()
}

/// The node whose port is used replaces the client's address.
fn node_port_requests(setup: &Setup) -> Vec<Request<'_>> {
    let Setup {
        local_client,
        remote_client,
        outside,
        ..
    } = setup;
    let [first, _] = &setup.servers;
    let bare = &setup.node_without_server;
    let cases = [
        ("node port of a server's node", outside, &first.node),
        ("node port of another node", outside, bare),
        ("node port of the pod's own node", local_client, &first.node),
        (
            "node port, by a pod on another node",
            remote_client,
            &first.node,
        ),
    ];
    let requests = cases.map(|(what, from, node)| Request {
        what,
        from,
        frontend: setup.web.node_port(node.endpoint.address),
        by: &setup.servers,
        source: Source::Node(node),
    });
    requests.into()
}

/// Only the server on the node answers, and sees the client.
fn local_policy_requests(setup: &Setup) -> Vec<Request<'_>> {
    let outside = &setup.outside;
    let [first, second] = setup.servers.each_ref();
    let cases = [
        ("policy Local, first node", outside, first, outside),
        ("policy Local, second node", outside, second, outside),
        (
            "policy Local, by a pod on another node",
            &setup.remote_client,
            first,
            &setup.node_without_server.endpoint,
        ),
    ];
    let requests = cases.map(|(what, from, server, source)| Request {
        what,
        from,
        frontend: setup.local.node_port(server.node.endpoint.address),
        by: std::slice::from_ref(server),
        source: Source::Address(source.address),
    });
    requests.into()
}

impl Request<'_> {
    /// Sends requests until each of the servers has answered.
    fn send(&self, transport: Transport) -> Result<usize> {
        let mut missing: BTreeSet<&str> = self.by.iter().map(Server::name).collect();
        for count in 1..=MAX_REQUESTS {
            let server = self.send_once(transport)?;
            missing.remove(server.name());
            if missing.is_empty() {
                return Ok(count);
            }
        }
        bail!("none of {MAX_REQUESTS} answers by {transport:?} came from {missing:?}")
    }

    /// Sends one request and checks the answer.
    fn send_once(&self, transport: Transport) -> Result<&Server> {
        let to = self.frontend.socket_address(transport);
        let answer = request(self.from, transport, to)?;
        let describe = || format!("{to} by {transport:?} from {}: {answer:?}", self.from.name);
        let mut servers = self.by.iter();
        let server = servers
            .find(|server| server.name() == answer.server)
            .with_context(|| format!("{}: this server must not answer", describe()))?;
        let expected = self.source_for(server);
        ensure!(
            answer.client == expected,
            "{}, and not {expected}",
            describe()
        );
        Ok(server)
    }

    fn source_for(&self, server: &Server) -> IpAddr {
        match self.source {
            // Otherwise the answer would not come back through the Service.
            _ if self.from.name == server.name() => server.node.endpoint.address,
            Source::Address(address) => address,
            Source::Node(node) => node.source_seen_on(&server.node),
        }
    }
}

/// Sends requests to the Service with session affinity: one server must answer all.
fn check_affinity(setup: &Setup, from: &Endpoint, transport: Transport) -> Result<usize> {
    let request = Request {
        what: "session affinity",
        from,
        frontend: setup.sticky.cluster_ip(),
        by: &setup.servers,
        source: Source::Address(from.address),
    };
    let servers = (0..AFFINITY_REQUESTS)
        .map(|_| request.send_once(transport).map(Server::name))
        .collect::<Result<BTreeSet<_>>>()?;
    ensure!(
        servers.len() == 1,
        "{servers:?} answered {} by {transport:?}",
        from.name
    );
    Ok(AFFINITY_REQUESTS)
}
