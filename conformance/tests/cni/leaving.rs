//! The links that a DEL leaves for a finisher are deleted even if the finisher is killed,
//! and no foreign link is deleted with them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tweed_lab::{PluginCall, Pod, wait_until};

use crate::fixture::{Fixture, assert_silent};

/// Maximum time until links that a DEL has left are deleted.
const DELETION_LIMIT: Duration = Duration::from_secs(5);

/// The processes that hold the lock file of finishers.
fn finishers(fixture: &Fixture) -> Vec<Pid> {
    let lock = fixture.node.run_dir().join("leaving.lock");
    let holds = |process: &Path| fs::read_link(process.join("fd/0")).is_ok_and(|file| file == lock);
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|process| holds(process))
        .filter_map(|process| process.file_name()?.to_str()?.parse().ok())
        .map(Pid::from_raw)
        .collect()
}

/// ADD and DEL of a pod whose finisher is killed before it has deleted the link.
fn del_with_a_killed_finisher(fixture: &Fixture, pod: &Pod) {
    for _ in 0..20 {
        fixture.add(pod);
        fixture.del(pod);
        let found = finishers(fixture);
        assert!(found.len() <= 1, "more than one finisher: {found:?}");
        for pid in found {
            kill(pid, Signal::SIGKILL).unwrap();
        }
        if leaving(fixture) > 0 && finishers(fixture).is_empty() {
            return;
        }
    }
    panic!("every finisher ended before it could be killed");
}

fn leaving(fixture: &Fixture) -> usize {
    let links = fixture
        .node
        .netns()
        .sh("ip -o link show group 117")
        .unwrap();
    links.lines().count()
}

#[test]
fn the_next_del_finishes_after_a_killed_finisher() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let (one, other) = (fixture.pod("one"), fixture.pod("other"));
    del_with_a_killed_finisher(&fixture, &one);
    fixture.add(&other);
    fixture.del(&other);
    fixture.assert_nothing_left(&before);
}

#[test]
fn gc_finishes_after_a_killed_finisher() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    del_with_a_killed_finisher(&fixture, &pod);
    let mut config = fixture.config();
    config["cni.dev/valid-attachments"] = json!([]);
    assert_silent(&fixture.run(&PluginCall::new("GC").config(&config)));
    assert_eq!(leaving(&fixture), 0);
    fixture.assert_nothing_left(&before);
}

#[test]
fn the_links_end_with_the_pods_namespace_after_a_killed_finisher() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    del_with_a_killed_finisher(&fixture, &pod);
    drop(pod);
    fixture.assert_nothing_left(&before);
}

#[test]
fn an_add_ignores_links_of_a_killed_finisher() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    del_with_a_killed_finisher(&fixture, &pod);
    let added = fixture.add(&pod);
    assert_silent(&fixture.check(&pod, &added));
    fixture.del(&pod);
}

#[test]
fn a_foreign_link_in_the_group_stays() {
    let fixture = Fixture::tweed();
    fixture
        .node
        .netns()
        .ip(["link add twxmine group 117 type bridge"])
        .unwrap();
    let pods = ["one", "two", "three"].map(|name| fixture.pod(name));
    for pod in &pods {
        fixture.add(pod);
    }
    for pod in &pods {
        fixture.del(pod);
    }
    wait_until(
        "all links but the foreign one to be deleted",
        DELETION_LIMIT,
        || match leaving(&fixture) {
            1 => Ok(()),
            count => Err(format!("{count} links in group 117")),
        },
    )
    .unwrap();
    let link = fixture.node.netns().sh("ip -o link show twxmine");
    assert!(link.unwrap().contains("twxmine"));
}
