//! Rolling updates under load: no request fails, by ClusterIP, by node port, and by node
//! ports with `externalTrafficPolicy: Local` behind a load balancer. Each one moves all pods
//! to another node, so that the node before has only pods that terminate, which serve until
//! the load balancer has learned that.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tweed_lab::Transport;
use tweed_lab_kubernetes::Machine;

use super::health_checks::LoadBalancer;
use super::{Clients, LIMIT};
use crate::fixture::Fixture;
use crate::load::{Load, Targets};
use crate::service::Service;

/// Number of pods of the Deployment.
const REPLICAS: usize = 4;

const LABELS: &str = "app=rolling";

pub fn run(fixture: &mut Fixture<'_>, clients: &Clients) -> Result<()> {
    let rollouts = fixture.tier.size(3, 10);
    let names = fixture.cluster.workers().map(Machine::name);
    let workers: Vec<&str> = names.take(2).collect();
    let mut expected = pods(fixture)?;
    let web = Service::get(fixture, "rolling")?;
    let nodes = fixture.cluster.nodes().map(|node| node.spec().address);
    let node_ports = nodes.map(|address| web.node_port(address.into()));
    let by_node_port = Targets::default();
    by_node_port.set(
        node_ports
            .map(|at| at.socket_address(Transport::Tcp))
            .collect(),
    );
    let balancer = LoadBalancer::start(fixture, &Service::get(fixture, "rolling-local")?)?;
    let loads = [
        Load::start(
            "a pod, by ClusterIP",
            &clients.pod,
            &(web.cluster_ip().socket_address(Transport::Tcp)).into(),
        ),
        Load::start("outside, by node port", &clients.outside, &by_node_port),
        Load::start("a load balancer", &clients.outside, balancer.targets()),
    ];
    for number in 1..=rollouts {
        let node = workers[number % workers.len()];
        let patch = json!({ "spec": { "template": { "spec": {
            "nodeSelector": { "kubernetes.io/hostname": node },
        } } } });
        fixture.sh(&format!("patch deployment/rolling --patch {patch}"))?;
        let seconds = LIMIT.as_secs();
        fixture.sh(&format!(
            "rollout status deployment/rolling --timeout={seconds}s"
        ))?;
        expected.extend(pods(fixture)?);
    }
    let changes = balancer.stop()?;
    ensure!(
        changes >= rollouts,
        "in {rollouts} rollouts the load balancer saw other nodes only {changes} times"
    );
    let (mut answered, mut rate) = (0, 0);
    for load in loads {
        let tally = load.stop()?;
        answered += tally.answered;
        rate += tally.rate;
        let missed: Vec<&String> = expected.difference(&tally.servers).collect();
        ensure!(missed.is_empty(), "no request was answered by {missed:?}");
    }
    let replaced = expected.len();
    ensure!(
        replaced == REPLICAS * (rollouts + 1),
        "there were {replaced} pods in {rollouts} rollouts: {expected:?}"
    );
    let what = format!(
        "failed requests in {rollouts} rollouts, each to another node, of {answered} new \
         connections, {rate} a second"
    );
    fixture.measure(&what, "0");
    Ok(())
}

/// The names of the pods of the Deployment, when the old ones are gone and all are Ready.
fn pods(fixture: &Fixture<'_>) -> Result<BTreeSet<String>> {
    let pods = fixture.wait_all_ready(LABELS, REPLICAS, LIMIT)?;
    let name = |pod: &Value| {
        pod["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    Ok(pods.iter().map(name).collect())
}
