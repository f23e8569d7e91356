//! Many at once.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Mutex;
use std::thread;

use serde_json::json;
use tweed_lab::{AddResult, PingOptions, PluginCall, Pod, ping};

use crate::bench::{Bench, silent, with_prev_result};

subjects! {
    all: sixty_adds_at_once_by_cnitool, adds_and_dels_mixed;
    tweed: dels_of_one_pod_by_many_all_succeed, one_pod_added_by_many_is_added_once, gc_beside_adds_frees_none_of_them;
}

/// Runs `work` for each pod on a thread of its own, all at once.
fn at_once<T: Send>(pods: &[Pod], work: impl Fn(usize, &Pod) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = pods
            .iter()
            .enumerate()
            .map(|(number, pod)| scope.spawn(move || work(number, pod)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn pods(bench: &Bench, count: usize) -> Vec<Pod> {
    (0..count).map(|n| bench.pod(&format!("pod{n}"))).collect()
}

fn sixty_adds_at_once_by_cnitool(bench: &Bench) {
    let before = bench.snapshot();
    let pods = pods(bench, 60);
    let given = at_once(&pods, |_, pod| {
        bench.tool().add(pod).unwrap().address().unwrap()
    });
    let distinct: BTreeSet<IpAddr> = given.iter().copied().collect();
    assert_eq!(distinct.len(), 60, "{given:?}");
    assert_eq!(bench.reserved(), distinct);
    let once = PingOptions {
        count: 1,
        ..PingOptions::default()
    };
    for (pod, to) in pods.iter().zip(given.iter().cycle().skip(1)) {
        let report = ping(pod.netns(), *to, &once).unwrap();
        assert_eq!(report.lost(), 0, "{} to {to}: {report}", pod.path());
    }
    at_once(&pods, |_, pod| bench.tool().del(pod).unwrap());
    bench.assert_nothing_left(&before);
}

/// Each pod comes and goes; no address is ever two pods' at a time.
fn adds_and_dels_mixed(bench: &Bench) {
    let before = bench.snapshot();
    // Few addresses, so that they are soon used again.
    let config = bench.config_over(&json!([[{ "subnet": "10.244.1.0/28" }]]));
    let held: Mutex<HashSet<IpAddr>> = Mutex::default();
    at_once(&pods(bench, 10), |_, pod| {
        for _ in 0..8 {
            let added = bench.add_with(pod, &config);
            let address = added.address().unwrap();
            assert!(
                held.lock().unwrap().insert(address),
                "{address} is held twice"
            );
            let later = with_prev_result(config.clone(), &added);
            silent(&bench.run(&bench.call("CHECK", pod).config(&later)));
            assert!(held.lock().unwrap().remove(&address));
            silent(&bench.run(&bench.call("DEL", pod).config(&later)));
        }
    });
    bench.assert_nothing_left(&before);
}

fn one_pod_added_by_many_is_added_once(bench: &Bench) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    let helpers = pods(bench, 12);
    let codes = at_once(&helpers, |_, _| {
        let output = bench.run(&bench.call("ADD", &pod));
        let added = AddResult::parse(&output.stdout).ok();
        (output.code, output.error_code(), added)
    });
    let winners: Vec<_> = codes.iter().filter(|(code, ..)| *code == Some(0)).collect();
    assert_eq!(winners.len(), 1, "{codes:#?}");
    for (code, error, _) in &codes {
        // Added already, or being added by another at this moment.
        assert!(
            *code == Some(0) || matches!(error, Some(102 | 11)),
            "{error:?}"
        );
    }
    let added = winners[0].2.as_ref().unwrap();
    assert_eq!(bench.reserved(), [added.address().unwrap()].into());
    silent(&bench.check(&pod, added));
    bench.del(&pod);
    bench.assert_nothing_left(&before);
}

fn dels_of_one_pod_by_many_all_succeed(bench: &Bench) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    let helpers = pods(bench, 12);
    bench.add(&pod);
    at_once(&helpers, |_, _| bench.del(&pod));
    bench.assert_nothing_left(&before);
}

/// A runtime that calls GC with the list of what it has saved, while ADDs are
/// under way that it has not saved yet: it must not lose one it will report as
/// a success. (libcni forbids it; a second runtime may do it all the same.)
fn gc_beside_adds_frees_none_of_them(bench: &Bench) {
    let pods = pods(bench, 16);
    let (first, later) = pods.split_at(4);
    let mut config = bench.config();
    for pod in first {
        bench.add(pod);
    }
    config["cni.dev/valid-attachments"] = pods
        .iter()
        .map(|pod| json!({ "containerID": pod.container_id(), "ifname": "eth0" }))
        .collect();
    let gc = PluginCall::new("GC").config(&config);
    let added = thread::scope(|scope| {
        let collector = scope.spawn(|| (0..12).for_each(|_| silent(&bench.run(&gc))));
        let added = at_once(later, |_, pod| bench.add(pod));
        collector.join().unwrap();
        added
    });
    assert_eq!(bench.reserved().len(), 16);
    for (pod, added) in later.iter().zip(&added) {
        silent(&bench.check(pod, added));
    }
}
