//! `tweed-lab policy`: who reaches whom on three nodes, without policies, with a default
//! deny, and with what is allowed again; and why one connection is denied.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{done, progress};
use crate::{Cluster, ClusterPod, EchoServer, Lab, Netns, Programs, wait_until};

/// The port of every pod's server.
const PORT: u16 = 8080;

/// How long a connection is waited for; denied packets are dropped without an answer.
const CONNECT_LIMIT: Duration = Duration::from_millis(300);

/// Width of a column of the table.
const CELL: usize = 10;

/// Node, namespace and name of each pod; its label `app` is its name.
const PODS: [(u8, &str, &str); 4] = [
    (1, "shop", "frontend"),
    (2, "shop", "backend"),
    (3, "shop", "database"),
    (3, "other", "visitor"),
];

const DENY: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: default-deny, namespace: shop}
spec: {podSelector: {}, policyTypes: [Ingress]}
";

/// Which pods may connect to which, both of the namespace `shop`.
const ALLOWED: [(&str, &str); 2] = [("frontend", "backend"), ("backend", "database")];

/// Who reaches whom, by places in [`PODS`].
type Reached = BTreeSet<(usize, usize)>;

fn allow(from: &str, to: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {{name: {to}-from-{from}, namespace: shop}}\nspec:\n  \
         podSelector: {{matchLabels: {{app: {to}}}}}\n  policyTypes: [Ingress]\n  ingress:\n  \
         - from: [{{podSelector: {{matchLabels: {{app: {from}}}}}}}]\n    \
         ports: [{{protocol: TCP, port: {PORT}}}]\n"
    )
}

/// Shows it in a lab of this name, which is removed at the end.
///
/// # Errors
/// What could not be created, or packets that the policies do not explain.
pub fn run(out: &mut dyn Write, name: &str) -> Result<()> {
    writeln!(out, "tweed: NetworkPolicies between pods on three nodes\n")?;
    progress(out, "three nodes, four pods")?;
    let mut cluster = Cluster::empty(&Lab::named(name)?, |options| options)?;
    for index in 1..=3 {
        cluster.plug(index)?;
    }
    cluster.publish()?;
    for index in 1..=3 {
        cluster.start_agent(index)?;
    }
    cluster.wait_ready()?;
    let mut pods = Vec::new();
    for (node, namespace, name) in PODS {
        let path = format!("{namespace}/{name}");
        pods.push(cluster.labelled_pod(node, &path, &format!("app={name}"))?);
    }
    let servers: Result<Vec<_>, _> = pods
        .iter()
        .map(|pod| EchoServer::start(pod.netns(), PORT))
        .collect();
    let _servers = servers?;
    let all: Reached = pairs().collect();
    show(out, &pods, "without a policy", &all)?;

    cluster.apply("deny", DENY)?;
    let mut expected = all;
    expected.retain(|(_, to)| PODS[*to].1 != "shop");
    let what = "the pods of the namespace shop let nobody in (default-deny)";
    show(out, &pods, what, &expected)?;

    for (from, to) in ALLOWED {
        cluster.apply(to, allow(from, to))?;
        let place = |name| PODS.iter().position(|(_, _, own)| *own == name);
        expected.extend(place(from).zip(place(to)));
    }
    let what = "backend lets frontend in, and database lets backend in";
    show(out, &pods, what, &expected)?;

    progress(out, "why frontend does not reach database, asked on node3")?;
    writeln!(out, "\n{}", why(&cluster)?)?;
    writeln!(out, "Every connection is as the policies say.")?;
    Ok(())
}

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    let places = 0..PODS.len();
    places.flat_map(|from| {
        (0..PODS.len())
            .map(move |to| (from, to))
            .filter(|(a, b)| a != b)
    })
}

/// Waits until exactly these reach each other, and prints the table.
fn show(out: &mut dyn Write, pods: &[ClusterPod], what: &str, expected: &Reached) -> Result<()> {
    progress(out, what)?;
    // The agents read the file within a second.
    let limit = Duration::from_secs(30);
    wait_until("the policies to be in force", limit, || {
        match reached(pods) {
            Ok(seen) if seen == *expected => Ok(()),
            Ok(seen) => Err(table(&seen)),
            Err(error) => Err(format!("{error:#}")),
        }
    })?;
    done(
        out,
        &format!("{} of {} connections", expected.len(), pairs().count()),
    )?;
    writeln!(out, "\n{}", table(expected))?;
    Ok(())
}

fn reached(pods: &[ClusterPod]) -> Result<Reached> {
    // Denied connections take the whole limit: all are tried at once.
    std::thread::scope(|scope| {
        let tries: Vec<_> = pairs()
            .map(|(from, to)| {
                let (netns, address) = (pods[from].netns(), pods[to].address());
                (from, to, scope.spawn(move || connects(netns, address)))
            })
            .collect();
        let mut seen = Reached::new();
        for (from, to, one) in tries {
            let connected = one.join().ok().context("a try panicked")??;
            if connected {
                seen.insert((from, to));
            }
        }
        Ok(seen)
    })
}

fn connects(from: &Netns, to: IpAddr) -> Result<bool> {
    let to = SocketAddr::new(to, PORT);
    Ok(from.enter(|| TcpStream::connect_timeout(&to, CONNECT_LIMIT).is_ok())?)
}

/// A row for each client and a column for each server.
fn table(reached: &Reached) -> String {
    let mut text = format!("  {:<CELL$}", "from");
    for (_, _, name) in PODS {
        // Writing to a string cannot fail.
        let _ = write!(text, "{name:>CELL$}");
    }
    for (from, (_, _, name)) in PODS.iter().enumerate() {
        let _ = write!(text, "\n  {name:<CELL$}");
        for to in 0..PODS.len() {
            let cell = match (from == to, reached.contains(&(from, to))) {
                (true, _) => "·",
                (false, true) => "yes",
                (false, false) => "–",
            };
            let _ = write!(text, "{cell:>CELL$}");
        }
    }
    text + "\n"
}

/// What the agent of the database's node says of the denied connection.
fn why(cluster: &Cluster) -> Result<String> {
    let node = &cluster[3].node;
    let mut command = node.netns().command(Programs::find()?.own("tweedctl")?);
    command
        .args(["why", "shop/frontend"])
        .arg(format!("shop/database:{PORT}"))
        .arg("--run-dir")
        .arg(node.run_dir());
    let asked = format!("tweedctl why shop/frontend shop/database:{PORT}");
    let output = command.output().context("tweedctl why")?;
    let answer = String::from_utf8_lossy(&output.stdout);
    anyhow::ensure!(
        answer.contains("default-deny"),
        "`{asked}` does not name the policy: {answer}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines: String = answer.lines().map(|line| format!("    {line}\n")).collect();
    Ok(format!("    # {asked}\n{lines}"))
}
