//! Services as the API has them, and where they are.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

pub use crate::policies::objects::NAMESPACE;

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

/// A Service of very many ports, whose endpoints are in slices of as many as Kubernetes makes.
pub fn huge(ports: u16) -> Value {
    let mut service = service("huge", Ipv4Addr::new(10, 96, 0, 20), "TCP", 0);
    service["spec"]["ports"] = (0..ports)
        .map(|port| json!({ "name": format!("p{port}"), "protocol": "TCP", "port": 1 + port }))
        .collect();
    service
}

/// The endpoints of a slice.
pub const IN_SLICE: usize = 100;

/// Slice `number` of that, one of its states: they differ by one endpoint.
pub fn slice_of_huge(ports: u16, number: usize, state: usize) -> Value {
    let first = Ipv4Addr::new(10, 101, 0, 0).to_bits();
    let address = |one: usize| Ipv4Addr::from(first + (number * 2 * IN_SLICE + one) as u32).into();
    let endpoints = (state % IN_SLICE..state % IN_SLICE + IN_SLICE).map(address);
    let mut slice = slice(&format!("huge{number}"), endpoints, "other", "TCP", 0);
    slice["metadata"]["labels"]["kubernetes.io/service-name"] = "huge".into();
    slice["ports"] = (0..ports)
        .map(|port| json!({ "name": format!("p{port}"), "protocol": "TCP", "port": 8001 + port }))
        .collect();
    slice
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
    let listed = endpoints.into_iter().map(|address| {
        json!({ "addresses": [address], "nodeName": node,
                "conditions": { "ready": true, "serving": true, "terminating": false } })
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "namespace": NAMESPACE, "name": format!("{name}-1"),
                      "labels": { "kubernetes.io/service-name": name } },
        "endpoints": listed.collect::<Vec<_>>(),
        "ports": [{ "name": "p", "protocol": protocol, "port": port }],
    })
}
