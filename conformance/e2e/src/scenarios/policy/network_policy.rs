//! NetworkPolicies: default deny, peers by namespace, named ports, egress.

use anyhow::{Context, Result, ensure};

use super::LIMIT;
use super::cast::{Cast, FRIENDS, server};
use super::explained;
use super::paths::{Path, become_open_and_closed};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;

pub const DEFAULT_DENY: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: default-deny }
spec:
  podSelector: {}
  policyTypes: [Ingress]
";

/// Of the servers' two TCP ports, only the one of that name.
const FROM_FRIENDS: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: from-friends }
spec:
  podSelector: { matchLabels: { role: server } }
  ingress:
    - from: [{ namespaceSelector: { matchLabels: { team: friends } } }]
      ports: [{ port: web }]
";

/// The clients of the scenario's own namespace may only send to the servers' named port.
const TO_WEB: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: to-web }
spec:
  podSelector: { matchLabels: { role: client } }
  policyTypes: [Egress]
  egress:
    - to: [{ podSelector: { matchLabels: { role: server } } }]
      ports: [{ port: web }]
";

/// Runs all steps; afterwards there is no policy.
pub fn run(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    all_open(cast).context("without a policy")?;
    default_deny(fixture, cast).context("default deny")?;
    from_friends(fixture, cast).context("peers by namespace, named ports")?;
    relabelled(fixture, cast).context("a namespace whose label changes")?;
    egress(fixture, cast).context("egress")?;
    fixture.sh("delete networkpolicies --all")?;
    all_open(cast).context("after all policies are deleted")
}

fn clients(cast: &Cast) -> [&Endpoint; 3] {
    [&cast.near, &cast.far, &cast.friend]
}

/// All paths of all clients to both servers.
pub fn all_paths(cast: &Cast) -> Vec<Path<'_>> {
    let clients = clients(cast).into_iter();
    let paths = clients.flat_map(|client| {
        [&cast.server, &cast.second]
            .into_iter()
            .flat_map(move |server| {
                [
                    Path::web(client, server),
                    Path::other(client, server),
                    Path::udp(client, server),
                ]
            })
    });
    paths.collect()
}

pub fn all_open(cast: &Cast) -> Result<()> {
    become_open_and_closed(&all_paths(cast), &[])
}

/// Nothing reaches the servers but their probes.
fn default_deny(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    fixture.apply(DEFAULT_DENY)?;
    become_open_and_closed(&[], &all_paths(cast))?;
    // A new pod becomes Ready, which its probe decides.
    fixture.apply(&server("probed", &cast.node, 8080, 9090).to_string())?;
    fixture.wait_ready("probed", LIMIT)?;
    for name in ["server", "second", "probed"] {
        let pod = fixture.wait_ready(name, LIMIT)?;
        let listed = pod["status"]["containerStatuses"].as_array();
        let statuses = listed.into_iter().flatten();
        let restarts: Vec<_> = statuses.map(|one| &one["restartCount"]).collect();
        ensure!(
            restarts.iter().all(|count| **count == 0),
            "containers of {name} were restarted under default deny: {restarts:?}"
        );
    }
    explained::denied(fixture, cast)?;
    fixture.sh("delete pod probed --wait=false")?;
    fixture.log("default deny: only probes reach the servers");
    Ok(())
}

fn from_friends(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    fixture.apply(FROM_FRIENDS)?;
    let friend = &cast.friend;
    let open = [
        Path::web(friend, &cast.server),
        Path::web(friend, &cast.second),
    ];
    let closed = [
        Path::other(friend, &cast.server),
        Path::other(friend, &cast.second),
        Path::udp(friend, &cast.server),
        Path::web(&cast.near, &cast.server),
        Path::web(&cast.far, &cast.server),
        Path::web(&cast.far, &cast.second),
    ];
    become_open_and_closed(&open, &closed)?;
    explained::allowed(fixture, cast)?;
    fixture.log("a namespace may reach the port of that name, whose number differs by pod");
    Ok(())
}

/// All pods of a namespace are enforced anew when its labels change.
fn relabelled(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    let paths = [
        Path::web(&cast.friend, &cast.server),
        Path::web(&cast.friend, &cast.second),
    ];
    let label = |value: &str| {
        let line = format!("label namespace {FRIENDS} team={value} --overwrite");
        fixture.kubectl().sh(&line).map(drop)
    };
    label("strangers")?;
    become_open_and_closed(&[], &paths)?;
    label("friends")?;
    become_open_and_closed(&paths, &[])
}

fn egress(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    fixture.sh("delete networkpolicies --all")?;
    fixture.apply(TO_WEB)?;
    let mut open = vec![Path::other(&cast.friend, &cast.server)];
    let mut closed = Vec::new();
    for client in [&cast.near, &cast.far] {
        for server in [&cast.server, &cast.second] {
            open.push(Path::web(client, server));
            closed.extend([Path::other(client, server), Path::udp(client, server)]);
        }
    }
    become_open_and_closed(&open, &closed)?;
    // Their own node is a destination like any other.
    let node = Endpoint::node(fixture.cluster.node(&cast.node)?);
    cast.near.expect_no_ping_reply(&node)?;
    fixture.log("egress: only the port of that name, not even the own node");
    Ok(())
}
