//! Downgrade to the previous version and upgrade again by `kubectl apply`, with pings and
//! TCP connections running all the time.

mod checks;
mod version;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tweed_lab::Programs;

use super::{Precondition, Scenario, Tier};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::pods;
use crate::traffic::Traffic;
use version::{Version, plugins, set_version_of};

pub const SCENARIO: Scenario = Scenario {
    name: "upgrade",
    shows: "downgrade, upgrade of one node and of the others lose no packet and break no connection",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until the pods are Ready.
const POD_LIMIT: Duration = Duration::from_secs(120);

/// How long traffic continues after the last change, to see its effects.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// One pod on every node.
const STEADY: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: steady }
spec:
  selector: { matchLabels: { app: steady } }
  template:
    metadata: { labels: { app: steady } }
    spec:
      tolerations: [{ operator: Exists }]
      terminationGracePeriodSeconds: 1
      containers: [{ name: pause, image: "localhost/agnhost:lab" }]
"#;

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let programs = Programs::find()?;
    let current = Version::current(programs.target())?;
    let previous = Version::previous(programs.target())?;
    ensure!(
        current.image != previous.image,
        "both versions are {}",
        current.image
    );
    for node in fixture.cluster.nodes() {
        previous.import_on(node)?;
    }
    let result = run_steps(fixture, &current, &previous);
    let result = fixture.report_failure(result);
    // Restored for the next scenario, also after a failure.
    let restored = current.roll_out(fixture.kubectl()).map(drop);
    result.and(restored)
}

fn run_steps(fixture: &mut Fixture<'_>, current: &Version, previous: &Version) -> Result<()> {
    let workers: Vec<String> = fixture
        .cluster
        .workers()
        .map(|node| node.name().to_owned())
        .collect();
    let [one, two, ..] = workers.as_slice() else {
        anyhow::bail!("this needs two workers, and there are {}", workers.len());
    };
    let mut traffic = start_traffic(fixture, one, two)?;
    downgrade(fixture, current, previous, one)?;
    traffic.check().context("during the downgrade")?;
    let old = upgrade_one(fixture, current, one, two)?;
    traffic.check().context("while one node was upgraded")?;
    upgrade_rest(fixture, current, old, two)?;
    if fixture.tier == Tier::Full {
        traffic.check().context("during the upgrade")?;
        fixture.log("downgrade and upgrade once more, without pause");
        previous.roll_out(fixture.kubectl())?;
        current.roll_out(fixture.kubectl())?;
    }
    std::thread::sleep(SETTLE_TIME);
    let total = traffic.stop()?;
    let what = format!(
        "pings lost, of {} in {} pod pairs ({} a second in each)",
        total.answered, total.pings, total.rate
    );
    fixture.measure(&what, "0");
    let what = format!(
        "connections broken, of {} that carried {} MB",
        total.streams,
        total.bytes / 1_000_000
    );
    fixture.measure(&what, "0");
    let longest = format!("{} ms", total.longest.as_millis());
    fixture.measure("longest round trip of 1 KiB on them", longest);
    Ok(())
}

/// Pings between all pods, and a TCP connection on every kind of path, including
/// masqueraded ones.
fn start_traffic(fixture: &Fixture<'_>, one: &str, two: &str) -> Result<Traffic> {
    let nodes = fixture.cluster.nodes().count();
    fixture.apply(STEADY)?;
    let beside = pods::start(fixture, "beside", one)?;
    let steady = fixture.wait_all_ready("app=steady", nodes, POD_LIMIT)?;
    let on = |node: &str| {
        let pod = steady.iter().find(|pod| pod["spec"]["nodeName"] == node);
        Endpoint::pod(pod.with_context(|| format!("no pod is on {node}"))?)
    };
    let (here, there) = (on(one)?, on(two)?);
    let mut all = steady
        .iter()
        .map(Endpoint::pod)
        .collect::<Result<Vec<_>>>()?;
    all.push(beside.clone());

    let own_node = Endpoint::node(fixture.cluster.node(one)?);
    let other_node = Endpoint::node(fixture.cluster.node(two)?);
    let outside = Endpoint::outside(fixture.cluster);
    let mut traffic = Traffic::between(&all)?;
    traffic.add_stream(&here, &beside, here.address)?;
    traffic.add_stream(&here, &there, here.address)?;
    traffic.add_stream(&here, &own_node, here.address)?;
    traffic.add_stream(&own_node, &here, own_node.address)?;
    // Masqueraded, so its node has to keep the connection's translation.
    traffic.add_stream(&here, &other_node, own_node.address)?;
    traffic.add_stream(&here, &outside, own_node.address)?;
    fixture.log("pings between all pods and a TCP stream on each path are running");
    Ok(traffic)
}

/// Downgrades all nodes. The previous version deletes a pod of this version.
fn downgrade(
    fixture: &mut Fixture<'_>,
    current: &Version,
    previous: &Version,
    one: &str,
) -> Result<()> {
    let new = pods::start(fixture, "made-by-this", one)?;
    let before = plugins(fixture.cluster.nodes())?;
    let took = previous.roll_out(fixture.kubectl())?;
    let after = plugins(fixture.cluster.nodes())?;
    ensure!(
        before.len() == 1 && after.len() == 1 && before != after,
        "the nodes had the plugins {before:?}, and have {after:?} after the downgrade"
    );
    let what = format!(
        "downgrade of all nodes, {} to {}",
        current.name(),
        previous.name()
    );
    fixture.measure(&what, format!("{:.1} s", took.as_secs_f64()));
    checks::delete(fixture, &new, fixture.cluster.node(one)?)
}

/// Upgrades one node. Pods are created and deleted on nodes of both versions and reach
/// each other. Returns a pod that the previous version has created.
fn upgrade_one(
    fixture: &mut Fixture<'_>,
    current: &Version,
    one: &str,
    two: &str,
) -> Result<Endpoint> {
    let (node_one, node_two) = (fixture.cluster.node(one)?, fixture.cluster.node(two)?);
    let before = pods::start(fixture, "made-by-that-one", one)?;
    let old = pods::start(fixture, "made-by-that-two", two)?;
    set_version_of(fixture.kubectl(), one, current)?;
    ensure!(
        plugins([node_one, node_two])?.len() == 2,
        "{one} and {two} have the same plugin although only {one} was upgraded"
    );
    let on_new = pods::start(fixture, "half-one", one)?;
    let on_old = pods::start(fixture, "half-two", two)?;
    for (from, to) in [(&on_new, &on_old), (&on_new, &old), (&before, &on_old)] {
        checks::ping_both_ways(from, to)?;
    }
    checks::delete(fixture, &before, node_one)?;
    checks::delete(fixture, &on_new, node_one)?;
    checks::delete(fixture, &on_old, node_two)?;
    fixture.log("one node upgraded: pods of both versions were created, reached each other and were deleted");
    Ok(old)
}

/// Upgrades all other nodes. This version deletes a pod of the previous one.
fn upgrade_rest(
    fixture: &mut Fixture<'_>,
    current: &Version,
    old: Endpoint,
    two: &str,
) -> Result<()> {
    let took = current.roll_out(fixture.kubectl())?;
    let plugins = plugins(fixture.cluster.nodes())?;
    ensure!(plugins.len() == 1, "the nodes have the plugins {plugins:?}");
    fixture.measure(
        "upgrade of all nodes but one",
        format!("{:.1} s", took.as_secs_f64()),
    );
    let new = pods::start(fixture, "made-by-this-again", two)?;
    checks::ping_both_ways(&new, &old)?;
    let node = fixture.cluster.node(two)?;
    checks::delete(fixture, &old, node)?;
    checks::delete(fixture, &new, node)
}
