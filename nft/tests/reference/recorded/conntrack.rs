//! Which flows conntrack has to forget.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use serde_json::{Value, json};
use tweed_core::object::endpoint_slice::SERVICE_LABEL;
use tweed_planner::services::desired::Endpoint;
use tweed_planner::services::stale::{Flow, Judge, PROTOCOL, PastFrontends};

use super::read;
use crate::cluster::Cluster;
use crate::tweed::planner;

const RECORDED: &str =
    include_str!("../../../../conformance/services-judge/recorded/conntrack.json");

/// The address of the node, and the network of the tests' cluster IPs.
const NODE: [u8; 4] = [192, 168, 0, 2];
const NETWORK: &str = "172.30.0.0/16";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    test: String,
    ports: Vec<Port>,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Port {
    service: String,
    port: String,
    protocol: String,
    #[serde(rename = "clusterIP")]
    cluster_ip: IpAddr,
    #[serde(rename = "externalIPs")]
    external_ips: Vec<IpAddr>,
    #[serde(rename = "loadBalancerIPs")]
    load_balancer_ips: Vec<IpAddr>,
    number: u16,
    node_port: u16,
    endpoints: Vec<Serves>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Serves {
    endpoint: SocketAddr,
    serving: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    protocol: u8,
    /// Empty is any address of the node.
    destination: String,
    destination_port: u16,
    reply_source: IpAddr,
    /// 0 if the flow was not translated.
    reply_port: u16,
    deleted: bool,
}

impl Case {
    fn cluster(&self) -> Cluster {
        let first = &self.ports[0];
        let (namespace, name) = first.service.split_once('/').unwrap();
        let ports = self.ports.iter().map(|one| {
            json!({
                "name": one.port, "protocol": one.protocol, "port": one.number,
                "nodePort": one.node_port,
            })
        });
        let ingress = first.load_balancer_ips.iter().map(|ip| json!({ "ip": ip }));
        let service = json!({
            "metadata": { "namespace": namespace, "name": name },
            "spec": {
                "type": "LoadBalancer", "clusterIPs": [first.cluster_ip],
                "externalIPs": first.external_ips, "ports": ports.collect::<Vec<_>>(),
            },
            "status": { "loadBalancer": { "ingress": ingress.collect::<Vec<_>>() } },
        });
        let slices = self.ports.iter().flat_map(|port| {
            port.endpoints.iter().map(move |one| {
                json!({
                    "metadata": {
                        "namespace": namespace, "name": format!("{}-{}", port.port, one.endpoint.ip()),
                        "labels": { SERVICE_LABEL: name },
                    },
                    "addressType": "IPv4",
                    "endpoints": [{
                        "addresses": [one.endpoint.ip()],
                        "conditions": { "ready": one.serving, "serving": one.serving },
                    }],
                    "ports": [{
                        "name": port.port, "protocol": port.protocol, "port": one.endpoint.port(),
                    }],
                })
            })
        });
        Cluster {
            node_name: "this-node".to_owned(),
            node_ips: vec![NODE.into()],
            zone: String::new(),
            cluster_cidrs: Vec::new(),
            service_cidrs: vec![NETWORK.to_owned()],
            node_port_addresses: Vec::new(),
            external_ips: true,
            services: vec![service],
            slices: slices.collect::<Vec<Value>>(),
        }
    }

    /// Why tweed forgets a flow that kube-proxy keeps, if it does.
    fn differs(&self, entry: &Entry) -> Option<&'static str> {
        let translated = entry.reply_port != 0;
        let is_cluster_ip = entry.destination == self.ports[0].cluster_ip.to_string();
        if entry.protocol != PROTOCOL || entry.deleted || !translated {
            return None;
        }
        if self.ports.iter().all(|port| port.endpoints.is_empty()) {
            return Some("the last endpoint is gone, as others before it");
        }
        let is_known = self
            .ports
            .iter()
            .any(|port| port.number == entry.destination_port);
        (is_cluster_ip && !is_known)
            .then_some("who translates to a cluster IP is a Service, and this one has no such port")
    }
}

#[test]
fn flows_are_forgotten_as_the_tests_of_kube_proxy_expect() {
    for case in read::<Case>(RECORDED) {
        let planner = planner(&case.cluster(), &BTreeSet::new());
        let judge = Judge::new(
            planner.desired(),
            Some([NODE.into()]),
            PastFrontends::default(),
        );
        for entry in &case.entries {
            let address = match entry.destination.as_str() {
                "" => NODE.into(),
                text => text.parse().unwrap(),
            };
            let destination = Endpoint {
                address,
                port: entry.destination_port,
            };
            let answered_by = match entry.reply_port {
                0 => destination,
                port => Endpoint {
                    address: entry.reply_source,
                    port,
                },
            };
            let flow = Flow {
                protocol: entry.protocol,
                destination,
                answered_by,
            };
            let stale = judge.is_stale(&flow);
            let expected = entry.deleted || case.differs(entry).is_some();
            assert_eq!(stale, expected, "{}: {entry:?}", case.test);
        }
    }
}
