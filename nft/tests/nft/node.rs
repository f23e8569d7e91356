//! A host whose table an agent keeps, and clusters for it.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tweed_nft::Outcome;
use tweed_planner::config::Masquerade;
use tweed_planner::overlay::desired::{Ruleset, VxlanMatch};

use crate::lab::Host;
use crate::tables::Tables;

/// A cluster of `nodes` nodes, this one being number 1.
pub fn cluster(nodes: u32) -> Ruleset {
    let address = |number: u32| IpAddr::from((0xc633_0000 + number).to_be_bytes());
    let cidr = |number: u32| {
        let base = IpAddr::from((0x0a00_0000 + (number << 8)).to_be_bytes());
        ipnetwork::IpNetwork::new(base, 24).unwrap()
    };
    Ruleset {
        masquerade: Some(Masquerade::RandomFully),
        masquerade_ipv6: true,
        masquerade_nodes: true,
        vxlan: Some(VxlanMatch {
            device: "tweed.1".to_owned(),
            vni: 1,
            port: 8472,
        }),
        local_cidrs: [cidr(1), "fd00:1::/64".parse().unwrap()].into(),
        cluster_cidrs: (1..=nodes)
            .map(cidr)
            .chain(["fd00::/16".parse().unwrap()])
            .collect(),
        node_addresses: (1..=nodes).map(address).collect(),
        underlay_addresses: Default::default(),
        vxlan_sources: (2..=nodes).map(|n| (address(n), cidr(n))).collect(),
        pod_links: [(address(1), 7)].into(),
    }
}

/// A host with an agent's table, which lives on the host's thread.
pub struct Node {
    pub host: Host,
    pub run_dir: TempDir,
    table: Arc<Mutex<Option<Tables>>>,
}

impl Node {
    pub fn new() -> Self {
        let node = Self {
            host: Host::new(),
            run_dir: tempfile::tempdir().unwrap(),
            table: Arc::default(),
        };
        node.restart();
        node
    }

    /// The agent dies and another one starts.
    pub fn restart(&self) {
        let run_dir = self.run_dir.path().to_owned();
        let table = Arc::clone(&self.table);
        self.host.run(move || {
            *table.lock().unwrap() = Some(Tables::open(&run_dir, Path::new("nft"), false).unwrap());
        });
    }

    pub fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tables) -> T + Send + 'static,
    ) -> T {
        let table = Arc::clone(&self.table);
        self.host
            .run(move || work(table.lock().unwrap().as_mut().unwrap()))
    }

    pub fn reconcile(&self, ruleset: &Ruleset) -> Outcome {
        let ruleset = ruleset.clone();
        self.with(move |table| table.reconcile(&ruleset, false))
            .unwrap()
    }

    pub fn due(&self) -> bool {
        self.with(Tables::due)
    }

    /// The table as `nft` shows it, counters aside.
    pub fn listing(&self) -> String {
        self.host.sh("nft -s list table inet tweed")
    }

    /// The same with the kernel's handles: differs if anything was replaced.
    pub fn handles(&self) -> String {
        self.host.sh("nft -s -a list table inet tweed")
    }

    pub fn listing_or_none(&self) -> Option<String> {
        let text = self
            .host
            .sh("nft -s list table inet tweed 2>/dev/null || true");
        (!text.is_empty()).then_some(text)
    }
}

pub const NOTHING: Outcome = Outcome {
    changed: 0,
    repaired: 0,
    messages: 0,
};
