//! Many concurrent calls.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Mutex;
use std::thread;

use serde_json::json;
use tweed_lab::{AddResult, PingOptions, PluginCall, Pod, ping};

use crate::fixture::{Fixture, assert_silent, with_prev_result};

subjects! {
    all: sixty_adds_at_once_by_cnitool, adds_and_dels_mixed;
    tweed: concurrent_dels_of_one_pod_all_succeed, concurrent_adds_of_one_pod_attach_it_once, gc_during_adds_frees_none_of_them;
}

/// Runs `work` for each pod, each on its own thread.
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

fn pods(fixture: &Fixture, count: usize) -> Vec<Pod> {
    (0..count)
        .map(|n| fixture.pod(&format!("pod{n}")))
        .collect()
}

fn sixty_adds_at_once_by_cnitool(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pods = pods(fixture, 60);
    let assigned = at_once(&pods, |_, pod| {
        fixture.tool().add(pod).unwrap().address().unwrap()
    });
    let distinct: BTreeSet<IpAddr> = assigned.iter().copied().collect();
    assert_eq!(distinct.len(), 60, "{assigned:?}");
    assert_eq!(fixture.reserved(), distinct);
    let once = PingOptions {
        count: 1,
        ..PingOptions::default()
    };
    for (pod, to) in pods.iter().zip(assigned.iter().cycle().skip(1)) {
        let report = ping(pod.netns(), *to, &once).unwrap();
        assert_eq!(report.lost(), 0, "{} to {to}: {report}", pod.path());
    }
    at_once(&pods, |_, pod| fixture.tool().del(pod).unwrap());
    fixture.assert_nothing_left(&before);
}

/// Pods are added and deleted repeatedly; no two pods have the same address at a time.
fn adds_and_dels_mixed(fixture: &Fixture) {
    let before = fixture.snapshot();
    // A small range, so that addresses are used again soon.
    let config = fixture.config_over(&json!([[{ "subnet": "10.244.1.0/28" }]]));
    let held: Mutex<HashSet<IpAddr>> = Mutex::default();
    at_once(&pods(fixture, 10), |_, pod| {
        for _ in 0..8 {
            let added = fixture.add_with(pod, &config);
            let address = added.address().unwrap();
            assert!(
                held.lock().unwrap().insert(address),
                "two pods have {address}"
            );
            let later = with_prev_result(config.clone(), &added);
            assert_silent(&fixture.run(&fixture.call("CHECK", pod).config(&later)));
            assert!(held.lock().unwrap().remove(&address));
            assert_silent(&fixture.run(&fixture.call("DEL", pod).config(&later)));
        }
    });
    fixture.assert_nothing_left(&before);
}

fn concurrent_adds_of_one_pod_attach_it_once(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let helpers = pods(fixture, 12);
    let codes = at_once(&helpers, |_, _| {
        let output = fixture.run(&fixture.call("ADD", &pod));
        let added = AddResult::parse(&output.stdout).ok();
        (output.code, output.error_code(), added)
    });
    let winners: Vec<_> = codes.iter().filter(|(code, ..)| *code == Some(0)).collect();
    assert_eq!(winners.len(), 1, "{codes:#?}");
    for (code, error, _) in &codes {
        // It is added already, or another process is adding it.
        assert!(
            *code == Some(0) || matches!(error, Some(102 | 11)),
            "{error:?}"
        );
    }
    let added = winners[0].2.as_ref().unwrap();
    assert_eq!(fixture.reserved(), [added.address().unwrap()].into());
    assert_silent(&fixture.check(&pod, added));
    fixture.del(&pod);
    fixture.assert_nothing_left(&before);
}

fn concurrent_dels_of_one_pod_all_succeed(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let helpers = pods(fixture, 12);
    fixture.add(&pod);
    at_once(&helpers, |_, _| fixture.del(&pod));
    fixture.assert_nothing_left(&before);
}

/// GC runs while ADDs of listed pods are running. It must not free an attachment whose ADD
/// succeeds afterwards. (libcni forbids this, but a second runtime may do it.)
fn gc_during_adds_frees_none_of_them(fixture: &Fixture) {
    let pods = pods(fixture, 16);
    let (first, later) = pods.split_at(4);
    let mut config = fixture.config();
    for pod in first {
        fixture.add(pod);
    }
    config["cni.dev/valid-attachments"] = pods
        .iter()
        .map(|pod| json!({ "containerID": pod.container_id(), "ifname": "eth0" }))
        .collect();
    let gc = PluginCall::new("GC").config(&config);
    let added = thread::scope(|scope| {
        let collector = scope.spawn(|| (0..12).for_each(|_| assert_silent(&fixture.run(&gc))));
        let added = at_once(later, |_, pod| fixture.add(pod));
        collector.join().unwrap();
        added
    });
    assert_eq!(fixture.reserved().len(), 16);
    for (pod, added) in later.iter().zip(&added) {
        assert_silent(&fixture.check(pod, added));
    }
}
