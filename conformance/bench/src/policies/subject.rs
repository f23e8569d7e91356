//! Who enforces the policies of a node.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use tweed_lab::{Programs, Underlay};

use super::host::{Attached, Host};

/// A policy engine, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// `tweed-agent`.
    Tweed,
    /// kube-router as a policy engine only, beside `tweed-agent --policy off`.
    KubeRouter,
    /// A node without any policy: the floor of what is measured of packets and of ADD.
    Nobody,
}

impl Subject {
    /// All, in the order of the columns.
    pub const ALL: [Self; 3] = [Self::Tweed, Self::KubeRouter, Self::Nobody];

    pub fn name(self) -> &'static str {
        match self {
            Self::Tweed => "tweed",
            Self::KubeRouter => "kube-router",
            Self::Nobody => "without policies",
        }
    }
}

/// A node whose policies a subject enforces.
pub struct Enforced {
    pub host: Host,
    pub subject: Subject,
}

impl Enforced {
    /// Node `number` with its pods, and with nobody who would enforce policies yet.
    pub fn new(
        underlay: &Underlay,
        number: u8,
        subject: Subject,
        locals: usize,
    ) -> anyhow::Result<Self> {
        let mut host = Host::new(underlay, number, locals)?;
        if subject != Subject::Nobody {
            host.stop_agent()?;
        }
        if subject == Subject::KubeRouter {
            host.set_flags(&["--policy", "off"]);
            host.start_agent()?;
        }
        Ok(Self { host, subject })
    }

    /// Starts who enforces; gives the moment before.
    pub fn start(&mut self) -> anyhow::Result<Instant> {
        match self.subject {
            Subject::Tweed => self.host.start_agent(),
            Subject::KubeRouter => {
                let program = kube_router()?.context("kube-router is not built")?;
                let flags = self.flags_of_kube_router();
                self.host.start_peer(&program, flags)
            }
            Subject::Nobody => Ok(Instant::now()),
        }
    }

    fn flags_of_kube_router(&self) -> Vec<String> {
        let own = [
            format!("--kubeconfig={}", self.host.kubeconfig.display()),
            format!("--hostname-override={}", self.host.node.name()),
        ];
        let others = [
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--run-loadbalancer=false",
            "--enable-cni=false",
            // What it does by the clock is none of what is measured.
            "--iptables-sync-period=1h",
        ];
        own.into_iter().chain(others.map(str::to_owned)).collect()
    }

    /// The pod whose policies are measured.
    pub fn server(&self) -> &Attached {
        &self.host.ends[0]
    }

    /// The pod that sends to it.
    pub fn client(&self) -> &Attached {
        &self.host.ends[1]
    }
}

/// kube-router, if `conformance/setup.sh bench` has built it.
pub fn kube_router() -> anyhow::Result<Option<PathBuf>> {
    Ok(Programs::find()?.tool("kube-router").ok())
}
