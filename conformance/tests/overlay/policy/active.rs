//! Without a policy there is nothing of policy in the kernel (row 18), and a policy that
//! comes and goes takes everything away again.

use std::time::Duration;

use tweed_lab::{Cluster, LabError, Netns, wait_until};

use super::traffic::Listener;
use super::{DENY_ALL, policy};

/// The names of tweed's chains and sets of policy.
pub fn objects(node: &Netns) -> Result<Vec<String>, LabError> {
    if !node.sh("nft list tables")?.contains("tweed-policy") {
        return Ok(Vec::new());
    }
    let table = node.sh("nft -s list table inet tweed-policy")?;
    let named = |line: &&str| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("chain" | "map" | "set"))
            && words.next().is_some_and(|name| name.starts_with("policy_"))
    };
    Ok(table.lines().filter(named).map(str::to_owned).collect())
}

#[test]
fn without_a_policy_there_is_nothing_of_policy_in_the_kernel() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let server = cluster.labelled_pod(1, "shop/server", "app=server")?;
    let client = cluster.labelled_pod(2, "shop/client", "app=client")?;
    let listener = Listener::open(&cluster, 1, &server, 7001)?;
    listener.wait(client.netns(), true)?;
    for node in [1, 2] {
        let found = objects(cluster[node].node.netns())?;
        assert_eq!(found, Vec::<String>::new(), "node{node}");
    }

    cluster.apply("deny", policy("shop", "deny", DENY_ALL))?;
    listener.wait(client.netns(), false)?;
    assert_ne!(
        objects(cluster[1].node.netns())?,
        Vec::<String>::new(),
        "the pod is isolated by something else"
    );

    cluster.delete("deny")?;
    listener.wait(client.netns(), true)?;
    for node in [1, 2] {
        wait_until(
            "the objects of policy to go",
            Duration::from_secs(30),
            || match objects(cluster[node].node.netns()) {
                Ok(found) if found.is_empty() => Ok(()),
                Ok(found) => Err(found.join(", ")),
                Err(error) => Err(error.chain()),
            },
        )?;
    }
    Ok(())
}
