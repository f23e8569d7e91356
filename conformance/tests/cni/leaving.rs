//! What a DEL leaves to be done behind it is done, whoever is killed, and done
//! to tweed's own links only.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tweed_lab::{PluginCall, Pod, wait_until};

use crate::bench::{Bench, silent};

/// How long what is on its way out may take.
const GONE: Duration = Duration::from_secs(5);

/// The processes that hold the file that finishers know of each other by.
fn finishers(bench: &Bench) -> Vec<Pid> {
    let duty = bench.node.run_dir().join("leaving.lock");
    let holds = |process: &Path| fs::read_link(process.join("fd/0")).is_ok_and(|file| file == duty);
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|process| holds(process))
        .filter_map(|process| process.file_name()?.to_str()?.parse().ok())
        .map(Pid::from_raw)
        .collect()
}

/// ADD and DEL of a pod, with the finisher killed before it has done anything.
fn del_with_a_killed_finisher(bench: &Bench, pod: &Pod) {
    for _ in 0..20 {
        bench.add(pod);
        bench.del(pod);
        let found = finishers(bench);
        assert!(found.len() <= 1, "one on duty at a time: {found:?}");
        for pid in found {
            kill(pid, Signal::SIGKILL).unwrap();
        }
        if leaving(bench) > 0 && finishers(bench).is_empty() {
            return;
        }
    }
    panic!("the finisher was never met alive");
}

fn leaving(bench: &Bench) -> usize {
    let links = bench.node.netns().sh("ip -o link show group 117").unwrap();
    links.lines().count()
}

#[test]
fn the_next_del_makes_a_killed_finisher_good() {
    let bench = Bench::tweed();
    let before = bench.snapshot();
    let (one, other) = (bench.pod("one"), bench.pod("other"));
    del_with_a_killed_finisher(&bench, &one);
    bench.add(&other);
    bench.del(&other);
    bench.assert_nothing_left(&before);
}

#[test]
fn gc_makes_a_killed_finisher_good() {
    let bench = Bench::tweed();
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    del_with_a_killed_finisher(&bench, &pod);
    let mut config = bench.config();
    config["cni.dev/valid-attachments"] = json!([]);
    silent(&bench.run(&PluginCall::new("GC").config(&config)));
    assert_eq!(leaving(&bench), 0);
    bench.assert_nothing_left(&before);
}

#[test]
fn the_end_of_the_pods_namespace_makes_a_killed_finisher_good() {
    let bench = Bench::tweed();
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    del_with_a_killed_finisher(&bench, &pod);
    drop(pod);
    bench.assert_nothing_left(&before);
}

#[test]
fn an_add_passes_by_what_a_killed_finisher_left() {
    let bench = Bench::tweed();
    let pod = bench.pod("pod");
    del_with_a_killed_finisher(&bench, &pod);
    let added = bench.add(&pod);
    silent(&bench.check(&pod, &added));
    bench.del(&pod);
}

#[test]
fn a_link_that_others_have_in_the_group_stays() {
    let bench = Bench::tweed();
    bench
        .node
        .netns()
        .ip(["link add twxmine group 117 type bridge"])
        .unwrap();
    let pods = ["one", "two", "three"].map(|name| bench.pod(name));
    for pod in &pods {
        bench.add(pod);
    }
    for pod in &pods {
        bench.del(pod);
    }
    wait_until(
        "all but the foreign link to be gone",
        GONE,
        || match leaving(&bench) {
            1 => Ok(()),
            count => Err(format!("{count} links in group 117")),
        },
    )
    .unwrap();
    let link = bench.node.netns().sh("ip -o link show twxmine");
    assert!(link.unwrap().contains("twxmine"));
}
