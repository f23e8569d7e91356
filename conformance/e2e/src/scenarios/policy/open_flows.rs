//! Open connections, while policies are added and removed and agents restarted: those
//! that stay allowed are never cut, those that are denied are.

use anyhow::{Context, Result};
use tweed_lab::{Transport, wait_until};

use super::LIMIT;
use super::cast::Cast;
use super::paths::Path;
use crate::agents;
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::netexec::Connection;
use crate::traffic::Traffic;

/// The clients `far` and `friend`, but not `near`.
const NOT_NEAR: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: not-near }
spec:
  podSelector: { matchLabels: { role: server } }
  ingress:
    - from:
        - podSelector: { matchLabels: { name: far } }
        - namespaceSelector: { matchLabels: { team: friends } }
";

/// Something else for the same pods: only additions.
const MORE: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: more }
spec:
  podSelector: { matchLabels: { role: server } }
  ingress: [{ ports: [{ port: 9999 }] }]
";

/// Runs all steps; afterwards there is no policy.
pub fn run(fixture: &mut Fixture<'_>, cast: &Cast) -> Result<()> {
    let mut denied = open(&cast.near, cast)?;
    let mut allowed = [open(&cast.far, cast)?, open(&cast.friend, cast)?];
    let mut traffic = Traffic::between(&[cast.far.clone(), cast.server.endpoint.clone()])?;
    traffic.add_stream(&cast.far, &cast.server.endpoint, cast.far.address)?;

    fixture.apply(NOT_NEAR)?;
    wait_until(
        "the connection of a client that is denied now to be cut",
        LIMIT,
        || match denied.is_cut() {
            Ok(true) => Ok(()),
            Ok(false) => Err("it is answered".to_owned()),
            Err(error) => Err(format!("{error:#}")),
        },
    )?;
    Path::web(&cast.near, &cast.server).is_closed()?;
    ask_all(&mut allowed).context("after a policy was added")?;

    for (what, line) in [("added", "apply"), ("deleted", "delete")] {
        match line {
            "apply" => fixture.apply(MORE)?,
            _ => drop(fixture.sh("delete networkpolicy more")?),
        }
        ask_all(&mut allowed).with_context(|| format!("after another policy was {what}"))?;
    }
    agents::restart(fixture)?;
    ask_all(&mut allowed).context("after all agents were restarted")?;
    Path::web(&cast.near, &cast.server).is_closed()?;

    fixture.sh("delete networkpolicies --all")?;
    Path::web(&cast.near, &cast.server).becomes_open()?;
    ask_all(&mut allowed).context("after all policies were deleted")?;
    traffic.check()?;
    let total = traffic.stop()?;
    let what = format!(
        "pings lost while policies and agents came and went, of {}",
        total.answered
    );
    fixture.measure(&what, "0");
    Ok(())
}

fn open(from: &Endpoint, cast: &Cast) -> Result<Connection> {
    let to = (cast.server.endpoint.address, cast.server.web).into();
    let mut connection = Connection::open(from, Transport::Tcp, to)?;
    connection.ask()?;
    Ok(connection)
}

fn ask_all(connections: &mut [Connection]) -> Result<()> {
    for connection in connections {
        connection.ask()?;
    }
    Ok(())
}
