//! A cluster in which there never is a kube-proxy: tweed serves Services from the first
//! start of its agents on, and after a reboot. Its pods have addresses of both families.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result};
use tweed_lab::wait_until;
use tweed_lab_kubernetes::{Cluster, Network, ProxyMode, SERVICE_OF_API, Spec};

use super::super::names;
use super::{LIMIT, NO_ANSWER, check_api_server_address, dual_stack};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::pods;

/// CoreDNS has two pods on two nodes.
const WORKERS: u8 = 1;

/// The name of its cluster beside that of the other scenarios.
pub fn lab_of(cluster: &str) -> String {
    format!("{cluster}-bare")
}

/// Runs all steps in a cluster of its own.
pub fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let spec = Spec {
        workers: WORKERS,
        network: Network::Tweed,
        proxy: ProxyMode::Tweed,
        dual_stack: true,
        ..fixture.cluster.spec().clone()
    };
    let name = lab_of(fixture.cluster.name());
    let start = Instant::now();
    let mut cluster = Cluster::up(&name, spec, Box::new(|_| {}))?;
    let what = "tweed without any kube-proxy, until all nodes are Ready";
    fixture.measure_time(what, start.elapsed());
    let mut bare = Fixture::new(&mut cluster, fixture.tier, "bootstrap")?;
    let result = run_steps(&mut bare);
    let result = bare.report_failure(result);
    let Fixture { notes, report, .. } = bare;
    for (what, value) in notes {
        fixture.measure(&format!("without any kube-proxy: {what}"), value);
    }
    fixture.report = fixture.report.take().or(report);
    result
}

fn run_steps(fixture: &mut Fixture<'_>) -> Result<()> {
    check_api_server_address(fixture)?;
    for node in fixture.cluster.nodes() {
        becomes_reachable(&Endpoint::node(node))?;
    }
    let pods = pods::start_on_all(fixture, "fresh")?;
    for pod in &pods {
        becomes_reachable(pod)?;
    }
    names::run(fixture)?;
    dual_stack::run(fixture, &pods).context("both families")?;

    let worker = fixture.first_worker()?;
    let start = Instant::now();
    let node = Endpoint::node(fixture.cluster.reboot(&worker)?);
    becomes_reachable(&node)?;
    let what = "from a node's reboot until the API server's Service answers on it";
    fixture.measure_time(what, start.elapsed());
    becomes_reachable(&pods::start(fixture, "rebooted", &worker)?)
}

/// Waits until the Service `kubernetes` accepts a connection.
fn becomes_reachable(from: &Endpoint) -> Result<()> {
    let service = SocketAddr::new(SERVICE_OF_API.into(), 443);
    let what = format!("{service} to answer {}", from.name);
    wait_until(&what, LIMIT, || {
        match from.enter(|| TcpStream::connect_timeout(&service, NO_ANSWER)) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(format!("{error:#}")),
        }
    })?;
    Ok(())
}
