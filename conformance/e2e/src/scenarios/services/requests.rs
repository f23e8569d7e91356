//! All requests to the Services: which servers must answer, and which source they must see.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};
use tweed_lab::Transport;

use super::setup::{Frontend, Server, Setup};
use crate::endpoint::Endpoint;
use crate::netexec::{TRANSPORTS, expect_no_reply, request};
use crate::node::NodeEndpoint;

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
            .node_port(&setup.node_without_server)
            .socket_address(transport);
        let silence = expect_no_reply(&setup.outside, transport, closed);
        note("policy Local, no server on the node", silence.map(|()| 0));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(count)
}

/// What Kubernetes promises. In addition tweed promises, over VXLAN, that another node
/// sees a pod by the address of the pod's node.
#[expect(clippy::too_many_lines, reason = "it is one table")]
fn requests(setup: &Setup) -> Vec<Request<'_>> {
    let all = setup.servers.as_slice();
    let (first_alone, second_alone) = all.split_at(1);
    let [first, second] = &setup.servers;
    let request = |what, from, frontend, by, source| Request {
        what,
        from,
        frontend,
        by,
        source,
    };
    let itself = |endpoint: &Endpoint| Source::Address(endpoint.address);
    let Setup {
        local_client,
        remote_client,
        node_without_server,
        outside,
        web,
        local,
        ..
    } = setup;
    vec![
        request(
            "a pod beside a server",
            local_client,
            web.cluster_ip(),
            all,
            itself(local_client),
        ),
        request(
            "a pod on another node",
            remote_client,
            web.cluster_ip(),
            all,
            itself(remote_client),
        ),
        request(
            "a server itself",
            &first.endpoint,
            web.cluster_ip(),
            all,
            itself(&first.endpoint),
        ),
        request(
            "a server's node",
            &first.node.endpoint,
            web.cluster_ip(),
            all,
            Source::Node(&first.node),
        ),
        request(
            "another node",
            &node_without_server.endpoint,
            web.cluster_ip(),
            all,
            Source::Node(node_without_server),
        ),
        request(
            "node port of a server's node",
            outside,
            web.node_port(&first.node),
            all,
            Source::Node(&first.node),
        ),
        request(
            "node port of another node",
            outside,
            web.node_port(node_without_server),
            all,
            Source::Node(node_without_server),
        ),
        request(
            "node port of the pod's own node",
            local_client,
            web.node_port(&first.node),
            all,
            Source::Node(&first.node),
        ),
        request(
            "node port, by a pod on another node",
            remote_client,
            web.node_port(&first.node),
            all,
            Source::Node(&first.node),
        ),
        request(
            "policy Local, first node",
            outside,
            local.node_port(&first.node),
            first_alone,
            itself(outside),
        ),
        request(
            "policy Local, second node",
            outside,
            local.node_port(&second.node),
            second_alone,
            itself(outside),
        ),
        request(
            "policy Local, by a pod on another node",
            remote_client,
            local.node_port(&first.node),
            first_alone,
            itself(&node_without_server.endpoint),
        ),
    ]
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
