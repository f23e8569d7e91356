//! Services as the API has them, and where they are.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

use crate::policies::objects::NAMESPACE;

/// The collections, as they end a path.
pub const SERVICES: &str = "services";
pub const SLICES: &str = "endpointslices";
pub const CIDRS: &str = "servicecidrs";

/// Where all cluster IPs are.
pub const CLUSTER_IPS: &str = "10.96.0.0/12";

/// The first cluster IP of the Services that nobody uses.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 96, 1, 0);
/// The first address of their endpoints: no node of the lab has these.
const FIRST_ENDPOINT: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 0);

/// A Service whose endpoint is the server of a node.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    name: &'static str,
    protocol: &'static str,
    address: Ipv4Addr,
    /// The same at the Service and at the server.
    pub port: u16,
}

impl Measured {
    /// Without a connection, at 10.96.0.`host`.
    pub const fn udp(name: &'static str, host: u8, port: u16) -> Self {
        Self::new(name, "UDP", host, port)
    }

    /// With connections.
    pub const fn tcp(name: &'static str, host: u8, port: u16) -> Self {
        Self::new(name, "TCP", host, port)
    }

    const fn new(name: &'static str, protocol: &'static str, host: u8, port: u16) -> Self {
        Self {
            name,
            protocol,
            address: Ipv4Addr::new(10, 96, 0, host),
            port,
        }
    }

    /// Where it is.
    pub fn at(self) -> SocketAddr {
        (self.address, self.port).into()
    }

    pub fn service(self) -> Value {
        service(self.name, self.address, self.protocol, self.port)
    }

    /// The slice with this endpoint, or none.
    pub fn slice(self, endpoint: Option<IpAddr>, node: &str) -> Value {
        slice(self.name, endpoint, node, self.protocol, self.port)
    }
}

/// The network of all cluster IPs.
pub fn cidr() -> Value {
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": { "name": "kubernetes" }, "spec": { "cidrs": [CLUSTER_IPS] } })
}

/// Service `number` of those that nobody uses, with two endpoints on other nodes.
pub fn unused(number: u32) -> [Value; 2] {
    let name = format!("unused{number}");
    let address = Ipv4Addr::from(u32::from(FIRST) + number);
    let endpoints = (0..2).map(|one| {
        let address = Ipv4Addr::from(u32::from(FIRST_ENDPOINT) + 2 * number + one);
        IpAddr::from(address)
    });
    [
        service(&name, address, "TCP", 80),
        slice(&name, endpoints, "other", "TCP", 8080),
    ]
}

fn service(name: &str, address: Ipv4Addr, protocol: &str, port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "namespace": NAMESPACE, "name": name, "uid": format!("uid-{name}") },
        "spec": { "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
                  "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                  "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
                  "ports": [{ "name": "p", "protocol": protocol, "port": port,
                              "targetPort": port }] },
        "status": { "loadBalancer": {} },
    })
}

fn slice(
    name: &str,
    endpoints: impl IntoIterator<Item = IpAddr>,
    node: &str,
    protocol: &str,
    port: u16,
) -> Value {
    let endpoints = endpoints.into_iter().map(|address| {
        json!({ "addresses": [address], "nodeName": node,
                "conditions": { "ready": true, "serving": true, "terminating": false } })
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "namespace": NAMESPACE, "name": format!("{name}-1"),
                      "labels": { "kubernetes.io/service-name": name } },
        "endpoints": endpoints.collect::<Vec<_>>(),
        "ports": [{ "name": "p", "protocol": protocol, "port": port }],
    })
}
