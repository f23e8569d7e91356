//! Clients of Services and of a pod with a policy, all through the upgrade: open flows stay,
//! new connections reach their servers, and who may not reach the pod never does.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tweed_lab::Transport;

use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::flows::Flows;
use crate::load::{Load, Targets};
use crate::netexec::{Connection, TRANSPORTS, is_timeout};
use crate::pods;
use crate::service::Service;
use crate::stop::{Stop, Stopped};

const OBJECTS: &str = include_str!("objects.yaml");

/// Maximum time until the pods are Ready.
const POD_LIMIT: Duration = Duration::from_secs(120);

/// The ports of netexec in a pod.
const TCP_PORT: u16 = 8080;
const UDP_PORT: u16 = 8081;

/// The Service in front of the pods on all nodes.
const SERVICE: &str = "steady";

/// How long a stranger waits for an answer before it tries again with a new flow.
const TRY: Duration = Duration::from_millis(25);

/// Pods on two nodes, these nodes, and the host outside.
pub struct Hosts {
    /// A server on every node.
    pub steady: Vec<Endpoint>,
    /// The one on the first node, and on the second; only these may reach the guarded pod.
    pub here: Endpoint,
    pub there: Endpoint,
    /// Another pod on the first node.
    pub beside: Endpoint,
    /// The pod with a policy, on the first node too.
    pub guarded: Endpoint,
    pub first_node: Endpoint,
    pub second_node: Endpoint,
    pub outside: Endpoint,
}

impl Hosts {
    /// Creates the pods, and waits until they are Ready.
    pub fn create(fixture: &Fixture<'_>, first: &str, second: &str) -> Result<Self> {
        let nodes = fixture.cluster.nodes().count();
        fixture.apply(OBJECTS)?;
        let beside = pods::start(fixture, "beside", first)?;
        let steady = fixture.wait_all_ready("app=steady", nodes, POD_LIMIT)?;
        let on = |node: &str| {
            let pod = steady.iter().find(|pod| pod["spec"]["nodeName"] == node);
            Endpoint::pod(pod.with_context(|| format!("no pod is on {node}"))?)
        };
        Ok(Self {
            steady: steady.iter().map(Endpoint::pod).collect::<Result<_>>()?,
            here: on(first)?,
            there: on(second)?,
            beside,
            guarded: Endpoint::pod(&fixture.wait_ready("guarded", POD_LIMIT)?)?,
            first_node: Endpoint::node(fixture.cluster.node(first)?),
            second_node: Endpoint::node(fixture.cluster.node(second)?),
            outside: Endpoint::outside(fixture.cluster),
        })
    }
}

/// What lasts from the beginning to the end.
pub struct Lasting {
    flows: Flows,
    strangers: Vec<Stranger>,
}

/// Counts of what was asked and answered.
#[derive(Debug, Default)]
pub struct Answers {
    pub flows: usize,
    pub on_flows: usize,
    pub tries: usize,
}

impl Lasting {
    /// Opens flows to the Service, and has strangers try to reach the guarded pod.
    pub fn start(fixture: &Fixture<'_>, hosts: &Hosts) -> Result<Self> {
        let service = Service::get(fixture, SERVICE)?;
        let mut wanted = Vec::new();
        for transport in TRANSPORTS {
            let at = service.cluster_ip().socket_address(transport);
            wanted.push(("a cluster IP", &hosts.there, transport, at));
            let at = service
                .node_port(hosts.first_node.address)
                .socket_address(transport);
            wanted.push(("a node port", &hosts.outside, transport, at));
        }
        let guarded = SocketAddr::new(hosts.guarded.address, UDP_PORT);
        let strangers = [&hosts.beside, &hosts.second_node].into_iter();
        Ok(Self {
            flows: Flows::open(&wanted)?,
            strangers: strangers
                .map(|from| Stranger::start(from, guarded))
                .collect(),
        })
    }

    /// Waits until every flow has had another answer.
    pub fn check(&self) -> Result<()> {
        self.flows.check()
    }

    /// # Errors
    /// A flow has broken, lost a datagram or got another server, or a stranger was answered.
    pub fn stop(self) -> Result<Answers> {
        let flows = self.flows.count();
        let outcome = self.flows.stop(0)?;
        let mut tries = 0;
        for stranger in self.strangers {
            tries += stranger.stop()?;
        }
        Ok(Answers {
            flows,
            on_flows: outcome.answered,
            tries,
        })
    }
}

/// New connections all the time: to the Service from a pod and from outside, and to the
/// guarded pod from one that may reach it.
pub fn new_connections(fixture: &Fixture<'_>, hosts: &Hosts) -> Result<Vec<Load>> {
    let service = Service::get(fixture, SERVICE)?;
    let node_ports = Targets::default();
    let nodes = [&hosts.first_node, &hosts.second_node];
    let at = |node: &Endpoint| {
        service
            .node_port(node.address)
            .socket_address(Transport::Tcp)
    };
    node_ports.set(nodes.map(at).into());
    let cluster_ip = (service.cluster_ip().socket_address(Transport::Tcp)).into();
    let guarded = SocketAddr::new(hosts.guarded.address, TCP_PORT).into();
    Ok(vec![
        Load::start("a pod, by cluster IP", &hosts.there, &cluster_ip),
        Load::start("outside, by node port", &hosts.outside, &node_ports),
        Load::start("a pod that the policy lets in", &hosts.there, &guarded),
    ])
}

/// Sends datagrams that nobody must answer, each from another port: a new flow.
struct Stranger {
    name: String,
    stop: Stop,
    thread: JoinHandle<Result<usize>>,
}

impl Stranger {
    fn start(from: &Endpoint, to: SocketAddr) -> Self {
        let stop = Stop::default();
        let thread = std::thread::spawn({
            let (from, stopped) = (from.clone(), stop.stopped());
            move || from.enter(|| try_until(to, &stopped))?
        });
        let name = from.name.clone();
        Self { name, stop, thread }
    }

    /// The number of tries.
    fn stop(self) -> Result<usize> {
        drop(self.stop);
        let tries = self.thread.join().map_err(|_| anyhow!("it panicked"));
        tries.flatten().with_context(|| self.name.clone())
    }
}

fn try_until(to: SocketAddr, stopped: &Stopped) -> Result<usize> {
    let mut tries = 0;
    while !stopped.now() {
        match Connection::open_here(Transport::Udp, to, TRY)?.ask_within(TRY) {
            Err(error) if is_timeout(&error) => tries += 1,
            Err(error) => return Err(error.context("a denied datagram must get no reply")),
            Ok(server) => {
                bail!("{server} has answered after {tries} tries, which the policy forbids")
            }
        }
    }
    Ok(tries)
}
