//! The objects as manifests.

use std::net::IpAddr;

use serde_json::json;
use tweed_lab::Objects;

use super::{Candidate, SERVICE_PORT, Service, Services, cluster_ip};

/// The namespace of the Services.
const NAMESPACE: &str = "red";

/// A candidate with the name of its node and its addresses.
pub struct Place<'a> {
    /// The candidate.
    pub candidate: Candidate<'a>,
    /// The name of its node.
    pub node: String,
    /// Its addresses.
    pub addresses: &'a [IpAddr],
}

impl Services {
    /// Adds Services, their slices and their network to what is written into the node file.
    /// The endpoints listen on this port.
    pub fn write(&self, objects: &mut Objects, places: &[Place<'_>], port: u16) {
        let cidr = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": { "name": "kubernetes" },
            "spec": { "cidrs": ["10.96.0.0/16", "fd00:96::/112"] },
        });
        objects.set("service-cidr", cidr.to_string());
        for (number, service) in &self.all {
            service.write(*number, objects, places, port);
        }
    }
}

impl Service {
    fn write(&self, number: usize, objects: &mut Objects, places: &[Place<'_>], port: u16) {
        let name = format!("service{number}");
        let addresses = [true, false].map(|is_ipv4| cluster_ip(number, is_ipv4));
        let word = |is: bool, one: &'static str, other: &'static str| if is { one } else { other };
        let object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "namespace": NAMESPACE, "name": name },
            "spec": {
                "type": "ClusterIP", "clusterIP": addresses[0], "clusterIPs": addresses,
                "internalTrafficPolicy": word(self.is_local, "Local", "Cluster"),
                "sessionAffinity": word(self.has_affinity, "ClientIP", "None"),
                "ports": [{ "name": "p", "protocol": "UDP", "port": SERVICE_PORT }],
            },
        });
        objects.set(&format!("service/{number}"), object.to_string());
        for is_ipv4 in [true, false] {
            let endpoints = places.iter().filter_map(|place| {
                let address = place.addresses.iter().find(|ip| ip.is_ipv4() == is_ipv4)?;
                let is_ready = self.is_ready(&place.candidate);
                Some(json!({
                    "addresses": [address], "nodeName": place.node,
                    "conditions": { "ready": is_ready, "serving": is_ready },
                }))
            });
            let family = word(is_ipv4, "IPv4", "IPv6");
            let slice = json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "addressType": family,
                "metadata": { "namespace": NAMESPACE, "name": format!("{name}-{family}"),
                              "labels": { "kubernetes.io/service-name": name } },
                "endpoints": endpoints.collect::<Vec<_>>(),
                "ports": [{ "name": "p", "protocol": "UDP", "port": port }],
            });
            objects.set(&format!("slice/{number}/{family}"), slice.to_string());
        }
    }
}
