//! Without kube-proxy nobody answers at the API server's ClusterIP. An agent that
//! is told where the API server is needs nobody there.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tweed_lab::Programs;
use tweed_lab_kubernetes::{CONTROL, ProxyMode, SERVICE_OF_API};

use super::{Begins, Scenario};
use crate::place::Place;
use crate::pods;
use crate::stage::{AGENTS, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "bootstrap",
    shows: "without kube-proxy, agents start and a node boots: they are told where the API server is",
    begins: Begins::Ready,
    run,
};

/// For agents to be Ready on all nodes.
const LIMIT: Duration = Duration::from_secs(300);

/// Nobody is there who could be slow.
const NO_ANSWER: Duration = Duration::from_secs(1);

/// The folder that the guide names.
const OVERLAY: &str = "install/kustomize/without-kube-proxy";

fn run(stage: &mut Stage<'_>) -> Result<()> {
    let proxy = stage.cluster.proxy();
    let played = play(stage);
    let played = stage.witness(played);
    let restored = restore(stage, proxy);
    played.and(restored)
}

fn play(stage: &mut Stage<'_>) -> Result<()> {
    stage.cluster.set_proxy(ProxyMode::None)?;
    for node in stage.cluster.nodes() {
        let rules = node.sh("nft list tables; iptables-save --table nat")?;
        ensure!(
            !rules.contains("kube-proxy") && !rules.contains("KUBE-SVC"),
            "{} has rules of kube-proxy: {rules}",
            node.name()
        );
        nobody_answers(&Place::node(node))?;
    }

    let start = Instant::now();
    let overlay = Programs::find()?.target().with_file_name(OVERLAY);
    let apply = [
        "apply".as_ref(),
        "--kustomize".as_ref(),
        overlay.as_os_str(),
    ];
    stage.kubectl().run(apply)?;
    told_where(stage)?;
    // Those that run have their connections from before.
    let agents = "pods --namespace kube-system --selector app.kubernetes.io/name=tweed";
    stage
        .kubectl()
        .sh(&format!("delete {agents} --timeout={}s", LIMIT.as_secs()))?;
    stage.kubectl().wait_rolled_out(AGENTS, LIMIT)?;
    let what = "without kube-proxy, from the command to new agents Ready on all nodes";
    stage.measure(what, seconds(start));

    let worker = stage.cluster.workers().next().context("no worker")?;
    let worker = worker.name().to_owned();
    let start = Instant::now();
    stage.cluster.reboot(&worker)?;
    let rebooted = pods::start(stage, "rebooted", &worker)?;
    let what = "without kube-proxy, from a node's reboot to a new pod on it";
    stage.measure(what, seconds(start));
    nobody_answers(&rebooted)?;
    for pod in pods::start_on_all(stage, "fresh")? {
        rebooted.ping(&pod, 3)?;
        pod.ping(&rebooted, 3)?;
    }
    Ok(())
}

/// The cluster as it was.
fn restore(stage: &mut Stage<'_>, proxy: ProxyMode) -> Result<()> {
    stage.cluster.set_proxy(proxy)?;
    stage.cluster.install_tweed()?;
    Ok(stage.kubectl().wait_rolled_out(AGENTS, LIMIT)?)
}

/// The overlay's example is where this cluster's API server is.
fn told_where(stage: &Stage<'_>) -> Result<()> {
    let address = stage.cluster.node(CONTROL)?.spec().address;
    let url = format!("https://{address}:6443");
    let line = "get daemonset tweed --namespace kube-system";
    let object = stage.kubectl().json(line)?;
    let variables = &object["spec"]["template"]["spec"]["containers"][0]["env"];
    let is_told =
        |one: &serde_json::Value| one["name"] == "TWEED_API_SERVER" && one["value"] == *url;
    ensure!(
        variables
            .as_array()
            .is_some_and(|all| all.iter().any(is_told)),
        "the API server is at {url}, and {OVERLAY} makes {variables}"
    );
    Ok(())
}

/// The Service `kubernetes` does not answer.
fn nobody_answers(from: &Place) -> Result<()> {
    let service = SocketAddr::new(SERVICE_OF_API.into(), 443);
    let answer = from.enter(|| TcpStream::connect_timeout(&service, NO_ANSWER))?;
    ensure!(
        answer.is_err(),
        "{service} answers {}, and no kube-proxy runs",
        from.name
    );
    Ok(())
}

fn seconds(since: Instant) -> String {
    format!("{:.1} s", since.elapsed().as_secs_f64())
}
