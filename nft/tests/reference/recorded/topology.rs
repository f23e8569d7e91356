//! Which endpoints a Service uses.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use serde_json::{Value, json};
use tweed_core::family::Family;
use tweed_planner::services::desired::{Desired, Frontend, Frontends, Holds, NodePort, Target};

use super::read;
use crate::cluster::Cluster;
use crate::packet::TCP;
use crate::tweed::planner;

const RECORDED: &str =
    include_str!("../../../../conformance/services-judge/recorded/topology.json");

/// Where tweed chooses others on purpose.
const DIFFERENT: [(&str, &str); 1] = [(
    "TestCategorizeEndpoints/PreferSameNode_falls_back_to_same-zone_when_feature_gate_disabled",
    "hints for nodes always count",
)];

const CLUSTER_IP: [u8; 4] = [10, 96, 0, 1];
const PORT: u16 = 80;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    test: String,
    #[serde(rename = "preferSame")]
    _prefer_same: bool,
    node_name: String,
    zone: String,
    internal_local: bool,
    external_local: bool,
    node_port: u16,
    endpoints: Vec<Endpoint>,
    uses_cluster: bool,
    uses_local: bool,
    cluster: BTreeSet<SocketAddr>,
    local_ones: BTreeSet<SocketAddr>,
    any: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Endpoint {
    endpoint: SocketAddr,
    local: bool,
    ready: bool,
    serving: bool,
    terminating: bool,
    #[serde(default)]
    zone_hints: Vec<String>,
    #[serde(default)]
    node_hints: Vec<String>,
}

/// Where a frontend leads to.
#[derive(Debug, PartialEq, Eq)]
enum Leads {
    To(BTreeSet<SocketAddr>),
    Reject,
    Drop,
}

impl Row {
    fn node(&self) -> &str {
        if self.node_name.is_empty() {
            "this-node"
        } else {
            &self.node_name
        }
    }

    fn cluster(&self) -> Cluster {
        let policy = |local| if local { "Local" } else { "Cluster" };
        let metadata = json!({
            "namespace": "shop", "name": "web",
            "labels": { "kubernetes.io/service-name": "web" },
        });
        let service = json!({
            "metadata": metadata,
            "spec": {
                "type": if self.node_port == 0 { "ClusterIP" } else { "NodePort" },
                "clusterIPs": [IpAddr::from(CLUSTER_IP)],
                "internalTrafficPolicy": policy(self.internal_local),
                "externalTrafficPolicy": policy(self.external_local),
                "ports": [{ "port": PORT, "nodePort": self.node_port }],
            },
        });
        let names = |names: &[String]| -> Vec<Value> {
            names.iter().map(|name| json!({ "name": name })).collect()
        };
        let endpoints = self.endpoints.iter().map(|one| {
            json!({
                "addresses": [one.endpoint.ip()],
                "nodeName": if one.local { self.node() } else { "another-node" },
                "conditions": {
                    "ready": one.ready, "serving": one.serving, "terminating": one.terminating,
                },
                "hints": {
                    "forZones": names(&one.zone_hints), "forNodes": names(&one.node_hints),
                },
            })
        });
        let port = self
            .endpoints
            .first()
            .map_or(PORT, |one| one.endpoint.port());
        let slice = json!({
            "metadata": metadata, "addressType": "IPv4",
            "endpoints": endpoints.collect::<Vec<_>>(),
            "ports": [{ "port": port }],
        });
        Cluster {
            node_name: self.node().to_owned(),
            node_ips: vec![[192, 168, 0, 2].into()],
            zone: self.zone.clone(),
            cluster_cidrs: vec!["10.0.0.0/8".to_owned()],
            service_cidrs: Vec::new(),
            node_port_addresses: Vec::new(),
            external_ips: true,
            services: vec![service],
            slices: vec![slice],
        }
    }

    /// Where a frontend leads to that uses the endpoints of one policy.
    fn expected(&self, local: bool) -> Leads {
        let (uses, chosen) = if local {
            (self.uses_local, &self.local_ones)
        } else {
            (self.uses_cluster, &self.cluster)
        };
        assert!(uses, "{} is not about this policy", self.test);
        if !chosen.is_empty() {
            Leads::To(chosen.clone())
        } else if self.any {
            Leads::Drop
        } else {
            Leads::Reject
        }
    }
}

fn leads<K: Ord>(desired: &Desired, of: &Frontends<K>, key: &K, outside: bool) -> Leads {
    let from_outside = outside.then(|| of.outside.get(key)).flatten();
    let group = match from_outside.unwrap_or(&of.targets[key]) {
        Target::Group(group, _) | Target::Affinity(group) => *group,
        Target::Reject => return Leads::Reject,
        Target::Drop => return Leads::Drop,
    };
    assert_eq!(desired.groups[&group].holds, Holds::Endpoints);
    let slots = (0..desired.groups[&group].slots).map(|slot| desired.slots[&(group, slot)]);
    Leads::To(
        slots
            .map(|one| SocketAddr::new(one.address, one.port))
            .collect(),
    )
}

#[test]
fn endpoints_are_chosen_as_the_tests_of_kube_proxy_expect() {
    let rows: Vec<Row> = read(RECORDED);
    for row in &rows {
        let planner = planner(&row.cluster(), &BTreeSet::new());
        let desired = planner.desired();
        let cluster_ip = Frontend {
            address: CLUSTER_IP.into(),
            protocol: TCP,
            port: PORT,
        };
        let mut same = leads(desired, &desired.addresses, &cluster_ip, false)
            == row.expected(row.internal_local);
        if row.node_port != 0 {
            let node_port = NodePort {
                family: Family::V4,
                protocol: TCP,
                port: row.node_port,
            };
            let leads = |outside| leads(desired, &desired.node_ports, &node_port, outside);
            same &= leads(true) == row.expected(row.external_local);
            same &= leads(false) == row.expected(false);
        }
        let expected = DIFFERENT.iter().find(|(test, _)| *test == row.test);
        assert_eq!(same, expected.is_none(), "{}", row.test);
    }
    for (test, _) in DIFFERENT {
        assert!(
            rows.iter().any(|row| row.test == test),
            "there is no {test}"
        );
    }
}
