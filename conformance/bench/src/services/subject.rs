//! Who serves the Services of a node.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;
use tweed_lab::{Background, Underlay};

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
    // In the order in which they end.
    proxy: Option<Background>,
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
        Ok(Self {
            proxy: None,
            host,
            subject,
        })
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
                let start = Instant::now();
                self.proxy = Some(self.start_kube_proxy(mode)?);
                Ok(start)
            }
            Subject::OneRule | Subject::Direct => Ok(Instant::now()),
        }
    }

    fn start_kube_proxy(&self, mode: &str) -> anyhow::Result<Background> {
        let node = &self.host.node;
        let log = node.folder().join("kube-proxy.log");
        let program = kube_proxy()?.context("kube-proxy is not built")?;
        let mut command = node.netns().command(program);
        command
            .arg(format!("--proxy-mode={mode}"))
            .arg(format!("--kubeconfig={}", self.host.kubeconfig.display()))
            .arg(format!("--hostname-override={}", node.name()))
            .args(["--cluster-cidr=10.250.0.0/16", "--config-sync-period=1h"])
            // These sysctls cannot be written in a network namespace.
            .args([
                "--conntrack-max-per-core=0",
                "--conntrack-tcp-timeout-close-wait=0s",
            ])
            .arg("--conntrack-tcp-timeout-established=0s");
        Background::start(node.lab(), &mut command, &log).context("kube-proxy")
    }

    fn pid(&self) -> anyhow::Result<u32> {
        match &self.proxy {
            Some(proxy) => Ok(proxy.pid()),
            None => self.host.agent_pid(),
        }
    }

    /// The CPU time of who serves.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        host::cpu(self.pid()?)
    }

    /// The most memory that who serves ever had resident, in MiB.
    pub fn peak_mib(&self) -> anyhow::Result<f64> {
        host::peak_mib(self.pid()?)
    }

    /// Ends who serves and removes all rules and sets of the node; gives by how much the
    /// kernel's memory fell, in MiB. Entries of conntrack are removed before, so that none
    /// of them ends meanwhile.
    pub fn remove_rules(&mut self) -> anyhow::Result<f64> {
        if let Some(mut proxy) = self.proxy.take() {
            proxy.stop(Signal::SIGKILL)?;
        }
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

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(proxy) = &mut self.proxy {
            // It is killed with its namespace otherwise.
            let _ = proxy.stop(Signal::SIGKILL);
        }
    }
}

/// kube-proxy, if `conformance/setup.sh e2e` has built it.
pub fn kube_proxy() -> anyhow::Result<Option<PathBuf>> {
    let programs = tweed_lab::Programs::find()?;
    let path = programs.target().join("tools/kubernetes/bin/kube-proxy");
    Ok(path.exists().then_some(path))
}
