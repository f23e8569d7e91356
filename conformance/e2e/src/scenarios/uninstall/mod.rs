//! After the documented commands have removed tweed, a node is as it was before.

mod state;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tweed_lab::{Programs, run as run_program, wait_until};
use tweed_lab_kubernetes::Machine;

use super::{Precondition, Scenario};
use crate::fixture::Fixture;
use crate::traffic::Traffic;
use crate::{extra_node, pods};
use state::State;

pub const SCENARIO: Scenario = Scenario {
    name: "uninstall",
    shows: "pods stay connected without the DaemonSet, and a cleaned node is as before the installation",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until each expected state is reached.
const LIMIT: Duration = Duration::from_secs(120);

/// How long pings must be answered without any agent.
const WITHOUT_AGENT: Duration = Duration::from_secs(3);

/// The config of another network, whose name sorts before tweed's.
const OTHER_CONFIG: &str = "05-other.conflist";
const OTHER_CONFIG_TEXT: &str = r#"{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"bridge",
"bridge":"other","ipam":{"type":"host-local","subnet":"10.99.0.0/24"}}]}"#;

/// The path of that config after it was displaced.
const DISPLACED: &str = "/etc/cni/net.d/05-other.conflist.tweed-displaced";

/// What the commands of the guide use.
struct Source {
    helm: PathBuf,
    install: PathBuf,
}

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let programs = Programs::find()?;
    let source = Source {
        helm: programs.tool("helm")?,
        install: programs.source().join("install"),
    };
    // All nodes of the cluster have tweed. A new node is without it if tweed is
    // uninstalled first.
    let manifest = source.install.join("tweed.yaml").display().to_string();
    fixture.kubectl().run(["delete", "--filename", &manifest])?;
    wait_for_no_agent(fixture)?;
    let spec = extra_node::unused_spec(fixture)?;
    let node = fixture.cluster.add_node(spec)?.name().to_owned();
    let result = run_steps(fixture, &source, &node);
    let result = fixture.report_failure(result);
    // Restore the cluster for the next scenario.
    let line = format!("delete node {node} --ignore-not-found");
    let restored = fixture
        .cluster
        .destroy_machine(&node)
        .and_then(|()| fixture.kubectl().sh(&line))
        .and_then(|_| fixture.cluster.install_tweed());
    result.and(restored.map(drop).map_err(Into::into))
}

fn run_steps(fixture: &mut Fixture<'_>, source: &Source, node: &str) -> Result<()> {
    let other_config = fixture
        .cluster
        .node(node)?
        .host_path("/etc/cni/net.d")
        .join(OTHER_CONFIG);
    fs::write(&other_config, OTHER_CONFIG_TEXT)
        .with_context(|| other_config.display().to_string())?;
    let before = State::when_stable(fixture.cluster.node(node)?)?;
    fixture.measure(
        "objects, sysctls and files of a node that are compared",
        before.len().to_string(),
    );

    let manifests = install(fixture, source)?;
    let with_tweed = State::of(fixture.cluster.node(node)?)?;
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
            "tweed is installed, but {part} does not exist"
        );
    }

    check_without_daemon_set(fixture, &manifests, node)?;

    let drain = format!("drain {node} --force --ignore-daemonsets --grace-period=1 --timeout=120s");
    fixture.kubectl().sh(&drain)?;
    let took = clean(fixture, source, node, false)?;
    fixture.measure_time("to clean a node", took);
    let machine = fixture.cluster.node(node)?;
    wait_until_as(&before, machine, |change| !change.contains(OTHER_CONFIG))?;
    let left = machine.sh("ls /etc/cni/net.d")?;
    ensure!(
        left.trim() == format!("{OTHER_CONFIG}.tweed-displaced"),
        "the other network's config must stay displaced: {left:?}"
    );

    clean(fixture, source, node, true)?;
    wait_until_as(&before, fixture.cluster.node(node)?, |_| true)?;
    fixture.log("links, addresses, routes, rules, tables, sysctls and files are as before");
    Ok(())
}

/// Waits until the node differs from the state before in none of the `counted` changes: the
/// runtime may still remove what was a pod's, and the kernel links.
fn wait_until_as(before: &State, node: &Machine, counted: impl Fn(&String) -> bool) -> Result<()> {
    let what = format!("{} to be as before", node.name());
    wait_until(&what, LIMIT, || {
        let now = State::of(node).map_err(|error| format!("{error:#}"))?;
        let mut changes = before.changes(&now);
        changes.retain(&counted);
        if changes.is_empty() {
            Ok(())
        } else {
            Err(format!("these differ: {changes:#?}"))
        }
    })?;
    Ok(())
}

/// Installs the chart with the option to displace other networks' configs. Returns its
/// manifests.
fn install(fixture: &Fixture<'_>, source: &Source) -> Result<String> {
    let mut helm = std::process::Command::new(&source.helm);
    helm.args(["template", "tweed"])
        .arg(source.install.join("chart"))
        .args(["--namespace", "kube-system", "--set", "displaceCni=true"]);
    let manifests = run_program(&mut helm)?;
    fixture.kubectl().apply(&manifests)?;
    wait_for_rollout(fixture, "tweed")?;
    fixture.cluster.wait_nodes_ready()?;
    Ok(manifests)
}

/// Deletes the DaemonSet while a pod of the node and one of another node ping each
/// other.
fn check_without_daemon_set(fixture: &Fixture<'_>, manifests: &str, node: &str) -> Result<()> {
    let mut workers = fixture.cluster.workers().map(Machine::name);
    let found = workers.find(|name| *name != node);
    let other = found.context("there is no other worker")?;
    let mut ends = Vec::new();
    for (name, node) in [("here", node), ("there", other)] {
        ends.push(pods::start(fixture, name, node)?);
    }
    let traffic = Traffic::between(&ends)?;
    fixture.kubectl().delete(manifests)?;
    wait_for_no_agent(fixture)?;
    std::thread::sleep(WITHOUT_AGENT);
    let total = traffic.stop().context("after the DaemonSet was deleted")?;
    fixture.log(&format!(
        "the DaemonSet was deleted, and pods stayed connected: {} of {0} pings answered",
        total.answered
    ));
    Ok(())
}

/// Runs the commands of the guide that clean a node, for one node. Returns the time that
/// the pod took.
fn clean(
    fixture: &Fixture<'_>,
    source: &Source,
    node: &str,
    restore_cni: bool,
) -> Result<Duration> {
    let start = Instant::now();
    let patch = json!({ "spec": { "template": { "spec": {
        "nodeSelector": { "kubernetes.io/hostname": node },
        "initContainers": [{
            "name": "uninstall",
            "env": [{ "name": "TWEED_RESTORE_CNI", "value": restore_cni.to_string() }],
        }],
    }}}});
    let path = source.install.join("uninstall-node.yaml");
    let file = path.display().to_string();
    let words = ["patch", "--local", "--output=yaml", "--filename", &file];
    let manifest = fixture
        .kubectl()
        .run(words.into_iter().chain(["--patch", &patch.to_string()]))?;
    fixture.kubectl().apply(&manifest)?;
    wait_for_rollout(fixture, "tweed-uninstall")?;
    let took = start.elapsed();
    fixture.kubectl().delete(&manifest)?;
    wait_for_none(fixture, "uninstall")?;
    // The only step that the pod cannot do. It fails unless the folder is empty.
    fixture.cluster.node(node)?.sh("rmdir /run/tweed")?;
    Ok(took)
}

fn wait_for_rollout(fixture: &Fixture<'_>, daemon_set: &str) -> Result<()> {
    let line = format!(
        "rollout status daemonset/{daemon_set} --namespace kube-system --timeout {}s",
        LIMIT.as_secs()
    );
    Ok(fixture.kubectl().sh(&line).map(drop)?)
}

fn wait_for_no_agent(fixture: &Fixture<'_>) -> Result<()> {
    wait_for_none(fixture, "agent")
}

/// Waits until no pod of a component of tweed is left.
fn wait_for_none(fixture: &Fixture<'_>, component: &str) -> Result<()> {
    let what = format!("all pods of tweed's {component} to be deleted");
    let words = format!(
        "pods --namespace kube-system --selector app.kubernetes.io/component={component} \
         --output name"
    );
    fixture.kubectl().wait_for(&what, LIMIT, || {
        let left = fixture.kubectl().sh(&format!("get {words}"));
        match left.map_err(|error| error.chain())? {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })?;
    Ok(())
}
