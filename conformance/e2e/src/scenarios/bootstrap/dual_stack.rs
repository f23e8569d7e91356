//! Both families in one cluster: pods reach each other by IPv6, a Service answers at its
//! ClusterIPs of both, and a policy holds for both.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde_json::Value;
use tweed_lab::{Transport, wait_until};

use super::LIMIT;
use crate::at_once::at_once;
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::netexec::{TRANSPORTS, expect_no_reply, request};

/// The server's ports, the same by the Service and without it.
const TCP_PORT: u16 = 8080;
const UDP_PORT: u16 = 8081;

const OBJECTS: &str = r"
apiVersion: v1
kind: Service
metadata: { name: both }
spec:
  ipFamilyPolicy: RequireDualStack
  selector: { app: both }
  ports:
    - { name: tcp, port: 8080, protocol: TCP }
    - { name: udp, port: 8081, protocol: UDP }
---
apiVersion: v1
kind: Pod
metadata: { name: both, labels: { app: both } }
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 1
  containers:
    - name: server
      image: localhost/agnhost:lab
      args: [netexec, --http-port=8080, --udp-port=8081]
      readinessProbe: { httpGet: { path: /healthz, port: 8080 }, periodSeconds: 1, timeoutSeconds: 20 }
";

const POLICY: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: both }
spec:
  podSelector: { matchLabels: { app: both } }
  ingress: [{ from: [{ podSelector: { matchLabels: { friend: 'yes' } } }] }]
";

/// `pods` is one idle pod on each node.
pub fn run(fixture: &mut Fixture<'_>, pods: &[Endpoint]) -> Result<()> {
    for from in pods {
        for to in pods {
            from.ping_address(&to.name, ipv6(to)?, 3)?;
        }
    }
    fixture.apply(&OBJECTS.replace("NODE", &fixture.first_worker()?))?;
    let server = Endpoint::pod(&fixture.wait_ready("both", LIMIT)?)?;
    let line = format!("get service both --namespace {}", fixture.namespace());
    let addresses = cluster_ips(&fixture.kubectl().json(&line)?)?;
    let direct = [server.address, ipv6(&server)?];
    let all: Vec<IpAddr> = direct.into_iter().chain(addresses).collect();
    for transport in TRANSPORTS {
        for address in &all {
            for pod in pods {
                answers(pod, transport, at(*address, transport))?;
            }
        }
        // The lab's nodes have no default route of IPv6, so none to a ClusterIP.
        for node in fixture.cluster.nodes().map(Endpoint::node) {
            for address in direct {
                answers(&node, transport, at(address, transport))?;
            }
        }
    }
    policy(fixture, pods, &all)?;
    fixture.sh("delete networkpolicy,service,pod both --wait=false")?;
    let what = "addresses of both families at which a policy lets one pod in and no other";
    fixture.measure(what, all.len().to_string());
    Ok(())
}

/// The first pod may use the server; no other pod may, neither by the Service nor without it.
fn policy(fixture: &Fixture<'_>, pods: &[Endpoint], addresses: &[IpAddr]) -> Result<()> {
    let (friend, others) = pods.split_first().context("no pod")?;
    fixture.sh(&format!("label pod {} friend=yes", friend.name))?;
    fixture.apply(POLICY)?;
    let targets = || {
        let both = addresses
            .iter()
            .map(|address| TRANSPORTS.map(|one| (*address, one)));
        both.flatten()
            .map(|(address, transport)| (transport, at(address, transport)))
    };
    let denied = targets().flat_map(|target| others.iter().map(move |other| (other, target)));
    at_once(denied, |(other, (transport, to))| {
        let what = format!("{to} to be closed for {}", other.name);
        Ok(wait_until(&what, LIMIT, || {
            expect_no_reply(other, transport, to).map_err(|error| format!("{error:#}"))
        })?)
    })?;
    for (transport, to) in targets() {
        answers(friend, transport, to)?;
    }
    Ok(())
}

/// Waits until the server answers, which sees a pod by its own address.
fn answers(from: &Endpoint, transport: Transport, to: SocketAddr) -> Result<()> {
    let what = format!("{to} to answer {} by {transport:?}", from.name);
    wait_until(&what, LIMIT, || {
        let reply = request(from, transport, to).map_err(|error| format!("{error:#}"))?;
        match from.ipv6.filter(|_| to.is_ipv6()) {
            Some(own) if own != reply.client => Err(format!("the server sees {}", reply.client)),
            _ => Ok(()),
        }
    })?;
    Ok(())
}

fn ipv6(pod: &Endpoint) -> Result<IpAddr> {
    let missing = || format!("{} has no address of IPv6", pod.name);
    pod.ipv6.with_context(missing)
}

fn at(address: IpAddr, transport: Transport) -> SocketAddr {
    let port = match transport {
        Transport::Tcp => TCP_PORT,
        Transport::Udp => UDP_PORT,
    };
    SocketAddr::new(address, port)
}

fn cluster_ips(service: &Value) -> Result<[IpAddr; 2]> {
    let listed = service["spec"]["clusterIPs"].as_array();
    let texts = listed.into_iter().flatten();
    let all: Vec<IpAddr> = texts.filter_map(|one| one.as_str()?.parse().ok()).collect();
    let both = <[IpAddr; 2]>::try_from(all).ok();
    both.with_context(|| format!("there are not two ClusterIPs in {service}"))
}
