//! Which flows take the fast path, and when they leave it.

use std::time::Duration;

use tweed_lab::{Cluster, LabError};

use super::scene::{all, wait_for};
use crate::policy::traffic::{Flow, Listener};
use crate::policy::{DENY_ALL, policy};

/// A cluster of two nodes with the fast path.
fn cluster() -> Result<Cluster, LabError> {
    Cluster::start_with(2, |options| options.arg("--fast-path").arg("on"))
}

#[test]
fn an_established_flow_takes_it_on_one_node_and_between_two() -> Result<(), LabError> {
    let mut cluster = cluster()?;
    let server = cluster.labelled_pod(1, "shop/server", "app=server")?;
    let near = cluster.labelled_pod(1, "shop/near", "app=near")?;
    let far = cluster.labelled_pod(2, "shop/far", "app=far")?;
    let to_near = Flow::open(near.netns(), &server, 7002)?;
    wait_for(&cluster, 1, "local")?;
    let to_far = Flow::open(far.netns(), &server, 7003)?;
    for index in [1, 2] {
        wait_for(&cluster, index, "vxlan-out")?;
        wait_for(&cluster, index, "vxlan-in")?;
    }
    let signal = Listener::open(&cluster, 1, &server, 7001)?;
    cluster.apply("deny", policy("shop", "deny", DENY_ALL))?;
    signal.wait(far.netns(), false)?;
    to_near.wait_until_cut()?;
    to_far.wait_until_cut()?;
    cluster.delete("deny")?;
    assert!(to_near.moves(Duration::from_secs(120)));
    assert!(to_far.moves(Duration::from_secs(120)));
    wait_for(&cluster, 1, "local")?;
    wait_for(&cluster, 1, "vxlan-out")?;
    println!("{}", all(&cluster, 1));
    for flow in [to_near, to_far] {
        let ended = flow.end();
        assert!(ended.is_ok(), "{ended:?}");
    }
    Ok(())
}
