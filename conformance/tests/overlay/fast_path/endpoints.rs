//! An endpoint of a Service that goes again and again, under datagrams that are in.

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tweed_lab::{ClusterPod, LabError, wait_until};

use super::datagrams::{Arrival, Datagrams};
use super::live::Live;
use super::scene::{LIMIT, agent, many, wait_for, wait_for_service};

const PORT: u16 = 7010;
const SERVICE: &str = "10.96.0.10";
/// Some thousands of datagrams a second.
const PAUSE: Duration = Duration::from_micros(100);
/// How often the Service gets the other endpoint.
const CHANGES: (&str, usize) = ("TWEED_FAST_PATH_CHANGES", 4);
/// How many arrive at an endpoint before it goes: the first of them let their flow in.
const ARRIVE: usize = 20;

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "namespace": "shop", "name": "web" },
        "spec": { "type": "ClusterIP", "clusterIP": SERVICE, "clusterIPs": [SERVICE],
                  "ipFamilies": ["IPv4"], "ports": [
                      { "name": "udp", "protocol": "UDP", "port": 80 },
                      { "name": "tcp", "protocol": "TCP", "port": 80 },
                  ] },
    })
}

/// Its only endpoint.
fn slice(endpoint: &ClusterPod) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "namespace": "shop", "name": "web-1",
                      "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [endpoint.address()], "conditions": { "ready": true } }],
        "ports": [
            { "name": "udp", "protocol": "UDP", "port": PORT },
            { "name": "tcp", "protocol": "TCP", "port": PORT },
        ],
    })
}

/// The numbers that arrive at the second endpoint, which answers them as the first does.
struct Second(UdpSocket);

impl Second {
    /// The next one.
    fn next(&self) -> u64 {
        let mut buffer = [0; 8];
        let (_, from) = self.0.recv_from(&mut buffer).unwrap();
        self.0.send_to(&buffer, from).unwrap();
        u64::from_be_bytes(buffer)
    }

    /// The last of those that have arrived already, if there are any.
    fn last(&self) -> Option<u64> {
        self.0.set_nonblocking(true).unwrap();
        let mut buffer = [0; 8];
        let mut last = None;
        while self.0.recv_from(&mut buffer).is_ok() {
            last = last.max(Some(u64::from_be_bytes(buffer)));
        }
        self.0.set_nonblocking(false).unwrap();
        last
    }
}

/// Waits until some have arrived at the first endpoint after those that are known.
fn wait_for_first(datagrams: &Datagrams, known: usize) -> Vec<Arrival> {
    let start = Instant::now();
    loop {
        let arrivals = datagrams.arrivals();
        if arrivals.len() >= known + ARRIVE {
            return arrivals;
        }
        assert!(start.elapsed() < LIMIT, "nothing arrives");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// As soon as one datagram has reached the new endpoint, no later one reaches that before.
#[test]
fn nothing_reaches_an_endpoint_that_has_gone() -> Result<(), LabError> {
    for (node, way) in [(1, "local"), (2, "vxlan-in")] {
        let mut live = Live::new(&["--services", "on"])?;
        let one = live.pod(1, "one")?;
        let other = live.pod(1, "other")?;
        let client = live.pod(node, "client")?;
        let cidr = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": { "name": "kubernetes" }, "spec": { "cidrs": ["10.96.0.0/16"] },
        });
        live.put("servicecidrs", &[cidr]);
        live.put("services", &[service()]);
        live.put("endpointslices", &[slice(&one)]);
        let at = SocketAddr::new(SERVICE.parse().unwrap(), 80);
        wait_for_service(client.netns(), at, &one, PORT)?;
        let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT));
        let second = Second(other.netns().listen(bind)?);
        second.0.set_read_timeout(Some(LIMIT)).unwrap();
        let server = one.netns().listen(bind)?;
        let datagrams = Datagrams::between(client.netns(), at, server, PAUSE)?;
        wait_for(&live.cluster, 1, way)?;
        for change in 0..many(CHANGES.0, CHANGES.1) {
            live.put("endpointslices", &[slice(&other)]);
            let moved = second.next();
            for _ in 1..ARRIVE {
                second.next();
            }
            let arrivals = datagrams.arrivals();
            let (_, last) = arrivals.iter().max_by_key(|(_, number)| number).unwrap();
            assert!(
                *last < moved,
                "{change}: {last} at the first endpoint, {moved} not"
            );
            live.put("endpointslices", &[slice(&one)]);
            let arrivals = wait_for_first(&datagrams, arrivals.len());
            // Some from before it went may have been counted only now.
            let back = arrivals.iter().find(|(_, number)| *number > moved);
            let last = second.last();
            assert!(
                back.is_none_or(|(_, back)| last < Some(*back)),
                "{change}: {last:?} at the second, {back:?} not"
            );
        }
        // A flow that was let in by a connection which conntrack was then made to forget passes
        // the kernel's path again.
        let agent = agent(&live.cluster, 1);
        wait_until(
            "the flows to be void after conntrack's",
            LIMIT,
            || match agent.metric("tweed_fast_path_invalidations_total{cause=\"services\"}") {
                Ok(Some(count)) if count > 0.0 => Ok(()),
                other => Err(format!("{other:?}")),
            },
        )?;
    }
    Ok(())
}
