//! What `tweedctl` says on the nodes of a cluster, beside what packets, `ip` and the agents'
//! logs say.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use tweed_lab::{AgentOptions, Cluster, LabError, Programs, wait_until};

use crate::policy::{DENY_ALL, policy};

const LIMIT: Duration = Duration::from_secs(60);

/// How it ends on a node, and what it prints.
fn ask(cluster: &Cluster, node: u8, arguments: &[&str]) -> (Option<i32>, String) {
    let node = &cluster[node].node;
    let program = Programs::find().unwrap().own("tweedctl").unwrap();
    let mut command = node.netns().command(program);
    command.args(arguments).arg("--run-dir").arg(node.run_dir());
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    (output.status.code(), format!("{out}{err}"))
}

/// Waits until it prints all of these words and ends so.
fn eventually(cluster: &Cluster, node: u8, arguments: &[&str], code: i32, words: &[&str]) {
    wait_until(&format!("tweedctl {arguments:?}"), LIMIT, || {
        let (seen, text) = ask(cluster, node, arguments);
        let has_all = words.iter().all(|word| text.contains(word));
        if seen == Some(code) && has_all {
            return Ok(());
        }
        Err(format!(
            "exit code {seen:?}, expected {code}, {words:?}: {text}"
        ))
    })
    .unwrap();
}

#[test]
fn each_node_says_what_it_decides_whom_it_reaches_and_what_it_dropped() -> Result<(), LabError> {
    let probing = |options: AgentOptions| options.env("TWEED_PROBE_PEERS", "on");
    let mut cluster = Cluster::start_with(2, probing)?;
    let client = cluster.labelled_pod(1, "shop/client", "app=client")?;
    let server = cluster.labelled_pod(2, "shop/server", "app=server")?;
    let address = server.address().to_string();
    Cluster::wait_for_path(client.netns(), server.address())?;
    let asked = [
        "why",
        "shop/client",
        &format!("{address}:80"),
        "--exit-code",
    ];
    eventually(&cluster, 1, &asked, 0, &["no policy exists"]);
    let ping = || {
        client
            .netns()
            .command("ping")
            .args(["-c1", "-W1", &address])
            .output()
    };
    assert!(ping().unwrap().status.success());

    cluster.apply("deny", policy("shop", "deny", DENY_ALL))?;
    eventually(
        &cluster,
        1,
        &asked,
        3,
        &["egress of the source is DENIED", "NetworkPolicy shop/deny"],
    );
    // The node of the other end knows nothing of the client's egress, and denies too.
    let asked = [
        "why",
        &client.address().to_string(),
        "shop/server:80",
        "--exit-code",
    ];
    let other = "egress of the source is not decided on this node";
    eventually(
        &cluster,
        2,
        &asked,
        3,
        &["ingress of the destination is DENIED", other, "node1"],
    );
    assert!(!ping().unwrap().status.success());
    eventually(&cluster, 1, &["drops"], 0, &["policy-egress"]);
    eventually(&cluster, 1, &["peers"], 0, &["node2", "answers", "vxlan"]);
    let asked = ["version", "-o", "json"];
    eventually(
        &cluster,
        1,
        &asked,
        0,
        &["\"versions\"", "\"agent\": \"0.1.0 ("],
    );

    // The address that `ip` sees in the pod, by the pod's name, and free ones.
    let (code, text) = ask(&cluster, 2, &["addresses"]);
    assert_eq!(code, Some(0), "{text}");
    let line = text
        .lines()
        .find(|line| line.contains("shop/server"))
        .unwrap();
    let seen = server
        .netns()
        .run("ip -o address show dev eth0".split(' '))?;
    assert!(seen.contains(&format!("inet {address}/")), "{seen}");
    assert!(
        line.starts_with(&address) && line.contains("used"),
        "{text}"
    );
    assert!(text.contains("10.244.2.0/24: 1 used, "), "{text}");
    drop((client, server));
    Ok(())
}

#[test]
fn as_a_plugin_of_kubectl_it_is_called_kubectl_tweed() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-tweed");
    symlink(Programs::find().unwrap().own("tweedctl").unwrap(), &plugin).unwrap();
    let output = Command::new(plugin)
        .args(["why", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("Usage: kubectl tweed why"), "{help}");
}
