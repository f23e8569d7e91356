//! Without kube-proxy, the ClusterIP of the API server does not work. An agent that is
//! configured with the API server's address does not need it. Where it also serves
//! Services, that ClusterIP and the cluster's DNS work on nodes that have never had a
//! kube-proxy, in both families.

mod dual_stack;
pub mod without_any;

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tweed_lab_kubernetes::{CONTROL, ProxyMode, SERVICE_OF_API};

use super::{Precondition, Scenario};
use crate::agents;
use crate::at_once::at_once;
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::pods;

pub const SCENARIO: Scenario = Scenario {
    name: "bootstrap",
    shows: "without kube-proxy, agents that know the API server's address start, a node boots, and tweed serves Services",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until agents are Ready on all nodes.
const LIMIT: Duration = Duration::from_secs(300);

/// How long to wait for a connection that must fail.
const NO_ANSWER: Duration = Duration::from_secs(1);

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let proxy = fixture.cluster.proxy();
    let result = run_steps(fixture);
    let result = fixture.report_failure(result);
    let restored = restore(fixture, proxy);
    result.and(restored)?;
    without_any::run(fixture)
}

fn run_steps(fixture: &mut Fixture<'_>) -> Result<()> {
    fixture.cluster.set_proxy(ProxyMode::None)?;
    for node in fixture.cluster.nodes() {
        let rules = node.sh("nft list tables; iptables-save --table nat")?;
        ensure!(
            !rules.contains("kube-proxy") && !rules.contains("KUBE-SVC"),
            "{} has rules of kube-proxy: {rules}",
            node.name()
        );
    }
    at_once(fixture.cluster.nodes(), |node| {
        check_no_answer(&Endpoint::node(node))
    })?;

    let start = Instant::now();
    fixture.cluster.install_tweed()?;
    check_api_server_address(fixture)?;
    // Running agents still have connections from before.
    agents::restart(fixture)?;
    let what = "without kube-proxy, from the command to new agents Ready on all nodes";
    fixture.measure_time(what, start.elapsed());

    let worker = fixture.first_worker()?;
    let start = Instant::now();
    fixture.cluster.reboot(&worker)?;
    let rebooted = pods::start(fixture, "rebooted", &worker)?;
    let what = "without kube-proxy, from a node's reboot to a new pod on it";
    fixture.measure_time(what, start.elapsed());
    check_no_answer(&rebooted)?;
    for pod in pods::start_on_all(fixture, "fresh")? {
        rebooted.ping(&pod, 3)?;
        pod.ping(&rebooted, 3)?;
    }
    Ok(())
}

/// Restores the cluster.
fn restore(fixture: &mut Fixture<'_>, proxy: ProxyMode) -> Result<()> {
    fixture.cluster.set_proxy(proxy)?;
    fixture.cluster.install_tweed()?;
    agents::restart(fixture)
}

/// Checks that the address in the overlay is that of this cluster's API server.
fn check_api_server_address(fixture: &Fixture<'_>) -> Result<()> {
    let address = fixture.cluster.node(CONTROL)?.spec().address;
    let url = format!("https://{address}:6443");
    let line = "get daemonset tweed --namespace kube-system";
    let object = fixture.kubectl().json(line)?;
    let variables = &object["spec"]["template"]["spec"]["containers"][0]["env"];
    let has_address =
        |one: &serde_json::Value| one["name"] == "TWEED_API_SERVER" && one["value"] == *url;
    ensure!(
        variables
            .as_array()
            .is_some_and(|all| all.iter().any(has_address)),
        "the API server is at {url}, but the overlay sets {variables}"
    );
    Ok(())
}

/// Checks that the Service `kubernetes` does not answer.
fn check_no_answer(from: &Endpoint) -> Result<()> {
    let service = SocketAddr::new(SERVICE_OF_API.into(), 443);
    let answer = from.enter(|| TcpStream::connect_timeout(&service, NO_ANSWER))?;
    ensure!(
        answer.is_err(),
        "{service} answers {} although no kube-proxy runs",
        from.name
    );
    Ok(())
}
