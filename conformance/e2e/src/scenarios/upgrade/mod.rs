//! To the version before and back again, by `kubectl apply`, with packets and
//! connections under way all the time.

mod brief;
mod version;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tweed_lab::Programs;

use super::{Begins, Scenario, Tier};
use crate::place::Place;
use crate::pods;
use crate::stage::Stage;
use crate::traffic::Traffic;
use version::{Version, move_one, plugins};

pub const SCENARIO: Scenario = Scenario {
    name: "upgrade",
    shows: "downgrade, half an upgrade and the rest of it lose no packet and break no connection",
    begins: Begins::Ready,
    run,
};

const POD_LIMIT: Duration = Duration::from_secs(120);

/// What comes after the last change, and is not to be cut off.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// One pod on every node, and on the first worker another.
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

fn run(stage: &mut Stage<'_>) -> Result<()> {
    let programs = Programs::find()?;
    let current = Version::current(programs.target())?;
    let previous = Version::previous(programs.target())?;
    ensure!(
        current.image != previous.image,
        "both versions are {}",
        current.image
    );
    for node in stage.cluster.nodes() {
        previous.bring_to(node)?;
    }
    let played = play(stage, &current, &previous);
    let played = stage.witness(played);
    // The next scenario gets this version, whatever became of this one.
    let restored = current.roll_out(stage.kubectl()).map(drop);
    played.and(restored)
}

fn play(stage: &mut Stage<'_>, current: &Version, previous: &Version) -> Result<()> {
    let workers: Vec<String> = stage
        .cluster
        .workers()
        .map(|node| node.name().to_owned())
        .collect();
    let [one, two, ..] = workers.as_slice() else {
        anyhow::bail!("this takes two workers, and there are {}", workers.len());
    };
    let mut traffic = start_traffic(stage, one, two)?;
    down(stage, current, previous, one)?;
    traffic.check().context("during the downgrade")?;
    let old = half_up(stage, current, one, two)?;
    traffic.check().context("while half was upgraded")?;
    up(stage, current, old, two)?;
    if stage.tier == Tier::Full {
        traffic.check().context("during the upgrade")?;
        stage.tell("both once more, with nothing in between");
        previous.roll_out(stage.kubectl())?;
        current.roll_out(stage.kubectl())?;
    }
    std::thread::sleep(AFTERWARDS);
    let total = traffic.stop()?;
    let what = format!(
        "pings lost, of {} in {} pod pairs ({} a second in each)",
        total.answered, total.pings, total.rate
    );
    stage.measure(&what, "0");
    let what = format!(
        "connections broken, of {} that carried {} MB",
        total.streams,
        total.bytes / 1_000_000
    );
    stage.measure(&what, "0");
    let longest = format!("{} ms", total.longest.as_millis());
    stage.measure("longest that 1 KiB of them went there and back", longest);
    Ok(())
}

/// Pings between all pods; a connection on every kind of path, translated ones
/// too.
fn start_traffic(stage: &Stage<'_>, one: &str, two: &str) -> Result<Traffic> {
    let nodes = stage.cluster.nodes().count();
    stage.apply(STEADY)?;
    let beside = pods::start(stage, "beside", one)?;
    let steady = stage.wait_all_ready("app=steady", nodes, POD_LIMIT)?;
    let on = |node: &str| {
        let pod = steady.iter().find(|pod| pod["spec"]["nodeName"] == node);
        Place::pod(pod.with_context(|| format!("no pod is on {node}"))?)
    };
    let (here, there) = (on(one)?, on(two)?);
    let mut all = steady.iter().map(Place::pod).collect::<Result<Vec<_>>>()?;
    all.push(beside.clone());

    let own_node = Place::node(stage.cluster.node(one)?);
    let other_node = Place::node(stage.cluster.node(two)?);
    let outside = Place::outside(stage.cluster);
    let mut traffic = Traffic::between(&all)?;
    traffic.add_stream(&here, &beside, here.address)?;
    traffic.add_stream(&here, &there, here.address)?;
    traffic.add_stream(&here, &own_node, here.address)?;
    traffic.add_stream(&own_node, &here, own_node.address)?;
    // Masqueraded, so a connection that its node has to remember.
    traffic.add_stream(&here, &other_node, own_node.address)?;
    traffic.add_stream(&here, &outside, own_node.address)?;
    stage.tell("pings between all pods, and a TCP stream on each path, are under way");
    Ok(traffic)
}

/// The downgrade: a pod of this version is deleted by the one before.
fn down(stage: &mut Stage<'_>, current: &Version, previous: &Version, one: &str) -> Result<()> {
    let new = pods::start(stage, "made-by-this", one)?;
    let before = plugins(stage.cluster.nodes())?;
    let took = previous.roll_out(stage.kubectl())?;
    let after = plugins(stage.cluster.nodes())?;
    ensure!(
        before.len() == 1 && after.len() == 1 && before != after,
        "the nodes had the plugins {before:?}, and have {after:?} after the downgrade"
    );
    let what = format!(
        "downgrade of all nodes, {} to {}",
        current.name(),
        previous.name()
    );
    stage.measure(&what, format!("{:.1} s", took.as_secs_f64()));
    brief::delete(stage, &new, stage.cluster.node(one)?)
}

/// One node of this version among those of the one before. Pods come and go on
/// both and reach each other; what is left is one that the old plugin has made.
fn half_up(stage: &mut Stage<'_>, current: &Version, one: &str, two: &str) -> Result<Place> {
    let (node_one, node_two) = (stage.cluster.node(one)?, stage.cluster.node(two)?);
    let before = pods::start(stage, "made-by-that-one", one)?;
    let old = pods::start(stage, "made-by-that-two", two)?;
    move_one(stage.kubectl(), one, current)?;
    ensure!(
        plugins([node_one, node_two])?.len() == 2,
        "{one} and {two} have the same plugin, and only {one} was upgraded"
    );
    let on_new = pods::start(stage, "half-one", one)?;
    let on_old = pods::start(stage, "half-two", two)?;
    for (from, to) in [(&on_new, &on_old), (&on_new, &old), (&before, &on_old)] {
        brief::reach(from, to)?;
    }
    brief::delete(stage, &before, node_one)?;
    brief::delete(stage, &on_new, node_one)?;
    brief::delete(stage, &on_old, node_two)?;
    stage.tell("half upgraded: pods came, reached each other and went on nodes of both versions");
    Ok(old)
}

/// The upgrade of all others: a pod of the version before is deleted by this.
fn up(stage: &mut Stage<'_>, current: &Version, old: Place, two: &str) -> Result<()> {
    let took = current.roll_out(stage.kubectl())?;
    let plugins = plugins(stage.cluster.nodes())?;
    ensure!(plugins.len() == 1, "the nodes have the plugins {plugins:?}");
    stage.measure(
        "upgrade of all nodes but one",
        format!("{:.1} s", took.as_secs_f64()),
    );
    let new = pods::start(stage, "made-by-this-again", two)?;
    brief::reach(&new, &old)?;
    let node = stage.cluster.node(two)?;
    brief::delete(stage, &old, node)?;
    brief::delete(stage, &new, node)
}
