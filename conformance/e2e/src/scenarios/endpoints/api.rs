//! Requests to the API server by way of `kubectl proxy`: a call of kubectl needs too much
//! CPU to send many of them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use tweed_lab::{Background, wait_until};
use tweed_lab_kubernetes::CONTROL;

use super::LIMIT;
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;

/// Maximum time until a request is answered; long enough for a machine that compiles at
/// the same time.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A running `kubectl proxy`, which ends when it is dropped.
#[derive(Debug)]
pub struct Api {
    address: SocketAddr,
    /// Where kubectl runs.
    pub here: Endpoint,
    _proxy: Background,
}

impl Api {
    /// Starts it.
    pub fn start(fixture: &Fixture<'_>) -> Result<Self> {
        let lab = fixture.cluster.lab();
        let mut command = fixture.kubectl().command(["proxy", "--port=0"]);
        let log = lab.folder().join("kubectl-proxy.log");
        let proxy = Background::start(lab, &mut command, &log)?;
        let port = wait_until("the port of kubectl proxy", LIMIT, || {
            let output = proxy.output();
            port_in(&output).ok_or(output)
        })?;
        Ok(Self {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            here: Endpoint::node(fixture.cluster.node(CONTROL)?),
            _proxy: proxy,
        })
    }

    /// Changes an object, from the network namespace of [`Self::here`].
    pub fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        let body = patch.to_string();
        let mut stream = TcpStream::connect_timeout(&self.address, ANSWER_LIMIT)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        // The answer ends with the connection.
        let head = format!(
            "PATCH {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n\
             Content-Type: application/merge-patch+json\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).unwrap_or_default();
        ensure!(status == "200", "PATCH {path}: {answer}");
        Ok(())
    }
}

/// The port in `Starting to serve on 127.0.0.1:39451`.
fn port_in(output: &str) -> Option<u16> {
    let (_, rest) = output.split_once("127.0.0.1:")?;
    rest.strip_suffix('\n')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_only_from_a_complete_line() {
        assert_eq!(port_in("Starting to serve on 127.0.0.1:394"), None);
        let line = "Starting to serve on 127.0.0.1:39451\n";
        assert_eq!(port_in(line), Some(39451));
    }
}
