//! Who serves Services: kube-proxy, tweed beside it, or tweed in its place.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use tweed_lab::{Programs, wait_until};
use tweed_lab_kubernetes::{Component, Machine, ProxyMode};

use crate::agents;
use crate::fixture::Fixture;
use crate::guide::Guide;

/// Maximum time until an agent has removed its rules.
const LIMIT: Duration = Duration::from_secs(300);

/// The kustomize overlay for a cluster on which kube-proxy still runs.
const BESIDE: &str = "install/kustomize/services";

/// The DaemonSets of kube-proxy, and of what removes its rules from nodes with the label.
const KUBE_PROXY_SET: &str = "kube-proxy";
const REMOVAL_SET: &str = "tweed-remove-kube-proxy";

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

/// kube-proxy's DaemonSet on other clusters: here kube-proxy is a program of each node, and
/// the pods of this one do nothing. So the guide's commands for it are tried.
const STAND_IN: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: kube-proxy, namespace: kube-system }
spec:
  selector: { matchLabels: { k8s-app: kube-proxy } }
  template:
    metadata: { labels: { k8s-app: kube-proxy } }
    spec:
      hostNetwork: true
      tolerations: [{ operator: Exists }]
      terminationGracePeriodSeconds: 1
      containers: [{ name: kube-proxy, image: 'registry.k8s.io/pause:3.10.1' }]
";

/// The hand-over of all nodes, by the commands of the guide.
pub struct HandOver {
    guide: Guide,
}

impl HandOver {
    /// Begins it on a cluster with kube-proxy.
    pub fn begin(fixture: &Fixture<'_>) -> Result<Self> {
        let guide = Guide::open("docs/services.md")?;
        fixture.kubectl().apply(STAND_IN)?;
        wait_pods(fixture, KUBE_PROXY_SET, true)?;
        Ok(Self { guide })
    }

    /// Takes kube-proxy off all nodes, and what it leaves there.
    pub fn remove_kube_proxy(&self, fixture: &mut Fixture<'_>) -> Result<()> {
        self.guide
            .paste(fixture, "apply -f install/remove-kube-proxy.yaml")?;
        wait_pods(fixture, KUBE_PROXY_SET, true)?;
        for node in fixture.cluster.nodes() {
            node.stop(Component::KubeProxy, Signal::SIGTERM)?;
        }
        let label = "label nodes --all service-proxy=tweed";
        fixture.kubectl().sh(label)?;
        wait_pods(fixture, KUBE_PROXY_SET, false)?;
        wait_pods(fixture, REMOVAL_SET, true)?;
        for node in fixture.cluster.nodes() {
            let left = left_of_kube_proxy(node)?;
            ensure!(left.is_empty(), "{} still has {left:?}", node.name());
        }
        self.guide.paste(fixture, "> kube-proxy.yaml")?;
        Ok(fixture.cluster.set_proxy(ProxyMode::Tweed)?)
    }

    /// Has kube-proxy come back. What starts its program is another matter here.
    pub fn bring_kube_proxy_back(&self, fixture: &Fixture<'_>) -> Result<()> {
        self.guide.paste(fixture, "create -f kube-proxy.yaml")?;
        wait_pods(fixture, KUBE_PROXY_SET, true)
    }

    /// Has agents no longer serve Services, on a cluster where kube-proxy does.
    pub fn remove_tweed(&self, fixture: &Fixture<'_>) -> Result<()> {
        self.guide
            .paste(fixture, "apply -k install/kustomize/base")?;
        agents::wait_rolled_out(fixture)?;
        self.guide.paste(fixture, "\"op\": \"remove\"")?;
        check_tweed_removed(fixture)
    }
}

/// Removes what is left of a hand-over that did not end.
pub fn abandon_hand_over(fixture: &Fixture<'_>) -> Result<()> {
    for line in [
        format!(
            "delete daemonset {REMOVAL_SET} {KUBE_PROXY_SET} --namespace kube-system --ignore-not-found"
        ),
        "label nodes --all service-proxy-".to_owned(),
    ] {
        fixture.kubectl().sh(&line)?;
    }
    Ok(())
}

/// Waits until a DaemonSet has pods on all nodes that are Ready, or no pods.
fn wait_pods(fixture: &Fixture<'_>, daemon_set: &str, on_nodes: bool) -> Result<()> {
    let count = match on_nodes {
        true => fixture.cluster.nodes().count(),
        false => 0,
    };
    let what = format!("pods of {daemon_set} on {count} nodes");
    let line = format!("get daemonset {daemon_set} --namespace kube-system");
    Ok(fixture.kubectl().wait_for(&what, LIMIT, || {
        let found = fixture.kubectl().json(&line);
        let found = found.map_err(|error| error.chain())?;
        let status = &found["status"];
        let keys = [
            "currentNumberScheduled",
            "updatedNumberScheduled",
            "numberReady",
        ];
        let is_all = |key: &&str| status[*key].as_u64().unwrap_or_default() == count as u64;
        let is_current = status["observedGeneration"] == found["metadata"]["generation"];
        match is_current && keys.iter().all(is_all) {
            true => Ok(()),
            false => Err(status.to_string()),
        }
    })?)
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
