//! Services by kube-proxy, in each of its modes: every way in, from pods, nodes
//! and the world, and the source that the servers see.

mod cast;
mod questions;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tweed_lab_kubernetes::{Machine, ProxyMode};

use super::{Begins, Scenario};
use crate::ask::{TRANSPORTS, ask};
use crate::place::Place;
use crate::stage::Stage;
use cast::{Cast, Door};
use questions::ask_all;

pub const SCENARIO: Scenario = Scenario {
    name: "services",
    shows: "Services work with kube-proxy in both modes, and servers see the source that is promised",
    begins: Begins::Ready,
    run,
};

/// For kube-proxy to write its rules.
const RULES_LIMIT: Duration = Duration::from_secs(120);

fn run(stage: &mut Stage<'_>) -> Result<()> {
    let cast = Cast::enter(stage)?;
    let before = stage.cluster.proxy();
    let played = play(stage, &cast);
    let played = stage.witness(played);
    if stage.cluster.proxy() != before {
        stage.cluster.set_proxy(before)?;
    }
    played
}

fn play(stage: &mut Stage<'_>, cast: &Cast) -> Result<()> {
    // The one that a cluster begins with comes last. Each is started anew, with
    // all of the Services there already, so its first rules are whole.
    for mode in [ProxyMode::Iptables, ProxyMode::Nftables] {
        let name = format!("kube-proxy as {mode:?}");
        let began = Instant::now();
        stage.cluster.set_proxy(mode)?;
        for node in stage.cluster.nodes() {
            wait_for_rules(stage, node, mode, cast.web.cluster())
                .with_context(|| format!("{name} on {}", node.name()))?;
        }
        let took = format!("{:.1} s", began.elapsed().as_secs_f64());
        stage.measure(&format!("{name} in place of another, on all nodes"), took);
        let answers = ask_all(cast).context(name.clone())?;
        stage.measure(&format!("answers looked at, {name}"), answers.to_string());
    }
    Ok(())
}

/// Waits until a node gets answers from a Service, and makes sure that it is by
/// rules of this mode and no other.
fn wait_for_rules(stage: &Stage<'_>, node: &Machine, mode: ProxyMode, door: Door) -> Result<()> {
    let place = Place::node(node);
    stage.kubectl().wait_for("answers", RULES_LIMIT, || {
        TRANSPORTS
            .iter()
            .try_for_each(|one| ask(&place, *one, door.by(*one)).map(drop))
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
