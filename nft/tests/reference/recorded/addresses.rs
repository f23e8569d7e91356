//! At which addresses of a node its node ports are.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Deserialize;

use super::read;
use crate::cluster::Cluster;
use crate::tweed::planner;

const RECORDED: &str =
    include_str!("../../../../conformance/services-judge/recorded/nodeport_addresses.json");

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    family: String,
    cidrs: Vec<String>,
    addresses: Vec<IpAddr>,
    chosen: BTreeSet<IpAddr>,
}

impl Row {
    fn cluster(&self) -> Cluster {
        Cluster {
            node_name: "this-node".to_owned(),
            node_ips: self.addresses.clone(),
            zone: String::new(),
            cluster_cidrs: Vec::new(),
            service_cidrs: Vec::new(),
            node_port_addresses: self.cidrs.clone(),
            external_ips: true,
            services: Vec::new(),
            slices: Vec::new(),
        }
    }

    /// What tweed chooses: as kube-proxy, but for two things. Loopback addresses have no
    /// node ports. A family of which no CIDR is has none: kube-proxy opens them at all
    /// addresses of that family then, though the other one was limited.
    fn expected(&self) -> BTreeSet<IpAddr> {
        let is_v4 = self.family == "IPv4";
        let of_family = |cidr: &String| cidr.contains('.') == is_v4;
        if self.cidrs.is_empty() || self.cidrs.iter().any(of_family) {
            self.chosen
                .iter()
                .copied()
                .filter(|ip| !ip.is_loopback())
                .collect()
        } else {
            BTreeSet::new()
        }
    }
}

#[test]
fn node_ports_are_where_the_tests_of_kube_proxy_expect() {
    for row in read::<Row>(RECORDED) {
        let planner = planner(&row.cluster(), &BTreeSet::new());
        let networks = &planner.desired().node_port_networks;
        let has = |ip: &&IpAddr| {
            networks
                .iter()
                .any(|span| span.first <= **ip && **ip <= span.last)
        };
        let is_v4 = row.family == "IPv4";
        let of_family = row.addresses.iter().filter(|ip| ip.is_ipv4() == is_v4);
        let found: BTreeSet<IpAddr> = of_family.filter(has).copied().collect();
        assert_eq!(found, row.expected(), "{row:?}");
    }
}
