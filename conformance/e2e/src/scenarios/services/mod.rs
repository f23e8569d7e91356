//! Services by kube-proxy in both modes and by tweed: every kind of Service, from pods,
//! nodes and the host outside, and the source that the servers see. Between kube-proxy and
//! tweed they are handed over while flows are open.

mod hand_over;
mod requests;
mod setup;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tweed_lab_kubernetes::{Machine, ProxyMode};

use super::{Precondition, Scenario};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::netexec::{TRANSPORTS, request};
use crate::service::Frontend;
use crate::service_proxy::{self, rules_of_kube_proxy};
use crate::tier::Tier;
use requests::send_all;
use setup::Setup;

pub const SCENARIO: Scenario = Scenario {
    name: "services",
    shows: "Services work with kube-proxy in both modes and with tweed, and open flows survive the change",
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
    let is_as_before = result.is_ok() && fixture.cluster.proxy() == before;
    let restored = if is_as_before {
        Ok(())
    } else {
        service_proxy::set(fixture, before)
    };
    result.and(restored)
}

fn run_steps(fixture: &mut Fixture<'_>, setup: &Setup) -> Result<()> {
    // The mode of a new cluster is the last. kube-proxy is restarted for each mode when
    // all Services exist already, so its first rules are complete.
    for mode in [ProxyMode::Iptables, ProxyMode::Nftables] {
        let name = format!("kube-proxy as {mode:?}");
        let began = Instant::now();
        start_kube_proxy(fixture, setup, mode)?;
        let what = format!("{name} instead of the other mode, on all nodes");
        fixture.measure_time(&what, began.elapsed());
        let answers = send_all(setup).context(name.clone())?;
        fixture.measure(&format!("answers checked, {name}"), answers.to_string());
        if mode == ProxyMode::Nftables || fixture.tier == Tier::Full {
            let to_tweed = hand_over::there_and_back(fixture, setup, mode);
            to_tweed.with_context(|| format!("from {name} to tweed and back"))?;
        }
    }
    Ok(())
}

/// Has kube-proxy serve Services in this mode, and waits until it does.
fn start_kube_proxy(fixture: &mut Fixture<'_>, setup: &Setup, mode: ProxyMode) -> Result<()> {
    fixture.cluster.set_proxy(mode)?;
    fixture.cluster.nodes().try_for_each(|node| {
        wait_for_rules(fixture, node, mode, setup.web.cluster_ip())
            .with_context(|| format!("kube-proxy as {mode:?} on {}", node.name()))
    })
}

/// Waits until a node has rules of this mode of kube-proxy and gets answers from a Service,
/// and checks that there are rules of this mode only.
fn wait_for_rules(
    fixture: &Fixture<'_>,
    node: &Machine,
    mode: ProxyMode,
    frontend: Frontend,
) -> Result<()> {
    let endpoint = Endpoint::node(node);
    fixture.kubectl().wait_for("answers", RULES_LIMIT, || {
        // tweed may serve Services at the same time.
        let rules = rules_of_kube_proxy(node).map_err(|error| format!("{error:#}"))?;
        if rules.is_empty() {
            return Err("kube-proxy has no rules yet".to_owned());
        }
        TRANSPORTS
            .iter()
            .try_for_each(|one| request(&endpoint, *one, frontend.socket_address(*one)).map(drop))
            .map_err(|error| format!("{error:#}"))
    })?;
    let rules = rules_of_kube_proxy(node)?;
    ensure!(rules == [mode], "there are rules of {rules:?}");
    Ok(())
}
