//! Every path between pods, nodes and the host outside, by TCP and by UDP, and the
//! source address that the server sees.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab::{Background, Transport, wait_until};

use super::{Precondition, Scenario};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::netexec::{TRANSPORTS, request};
use crate::node::NodeEndpoint;

pub const SCENARIO: Scenario = Scenario {
    name: "paths",
    shows: "pods, nodes and the host outside reach each other and see the promised source",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until the servers are ready.
const POD_LIMIT: Duration = Duration::from_secs(180);

/// Maximum number of failures from one client, because each may wait for a timeout.
const MAX_FAILURES: usize = 3;

/// The servers on each node: name, and whether it is in the node's network.
const SERVERS: [(&str, bool); 3] = [("one", false), ("two", false), ("host", true)];

/// Ports of the servers in a node's network, where those of the pods may be in use.
const HOST_PORTS: Ports = Ports {
    tcp: 18080,
    udp: 18081,
};

/// Ports of the servers in pods.
const POD_PORTS: Ports = Ports {
    tcp: 8080,
    udp: 8081,
};

#[derive(Clone, Copy)]
struct Ports {
    tcp: u16,
    udp: u16,
}

/// A server that is also a client of the others.
struct Server<'a> {
    endpoint: Endpoint,
    /// `None` for the host outside.
    node: Option<&'a NodeEndpoint>,
    is_host: bool,
}

impl<'a> Server<'a> {
    fn of_pod(pod: &Value, nodes: &'a [NodeEndpoint], is_host: bool) -> Result<Self> {
        let name = &pod["spec"]["nodeName"];
        let node = nodes.iter().find(|node| *name == *node.endpoint.name);
        Ok(Self {
            endpoint: Endpoint::pod(pod)?,
            node: Some(node.with_context(|| format!("there is no node {name}"))?),
            is_host,
        })
    }

    fn socket_address(&self, transport: Transport) -> SocketAddr {
        let Ports { tcp, udp } = if self.is_host { HOST_PORTS } else { POD_PORTS };
        let port = match transport {
            Transport::Tcp => tcp,
            Transport::Udp => udp,
        };
        SocketAddr::new(self.endpoint.address, port)
    }
}

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    for (name, is_host) in SERVERS {
        fixture.apply(&manifest(name, is_host))?;
    }
    let machines = fixture.cluster.nodes();
    let endpoints = machines.map(|machine| NodeEndpoint::of(fixture, machine));
    let nodes = endpoints.collect::<Result<Vec<_>>>()?;
    let mut servers = Vec::new();
    for (name, is_host) in SERVERS {
        for pod in fixture.wait_all_ready(&format!("app={name}"), nodes.len(), POD_LIMIT)? {
            servers.push(Server::of_pod(&pod, &nodes, is_host)?);
        }
    }
    let outside = start_outside(fixture)?;
    servers.push(Server {
        endpoint: Endpoint::outside(fixture.cluster),
        node: None,
        is_host: true,
    });

    let mut answers = 0;
    let mut wrong = Vec::new();
    for from in &servers {
        if let Some(node) = from.node {
            wrong.extend(request_all(from, node, &servers, &mut answers));
        }
    }
    drop(outside);
    ensure!(
        wrong.is_empty(),
        "{answers} answers were correct, these were not:\n{}",
        wrong.join("\n")
    );
    let dropped = fixture.cluster.underlay().foreign_frames()?;
    ensure!(
        dropped == 0,
        "{dropped} frames left a node with a foreign source"
    );
    fixture.measure("paths, each by TCP and UDP", (answers / 2).to_string());
    Ok(())
}

/// Sends requests from one end, which is on `node`, to all others, by both transports.
/// Counts the correct answers and returns the failures.
fn request_all(
    from: &Server<'_>,
    node: &NodeEndpoint,
    servers: &[Server<'_>],
    answers: &mut usize,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_other = |to: &&Server<'_>| to.endpoint.address != from.endpoint.address;
    for to in servers.iter().filter(is_other) {
        let expected = expected_source(from, node, to);
        for transport in TRANSPORTS {
            let failure = match request(&from.endpoint, transport, to.socket_address(transport)) {
                Ok(answer) if answer.client == expected => {
                    *answers += 1;
                    continue;
                }
                Ok(answer) => format!("the server sees {} and not {expected}", answer.client),
                Err(error) => format!("{error:#}"),
            };
            let (from, to) = (&from.endpoint, &to.endpoint);
            wrong.push(format!(
                "{transport:?} from {} ({}) to {} ({}): {failure}",
                from.name, from.address, to.name, to.address
            ));
            if wrong.len() == MAX_FAILURES {
                return wrong;
            }
        }
    }
    wrong
}

/// The source that `to` must see for a request of `from` on `node`, over VXLAN.
fn expected_source(from: &Server<'_>, node: &NodeEndpoint, to: &Server<'_>) -> IpAddr {
    let own_address = node.endpoint.address;
    match (from.is_host, to.is_host, to.node) {
        // Without NAT, like a pod to its own node.
        (false, false, _) => from.endpoint.address,
        (false, true, Some(its)) if its.is_same(node) => from.endpoint.address,
        (_, true, _) => own_address,
        (true, false, its) => its.map_or(own_address, |its| node.source_seen_on(its)),
    }
}

/// Starts the same server on the host outside.
fn start_outside(fixture: &Fixture<'_>) -> Result<Background> {
    let lab = fixture.cluster.lab();
    let netns = fixture.cluster.underlay().outside();
    let program = fixture.cluster.program("agnhost")?;
    let mut command = netns.command(program);
    command.args(arguments(HOST_PORTS));
    let server = Background::start(lab, &mut command, &lab.folder().join("outside.log"))?;
    wait_until("the server outside", POD_LIMIT, || {
        let sockets = netns.sh("ss -Hltun").map_err(|error| error.chain())?;
        let ports = [HOST_PORTS.tcp, HOST_PORTS.udp].map(|port| format!(":{port} "));
        let is_up = ports.iter().all(|port| sockets.contains(port));
        is_up.then_some(()).ok_or(sockets)
    })?;
    Ok(server)
}

fn arguments(ports: Ports) -> [String; 3] {
    [
        "netexec".to_owned(),
        format!("--http-port={}", ports.tcp),
        format!("--udp-port={}", ports.udp),
    ]
}

fn manifest(name: &str, is_host: bool) -> String {
    let ports = if is_host { HOST_PORTS } else { POD_PORTS };
    let arguments = arguments(ports).join(", ");
    format!(
        r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {{ name: {name} }}
spec:
  selector: {{ matchLabels: {{ app: {name} }} }}
  template:
    metadata: {{ labels: {{ app: {name} }} }}
    spec:
      hostNetwork: {is_host}
      tolerations: [{{ operator: Exists }}]
      terminationGracePeriodSeconds: 1
      containers:
        - name: server
          image: localhost/agnhost:lab
          args: [{arguments}]
          readinessProbe: {{ httpGet: {{ path: /healthz, port: {tcp} }}, periodSeconds: 1, timeoutSeconds: 20 }}
"#,
        tcp = ports.tcp
    )
}
