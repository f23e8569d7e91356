//! Whether a kube-proxy runs on this node, asked of itself: its metrics server, by
//! default on a loopback address, shows its configuration to everybody. The port alone
//! says nothing, since tweed's agent may serve metrics there in its place.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// The default port of kube-proxy's `--metrics-bind-address`. Who serves something else
/// there hides a kube-proxy that runs.
pub const METRICS_PORT: u16 = 10249;
/// Maximum time for each step of the question. It is asked on the node itself.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of bytes of an answer that are read: some 50 times of what kube-proxy
/// 1.35 answers.
const MAX_ANSWER: u64 = 64 * 1024;

/// The mode of the kube-proxy that answers on a loopback address; none if no kube-proxy
/// does. One whose metrics are elsewhere is not found.
pub fn kube_proxy_mode() -> Option<String> {
    let loopbacks: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let mut answers = loopbacks
        .into_iter()
        .filter_map(|ip| ask(SocketAddr::new(ip, METRICS_PORT)));
    answers.find_map(|answer| mode(&answer))
}

fn ask(server: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&server, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(TIMEOUT)).ok()?;
    let request = "GET /configz HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The mode in an answer of HTTP that has kube-proxy's configuration.
fn mode(answer: &str) -> Option<String> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    if head.split(' ').nth(1)? != "200" {
        return None;
    }
    let body: Value = serde_json::from_str(body).ok()?;
    let mode = body.get("kubeproxy.config.k8s.io")?.get("Mode");
    match mode.and_then(Value::as_str) {
        // The default on Linux.
        None | Some("") => Some("iptables".to_owned()),
        Some(mode) => Some(mode.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(body: &str) -> Option<String> {
        mode(&format!(
            "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}"
        ))
    }

    #[test]
    fn only_kube_proxys_configuration_is_an_answer() {
        let of = |mode: &str| {
            answered(&format!(
                r#"{{"kubeproxy.config.k8s.io":{{"Linux":{{}},"Mode":"{mode}"}}}}"#
            ))
        };
        assert_eq!(of("nftables").as_deref(), Some("nftables"));
        assert_eq!(of("").as_deref(), Some("iptables"));
        assert_eq!(answered("nftables"), None);
        assert_eq!(answered("{}"), None);
        assert_eq!(mode("HTTP/1.0 404 Not Found\r\n\r\n{}"), None);
        assert_eq!(mode("SSH-2.0-OpenSSH_9.2\r\n"), None);
        assert_eq!(mode(""), None);
    }
}
