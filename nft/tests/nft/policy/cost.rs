//! What policy costs at the size that it is made for: 110 local pods, 10,000 peers in
//! 1,000 identities, 212,000 elements of one family.
//!
//! ```text
//! cargo test --release -p tweed-nft --test nft policy::cost::load -- --ignored --nocapture
//! ```

#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tweed_nft::Table as _;
use tweed_planner::overlay::desired::{Ruleset, VxlanMatch};
use tweed_planner::policy::desired::Desired;
use tweed_planner::policy::verdicts::Direction;

use super::delta::delta;
use super::lab::{Lab, ruleset};
use super::plan::{Plan, TCP, identity, profile, range_profile};
use crate::wires::sources;

const LOCAL: u32 = 110;
const PEERS: u32 = 10_000;
const IDENTITIES: u32 = 1000;
const PAIRS: u32 = 800;

fn address(base: [u8; 4], number: u32) -> IpAddr {
    Ipv4Addr::from_bits(Ipv4Addr::from(base).to_bits() + number).into()
}

fn local(number: u32) -> IpAddr {
    address([10, 244, 1, 5], number)
}

fn desired() -> Desired {
    let locals: Vec<_> = (0..LOCAL).map(local).collect();
    let mut plan = Plan::new(&locals)
        .policed(Direction::In, &locals)
        .policed(Direction::Out, &locals);
    for peer in 0..PEERS {
        let address = address([10, 100, 0, 0], peer);
        plan = plan.identity(&[address], identity(peer % IDENTITIES));
    }
    for direction in [Direction::In, Direction::Out] {
        for number in 0..PAIRS {
            plan = plan.pair(direction, &locals, identity(number), profile(number));
        }
    }
    for number in 0..PAIRS {
        for port in 0..30 {
            plan = plan.exact(profile(number), TCP, 8000 + port);
        }
    }
    for number in 0..100 {
        plan = plan.range(profile(number), range_profile(number), TCP, 1, 99);
    }
    for number in 0..200 {
        let first = address([172, 16, 0, 0], number * 256);
        let last = address([172, 16, 0, 255], number * 256);
        plan = plan.network(&first.to_string(), &last.to_string(), identity(1001));
    }
    plan.0
}

/// `count` more pairs, of as many identities that nobody has yet.
fn with_policy(desired: &Desired, count: u32) -> Desired {
    let mut plan = Plan(desired.clone());
    for number in 0..count {
        let other = identity(5000 + number / LOCAL);
        let pod = local(number % LOCAL);
        plan = plan.pair(Direction::In, &[pod], other, profile(number % 50));
    }
    plan.0
}

fn meminfo(key: &str) -> i64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn report(what: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!(
        "{what}: median {:.3} ms, p99 {:.3} ms, longest {:.3} ms, n = {}",
        at(0.5),
        at(0.99),
        at(1.0),
        times.len()
    );
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

/// Milliseconds that the table's thread has been on a processor: other work of the machine
/// is not in it.
fn processor_time(lab: &Lab) -> f64 {
    let text = lab.with(|_| std::fs::read_to_string("/proc/thread-self/schedstat").unwrap());
    let nanoseconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
    nanoseconds / 1e6
}

/// Changes of many sizes, there and back, each some time after the one before it or at once.
fn changes(lab: &Lab, desired: &Desired) {
    let peer = Plan(desired.clone()).identity(&[address([10, 100, 200, 0], 0)], identity(1));
    let (at_once, rest) = (Duration::ZERO, Duration::from_millis(100));
    for (what, elements, rounds, pause) in [
        ("one peer", None, 300, at_once),
        ("170 elements", Some(170), 50, rest),
        (
            "170 elements, at once after the last change",
            Some(170),
            100,
            at_once,
        ),
        ("8,000 elements", Some(8_000), 50, rest),
        (
            "8,000 elements, at once after the last change",
            Some(8_000),
            50,
            at_once,
        ),
        ("10,000 elements", Some(10_000), 50, rest),
        ("60,000 elements", Some(60_000), 5, rest),
    ] {
        let takes_away = elements.is_some();
        let other = elements.map_or_else(|| peer.0.clone(), |count| with_policy(desired, count));
        let forth = delta(desired, &other, takes_away);
        let back = delta(&other, desired, takes_away);
        let times = (0..rounds).flat_map(|_| {
            let (forth, back) = (forth.clone(), back.clone());
            lab.with(move |table| {
                [forth, back].map(|delta| {
                    sleep(pause);
                    let start = Instant::now();
                    let outcome = table.policy.follow(&mut table.nft, &delta).unwrap();
                    let time = milliseconds(start);
                    assert!(outcome.is_some());
                    time
                })
            })
        });
        report(what, times.collect());
    }
}

/// The most KiB that the kernel has more while this is done than before, of memory that it
/// cannot take back.
fn peak(done: impl FnOnce()) -> i64 {
    let (ended, has_ended) = mpsc::channel::<()>();
    let before = meminfo("SUnreclaim:");
    let watcher = std::thread::spawn(move || {
        let mut peak = before;
        while has_ended.recv_timeout(Duration::from_millis(10)) == Err(RecvTimeoutError::Timeout) {
            peak = peak.max(meminfo("SUnreclaim:"));
        }
        peak - before
    });
    done();
    drop(ended);
    watcher.join().unwrap()
}

/// As much as a policy at the limit of networks that overlap brings.
fn with_profiles(desired: &Desired) -> Desired {
    let mut plan = Plan(desired.clone());
    for number in 2000..2500 {
        plan = plan.pair(
            Direction::In,
            &[local(0)],
            identity(number),
            profile(number),
        );
        for port in 0..500 {
            plan = plan.exact(profile(number), TCP, port);
        }
    }
    plan.0
}

/// The kernel makes a notification of each element of a transaction, which takes 8 KiB until
/// all are sent, if anybody listens, in whichever network namespace.
#[test]
#[ignore = "measures: other tests make the kernel need memory, too"]
fn memory_without_and_with_somebody_who_listens() {
    let desired = desired();
    let more = with_profiles(&desired);
    for is_heard in [false, true] {
        let lab = Lab::new();
        lab.reconcile(&Desired::default());
        let listener = is_heard.then(Lab::new);
        let load = peak(|| _ = lab.reconcile(&desired));
        let change = peak(|| _ = lab.follow(&desired, &more, false));
        drop(listener);
        println!(
            "somebody listens: {is_heard}; KiB more, at most, during the load: {load}, during a change of 250,500 elements: {change}"
        );
    }
}

#[test]
#[ignore = "measures: takes a minute, and its figures mean something only in release mode"]
fn load_changes_and_memory() {
    let lab = Lab::new();
    lab.reconcile(&Desired::default());
    let desired = desired();
    let before = meminfo("Slab:");
    let (start, processor) = (Instant::now(), processor_time(&lab));
    let outcome = lab.reconcile(&desired);
    println!(
        "load: {:.0} ms, {:.0} ms of the processor, {outcome:?}",
        milliseconds(start),
        processor_time(&lab) - processor
    );
    println!("slab after load: {} KiB more", meminfo("Slab:") - before);

    lab.restart();
    let (start, processor) = (Instant::now(), processor_time(&lab));
    let outcome = lab.reconcile(&desired);
    println!(
        "restart: {:.0} ms, {:.0} ms of the processor, {outcome:?}",
        milliseconds(start),
        processor_time(&lab) - processor
    );
    println!("slab after restart: {} KiB more", meminfo("Slab:") - before);

    changes(&lab, &desired);

    let mut connection_base = ruleset();
    connection_base.vxlan = Some(VxlanMatch {
        device: "tweed.1".to_owned(),
        vni: 1,
        port: 8472,
    });
    for inner in ["10.9.0.0/24", "10.9.0.0/25", "10.9.0.0/26"] {
        let ruleset = Ruleset {
            vxlan_sources: sources("192.0.2.2", &[inner]),
            ..connection_base.clone()
        };
        let start = Instant::now();
        let outcome = lab.look(&ruleset, &desired, false);
        println!("other rules: {:.0} ms, {outcome:?}", milliseconds(start));
    }
    println!(
        "slab after other rules: {} KiB more",
        meminfo("Slab:") - before
    );
    let start = Instant::now();
    lab.node
        .host
        .sh("nft flush set inet tweed-policy policy_exact");
    let outcome = lab.look(&connection_base, &desired, false);
    println!(
        "repair of all sets: {:.0} ms, {outcome:?}",
        milliseconds(start)
    );
}
