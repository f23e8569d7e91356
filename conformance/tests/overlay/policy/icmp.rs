//! Row 6: errors that belong to an allowed flow pass, later fragments follow the first
//! one, and pings are filtered.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use tweed_lab::{Cluster, LabError, Netns, OUTSIDE, PingOptions, ping, receive, wait_until};

use super::policy;
use super::traffic::{Listener, send};
use crate::packets::failed;

/// Whether a datagram is answered by the ICMP error that nobody listens there.
fn is_refused(from: &Netns, to: SocketAddr) -> Result<bool, LabError> {
    let ask = || {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        socket.connect(to)?;
        socket.send(b"anybody?")?;
        match receive(&socket, &mut [0; 8]) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
            _ => Ok(false),
        }
    };
    from.enter(ask)?
        .map_err(|source| failed("send", from, source))
}

fn one_ping() -> PingOptions {
    PingOptions {
        count: 1,
        wait: Duration::from_millis(500),
        ..PingOptions::default()
    }
}

#[test]
fn errors_of_allowed_flows_and_fragments_pass_and_pings_do_not() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let client = cluster.labelled_pod(1, "shop/client", "app=client")?;
    let server = cluster.labelled_pod(2, "other/server", "app=server")?;
    let ear = Listener::open(&cluster, 1, &client, 7001)?;
    ear.wait(server.netns(), true)?;
    // The client may send everything and receive nothing.
    let spec = "{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{}]}";
    cluster.apply("deny", policy("shop", "deny", spec))?;
    ear.wait(server.netns(), false)?;
    let report = ping(server.netns(), client.address(), &one_ping())?;
    assert_eq!(report.lost(), 1, "{report}");
    let report = ping(client.netns(), server.address(), &PingOptions::default())?;
    assert_eq!(report.lost(), 0, "{report}");

    let closed = SocketAddr::new(server.address(), 7009);
    assert!(is_refused(client.netns(), closed)?, "of the pod itself");
    let service = format!(
        "table ip service {{\nchain prerouting {{\ntype nat hook prerouting priority -100\n\
         ip daddr 10.96.0.10 udp dport 80 dnat to {closed}\n}}\n}}\n"
    );
    cluster[1].node.netns().nft(&service)?;
    let service = SocketAddr::from(([10, 96, 0, 10], 80));
    assert!(is_refused(client.netns(), service)?, "after DNAT");

    // The way to the host outside takes less than the pod's link.
    cluster.underlay().router().ip(["link set eth1 mtu 1300"])?;
    let report = ping(client.netns(), OUTSIDE, &PingOptions::packet(1400))?;
    let error = report.errors.first().map_or("", String::as_str);
    assert!(error.contains("mtu"), "{report:?}");

    // Of a datagram in four fragments only the first one has a port.
    let ports = "{podSelector: {}, policyTypes: [Ingress], \
                 ingress: [{ports: [{protocol: UDP, port: 7001}]}]}";
    cluster.apply("large", policy("other", "large", ports))?;
    let open = Listener::open(&cluster, 2, &server, 7001)?;
    let shut = Listener::open(&cluster, 2, &server, 7002)?;
    shut.wait(client.netns(), false)?;
    open.wait(client.netns(), true)?;
    let large = "x".repeat(4000);
    wait_until("the fragments", Duration::from_secs(10), || {
        for listener in [&open, &shut] {
            send(client.netns(), listener.at(), &large).map_err(|e| e.chain())?;
        }
        match open.drain() {
            Ok(all) if all.iter().any(|text| text.starts_with("xxx")) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;
    let leaked = shut.drain()?;
    assert!(!leaked.iter().any(|text| text.starts_with("xxx")));
    Ok(())
}
