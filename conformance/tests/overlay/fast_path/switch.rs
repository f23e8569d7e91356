//! `tweedctl fast-path`: a look at all packets, for a while.

use std::process::Command;
use std::time::Duration;

use tweed_lab::{Cluster, LabError, run};

use super::scene::{LIMIT, Pods, Scene, agent, many};
use super::three::Three;
use crate::policy::traffic::Flow;

/// What `tweedctl fast-path` prints about node 1.
fn fast_path(cluster: &Cluster, words: &[&str]) -> Result<String, LabError> {
    let program = cluster.lab().programs().own("tweedctl")?;
    let mut command = Command::new(program);
    let run_dir = cluster[1].node.run_dir();
    command.args(["fast-path", "--run-dir"]).arg(run_dir);
    run(command.args(words))
}

#[test]
fn it_is_switched_off_for_a_while_and_comes_back() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Ipv4)?;
    let cluster = &mut scene.cluster;
    let server = cluster.labelled_pod(1, "shop/server", "app=server")?;
    let far = cluster.labelled_pod(2, "shop/far", "app=far")?;
    let flow = Flow::open(far.netns(), &server, 7002)?;
    scene.wait_for(1, "vxlan-in")?;
    assert!(fast_path(&scene.cluster, &[])?.contains("the fast path is on"));

    let off = fast_path(&scene.cluster, &["off", "--for", "8s"])?;
    assert!(off.contains("switched off for now"), "{off}");
    let hooks = agent(&scene.cluster, 1).metric("tweed_fast_path_hooks")?;
    assert_eq!(hooks, Some(0.0));
    assert!(flow.moves(LIMIT));
    scene.wait_for(1, "vxlan-in")?;

    fast_path(&scene.cluster, &["off"])?;
    assert!(flow.moves(LIMIT));
    let on = fast_path(&scene.cluster, &["on"])?;
    assert!(on.contains("the fast path is on"), "{on}");
    scene.wait_for(1, "vxlan-in")?;
    assert!(flow.moves(Duration::from_secs(5)));
    let ended = flow.end();
    assert!(ended.is_ok(), "{ended:?}");
    Ok(())
}

/// How often it is switched off and on.
const CHANGES: (&str, usize) = ("TWEED_FAST_PATH_CHANGES", 10);

#[test]
fn nothing_is_lost_while_it_is_switched_again_and_again() -> Result<(), LabError> {
    let three = Three::new()?;
    for _ in 0..many(CHANGES.0, CHANGES.1) {
        fast_path(&three.scene.cluster, &["off"])?;
        three.scene.wait_for_hooks(1, 0)?;
        fast_path(&three.scene.cluster, &["on"])?;
        three.are_in()?;
    }
    three.end();
    Ok(())
}

#[test]
fn an_agent_without_it_says_so() -> Result<(), LabError> {
    let cluster = Cluster::start(1)?;
    let refused = fast_path(&cluster, &[]);
    let said = format!("{:?}", refused.err());
    assert!(said.contains("--fast-path off"), "{said}");
    Ok(())
}
