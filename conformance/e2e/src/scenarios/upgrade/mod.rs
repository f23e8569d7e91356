//! Downgrade to the previous version and upgrade again by `kubectl apply`, with Services and
//! a policy in force, and pings and connections running all the time.

mod checks;
mod clients;
mod version;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tweed_lab::Programs;
use tweed_lab_kubernetes::ProxyMode;

use super::{Precondition, Scenario, Tier};
use crate::at_once::at_once;
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::load::Load;
use crate::pods;
use crate::service_proxy::{self, unsettled};
use crate::traffic::Traffic;
use clients::{Hosts, Lasting, new_connections};
use version::{Version, plugins, set_version_of};

pub const SCENARIO: Scenario = Scenario {
    name: "upgrade",
    shows: "downgrade, upgrade of one node and of the others lose no packet, break no connection and let nobody in",
    precondition: Precondition::Ready,
    run,
};

/// How long traffic continues after the last change, to see its effects.
const SETTLE_TIME: Duration = Duration::from_secs(2);

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let programs = Programs::find()?;
    let current = Version::current(&programs)?;
    let previous = Version::previous(programs.target())?;
    ensure!(
        current.image != previous.image,
        "both versions are {}",
        current.image
    );
    at_once(fixture.cluster.nodes(), |node| previous.import_on(node))?;
    let proxy = fixture.cluster.proxy();
    let set = service_proxy::set(fixture, ProxyMode::Tweed);
    let done = set.and_then(|()| run_steps(fixture, &current, &previous));
    let result = fixture.report_failure(done);
    // Restored for the next scenario, also after a failure.
    let rolled_out = current.roll_out(fixture.cluster);
    let restored = rolled_out.and_then(|_| service_proxy::set(fixture, proxy));
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
    let hosts = Hosts::create(fixture, one, two)?;
    let mut traffic = start_traffic(&hosts)?;
    let lasting = Lasting::start(fixture, &hosts)?;
    fixture.log(
        "pings between all pods, a TCP stream on each path and flows to a Service are running",
    );
    let mut check = |when: &'static str| {
        traffic.check().context(when)?;
        lasting.check().context(when)
    };
    downgrade(fixture, current, previous, one)?;
    check("during the downgrade")?;
    let before = unsettled(fixture)?;
    let loads = new_connections(fixture, &hosts)?;
    let old = upgrade_one(fixture, current, one, two)?;
    check("while one node was upgraded")?;
    upgrade_rest(fixture, current, old, two)?;
    check("during the upgrade")?;
    measure_new(fixture, loads)?;
    let dropped = unsettled(fixture)?.saturating_sub(before);
    ensure!(
        dropped == 0,
        "rules and sets did not fit each other for {dropped} new connections, which were repeated"
    );
    if fixture.tier == Tier::Full {
        fixture.log("downgrade and upgrade once more, without pause");
        previous.roll_out(fixture.cluster)?;
        current.roll_out(fixture.cluster)?;
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
    let answers = lasting.stop()?;
    let what = format!(
        "datagrams lost and connections broken, of {} flows to a Service with {} answers",
        answers.flows, answers.on_flows
    );
    fixture.measure(&what, "0");
    let what = format!(
        "answers to {} datagrams that a policy forbids",
        answers.tries
    );
    fixture.measure(&what, "0");
    Ok(())
}

/// Ends the clients that open connections while nodes are upgraded, and none of which may
/// have failed.
fn measure_new(fixture: &mut Fixture<'_>, loads: Vec<Load>) -> Result<()> {
    let (mut answered, mut rate) = (0, 0);
    for load in loads {
        let tally = load.stop()?;
        answered += tally.answered;
        rate += tally.rate;
    }
    let what = format!(
        "connections failed during the upgrade, of {answered} new ones to a Service and to a pod \
         with a policy ({rate} a second)"
    );
    fixture.measure(&what, "0");
    Ok(())
}

/// Pings between all pods, and a TCP connection on every kind of path, including
/// masqueraded ones.
fn start_traffic(hosts: &Hosts) -> Result<Traffic> {
    let Hosts {
        here,
        there,
        beside,
        first_node: own_node,
        second_node: other_node,
        outside,
        ..
    } = hosts;
    let mut all = hosts.steady.clone();
    all.push(beside.clone());
    let mut traffic = Traffic::between(&all)?;
    traffic.add_stream(here, beside, here.address)?;
    traffic.add_stream(here, there, here.address)?;
    traffic.add_stream(here, own_node, here.address)?;
    traffic.add_stream(own_node, here, own_node.address)?;
    // Masqueraded, so its node has to keep the connection's translation.
    traffic.add_stream(here, other_node, own_node.address)?;
    traffic.add_stream(here, outside, own_node.address)?;
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
    let took = previous.roll_out(fixture.cluster)?;
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
    fixture.measure_time(&what, took);
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
    let took = current.roll_out(fixture.cluster)?;
    let plugins = plugins(fixture.cluster.nodes())?;
    ensure!(plugins.len() == 1, "the nodes have the plugins {plugins:?}");
    fixture.measure_time("upgrade of all nodes but one", took);
    let new = pods::start(fixture, "made-by-this-again", two)?;
    checks::ping_both_ways(&new, &old)?;
    let node = fixture.cluster.node(two)?;
    checks::delete(fixture, &old, node)?;
    checks::delete(fixture, &new, node)
}
