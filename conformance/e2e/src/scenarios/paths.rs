//! Every path between pods, nodes and the world, and the source that the other
//! end sees: by TCP and by UDP.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab::{Background, Transport, wait_until};

use super::{Begins, Scenario};
use crate::ask::{TRANSPORTS, ask};
use crate::node::Node;
use crate::place::Place;
use crate::stage::Stage;

pub const SCENARIO: Scenario = Scenario {
    name: "paths",
    shows: "pods, nodes and the world reach each other, and see the source that is promised",
    begins: Begins::Ready,
    run,
};

const POD_LIMIT: Duration = Duration::from_secs(180);

/// Of so many failures from one end all is told; each may take its time.
const ENOUGH: usize = 3;

/// Two pods on each node, and one in its network namespace.
const SERVERS: [(&str, bool); 3] = [("one", false), ("two", false), ("host", true)];

/// Not those of a pod, which a node may have in use itself.
const HOST_PORTS: Ports = Ports {
    tcp: 18080,
    udp: 18081,
};

const POD_PORTS: Ports = Ports {
    tcp: 8080,
    udp: 8081,
};

#[derive(Clone, Copy)]
struct Ports {
    tcp: u16,
    udp: u16,
}

/// A server that tells who asks, and a place to ask from.
struct End<'a> {
    place: Place,
    /// None for the one outside.
    node: Option<&'a Node>,
    is_host: bool,
}

impl<'a> End<'a> {
    fn of_pod(pod: &Value, nodes: &'a [Node], is_host: bool) -> Result<Self> {
        let name = &pod["spec"]["nodeName"];
        let node = nodes.iter().find(|node| *name == *node.place.name);
        Ok(Self {
            place: Place::pod(pod)?,
            node: Some(node.with_context(|| format!("there is no node {name}"))?),
            is_host,
        })
    }

    fn by(&self, transport: Transport) -> SocketAddr {
        let Ports { tcp, udp } = if self.is_host { HOST_PORTS } else { POD_PORTS };
        let port = match transport {
            Transport::Tcp => tcp,
            Transport::Udp => udp,
        };
        SocketAddr::new(self.place.address, port)
    }
}

fn run(stage: &mut Stage<'_>) -> Result<()> {
    for (name, is_host) in SERVERS {
        stage.apply(&servers(name, is_host))?;
    }
    let machines = stage.cluster.nodes();
    let nodes = machines.map(|machine| Node::of(stage, machine));
    let nodes = nodes.collect::<Result<Vec<_>>>()?;
    let mut ends = Vec::new();
    for (name, is_host) in SERVERS {
        for pod in stage.wait_all_ready(&format!("app={name}"), nodes.len(), POD_LIMIT)? {
            ends.push(End::of_pod(&pod, &nodes, is_host)?);
        }
    }
    let outside = outside(stage)?;
    ends.push(End {
        place: Place::outside(stage.cluster),
        node: None,
        is_host: true,
    });

    let mut answers = 0;
    let mut wrong = Vec::new();
    for from in &ends {
        if let Some(node) = from.node {
            wrong.extend(ask_all(from, node, &ends, &mut answers));
        }
    }
    drop(outside);
    ensure!(
        wrong.is_empty(),
        "{answers} answers were right, and these were not:\n{}",
        wrong.join("\n")
    );
    let dropped = stage.cluster.underlay().foreign_frames()?;
    ensure!(
        dropped == 0,
        "{dropped} frames left a node with a foreign source"
    );
    stage.measure("paths, each by TCP and UDP", (answers / 2).to_string());
    Ok(())
}

/// Asks every end but itself from one on `node`, both ways. Counts the right
/// answers, and gives what was wrong.
fn ask_all(from: &End<'_>, node: &Node, ends: &[End<'_>], answers: &mut usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_other = |to: &&End<'_>| to.place.address != from.place.address;
    for to in ends.iter().filter(is_other) {
        let expected = expected_source(from, node, to);
        for transport in TRANSPORTS {
            let failure = match ask(&from.place, transport, to.by(transport)) {
                Ok(answer) if answer.seen == expected => {
                    *answers += 1;
                    continue;
                }
                Ok(answer) => format!("{} is seen, and not {expected}", answer.seen),
                Err(error) => format!("{error:#}"),
            };
            let (from, to) = (&from.place, &to.place);
            wrong.push(format!(
                "{transport:?} from {} ({}) to {} ({}): {failure}",
                from.name, from.address, to.name, to.address
            ));
            if wrong.len() == ENOUGH {
                return wrong;
            }
        }
    }
    wrong
}

/// Whom `to` has to see when `from` on `node` asks: the promises of tweed over
/// VXLAN.
fn expected_source(from: &End<'_>, node: &Node, to: &End<'_>) -> IpAddr {
    let own_address = node.place.address;
    match (from.is_host, to.is_host, to.node) {
        // Without NAT, and so is a pod to its own node.
        (false, false, _) => from.place.address,
        (false, true, Some(its)) if its.is(node) => from.place.address,
        (_, true, _) => own_address,
        (true, false, its) => its.map_or(own_address, |its| node.seen_on(its)),
    }
}

/// The same server on the host outside.
fn outside(stage: &Stage<'_>) -> Result<Background> {
    let lab = stage.cluster.lab();
    let netns = stage.cluster.underlay().outside();
    let program = stage.cluster.program("agnhost")?;
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

fn servers(name: &str, is_host: bool) -> String {
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
