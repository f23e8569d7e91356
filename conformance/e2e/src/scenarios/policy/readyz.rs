//! What the agents say on their nodes: the answers of `/readyz`.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tweed_lab::wait_until;
use tweed_lab_kubernetes::Machine;

use super::LIMIT;
use crate::fixture::Fixture;

/// The port of the agents' `--health-addr`, which is on the loopback address.
const PORT: u16 = 9117;

/// Maximum time until the agent answers, on a machine that compiles at the same time.
const ANSWER: Duration = Duration::from_secs(20);

/// Waits until the agent of every node says what `is_expected` accepts: the lines of the
/// answer. Gives the last one.
pub fn wait_for_all(
    fixture: &Fixture<'_>,
    what: &str,
    is_expected: impl Fn(&[&str]) -> bool,
) -> Result<String> {
    let mut last = String::new();
    for node in fixture.cluster.nodes() {
        let what = format!("/readyz of {}: {what}", node.name());
        last = wait_until(&what, LIMIT, || {
            let answer = ask(node).map_err(|error| format!("{error:#}"))?;
            let lines: Vec<&str> = answer.lines().collect();
            if is_expected(&lines) {
                Ok(answer)
            } else {
                Err(answer)
            }
        })?;
    }
    Ok(last)
}

/// The answer without its headers.
fn ask(node: &Machine) -> Result<String> {
    let read = node.netns().enter(|| -> std::io::Result<String> {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT))?;
        connection.set_read_timeout(Some(ANSWER))?;
        connection.write_all(b"GET /readyz HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    })?;
    let answer = read.with_context(|| format!("/readyz of {}", node.name()))?;
    let body = answer.split_once("\r\n\r\n");
    Ok(body
        .with_context(|| answer.clone())?
        .1
        .trim_end()
        .to_owned())
}
