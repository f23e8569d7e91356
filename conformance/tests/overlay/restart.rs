//! The agent is stopped, killed and started again: no packet is lost.

use std::time::Duration;

use tweed_lab::{Cluster, ContinuousPing, LabError, Snapshot, monitor, wait_until};

use crate::state::{settled_state, state, wait_for_readyz, wait_for_state, wait_until_settled};

/// Runs `during` while pods ping each other every 10 ms, without any loss.
fn without_loss(
    cluster: &mut Cluster,
    during: impl FnOnce(&mut Cluster) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let here = cluster.pod(1, "here")?;
    let there = cluster.pod(2, "there")?;
    Cluster::wait_for_path(here.netns(), there.address())?;
    let pings = [
        ContinuousPing::start(here.netns(), there.address())?,
        ContinuousPing::start(there.netns(), here.address())?,
        ContinuousPing::start(cluster[1].node.netns(), there.address())?,
    ];
    during(cluster)?;
    for ping in pings {
        let report = ping.stop();
        assert_eq!(report.lost(), 0, "{report}");
        assert!(report.sent > 10, "{report}");
    }
    Ok(())
}

#[test]
fn kill_9_and_restart_lose_nothing() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    without_loss(&mut cluster, |cluster| {
        for _ in 0..5 {
            cluster.kill_agent(1)?;
            std::thread::sleep(Duration::from_millis(100));
            cluster.start_agent(1)?;
            cluster.wait_ready()?;
        }
        Ok(())
    })
}

#[test]
fn sigterm_leaves_the_network_as_it_is() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    without_loss(&mut cluster, |cluster| {
        wait_until_settled(cluster[1].node.netns())?;
        let before = Snapshot::of(cluster[1].node.netns())?;
        let status = cluster.stop_agent(1)?;
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
        let changes = before.changes(&Snapshot::of(cluster[1].node.netns())?);
        assert_eq!(changes, Vec::<String>::new());
        std::thread::sleep(Duration::from_millis(500));
        Ok(())
    })
}

/// Snapshots contain indexes and handles, so a recreated object would be a difference.
#[test]
fn a_restart_with_nothing_to_do_changes_no_object() -> Result<(), LabError> {
    let mut cluster = Cluster::start(3)?;
    let _pods = [
        cluster.pod(1, "a")?,
        cluster.pod(1, "b")?,
        cluster.pod(2, "c")?,
    ];
    wait_until_settled(cluster[1].node.netns())?;
    cluster.stop_agent(1)?;
    let before = Snapshot::of(cluster[1].node.netns())?;
    let changes = monitor(cluster[1].node.netns())?;
    cluster.start_agent(1)?;
    cluster.wait_ready()?;
    // Longer than the shortest interval at which the agent reads objects again.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(changes.stop()?, Vec::<String>::new());
    assert_eq!(
        before.changes(&Snapshot::of(cluster[1].node.netns())?),
        Vec::<String>::new()
    );
    Ok(())
}

/// The list of Nodes cannot be read, as when the API server is unavailable. A node that
/// was ready in this boot stays ready.
#[test]
fn a_restart_without_a_list_of_nodes_stays_ready() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    without_loss(&mut cluster, |cluster| {
        cluster.kill_agent(1)?;
        let list = cluster.nodes_file().path().to_owned();
        let removed = std::fs::remove_file(&list);
        assert!(removed.is_ok(), "{removed:?}");
        cluster.start_agent(1)?;
        cluster.wait_ready()?;
        wait_for_readyz(cluster, 1, "name the file", |code, body| {
            code == 200 && body.contains("nodes.yaml")
        })?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    })
}

/// What a person broke while no agent ran is restored although the Nodes cannot be
/// read: from the Nodes that the agent before knew, the last one that joined among
/// them.
#[test]
fn a_restart_without_a_list_of_nodes_repairs() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    cluster.add_node(3)?;
    let near = cluster.pod(1, "near")?;
    let far = cluster.pod(2, "far")?;
    let last = cluster.pod(3, "last")?;
    for there in [&far, &last] {
        Cluster::wait_for_path(near.netns(), there.address())?;
    }
    let before = settled_state(cluster[1].node.netns())?;
    cluster.kill_agent(1)?;
    let list = cluster.nodes_file().path().to_owned();
    let removed = std::fs::remove_file(&list);
    assert!(removed.is_ok(), "{removed:?}");
    let node = cluster[1].node.netns();
    node.sh("ip route del 10.244.2.0/24")?;
    node.sh(&format!("ip route del {}/32", near.address()))?;
    node.sh("nft delete table inet tweed")?;

    cluster.start_agent(1)?;
    cluster.wait_ready()?;
    wait_for_state(cluster[1].node.netns(), &before)?;
    for there in [&far, &last] {
        Cluster::wait_for_path(near.netns(), there.address())?;
    }
    wait_for_readyz(&cluster, 1, "name the file", |code, body| {
        code == 200 && body.contains("nodes-unreadable")
    })?;

    // Without them it does not know what to repair, and says so.
    cluster.stop_agent(1)?;
    let kept = cluster[1].node.run_dir().join("nodes.jsonl");
    let removed = std::fs::remove_file(&kept);
    assert!(removed.is_ok(), "{removed:?}");
    cluster.start_agent(1)?;
    wait_for_readyz(&cluster, 1, "say that it is not ready", |code, body| {
        code == 503 && body.contains("nodes-unreadable")
    })?;
    let changes = before.changes(&state(cluster[1].node.netns())?);
    assert_eq!(changes, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_node_that_was_removed_while_the_agent_was_down_leaves_nothing() -> Result<(), LabError> {
    let mut cluster = Cluster::start(3)?;
    cluster.kill_agent(1)?;
    cluster.remove_node(3)?;
    cluster.start_agent(1)?;
    cluster.wait_ready()?;
    let left = wait_until(
        "nothing of node 3 to be left",
        Duration::from_secs(30),
        || {
            let snapshot = Snapshot::of(cluster[1].node.netns()).map_err(|e| e.to_string())?;
            let left: Vec<_> = snapshot
                .to_string()
                .lines()
                .filter(|l| l.contains("10.244.3.") || l.contains("192.0.2.13"))
                .map(str::to_owned)
                .collect();
            if left.is_empty() {
                Ok(())
            } else {
                Err(left.join("\n"))
            }
        },
    );
    left?;
    Cluster::wait_for_path(cluster[1].node.netns(), [10, 244, 2, 0].into())
}
