//! Who serves the Services of a node.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use tweed_lab::Underlay;

use super::objects::CLUSTER_IPS;
use crate::policies::host::{self, Host};

/// A way from a client to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// `tweed-agent --services on`.
    Tweed,
    /// kube-proxy in this mode.
    KubeProxy(&'static str),
    /// A rule made by hand for each Service that is measured: the least that translation
    /// by nftables costs.
    OneRule,
    /// The server's own address: no Service at all.
    Direct,
}

impl Subject {
    /// All, in the order of the columns.
    pub const ALL: [Self; 5] = [
        Self::Tweed,
        Self::KubeProxy("nftables"),
        Self::KubeProxy("iptables"),
        Self::OneRule,
        Self::Direct,
    ];

    pub fn name(self) -> String {
        match self {
            Self::Tweed => "tweed".to_owned(),
            Self::KubeProxy(mode) => format!("kube-proxy, {mode}"),
            Self::OneRule => "one DNAT rule".to_owned(),
            Self::Direct => "without Services".to_owned(),
        }
    }

    /// Whether it knows anything of the number of Services.
    pub fn is_proxy(self) -> bool {
        matches!(self, Self::Tweed | Self::KubeProxy(_))
    }
}

/// A node whose Services a subject serves.
pub struct Served {
    pub host: Host,
    pub subject: Subject,
}

impl Served {
    /// Node `number`, on which nobody serves Services yet.
    pub fn new(underlay: &Underlay, number: u8, subject: Subject) -> anyhow::Result<Self> {
        let host = Host::new(underlay, number, 0)?;
        // A packet to a Service that nobody translates goes nowhere, and conntrack keeps
        // nothing of it.
        let netns = host.node.netns();
        netns.ip([format!("route add unreachable {CLUSTER_IPS}")])?;
        Ok(Self { host, subject })
    }

    /// Starts who serves; gives the moment before.
    pub fn start(&mut self) -> anyhow::Result<Instant> {
        match self.subject {
            Subject::Tweed => {
                self.host.stop_agent()?;
                self.host.set_flags(&["--services", "on"]);
                self.host.start_agent()
            }
            Subject::KubeProxy(mode) => {
                let program = kube_proxy()?.context("kube-proxy is not built")?;
                let flags = self.flags_of_kube_proxy(mode);
                self.host.start_peer(&program, flags)
            }
            Subject::OneRule | Subject::Direct => Ok(Instant::now()),
        }
    }

    fn flags_of_kube_proxy(&self, mode: &str) -> Vec<String> {
        let own = [
            format!("--proxy-mode={mode}"),
            format!("--kubeconfig={}", self.host.kubeconfig.display()),
            format!("--hostname-override={}", self.host.node.name()),
        ];
        let others = [
            "--cluster-cidr=10.250.0.0/16",
            "--config-sync-period=1h",
            // These sysctls cannot be written in a network namespace.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-close-wait=0s",
            "--conntrack-tcp-timeout-established=0s",
        ];
        own.into_iter().chain(others.map(str::to_owned)).collect()
    }

    /// Ends who serves and removes all rules and sets of the node; gives by how much the
    /// kernel's memory fell, in MiB. Entries of conntrack are removed before, so that none
    /// of them ends meanwhile.
    pub fn remove_rules(&mut self) -> anyhow::Result<f64> {
        self.host.stop_peer()?;
        self.host.stop_agent()?;
        let netns = self.host.node.netns();
        netns.sh("conntrack -F")?;
        let with = settled_mib()?;
        netns.nft("flush ruleset\n")?;
        Ok(with - settled_mib()?)
    }
}

/// The kernel's memory once it has stopped to fall, or after half a minute: the kernel frees
/// elements of sets after it has answered, and large maps for seconds.
fn settled_mib() -> anyhow::Result<f64> {
    let mut last = host::slab_mib()?;
    for _ in 0..60 {
        std::thread::sleep(Duration::from_millis(500));
        let now = host::slab_mib()?;
        if now > last - 0.1 {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}

/// kube-proxy, if `conformance/setup.sh e2e` has built it.
pub fn kube_proxy() -> anyhow::Result<Option<PathBuf>> {
    let programs = tweed_lab::Programs::find()?;
    let path = programs.target().join("tools/kubernetes/bin/kube-proxy");
    Ok(path.exists().then_some(path))
}
