//! A load balancer: it asks the health check of a Service on every node, and sends requests
//! to the nodes that are healthy.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tweed_lab::{Transport, wait_until};

use super::LIMIT;
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::load::Targets;
use crate::service::Service;
use crate::stop::{Stop, Stopped};

/// Pause between two rounds of health checks. It is the time in which a node that has lost
/// its last ready server still gets requests, which a server that terminates has to answer.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time until a health check is answered; long enough for a machine that compiles
/// at the same time.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// A load balancer that runs until it is stopped, or dropped.
#[derive(Debug)]
pub struct LoadBalancer {
    targets: Targets,
    stop: Stop,
    thread: JoinHandle<Result<usize>>,
}

/// Where a node's health check is, and where its requests go.
#[derive(Debug, Clone, Copy)]
struct Node {
    health_check: SocketAddr,
    node_port: SocketAddr,
}

impl LoadBalancer {
    /// Starts it outside the cluster, and waits until some node is healthy.
    pub fn start(fixture: &Fixture<'_>, service: &Service) -> Result<Self> {
        let ports = fixture.cluster.nodes().map(|node| {
            let address = node.spec().address.into();
            Node {
                health_check: service.health_check(address),
                node_port: (service.node_port(address)).socket_address(Transport::Tcp),
            }
        });
        let nodes: Vec<Node> = ports.collect();
        let outside = Endpoint::outside(fixture.cluster);
        wait_until("a healthy node", LIMIT, || {
            match outside.enter(|| healthy(&nodes)) {
                Ok(Ok(healthy)) if !healthy.is_empty() => Ok(()),
                Ok(Ok(_)) => Err("none is".to_owned()),
                Ok(Err(error)) | Err(error) => Err(format!("{error:#}")),
            }
        })?;
        let (targets, stop) = (Targets::default(), Stop::default());
        let thread = std::thread::spawn({
            let (targets, stopped) = (targets.clone(), stop.stopped());
            move || outside.enter(|| run(&nodes, &targets, &stopped))?
        });
        Ok(Self {
            targets,
            stop,
            thread,
        })
    }

    /// The node ports of the healthy nodes.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// Stops it, and returns how often the healthy nodes were others than before.
    ///
    /// # Errors
    /// A health check was not answered.
    pub fn stop(self) -> Result<usize> {
        drop(self.stop);
        let changes = self.thread.join().map_err(|_| anyhow!("it panicked"))?;
        changes.context("the load balancer")
    }
}

fn run(nodes: &[Node], targets: &Targets, stopped: &Stopped) -> Result<usize> {
    let mut known = BTreeSet::new();
    let mut changes = 0;
    while !stopped.now() {
        let now = healthy(nodes)?;
        if now != known {
            targets.set(now.iter().copied().collect());
            changes += usize::from(!known.is_empty());
            known = now;
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(changes)
}

/// The node ports of the nodes whose health check is positive.
fn healthy(nodes: &[Node]) -> Result<BTreeSet<SocketAddr>> {
    let mut healthy = BTreeSet::new();
    for node in nodes {
        let at = node.health_check;
        if is_healthy(at).with_context(|| format!("the health check at {at}"))? {
            healthy.insert(node.node_port);
        }
    }
    Ok(healthy)
}

fn is_healthy(at: SocketAddr) -> Result<bool> {
    let mut stream = TcpStream::connect_timeout(&at, ANSWER_LIMIT).context("connect")?;
    let limited = stream.set_read_timeout(Some(ANSWER_LIMIT));
    limited.context("set the timeout")?;
    let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).context("send")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("receive")?;
    let status = answer.split(' ').nth(1).unwrap_or_default();
    ensure!(["200", "503"].contains(&status), "it answers {answer:?}");
    Ok(status == "200")
}
