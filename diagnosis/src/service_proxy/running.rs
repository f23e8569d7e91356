//! Whether a kube-proxy runs on this node, asked of itself: its metrics server, by
//! default on a loopback address, says its mode to everybody.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// The default port of kube-proxy's `--metrics-bind-address`.
const PORT: u16 = 10249;
/// Maximum time for each step of the question. It is asked on the node itself.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of bytes of an answer that are read: a mode is a word.
const MAX_ANSWER: u64 = 4096;
const MODES: [&str; 3] = ["iptables", "ipvs", "nftables"];

/// The mode of the kube-proxy that answers on a loopback address; none if no other
/// answer comes. One whose metrics are elsewhere is not found.
#[must_use]
pub fn kube_proxy_mode() -> Option<String> {
    let loopbacks: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let mut answers = loopbacks
        .into_iter()
        .filter_map(|ip| ask(SocketAddr::new(ip, PORT)));
    answers.find_map(|answer| mode(&answer).map(str::to_owned))
}

fn ask(server: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&server, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(TIMEOUT)).ok()?;
    let request = "GET /proxyMode HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The mode in an answer of HTTP.
fn mode(answer: &str) -> Option<&str> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?;
    let body = body.trim();
    (status == "200" && MODES.contains(&body)).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mode_is_an_answer() {
        let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n";
        assert_eq!(mode(&format!("{head}iptables")), Some("iptables"));
        assert_eq!(mode(&format!("{head}nftables\n")), Some("nftables"));
        assert_eq!(mode(&format!("{head}<html>")), None);
        assert_eq!(mode("HTTP/1.0 404 Not Found\r\n\r\niptables"), None);
        assert_eq!(mode("SSH-2.0-OpenSSH_9.2\r\n"), None);
        assert_eq!(mode(""), None);
    }
}
