//! Taken off a node by the documented commands, tweed leaves it as it was.

mod state;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tweed_lab::{Programs, run as run_program};
use tweed_lab_kubernetes::Machine;

use super::{Begins, Scenario};
use crate::stage::Stage;
use crate::traffic::Traffic;
use crate::{newcomer, pods};
use state::State;

pub const SCENARIO: Scenario = Scenario {
    name: "uninstall",
    shows: "pods outlive the DaemonSet, and a cleaned node is as it was before tweed came",
    begins: Begins::Ready,
    run,
};

const LIMIT: Duration = Duration::from_secs(120);

/// How long packets have to go on without any agent.
const WITHOUT_AGENT: Duration = Duration::from_secs(3);

/// Another network's config that a runtime takes before tweed's.
const RIVAL: &str = "05-rival.conflist";
const RIVAL_TEXT: &str = r#"{"cniVersion":"1.0.0","name":"rival","plugins":[{"type":"bridge",
"bridge":"rival","ipam":{"type":"host-local","subnet":"10.99.0.0/24"}}]}"#;

/// Where a displaced config is.
const DISPLACED: &str = "/etc/cni/net.d/05-rival.conflist.tweed-displaced";

/// The folders that the commands of the guide name.
struct Source {
    helm: PathBuf,
    install: PathBuf,
}

fn run(stage: &mut Stage<'_>) -> Result<()> {
    let programs = Programs::find()?;
    let source = Source {
        helm: programs.tool("helm")?,
        install: programs.target().with_file_name("install"),
    };
    // No node of the cluster is without tweed. A new one is, if tweed is away
    // when it comes.
    let manifest = source.install.join("tweed.yaml").display().to_string();
    stage.kubectl().run(["delete", "--filename", &manifest])?;
    wait_for_no_agent(stage)?;
    let spec = newcomer::spec(stage)?;
    let node = stage.cluster.add_node(spec)?.name().to_owned();
    let played = play(stage, &source, &node);
    let played = stage.witness(played);
    // The next scenario finds the cluster as this one did.
    let line = format!("delete node {node} --ignore-not-found");
    let restored = stage
        .cluster
        .take_node_away(&node)
        .and_then(|()| stage.kubectl().sh(&line))
        .and_then(|_| stage.cluster.install_tweed());
    played.and(restored.map(drop).map_err(Into::into))
}

fn play(stage: &mut Stage<'_>, source: &Source, node: &str) -> Result<()> {
    let rival = stage.cluster.node(node)?.own("/etc/cni/net.d").join(RIVAL);
    fs::write(&rival, RIVAL_TEXT).with_context(|| rival.display().to_string())?;
    let before = State::at_rest(stage.cluster.node(node)?)?;
    stage.measure(
        "objects, sysctls and files of a node that are compared",
        before.len().to_string(),
    );

    let manifests = install(stage, source)?;
    let with_tweed = State::of(stage.cluster.node(node)?)?;
    let changes = before.changes(&with_tweed);
    for part in [
        "tweed.1",
        "inet",
        "10-tweed.conflist",
        DISPLACED,
        "ip_forward",
    ] {
        let shows = |change: &String| change.contains(part);
        ensure!(
            changes.iter().any(shows),
            "tweed is there, and {part} is not"
        );
    }

    outlive_the_daemon_set(stage, &manifests, node)?;

    let drain = format!("drain {node} --force --ignore-daemonsets --grace-period=1 --timeout=120s");
    stage.kubectl().sh(&drain)?;
    let took = clean(stage, source, node, false)?;
    stage.measure("to clean a node", format!("{:.1} s", took.as_secs_f64()));
    let machine = stage.cluster.node(node)?;
    let changes = before.changes(&State::of(machine)?);
    let is_rival = |change: &&String| change.contains(RIVAL);
    let others: Vec<&String> = changes.iter().filter(|one| !is_rival(one)).collect();
    ensure!(
        others.is_empty(),
        "this is not as it was before: {others:#?}"
    );
    ensure!(
        machine.sh("ls /etc/cni/net.d")?.trim() == format!("{RIVAL}.tweed-displaced"),
        "the other network's config was to stay displaced: {changes:#?}"
    );

    clean(stage, source, node, true)?;
    let changes = before.changes(&State::of(stage.cluster.node(node)?)?);
    ensure!(
        changes.is_empty(),
        "this is not as it was before: {changes:#?}"
    );
    stage.tell("links, addresses, routes, rules, tables, sysctls and files are as they were");
    Ok(())
}

/// Installs the chart, which is told to displace other networks' configs; the
/// manifests that it consists of.
fn install(stage: &Stage<'_>, source: &Source) -> Result<String> {
    let mut helm = std::process::Command::new(&source.helm);
    helm.args(["template", "tweed"])
        .arg(source.install.join("chart"))
        .args(["--namespace", "kube-system", "--set", "displaceCni=true"]);
    let manifests = run_program(&mut helm)?;
    stage.kubectl().apply(&manifests)?;
    wait_for_rollout(stage, "tweed")?;
    stage.cluster.wait_nodes_ready()?;
    Ok(manifests)
}

/// Takes the DaemonSet away while a pod of the node and one of another node
/// ping each other.
fn outlive_the_daemon_set(stage: &Stage<'_>, manifests: &str, node: &str) -> Result<()> {
    let mut workers = stage.cluster.workers().map(Machine::name);
    let other = workers.find(|name| *name != node);
    let other = other.context("there is no other worker")?;
    let mut ends = Vec::new();
    for (name, node) in [("here", node), ("there", other)] {
        ends.push(pods::start(stage, name, node)?);
    }
    let traffic = Traffic::between(&ends)?;
    stage.kubectl().delete(manifests)?;
    wait_for_no_agent(stage)?;
    std::thread::sleep(WITHOUT_AGENT);
    let total = traffic.stop().context("with the DaemonSet gone")?;
    stage.tell(&format!(
        "the DaemonSet went, and pods stayed connected: {} of {0} pings answered",
        total.answered
    ));
    Ok(())
}

/// The commands of the guide that clean a node, for one node; how long the pod
/// took.
fn clean(stage: &Stage<'_>, source: &Source, node: &str, restore_cni: bool) -> Result<Duration> {
    let start = Instant::now();
    let patch = json!({ "spec": { "template": { "spec": {
        "nodeSelector": { "kubernetes.io/hostname": node },
        "initContainers": [{
            "name": "uninstall",
            "env": [{ "name": "TWEED_RESTORE_CNI", "value": restore_cni.to_string() }],
        }],
    }}}});
    let file = source.install.join("uninstall-node.yaml");
    let file = file.display().to_string();
    let patch = patch.to_string();
    let words = ["patch", "--local", "--output=yaml", "--filename", &file];
    let manifest = stage
        .kubectl()
        .run(words.into_iter().chain(["--patch", &patch]))?;
    stage.kubectl().apply(&manifest)?;
    wait_for_rollout(stage, "tweed-uninstall")?;
    let took = start.elapsed();
    stage.kubectl().delete(&manifest)?;
    wait_for_none(stage, "uninstall")?;
    // All that the pod cannot do: it is refused unless the folder is empty.
    stage.cluster.node(node)?.sh("rmdir /run/tweed")?;
    Ok(took)
}

fn wait_for_rollout(stage: &Stage<'_>, daemon_set: &str) -> Result<()> {
    let line = format!(
        "rollout status daemonset/{daemon_set} --namespace kube-system --timeout {}s",
        LIMIT.as_secs()
    );
    Ok(stage.kubectl().sh(&line).map(drop)?)
}

fn wait_for_no_agent(stage: &Stage<'_>) -> Result<()> {
    wait_for_none(stage, "agent")
}

/// Waits until no pod of a component of tweed is left.
fn wait_for_none(stage: &Stage<'_>, component: &str) -> Result<()> {
    let what = format!("the end of all pods of tweed's {component}");
    let words = format!(
        "pods --namespace kube-system --selector app.kubernetes.io/component={component} \
         --output name"
    );
    stage.kubectl().wait_for(&what, LIMIT, || {
        let left = stage.kubectl().sh(&format!("get {words}"));
        match left.map_err(|error| error.chain())? {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })?;
    Ok(())
}
