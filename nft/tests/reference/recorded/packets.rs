//! What has to become of packets, as real packets.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;
use serde::Deserialize;
use serde_json::Value;

use super::read;
use crate::cluster::Cluster;
use crate::outcome::Outcome;
use crate::packet::{SCTP, TCP, UDP};
use crate::prober::{Probe, Prober, Sender};
use crate::tweed::Tweed;

const RECORDED: &str = include_str!("../../../../conformance/services-judge/recorded/packets.json");

/// Packets with which tweed does something else on purpose: the test and the row as Go names
/// them, and why. Each is expected to differ.
const DIFFERENT: [(&str, &[&str], &str); 3] = [
    (
        "TestInternalExternalMasquerade/no_LocalTrafficDetector",
        &[
            "node_to_ClusterIP",
            "node_to_ClusterIP_with_eTP:Local",
            "node_to_ClusterIP_with_iTP:Local",
            "external_to_ClusterIP",
            "external_to_ClusterIP_with_eTP:Local",
            "external_to_ClusterIP_with_iTP:Local",
            "pod_to_NodePort_with_eTP:Local",
            "pod_to_LB_with_eTP:Local",
        ],
        "tweed always knows where the cluster's pods are",
    ),
    (
        "TestInternalExternalMasquerade/masqueradeAll",
        &[
            "pod_to_ClusterIP",
            "pod_to_ClusterIP_with_eTP:Local",
            "pod_to_ClusterIP_with_iTP:Local",
        ],
        "there is no --masquerade-all",
    ),
    (
        "TestInternalExternalMasquerade/masqueradeAll,_no_LocalTrafficDetector",
        &[
            "pod_to_ClusterIP",
            "pod_to_ClusterIP_with_eTP:Local",
            "pod_to_ClusterIP_with_iTP:Local",
            "pod_to_NodePort_with_eTP:Local",
            "pod_to_LB_with_eTP:Local",
        ],
        "both",
    ),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    test: String,
    node_name: String,
    #[serde(rename = "nodeIP")]
    node_ip: IpAddr,
    #[serde(rename = "nodeIPs")]
    node_ips: Vec<IpAddr>,
    #[serde(rename = "clusterCIDR")]
    cluster_cidr: String,
    #[serde(rename = "serviceCIDRs")]
    service_cidrs: String,
    node_port_addresses: Vec<String>,
    #[serde(rename = "masqueradeAll")]
    _masquerade_all: bool,
    services: Vec<Value>,
    endpoint_slices: Vec<Value>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    name: String,
    source: IpAddr,
    protocol: String,
    destination: IpAddr,
    port: u16,
    outcome: String,
    #[serde(default)]
    endpoints: BTreeSet<SocketAddr>,
    masquerade: bool,
}

impl Case {
    fn cluster(&self) -> Cluster {
        let mut node_ips = self.node_ips.clone();
        node_ips.sort_by_key(|ip| *ip != self.node_ip);
        Cluster {
            node_name: self.node_name.clone(),
            node_ips,
            zone: String::new(),
            cluster_cidrs: if self.cluster_cidr.is_empty() {
                vec!["10.0.0.0/8".to_owned()]
            } else {
                vec![self.cluster_cidr.clone()]
            },
            service_cidrs: vec![self.service_cidrs.clone()],
            node_port_addresses: self.node_port_addresses.clone(),
            external_ips: true,
            services: self.services.clone(),
            slices: self.endpoint_slices.clone(),
        }
    }

    /// Who sends the packets of a row. Those from an address of a load balancer to itself
    /// are meant to be the node's own.
    fn sender(&self, row: &Row) -> Sender {
        let pods: [IpNetwork; 2] = ["10.0.0.0/8", "fd00:10::/32"].map(|text| text.parse().unwrap());
        if self.node_ips.contains(&row.source) || row.source == row.destination {
            Sender::Node
        } else if pods.iter().any(|network| network.contains(row.source)) {
            Sender::Pod
        } else {
            Sender::World
        }
    }
}

impl Row {
    fn probe(&self, sender: Sender) -> Probe {
        Probe {
            sender,
            source: self.source,
            protocol: match self.protocol.as_str() {
                "TCP" => TCP,
                "UDP" => UDP,
                _ => SCTP,
            },
            destination: SocketAddr::new(self.destination, self.port),
        }
    }

    fn expected(&self) -> Outcome {
        match self.outcome.as_str() {
            "untouched" => Outcome::Untouched,
            "reject" => Outcome::Rejected,
            "drop" => Outcome::Dropped,
            "endpoints" => Outcome::sent(self.endpoints.iter().copied(), self.masquerade),
            other => panic!("the outcome {other} is not known"),
        }
    }
}

#[test]
fn packets_fare_as_the_tests_of_kube_proxy_expect() {
    let cases: Vec<Case> = read(RECORDED);
    let mut prober = Prober::of_node(&cases[0].node_ips);
    // They have no pods of other nodes that send.
    let mut tweed = Tweed::new(prober.netns(), ["10.0.0.0/8", "fd00:10::/32"]);
    let mut last = None;
    let (mut wrong, mut differ, mut rows) = (Vec::new(), BTreeSet::new(), 0);
    for case in &cases {
        assert_eq!(case.node_ips, cases[0].node_ips);
        let cluster = case.cluster();
        if last.as_ref() != Some(&cluster) {
            tweed.forget();
            tweed.serve(prober.netns(), &cluster);
            last = Some(cluster);
        }
        for row in &case.rows {
            let probe = row.probe(case.sender(row));
            let outcome = Outcome::seen(&mut prober, probe);
            let expected = row.expected();
            rows += 1;
            if outcome == expected {
                continue;
            }
            let of_row = |(test, rows, _): &&(&str, &[&str], &str)| {
                *test == case.test && rows.contains(&row.name.as_str())
            };
            match DIFFERENT.iter().find(of_row) {
                Some(_) => {
                    differ.insert((case.test.as_str(), row.name.as_str()));
                }
                None => wrong.push(format!(
                    "{}: {}: {outcome:?}, not {expected:?}",
                    case.test, row.name
                )),
            }
        }
    }
    let tests = DIFFERENT.iter();
    let listed = tests.flat_map(|(test, rows, _)| rows.iter().map(|row| (*test, *row)));
    for (test, row) in listed.filter(|row| !differ.contains(row)) {
        wrong.push(format!("{test}: {row} does not differ any more"));
    }
    assert!(wrong.is_empty(), "of {rows}\n{}", wrong.join("\n"));
}
