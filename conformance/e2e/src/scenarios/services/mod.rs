//! Services of kube-proxy in both modes: every kind of Service, from pods, nodes and the
//! host outside, and the source that the servers see.

mod requests;
mod setup;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tweed_lab_kubernetes::{Machine, ProxyMode};

use super::{Precondition, Scenario};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::netexec::{TRANSPORTS, request};
use requests::send_all;
use setup::{Frontend, Setup};

pub const SCENARIO: Scenario = Scenario {
    name: "services",
    shows: "Services work with kube-proxy in both modes, and servers see the promised source",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until kube-proxy has written its rules.
const RULES_LIMIT: Duration = Duration::from_secs(120);

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let setup = Setup::create(fixture)?;
    let before = fixture.cluster.proxy();
    let result = run_steps(fixture, &setup);
    let result = fixture.report_failure(result);
    if fixture.cluster.proxy() != before {
        fixture.cluster.set_proxy(before)?;
    }
    result
}

fn run_steps(fixture: &mut Fixture<'_>, setup: &Setup) -> Result<()> {
    // The mode of a new cluster is the last. kube-proxy is restarted for each mode when
    // all Services exist already, so its first rules are complete.
    for mode in [ProxyMode::Iptables, ProxyMode::Nftables] {
        let name = format!("kube-proxy as {mode:?}");
        let began = Instant::now();
        fixture.cluster.set_proxy(mode)?;
        for node in fixture.cluster.nodes() {
            wait_for_rules(fixture, node, mode, setup.web.cluster_ip())
                .with_context(|| format!("{name} on {}", node.name()))?;
        }
        let took = format!("{:.1} s", began.elapsed().as_secs_f64());
        fixture.measure(
            &format!("{name} instead of the other mode, on all nodes"),
            took,
        );
        let answers = send_all(setup).context(name.clone())?;
        fixture.measure(&format!("answers checked, {name}"), answers.to_string());
    }
    Ok(())
}

/// Waits until a node gets answers from a Service, and checks that it has rules of this
/// mode only.
fn wait_for_rules(
    fixture: &Fixture<'_>,
    node: &Machine,
    mode: ProxyMode,
    frontend: Frontend,
) -> Result<()> {
    let endpoint = Endpoint::node(node);
    fixture.kubectl().wait_for("answers", RULES_LIMIT, || {
        TRANSPORTS
            .iter()
            .try_for_each(|one| request(&endpoint, *one, frontend.socket_address(*one)).map(drop))
            .map_err(|error| format!("{error:#}"))
    })?;
    let by_nftables = node.sh("nft list tables")?.contains("ip kube-proxy\n");
    let by_iptables = node.sh("iptables-save --table nat")?.contains("KUBE-SVC-");
    ensure!(
        by_nftables == (mode == ProxyMode::Nftables)
            && by_iptables == (mode == ProxyMode::Iptables),
        "rules of nftables mode: {by_nftables}, of iptables mode: {by_iptables}"
    );
    Ok(())
}
