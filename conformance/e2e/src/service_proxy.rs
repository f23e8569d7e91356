//! Who serves Services: kube-proxy, tweed beside it, or tweed in its place.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use tweed_lab::{Programs, wait_until};
use tweed_lab_kubernetes::{Component, Machine, ProxyMode};

use crate::agents;
use crate::fixture::Fixture;

/// Maximum time until an agent has removed its rules.
const LIMIT: Duration = Duration::from_secs(300);

/// The kustomize overlay for a cluster on which kube-proxy still runs.
const BESIDE: &str = "install/kustomize/services";

/// What removes the rules that kube-proxy leaves on nodes with the label.
const REMOVAL: &str = "install/remove-kube-proxy.yaml";
const REMOVAL_SET: &str = "kube-system/tweed-remove-kube-proxy";

/// Chains that the kubelet makes and needs.
const OF_KUBELET: [&str; 3] = ["KUBE-FIREWALL", "KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

/// What only agents with `--services on` need: their ClusterRole and its binding.
const RIGHTS: &str = "tweed-services";

/// Has agents serve Services beside kube-proxy, as a user does who wants to replace it.
pub fn add_tweed(fixture: &Fixture<'_>) -> Result<()> {
    let overlay = Programs::find()?.target().with_file_name(BESIDE);
    let words = [
        "apply".as_ref(),
        "--kustomize".as_ref(),
        overlay.as_os_str(),
    ];
    fixture.kubectl().run(words)?;
    agents::wait_rolled_out(fixture)?;
    for node in fixture.cluster.nodes() {
        ensure!(
            tweed_serves(node)?,
            "{} has no rules for Services",
            node.name()
        );
    }
    Ok(())
}

/// Stops kube-proxy, which in this cluster is no pod that the label could take off a node,
/// and has its rules removed from all nodes by the documented label and DaemonSet.
pub fn remove_kube_proxy(fixture: &mut Fixture<'_>) -> Result<()> {
    for node in fixture.cluster.nodes() {
        node.stop(Component::KubeProxy, Signal::SIGTERM)?;
    }
    let manifest = Programs::find()?.target().with_file_name(REMOVAL);
    let of_manifest = |verb: &str| {
        let words = [verb.as_ref(), "--filename".as_ref(), manifest.as_os_str()];
        fixture.kubectl().run(words).map(drop)
    };
    let label = |value: &str| {
        let line = format!("label nodes --all --overwrite service-proxy{value}");
        fixture.kubectl().sh(&line).map(drop)
    };
    label("=tweed")?;
    let removed =
        of_manifest("apply").and_then(|()| fixture.kubectl().wait_rolled_out(REMOVAL_SET, LIMIT));
    // Where it did not end, it would go on under the next kube-proxy.
    of_manifest("delete")?;
    label("-")?;
    removed?;
    for node in fixture.cluster.nodes() {
        let left = left_of_kube_proxy(node)?;
        ensure!(left.is_empty(), "{} still has {left:?}", node.name());
    }
    Ok(fixture.cluster.set_proxy(ProxyMode::Tweed)?)
}

/// Has what serves Services in this mode do so, and nobody else, without regard for who
/// did until then.
pub fn set(fixture: &mut Fixture<'_>, mode: ProxyMode) -> Result<()> {
    fixture.cluster.set_proxy(mode)?;
    fixture.cluster.install_tweed()?;
    agents::restart(fixture)?;
    if mode == ProxyMode::Tweed {
        return Ok(());
    }
    check_tweed_removed(fixture)
}

/// Has agents no longer serve Services, on a cluster with kube-proxy.
pub fn remove_tweed(fixture: &Fixture<'_>) -> Result<()> {
    fixture.cluster.install_tweed()?;
    agents::wait_rolled_out(fixture)?;
    check_tweed_removed(fixture)
}

/// Removes the rights for Services, and checks that no node has rules of tweed for them.
fn check_tweed_removed(fixture: &Fixture<'_>) -> Result<()> {
    for kind in ["clusterrolebinding", "clusterrole"] {
        let line = format!("delete {kind} {RIGHTS} --ignore-not-found");
        fixture.kubectl().sh(&line)?;
    }
    for node in fixture.cluster.nodes() {
        let what = format!("the table of {} without Services", node.name());
        wait_until(&what, LIMIT, || match tweed_serves(node) {
            Ok(false) => Ok(()),
            Ok(true) => Err("it has chains for them".to_owned()),
            Err(error) => Err(format!("{error:#}")),
        })?;
    }
    Ok(())
}

/// Whether tweed's table on a node has chains for Services.
pub fn tweed_serves(node: &Machine) -> Result<bool> {
    Ok(node
        .sh("nft list chains inet")?
        .contains("service_prerouting"))
}

/// What a node has of kube-proxy in any mode: tables of nftables, chains of iptables in all
/// tables of both families, and the link of IPVS.
fn left_of_kube_proxy(node: &Machine) -> Result<Vec<String>> {
    let all = node.sh("nft list tables; iptables-save; ip6tables-save; ip -o link show")?;
    let is_left = |line: &&str| {
        // A chain in what is saved begins with a colon.
        let chain = line
            .strip_prefix(':')
            .and_then(|rest| rest.split(' ').next());
        let is_chain =
            chain.is_some_and(|chain| chain.starts_with("KUBE-") && !OF_KUBELET.contains(&chain));
        is_chain || line.ends_with(" kube-proxy") || line.contains(" kube-ipvs0:")
    };
    Ok(all.lines().filter(is_left).map(str::to_owned).collect())
}

/// The modes of kube-proxy whose rules are on a node.
pub fn rules_of_kube_proxy(node: &Machine) -> Result<Vec<ProxyMode>> {
    let by_nftables = node.sh("nft list tables")?.contains(" kube-proxy\n");
    let by_iptables = node.sh("iptables-save --table nat")?.contains("KUBE-S");
    let found = [
        (ProxyMode::Iptables, by_iptables),
        (ProxyMode::Nftables, by_nftables),
    ];
    let found = found.into_iter().filter(|(_, is_there)| *is_there);
    Ok(found.map(|(mode, _)| mode).collect())
}
