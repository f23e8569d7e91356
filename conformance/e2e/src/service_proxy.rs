//! Who serves Services: kube-proxy, tweed beside it, or tweed in its place.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use tweed_lab::wait_until;
use tweed_lab_kubernetes::{Component, Machine, ProxyMode};

use crate::agents;
use crate::fixture::Fixture;
use crate::guide::Guide;
use crate::tier::Tier;

/// Maximum time until an agent has removed its rules.
const LIMIT: Duration = Duration::from_secs(300);

/// The DaemonSets of kube-proxy, and of what removes its rules from nodes with the label.
const KUBE_PROXY_SET: &str = "kube-proxy";
const REMOVAL_SET: &str = "tweed-remove-kube-proxy";

/// How long the latter watches whether the rules come back, in a short run.
const WATCH: &str = "TWEED_WATCH_SECONDS=5";

/// Chains that the kubelet makes and needs.
const OF_KUBELET: [&str; 3] = ["KUBE-FIREWALL", "KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

/// What only agents with `--services on` need: their ClusterRole and its binding.
const RIGHTS: &str = "tweed-services";

/// Phrases of the guide's commands that turn tweed's Services on, and off again where
/// kube-proxy serves on each node.
const TURN_ON: &str = "-c agent TWEED_SERVICES=on";
const TURN_OFF: &str = "-c agent TWEED_SERVICES-";

/// kube-proxy's DaemonSet on other clusters: here kube-proxy is a program of each node, and
/// the pods of this one do nothing. So the guide's commands for it are tried.
const STAND_IN: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: kube-proxy, namespace: kube-system }
spec:
  selector: { matchLabels: { k8s-app: kube-proxy } }
  updateStrategy: { rollingUpdate: { maxUnavailable: 100% } }
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

    /// Has agents serve Services beside kube-proxy.
    pub fn add_tweed(&self, fixture: &Fixture<'_>) -> Result<()> {
        self.guide.paste(fixture, TURN_ON)?;
        check_tweed_serves(fixture)
    }

    /// Takes kube-proxy off all nodes, and what it leaves there.
    pub fn remove_kube_proxy(&self, fixture: &mut Fixture<'_>) -> Result<()> {
        self.guide
            .paste(fixture, "apply -f install/remove-kube-proxy.yaml")?;
        wait_pods(fixture, KUBE_PROXY_SET, true)?;
        if fixture.tier == Tier::Ci {
            watch_for_less_time(fixture)?;
        }
        for node in fixture.cluster.nodes() {
            node.stop(Component::KubeProxy, Signal::SIGTERM)?;
        }
        let label = "label nodes --all service-proxy=tweed";
        fixture.kubectl().sh(label)?;
        wait_pods(fixture, KUBE_PROXY_SET, false)?;
        self.guide.paste(fixture, "> kube-proxy.yaml")?;
        for node in fixture.cluster.nodes() {
            let left = left_of_kube_proxy(node)?;
            ensure!(left.is_empty(), "{} still has {left:?}", node.name());
        }
        Ok(fixture.cluster.set_proxy(ProxyMode::Tweed)?)
    }

    /// Has kube-proxy's pods come back. What starts its program is another matter here, so
    /// these pods are Ready without a rule, as real ones are at first: Services then stay on.
    pub fn bring_kube_proxy_back(&self, fixture: &Fixture<'_>) -> Result<()> {
        self.guide.paste(fixture, "create -f kube-proxy.yaml")?;
        wait_pods(fixture, KUBE_PROXY_SET, true)?;
        let seconds = [("limit", "2")];
        let refused = self.guide.paste_with(fixture, TURN_OFF, &seconds).err();
        let error = refused.context("Services were turned off without kube-proxy's rules")?;
        let why = format!("{error:#}");
        let names_node = fixture
            .cluster
            .nodes()
            .any(|node| why.contains(&format!("no rules of kube-proxy on {}", node.name())));
        ensure!(names_node, "{why}");
        let line = "set env daemonset/tweed --list --namespace kube-system --containers agent";
        let settings = fixture.kubectl().sh(line)?;
        ensure!(settings.contains("TWEED_SERVICES=on"), "{settings}");
        check_tweed_serves(fixture)
    }

    /// Has agents no longer serve Services, on a cluster where kube-proxy does.
    pub fn remove_tweed(&self, fixture: &Fixture<'_>) -> Result<()> {
        self.guide.paste(fixture, TURN_OFF)?;
        self.guide.paste(fixture, "\"op\": \"remove\"")?;
        check_tweed_removed(fixture)
    }
}

/// A minute is for a kube-proxy that makes its rules again, and here none runs any more.
fn watch_for_less_time(fixture: &Fixture<'_>) -> Result<()> {
    let line = format!("set env daemonset/{REMOVAL_SET} --namespace kube-system {WATCH}");
    fixture.kubectl().sh(&line)?;
    Ok(())
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
    let count = if on_nodes {
        fixture.cluster.nodes().count()
    } else {
        0
    };
    let what = format!("pods of {daemon_set} on {count} nodes");
    let line = format!("get daemonset {daemon_set} --namespace kube-system");
    Ok(fixture.kubectl().wait_for(&what, LIMIT, || {
        let found = fixture.kubectl().json(&line).map_err(|e| e.chain())?;
        let status = &found["status"];
        let keys = [
            "currentNumberScheduled",
            "updatedNumberScheduled",
            "numberReady",
        ];
        let is_all = |key: &&str| status[*key].as_u64().unwrap_or_default() == count as u64;
        let is_current = status["observedGeneration"] == found["metadata"]["generation"];
        if is_current && keys.iter().all(is_all) {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })?)
}

/// Has what serves Services in this mode do so, and nobody else, without regard for who
/// did until then.
pub fn set(fixture: &mut Fixture<'_>, mode: ProxyMode) -> Result<()> {
    fixture.cluster.set_proxy(mode)?;
    fixture.cluster.install_tweed()?;
    if mode == ProxyMode::Tweed {
        return agents::restart(fixture);
    }
    // What the guide's commands have set, the manifest leaves as it is.
    let line = "set env daemonset/tweed --namespace kube-system --containers agent TWEED_SERVICES-";
    fixture.kubectl().sh(line)?;
    agents::restart(fixture)?;
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

/// Checks that tweed serves Services on each node.
fn check_tweed_serves(fixture: &Fixture<'_>) -> Result<()> {
    for node in fixture.cluster.nodes() {
        ensure!(
            tweed_serves(node)?,
            "{} has no rules for Services",
            node.name()
        );
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
    let modes = [
        (ProxyMode::Iptables, by_iptables),
        (ProxyMode::Nftables, by_nftables),
    ];
    let found = modes.into_iter().filter(|(_, is_there)| *is_there);
    Ok(found.map(|(mode, _)| mode).collect())
}

/// How many first packets all nodes have dropped because the sets had changed twice under
/// them. Their senders repeat them.
pub fn unsettled(fixture: &Fixture<'_>) -> Result<u64> {
    let of_node = |node: &Machine| {
        let text = node.sh("nft --json list counter inet tweed-services unsettled")?;
        let answer: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        let all = answer["nftables"].as_array();
        let counter = all.and_then(|all| all.iter().find(|one| one["counter"].is_object()));
        let packets = counter.and_then(|one| one["counter"]["packets"].as_u64());
        packets.with_context(|| text)
    };
    fixture.cluster.nodes().map(of_node).sum()
}
