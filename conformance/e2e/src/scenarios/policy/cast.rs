//! The pods that take part: servers and clients, on two nodes and in two namespaces.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::LIMIT;
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;

/// The namespace of [`Cast::friend`]; its label `team` is `friends`.
pub const FRIENDS: &str = "e2e-policy-friends";

/// The name of the servers' TCP port, of which each has another number.
pub const PORT_NAME: &str = "web";

/// The UDP port of all servers.
pub const UDP_PORT: u16 = 8081;

/// A pod that answers, and has probes.
#[derive(Debug)]
pub struct Server {
    /// The pod.
    pub endpoint: Endpoint,
    /// The number of its port [`PORT_NAME`].
    pub web: u16,
    /// Another TCP port on which it answers.
    pub other: u16,
}

/// The pods of the scenario.
#[derive(Debug)]
pub struct Cast {
    /// The node of `server` and `near`.
    pub node: String,
    /// The node of the others.
    pub second_node: String,
    /// A server on the first node.
    pub server: Server,
    /// A server on the second node, whose port of that name has another number.
    pub second: Server,
    /// A client on the node of `server`.
    pub near: Endpoint,
    /// A client on the second node.
    pub far: Endpoint,
    /// A client on the second node, in the other namespace.
    pub friend: Endpoint,
}

impl Cast {
    /// Starts all, and waits until they are Ready.
    pub fn start(fixture: &Fixture<'_>) -> Result<Self> {
        let mut workers = fixture.cluster.workers().map(|node| node.name().to_owned());
        let node = workers.next().context("no worker")?;
        let second = workers.next().context("only one worker")?;
        let friends = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": FRIENDS, "labels": { "team": "friends" } },
        });
        fixture.kubectl().apply(&friends.to_string())?;
        wait_for_account(fixture)?;
        let pods = [
            server("server", &node, 8080, 9090),
            server("second", &second, 9090, 8080),
            client("near", &node, fixture.namespace()),
            client("far", &second, fixture.namespace()),
            client("friend", &second, FRIENDS),
        ];
        let all = json!({ "apiVersion": "v1", "kind": "List", "items": pods });
        fixture.kubectl().apply(&all_in(fixture, all).to_string())?;
        let ready = |name: &str| pod(fixture, fixture.namespace(), name);
        Ok(Self {
            server: Server {
                endpoint: ready("server")?,
                web: 8080,
                other: 9090,
            },
            second: Server {
                endpoint: ready("second")?,
                web: 9090,
                other: 8080,
            },
            near: ready("near")?,
            far: ready("far")?,
            friend: pod(fixture, FRIENDS, "friend")?,
            node,
            second_node: second,
        })
    }
}

/// Deletes what is not in the scenario's own namespace.
pub fn remove(fixture: &Fixture<'_>) -> Result<()> {
    let line = format!("delete namespace {FRIENDS} --ignore-not-found --wait=false");
    fixture.kubectl().sh(&line)?;
    Ok(())
}

/// Pods cannot be created before the namespace has its service account.
fn wait_for_account(fixture: &Fixture<'_>) -> Result<()> {
    let what = format!("the service account of {FRIENDS}");
    fixture.kubectl().wait_for(&what, LIMIT, || {
        let line = format!("get serviceaccount default --namespace {FRIENDS}");
        fixture.kubectl().sh(&line).map_err(|error| error.chain())
    })?;
    Ok(())
}

/// Sets the namespace of the pods that have none.
fn all_in(fixture: &Fixture<'_>, mut list: Value) -> Value {
    let pods = list["items"].as_array_mut().into_iter().flatten();
    for pod in pods {
        let namespace = &mut pod["metadata"]["namespace"];
        if namespace.is_null() {
            *namespace = json!(fixture.namespace());
        }
    }
    list
}

fn pod(fixture: &Fixture<'_>, namespace: &str, name: &str) -> Result<Endpoint> {
    let full = format!("{namespace}/{name}");
    Endpoint::pod(&fixture.kubectl().wait_ready(&full, LIMIT)?)
}

/// A pod with one container for each TCP port, and with probes, which come from its node.
pub fn server(name: &str, node: &str, web: u16, other: u16) -> Value {
    let probe = json!({
        "httpGet": { "path": "/healthz", "port": web },
        "periodSeconds": 1,
        "timeoutSeconds": 20,
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { "role": "server" } },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [
                {
                    "name": PORT_NAME,
                    "image": "localhost/agnhost:lab",
                    "args": [
                        "netexec",
                        format!("--http-port={web}"),
                        format!("--udp-port={UDP_PORT}"),
                    ],
                    "ports": [{ "name": PORT_NAME, "containerPort": web }],
                    "readinessProbe": probe,
                    "livenessProbe": probe,
                },
                {
                    "name": "other",
                    "image": "localhost/agnhost:lab",
                    "args": ["netexec", format!("--http-port={other}"), "--udp-port=-1"],
                },
            ],
        },
    })
}

fn client(name: &str, node: &str, namespace: &str) -> Value {
    let mut pod = crate::pods::pod(name, node);
    pod["metadata"]["namespace"] = json!(namespace);
    pod["metadata"]["labels"] = json!({ "role": "client", "name": name });
    pod
}
