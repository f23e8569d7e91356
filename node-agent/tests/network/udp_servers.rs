//! Servers of UDP in pods, and which of them answers a client that keeps its socket. What
//! conntrack has of it is seen with the eyes of `conntrack`.

use std::net::UdpSocket;
use std::time::Duration;

use crate::node::{eventually, run};

/// What each server answers with, and its socket, which never waits.
pub struct UdpServers(pub Vec<(&'static str, UdpSocket)>);

impl UdpServers {
    /// Who answers a datagram of the client, whose socket never waits, if anybody does
    /// within a short time.
    pub fn answer(&self, client: &UdpSocket) -> Option<String> {
        let mut buffer = [0; 100];
        // The client is told of refusals of earlier datagrams.
        while client.recv(&mut buffer).is_ok() {}
        let _ = client.send(b"?");
        for _ in 0..20 {
            for (name, server) in &self.0 {
                if let Ok((_, from)) = server.recv_from(&mut buffer) {
                    server.send_to(name.as_bytes(), from).unwrap();
                }
            }
            if let Ok(length) = client.recv(&mut buffer) {
                return Some(String::from_utf8_lossy(&buffer[..length]).into_owned());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }

    /// Waits until this one answers, by a client that does not stop to ask.
    pub fn eventually_answer(&self, client: &UdpSocket, expected: Option<&str>) {
        eventually(|| match self.answer(client) {
            answer if answer.as_deref() == expected => Ok(()),
            answer => Err(format!(
                "{answer:?} answers {client:?}, not {expected:?}\n{}",
                entries()
            )),
        });
    }
}

/// Conntrack keeps flows of this namespace for an hour. Otherwise it forgets one that was
/// silent for 30 s, which a busy machine may need for one step of a test, and one that has
/// lasted for a while after two minutes.
pub fn keep_entries() {
    for key in ["udp_timeout", "udp_timeout_stream"] {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{key}");
        std::fs::write(path, "3600").unwrap();
    }
}

/// All flows of UDP.
pub fn entries() -> String {
    let of = |family| run("conntrack", &format!("-L -f {family} -p udp -o id"));
    [of("ipv4"), of("ipv6")].concat()
}

/// The number of the entry of a client's flow.
pub fn entry_of(client: &UdpSocket) -> String {
    let from = client.local_addr().unwrap();
    let family = if from.is_ipv4() { "ipv4" } else { "ipv6" };
    let port = from.port();
    let entry = run(
        "conntrack",
        &format!("-L -f {family} -p udp -o id --orig-port-src {port}"),
    );
    entry.trim().rsplit_once("id=").unwrap().1.to_owned()
}
