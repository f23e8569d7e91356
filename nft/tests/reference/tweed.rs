//! A node that sends Services on as tweed does: the planner over the table.

use std::collections::BTreeSet;
use std::path::Path;

use ipnetwork::IpNetwork;
use tempfile::TempDir;
use tweed_core::object::Event;
use tweed_core::object::node::{Node, NodeAddress};
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_nft::services::ServicesTable;
use tweed_nft::{Connection, Table as _};
use tweed_planner::services::{NodePortAddresses, Options, PodNetworks, ServicePlanner, Step};

use super::cluster::{Cluster, changed, listed};
use super::netns::Netns;

/// The planner that was told of a cluster. The pods of this node are in `local_cidrs`.
pub fn planner(cluster: &Cluster, local_cidrs: &BTreeSet<IpNetwork>) -> ServicePlanner {
    let networks = |texts: &[String]| -> Vec<IpNetwork> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let mut node_ports = cluster.node_port_addresses.clone();
    if node_ports.is_empty() {
        node_ports = ["0.0.0.0/0", "::/0"].map(str::to_owned).into();
    }
    let primary = node_ports.iter().any(|text| text == "primary");
    node_ports.retain(|text| text != "primary");
    let mut planner = ServicePlanner::new(Options {
        node_name: cluster.node_name.clone(),
        node_port_addresses: NodePortAddresses {
            primary,
            networks: networks(&node_ports),
        },
        external_ips: cluster.external_ips,
        load_balancer_cidrs: networks(&["0.0.0.0/0".to_owned(), "::/0".to_owned()]),
    });
    planner.set_node(Some(&node(cluster)));
    planner.set_pod_networks(PodNetworks {
        cluster: networks(&cluster.cluster_cidrs).into_iter().collect(),
        own: local_cidrs.iter().copied().collect(),
    });
    let cidrs = ServiceCidr {
        name: "kubernetes".to_owned(),
        cidrs: cluster.service_cidrs.clone(),
    };
    for event in [Event::Init, Event::InitApply(cidrs), Event::InitDone] {
        planner.apply_service_cidrs(event);
    }
    for event in listed(&cluster.services) {
        planner.apply_services(event);
    }
    for event in listed(&cluster.slices) {
        planner.apply_endpoint_slices(event);
    }
    assert_eq!(planner.plan(), Step::Full);
    planner
}

fn node(cluster: &Cluster) -> Node {
    let zone = (
        "topology.kubernetes.io/zone".to_owned(),
        cluster.zone.clone(),
    );
    let addresses = cluster.node_ips.iter().map(|ip| NodeAddress {
        kind: "InternalIP".to_owned(),
        address: ip.to_string(),
    });
    Node {
        name: cluster.node_name.clone(),
        addresses: addresses.collect(),
        labels: [zone].into(),
        ..Node::default()
    }
}

/// The planner and the table of a node.
pub struct Tweed {
    nft: Connection,
    table: ServicesTable,
    known: Option<(Cluster, ServicePlanner)>,
    /// Where the pods of this node are.
    local_cidrs: BTreeSet<IpNetwork>,
    _run_dir: TempDir,
}

impl Tweed {
    /// In a namespace that has none; the node's pods are in these networks.
    pub fn new(netns: &Netns, local_cidrs: [&str; 2]) -> Self {
        let run_dir = tempfile::tempdir().unwrap();
        let nft = netns.enter(|| Connection::open(run_dir.path(), Path::new("nft")).unwrap());
        Self {
            nft,
            table: ServicesTable::new(run_dir.path(), false),
            known: None,
            local_cidrs: local_cidrs.map(|cidr| cidr.parse().unwrap()).into(),
            _run_dir: run_dir,
        }
    }

    /// The planner begins anew.
    pub fn forget(&mut self) {
        self.known = None;
        self.table.forget();
    }

    /// Sends Services on as those of a cluster say. Nothing else is masqueraded.
    pub fn serve(&mut self, netns: &Netns, cluster: &Cluster) {
        let (table, nft) = (&mut self.table, &mut self.nft);
        let planner = match self.known.take() {
            None => planner(cluster, &self.local_cidrs),
            Some((old, mut planner)) => {
                planner.set_node(Some(&node(cluster)));
                for event in changed(&old.services, &cluster.services) {
                    planner.apply_services(event);
                }
                for event in changed(&old.slices, &cluster.slices) {
                    planner.apply_endpoint_slices(event);
                }
                match planner.plan() {
                    Step::Delta(delta) => {
                        netns.enter(|| table.follow(nft, &delta)).unwrap();
                    }
                    step => assert_eq!(step, Step::Unchanged),
                }
                planner
            }
        };
        let desired = planner.desired();
        netns
            .enter(|| table.reconcile(nft, desired, false))
            .unwrap();
        self.known = Some((cluster.clone(), planner));
    }
}
